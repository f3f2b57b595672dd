#include "host/words.hpp"

#include <atomic>
#include <chrono>
#include <cstring>

#include "base/pattern.hpp"

namespace linkscope {
namespace {

u64& word_at(Word address) { return *reinterpret_cast<u64*>(address); }

}  // namespace

Word CpuMemory::acquire(Word word) { return std::atomic_ref{word_at(word)}.load(std::memory_order_acquire); }

Word CpuMemory::now_ns() {
  return static_cast<Word>(std::chrono::nanoseconds{std::chrono::steady_clock::now().time_since_epoch()}.count());
}

void CpuMemory::set(Word word, Word value) { std::atomic_ref{word_at(word)}.store(value, std::memory_order_release); }

void CpuMemory::fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

void CpuMemory::copy(Word to, Word from, Word bytes) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}

void CpuMemory::load(Word from, Word bytes) {
  for (Word at = from; at < from + bytes; at += sizeof(u64)) sum += word_at(at);
}

void CpuMemory::store(Word to, Word bytes, Word seed, Word first_index) {
  for (Word i = 0; i < bytes / sizeof(u64); ++i)
    word_at(to + i * sizeof(u64)) = linkscope_pattern_word(seed, first_index + i);
}

WaitedInVain perform_on_cpu(std::span<const ActorOp> ops, u64 first, u64 count, u64& sum) {
  CpuMemory memory;
  const auto in_vain = perform_all(ops.data(), static_cast<unsigned>(ops.size()), first, count, memory);
  sum += memory.sum;
  return in_vain;
}

}  // namespace linkscope
