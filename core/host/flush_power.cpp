#if defined(__powerpc64__)
#include "host/flush.hpp"

namespace linkscope {

void flush_cpu_caches(const void* start, u64 bytes) {
  constexpr u64 line = 128;
  const auto address = reinterpret_cast<u64>(start);
  asm volatile("sync" ::: "memory");
  for (u64 at = address / line * line; at < address + bytes; at += line)
    asm volatile("dcbf 0, %0" ::"r"(at) : "memory");
  asm volatile("sync; isync" ::: "memory");
}

const char* cache_flush_instruction() { return "dcbf"; }

}  // namespace linkscope
#endif
