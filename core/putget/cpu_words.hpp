// The memory of a CPU thread as rings and posters use it (ring.hpp, poster.hpp).
#pragma once
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/cpu_pairs.hpp"
#include "base/ring.hpp"
#include "putget/verbs_cpu.hpp"

namespace linkscope {

struct CpuWords {
  using Card = verbs::CardFromCpu;
  static Pair load_pair(RingWord at) {
    const auto [first, second] = load_whole_pair(at);
    return {first, second};
  }
  static void store_pair(RingWord at, const Pair& pair) { store_whole_pair(at, {pair.first, pair.second}); }
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
