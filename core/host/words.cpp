#include "host/words.hpp"

#include <algorithm>
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
  const auto copy_range = [&](Word begin, Word end) {
    std::memcpy(reinterpret_cast<void*>(to + begin), reinterpret_cast<const void*>(from + begin), end - begin);
  };
  if (!crew) return copy_range(0, bytes);
  constexpr Word page = 4096;  // no two threads write one cache line
  const Word part = (bytes / crew->size() + page - 1) / page * page;
  crew->run([&](u32 thread) {
    copy_range(std::min(bytes, thread * part),
               thread + 1 == crew->size() ? bytes : std::min(bytes, (thread + 1) * part));
  });
}

void CpuMemory::load(Word from, Word bytes) {
  for (Word at = from; at < from + bytes; at += sizeof(u64)) sum += word_at(at);
}

void CpuMemory::store(Word to, Word bytes, Word seed, Word first_index) {
  for (Word i = 0; i < bytes / sizeof(u64); ++i)
    word_at(to + i * sizeof(u64)) = linkscope_pattern_word(seed, first_index + i);
}

WaitedInVain perform_on_cpu(std::span<const ActorOp> ops, u64 first, u64 count, CpuMemory& memory) {
  return perform_all(ops.data(), static_cast<unsigned>(ops.size()), first, count, memory);
}

}  // namespace linkscope
