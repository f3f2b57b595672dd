// The GPUs of the fake libraries: H200s with the same UUIDs in both libraries, so that a caller can match them.
#pragma once
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

namespace fake {

constexpr int max_gpus = 8;
constexpr unsigned long long h200_bytes = 150'754'820'096;
constexpr int h200_shared_bytes = 227 << 10;  // maximum of a block that requests more than 48 KiB
constexpr const char* h200_name = "Fake H200";

/// Bus numbers by CUDA ordinal. They are unsorted because CUDA's default order is not the bus order. The fake ignores
/// CUDA_DEVICE_ORDER, so a caller that needs bus order must sort.
constexpr std::array<unsigned, max_gpus> buses{0x9b, 0x1b, 0xdb, 0x43, 0xbb, 0x5c, 0xcb, 0x3b};

/// "0000:9B:00.0". Both libraries use upper case, unlike sysfs.
inline std::string pci_id(unsigned bus, int domain_digits = 4) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%0*X:%02X:00.0", domain_digits, 0u, bus);
  return text.data();
}

inline std::array<unsigned char, 16> uuid_bytes(unsigned bus) {
  return {0xfa, 0x4e, 0xc0, 0xda, 0x00, 0x00, 0x42, 0x00,
          0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, static_cast<unsigned char>(bus)};
}

inline std::string uuid_text(unsigned bus) {
  std::string text = "GPU-";
  for (int i = 0; const unsigned char byte : uuid_bytes(bus)) {
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", byte);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex.data();
    ++i;
  }
  return text;
}

/// The first `count` GPUs in bus order, the order of NVML.
inline std::vector<unsigned> sorted_buses(int count) {
  std::vector<unsigned> sorted(buses.begin(), buses.begin() + count);
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace fake
