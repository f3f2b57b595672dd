// How a CPU thread reaches the queues of a network card (verbs.hpp). A doorbell is a register of the card that is mapped
// without write combining.
#pragma once
#include <atomic>
#include <cstring>

#include "putget/verbs.hpp"

namespace linkscope::verbs {

struct CardFromCpu {
  static void store(LongWord at, const Segment& segment) {
    std::memcpy(reinterpret_cast<void*>(at), &segment, sizeof segment);
  }
  static void store(LongWord at, Word value) { std::memcpy(reinterpret_cast<void*>(at), &value, sizeof value); }
  [[nodiscard]] static Segment load(LongWord at) {
    Segment segment;
    std::memcpy(&segment, reinterpret_cast<const void*>(at), sizeof segment);
    return segment;
  }
  [[nodiscard]] static unsigned char byte(LongWord at) { return *reinterpret_cast<const unsigned char*>(at); }
  [[nodiscard]] static LongWord acquire(LongWord at) {
    return std::atomic_ref{*reinterpret_cast<LongWord*>(at)}.load(std::memory_order_acquire);
  }
  static void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
  static void record(LongWord at, Word value) {
    std::atomic_ref{*reinterpret_cast<Word*>(at)}.store(value, std::memory_order_release);
  }
  static void ring(LongWord at, LongWord value) {
    std::atomic_ref{*reinterpret_cast<LongWord*>(at)}.store(value, std::memory_order_release);
  }
};

}  // namespace linkscope::verbs
