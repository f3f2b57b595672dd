// Lines written back to memory that may stay in the cache: clwb. Every other flush here drops them.
#include "base/error.hpp"
#include "host/flush.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace linkscope {
namespace {

#if defined(__x86_64__)
constexpr u64 line = 64;

__attribute__((target("clwb"))) void write_back(char* first, const char* end) {
  for (char* at = first; at < end; at += line) _mm_clwb(at);
}

bool has_clwb() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 24));
}
#endif

}  // namespace

std::string why_no_write_back() {
#if defined(__x86_64__)
  static const bool can = has_clwb();
  return can ? "" : "this CPU has no clwb (CPUID leaf 7, EBX bit 24), and cache=cleaned needs it";
#else
  return "clwb is an instruction of x86-64, and cache=cleaned needs it";
#endif
}

void write_back_cpu_caches([[maybe_unused]] const void* start, [[maybe_unused]] u64 bytes) {
  if (const auto why = why_no_write_back(); !why.empty()) throw Error{ErrorKind::unsupported, why};
#if defined(__x86_64__)
  const auto address = reinterpret_cast<u64>(start);
  _mm_mfence();
  write_back(reinterpret_cast<char*>(address / line * line), reinterpret_cast<const char*>(address + bytes));
  _mm_mfence();
#endif
}

}  // namespace linkscope
