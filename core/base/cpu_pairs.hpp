// Aligned words of 16 bytes that a CPU loads and stores at once, without any order: x86 CPUs with AVX do, and Arm CPUs with
// LSE2, which those with a GPU have.
#pragma once
#include <cstring>

namespace linkscope {

struct CpuPair {
  unsigned long long first, second;
};

[[nodiscard]] inline bool has_whole_pairs() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx") != 0;
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

[[nodiscard]] inline CpuPair load_whole_pair(unsigned long long at) {
  CpuPair pair;
#if defined(__SANITIZE_THREAD__)
  const auto both = __atomic_load_n(reinterpret_cast<const unsigned __int128*>(at), __ATOMIC_ACQUIRE);
  std::memcpy(&pair, &both, sizeof pair);
#elif defined(__x86_64__)
  using Vector = long long __attribute__((vector_size(sizeof(CpuPair))));
  Vector both;
  asm volatile("movdqa %1, %0" : "=x"(both) : "m"(*reinterpret_cast<const Vector*>(at)) : "memory");
  std::memcpy(&pair, &both, sizeof pair);
#elif defined(__aarch64__)
  asm volatile("ldp %0, %1, [%2]" : "=r"(pair.first), "=r"(pair.second) : "r"(at) : "memory");
#else
  const auto* words = reinterpret_cast<const unsigned long long*>(at);
  pair.second = __atomic_load_n(words + 1, __ATOMIC_ACQUIRE);
  pair.first = __atomic_load_n(words, __ATOMIC_RELAXED);
#endif
  return pair;
}

inline void store_whole_pair(unsigned long long at, const CpuPair& pair) {
#if defined(__SANITIZE_THREAD__)
  unsigned __int128 both;
  std::memcpy(&both, &pair, sizeof pair);
  __atomic_store_n(reinterpret_cast<unsigned __int128*>(at), both, __ATOMIC_RELEASE);
#elif defined(__x86_64__)
  using Vector = long long __attribute__((vector_size(sizeof(CpuPair))));
  Vector both;
  std::memcpy(&both, &pair, sizeof pair);
  asm volatile("movdqa %1, %0" : "=m"(*reinterpret_cast<Vector*>(at)) : "x"(both) : "memory");
#elif defined(__aarch64__)
  asm volatile("stp %0, %1, [%2]" ::"r"(pair.first), "r"(pair.second), "r"(at) : "memory");
#else
  auto* words = reinterpret_cast<unsigned long long*>(at);
  __atomic_store_n(words, pair.first, __ATOMIC_RELAXED);
  __atomic_store_n(words + 1, pair.second, __ATOMIC_RELEASE);
#endif
}

}  // namespace linkscope
