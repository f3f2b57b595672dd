#if defined(__aarch64__)
#include "host/flush.hpp"

namespace linkscope {

void flush_cpu_caches(const void* start, u64 bytes) {
  u64 type = 0;
  asm("mrs %0, ctr_el0" : "=r"(type));
  const u64 line = u64{4} << ((type >> 16) & 15);  // DminLine: log2 of the words in the smallest data line
  const auto address = reinterpret_cast<u64>(start);
  asm volatile("dsb sy" ::: "memory");
  for (u64 at = address / line * line; at < address + bytes; at += line)
    asm volatile("dc civac, %0" ::"r"(at) : "memory");
  asm volatile("dsb sy" ::: "memory");
}

const char* cache_flush_instruction() { return "dc civac"; }

}  // namespace linkscope
#endif
