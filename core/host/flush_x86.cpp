#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include "host/flush.hpp"

namespace linkscope {
namespace {

constexpr u64 line = 64;

bool has_clflushopt() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 23));
}

__attribute__((target("clflushopt"))) void flush_optimized(char* first, const char* end) {
  for (char* at = first; at < end; at += line) _mm_clflushopt(at);
}

void flush_plain(char* first, const char* end) {
  for (char* at = first; at < end; at += line) _mm_clflush(at);
}

const bool optimized = has_clflushopt();

}  // namespace

void flush_cpu_caches(const void* start, u64 bytes) {
  // The address is passed as an address: libscope's "clflush %0" with the pointer as a memory operand flushed the stack
  // slot that held it.
  const auto address = reinterpret_cast<u64>(start);
  auto* first = reinterpret_cast<char*>(address / line * line);
  const auto* end = reinterpret_cast<const char*>(address + bytes);
  _mm_mfence();
  optimized ? flush_optimized(first, end) : flush_plain(first, end);
  _mm_mfence();
}

const char* cache_flush_instruction() { return optimized ? "clflushopt" : "clflush"; }

}  // namespace linkscope
#endif
