#include "host/words.hpp"

#include <atomic>
#include <chrono>

namespace linkscope {
namespace {

bool arrives(u64* word, u64 value, Seconds timeout) {
  constexpr unsigned polls = 256;  // between two readings of the clock, which would slow the polling
  const std::atomic_ref<u64> there{*word};
  const auto start = std::chrono::steady_clock::now();
  do {
    for (unsigned i = 0; i < polls; ++i)
      if (there.load(std::memory_order_acquire) >= value) return true;
  } while (std::chrono::steady_clock::now() - start <= timeout);
  return false;
}

}  // namespace

std::optional<u64> exchange_words(u64* set, u64* wait, const WordLoop& loop) {
  const std::atomic_ref<u64> target{*set};
  const Seconds timeout{loop.timeout_s};
  u64 set_value = loop.set_value, wait_value = loop.wait_value;
  for (u64 i = 0; i < loop.count; ++i, set_value += loop.set_step, wait_value += loop.wait_step) {
    if (!loop.waits_first) target.store(set_value, std::memory_order_release);
    if (!arrives(wait, wait_value, timeout)) return wait_value;
    if (loop.waits_first) target.store(set_value, std::memory_order_release);
  }
  return {};
}

}  // namespace linkscope
