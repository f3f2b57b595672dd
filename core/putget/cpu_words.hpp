// The memory of a CPU thread as rings and posters use it (ring.hpp, poster.hpp).
#pragma once
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "putget/ring.hpp"

namespace linkscope {

struct CpuWords {
  /// Whether this CPU loads and stores aligned 16 bytes at once: x86 CPUs with AVX, and Arm CPUs with LSE2, which those
  /// with a GPU have.
  static bool has_whole_pairs() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx") != 0;
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
  }

  static Pair load_pair(RingWord at) {
    Pair pair;
#if defined(__SANITIZE_THREAD__)
    const auto both = __atomic_load_n(reinterpret_cast<const unsigned __int128*>(at), __ATOMIC_ACQUIRE);
    std::memcpy(&pair, &both, sizeof pair);
#elif defined(__x86_64__)
    using Vector = long long __attribute__((vector_size(pair_bytes)));
    Vector both;
    asm volatile("movdqa %1, %0" : "=x"(both) : "m"(*reinterpret_cast<const Vector*>(at)) : "memory");
    std::memcpy(&pair, &both, sizeof pair);
#elif defined(__aarch64__)
    asm volatile("ldp %0, %1, [%2]" : "=r"(pair.first), "=r"(pair.second) : "r"(at) : "memory");
#else
    pair.second = acquire(at + sizeof(RingWord));
    pair.first = acquire(at);
#endif
    return pair;
  }

  static void store_pair(RingWord at, const Pair& pair) {
#if defined(__SANITIZE_THREAD__)
    unsigned __int128 both;
    std::memcpy(&both, &pair, sizeof pair);
    __atomic_store_n(reinterpret_cast<unsigned __int128*>(at), both, __ATOMIC_RELEASE);
#elif defined(__x86_64__)
    using Vector = long long __attribute__((vector_size(pair_bytes)));
    Vector both;
    std::memcpy(&both, &pair, sizeof pair);
    asm volatile("movdqa %1, %0" : "=m"(*reinterpret_cast<Vector*>(at)) : "x"(both) : "memory");
#elif defined(__aarch64__)
    asm volatile("stp %0, %1, [%2]" ::"r"(pair.first), "r"(pair.second), "r"(at) : "memory");
#else
    release(at, pair.first);
    release(at + sizeof(RingWord), pair.second);
#endif
  }

  static RingWord acquire(RingWord at) { return std::atomic_ref{word_at(at)}.load(std::memory_order_acquire); }
  static void release(RingWord at, RingWord value) {
    std::atomic_ref{word_at(at)}.store(value, std::memory_order_release);
  }
  static void add(RingWord at, RingWord value) {
    std::atomic_ref{word_at(at)}.fetch_add(value, std::memory_order_acq_rel);
  }
  /// False if the word is not 0; otherwise it becomes 1.
  static bool claim(RingWord at) {
    RingWord free = 0;
    return std::atomic_ref{word_at(at)}.compare_exchange_strong(free, 1, std::memory_order_acq_rel);
  }
  static void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
  /// Those who wait read the clock between many looks. The other side may need this core.
  static RingWord now_ns() {
    std::this_thread::yield();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<RingWord>(std::chrono::nanoseconds{now}.count());
  }
  static void copy(OneThread, RingWord to, RingWord from, RingWord bytes) {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  }

 private:
  static RingWord& word_at(RingWord at) { return *reinterpret_cast<RingWord*>(at); }
};

}  // namespace linkscope
