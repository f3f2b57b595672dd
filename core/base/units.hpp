// Integer widths, byte literals and sizes as text, used everywhere.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace linkscope {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

using Seconds = std::chrono::duration<double>;

namespace literals {
constexpr u64 operator""_KiB(unsigned long long n) { return n << 10; }
constexpr u64 operator""_MiB(unsigned long long n) { return n << 20; }
constexpr u64 operator""_GiB(unsigned long long n) { return n << 30; }
constexpr Seconds operator""_us(long double n) { return Seconds{static_cast<double>(n) * 1e-6}; }
constexpr Seconds operator""_us(unsigned long long n) { return Seconds{static_cast<double>(n) * 1e-6}; }
}  // namespace literals

/// Bytes for people: "12 B", "1.5 KiB", "139.8 GiB".
[[nodiscard]] std::string bytes_text(u64 bytes);

}  // namespace linkscope
