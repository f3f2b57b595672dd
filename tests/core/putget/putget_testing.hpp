// Memory with random contents for the tests of channels, on the fake driver.
#pragma once
#include <random>
#include <vector>

#include "base/units.hpp"
#include "doctest.h"
#include "gpu/context.hpp"
#include "gpu/memory.hpp"
#include "putget/channel.hpp"

namespace linkscope {

using namespace literals;

inline constexpr u64 word_at = 60'000;  // the offset of a word behind the data

inline PutGet& all() {
  static auto* one = new PutGet;  // never destroyed: the driver may end first
  return *one;
}

inline void fill(std::vector<std::byte>& bytes, u64 seed) {
  std::mt19937_64 random{seed};
  for (auto& one : bytes) one = static_cast<std::byte>(random());
}

/// Pageable memory, zero at first.
class Memory {
 public:
  explicit Memory(u64 bytes) : bytes_(bytes + 64) {}
  [[nodiscard]] std::byte* data() {
    return reinterpret_cast<std::byte*>((reinterpret_cast<u64>(bytes_.data()) + 63) / 64 * 64);
  }
  [[nodiscard]] u64 size() const { return bytes_.size() - 64; }
  void fill(u64 seed) { linkscope::fill(bytes_, seed); }

 private:
  std::vector<std::byte> bytes_;
};

/// Memory of a GPU.
class DeviceBytes {
 public:
  explicit DeviceBytes(u64 bytes, u32 gpu = 0) : context_{all().gpu(gpu).context()}, size_{bytes} {
    const CurrentContext current{all().driver(), context_};
    memory_ = {all().driver(), bytes};
    LINKSCOPE_CU(all().driver(), cuMemsetD8Async, memory_.address(), 0, bytes, nullptr);
    LINKSCOPE_CU(all().driver(), cuStreamSynchronize, nullptr);
  }
  ~DeviceBytes() { free(); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void free() {
    const CurrentContext current{all().driver(), context_};
    memory_ = {};
  }
  [[nodiscard]] void* pointer() const { return reinterpret_cast<void*>(memory_.address()); }
  [[nodiscard]] u64 size() const { return size_; }
  std::vector<std::byte> fill(u64 seed) const {
    std::vector<std::byte> bytes(size_);
    linkscope::fill(bytes, seed);
    const CurrentContext current{all().driver(), context_};
    LINKSCOPE_CU(all().driver(), cuMemcpyHtoDAsync, memory_.address(), bytes.data(), size_, nullptr);
    LINKSCOPE_CU(all().driver(), cuStreamSynchronize, nullptr);
    return bytes;
  }
  [[nodiscard]] std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(size_);
    const CurrentContext current{all().driver(), context_};
    LINKSCOPE_CU(all().driver(), cuMemcpyDtoH, bytes.data(), memory_.address(), size_);
    return bytes;
  }

 private:
  CUcontext context_;
  u64 size_;
  DeviceMemory memory_;
};

}  // namespace linkscope
