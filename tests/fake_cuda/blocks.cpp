// The kernels whose blocks perform tables of ops: core/platform/cuda/kernels/block.cu in C++.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "base/actor_ops.hpp"
#include "base/cpu_pairs.hpp"
#include "base/descriptor_ops.hpp"
#include "base/pattern.hpp"
#include "faults.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "patience.hpp"
#include "putget/cpu_words.hpp"

namespace fake {
namespace {

using u64 = unsigned long long;

/// Memory as the block of a fake GPU uses it. A word that is not set is a copy that delivers nothing.
struct BlockMemory {
  Delivers delivers;
  u64 sum = 0;
  std::array<linkscope::Operation, linkscope::most_descriptor_words> taken{};

  static u64& word_at(u64 address) { return *reinterpret_cast<u64*>(address); }
  static u64 now_ns() {
    return static_cast<u64>(std::chrono::nanoseconds{std::chrono::steady_clock::now().time_since_epoch()}.count());
  }
  void set(u64 word, u64 value) const {
    if (delivers != Delivers::nothing) std::atomic_ref{word_at(word)} = value;
  }
  static bool wait(u64 first, u64 count, u64 value, u64 timeout_ns) {
    for (u64 i = 0; i < count; ++i)
      if (!wait_for(first + i * sizeof(u64), value, timeout_ns)) return false;
    return true;
  }
  static bool wait_for(u64 word, u64 value, u64 timeout_ns) {
    const u64 start = now_ns();
    const Patience patience;
    for (unsigned polls = 1; !linkscope::has_come(std::atomic_ref{word_at(word)}, value) && lost() == CUDA_SUCCESS;
         ++polls) {
      // The other side may need this core, but a yield can take the time of thousands of words.
      if (polls % 1024 == 0) patience.pause();
      if (now_ns() - start > timeout_ns) return false;
    }
    return true;
  }
  void send(const linkscope::ReadyOp& at) const {
    for (u64 i = 0; delivers != Delivers::nothing && i < at.bytes; i += sizeof(u64))
      linkscope::store_whole_pair(at.to + 2 * i,
                                  {word_at(at.from + i) ^ (delivers == Delivers::one_wrong_byte && i == 0), at.value});
  }
  static bool receive(const linkscope::ReadyOp& at, u64 timeout_ns) {
    const u64 start = now_ns();
    for (u64 i = 0; i < at.bytes; i += sizeof(u64)) {
      auto pair = linkscope::load_whole_pair(at.from + 2 * i);
      const Patience patience;
      for (unsigned polls = 1; !linkscope::has_come(pair.second, at.value) && lost() == CUDA_SUCCESS; ++polls) {
        if (polls % 1024 == 0) patience.pause();
        if (now_ns() - start > timeout_ns) return false;
        pair = linkscope::load_whole_pair(at.from + 2 * i);
      }
      word_at(at.to + i) = pair.first;
    }
    return true;
  }
  static void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
  void add(u64 word, u64 value) const {
    if (delivers != Delivers::nothing) std::atomic_ref{word_at(word)} += value;
  }
  void post(const linkscope::ActorOp& op, u64 iteration) const {
    linkscope::CpuWords words;
    if (delivers != Delivers::nothing) linkscope::post_descriptor(op, iteration, words);
  }
  bool take(const linkscope::ActorOp& op, u64 iteration) {
    linkscope::CpuWords words;
    return lost() == CUDA_SUCCESS && linkscope::take_descriptor(op, iteration, words, taken.data());
  }
  void copy_taken(const linkscope::ActorOp& op) const {
    linkscope::for_each_put(op, taken.data(), [this](u64 to, u64 from, u64 bytes) { copy(to, from, bytes); });
  }
  void set_taken(const linkscope::ActorOp& op) const {
    linkscope::for_each_word(op, taken.data(), [this](u64 word, u64 value) { set(word, value); });
  }
  void copy_tma(u64 to, u64 from, u64 bytes) const { copy(to, from, bytes); }
  void copy(u64 to, u64 from, u64 bytes) const {
    if (delivers != Delivers::nothing) std::memcpy(&word_at(to), &word_at(from), bytes);
    if (delivers == Delivers::one_wrong_byte) word_at(to) ^= 1;
  }
  void load(u64 from, u64 bytes) {
    for (u64 at = from; at < from + bytes; at += sizeof(u64)) sum += word_at(at);
  }
  void store(u64 to, u64 bytes, u64 seed, u64 first) const {
    for (u64 i = 0; i < bytes / sizeof(u64) && delivers != Delivers::nothing; ++i)
      word_at(to + i * sizeof(u64)) = linkscope_pattern_word(seed, first + i);
    if (delivers == Delivers::one_wrong_byte) word_at(to) ^= 1;
  }
};

bool all_reachable(CUcontext context, const linkscope::OpSpan& span, u64 bytes) {
  const u64 slices = std::max(u64{1}, span.slices);
  return !span.start ||
         reachable(context, reinterpret_cast<const void*>(span.start), (slices - 1) * span.stride + bytes);
}

bool all_reachable(CUcontext context, const linkscope::BlockTable& block) {
  const auto reaches = [&](const linkscope::ActorOp& op) {
    const u64 from = op.kind == linkscope::OpKind::receive ? 2 * op.bytes : op.bytes,
              to = op.kind == linkscope::OpKind::send ? 2 * op.bytes : op.bytes;
    return all_reachable(context, op.from, from) && all_reachable(context, op.to, to) &&
           all_reachable(context, op.slots, op.pairs * linkscope::pair_bytes);
  };
  return reachable(context, block.result, 2 * sizeof *block.result) &&
         std::ranges::all_of(std::span{block.table.ops, block.table.count}, reaches);
}

/// Each block has a thread, because blocks may wait for each other. `stamps`: of the first block's iterations; null: none. The
/// clock of an SM has three ticks in two nanoseconds.
CUresult stamped_block(CUcontext context, Blocks blocks, linkscope::ActorOps table, u64 first, u64 count, u64* result,
                       const linkscope::BlockTable* further, linkscope::BlockStamps* stamps) {
  if (stamps && !reachable(context, stamps, sizeof *stamps)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  std::vector<linkscope::BlockTable> all{{table, result}};
  if (blocks.count > 1) {
    if (!reachable(context, further, (blocks.count - 1) * sizeof *further)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    all.insert(all.end(), further, further + (blocks.count - 1));
  }
  for (const auto& own : all)
    if (!all_reachable(context, own)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto delivers = begin_copy();
  std::atomic<bool> ended = true;
  const auto perform = [&](const linkscope::BlockTable& own) {
    BlockMemory memory{delivers};
    auto* const noted = &own == &all.front() ? stamps : nullptr;
    const auto clock = [] { return BlockMemory::now_ns() * 3 / 2; };
    if (noted) noted->begun_ns = BlockMemory::now_ns(), noted->begun_clock = clock();
    const u64 in_vain =
        linkscope::perform_each(own.table.ops, own.table.count, first, count, memory, [&](u64 iteration) {
          if (noted && iteration < linkscope::most_stamps) noted->clocks[iteration] = static_cast<unsigned>(clock());
        });
    if (noted) noted->ended_ns = BlockMemory::now_ns(), noted->ended_clock = clock();
    own.result[0] += memory.sum;
    if (!in_vain) return;
    own.result[1] = in_vain;
    ended = false;
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < all.size(); ++i) threads.emplace_back(perform, std::cref(all[i]));
    perform(all.front());
  }
  if (ended) end_copy();
  return CUDA_SUCCESS;
}

CUresult block(CUcontext context, Blocks blocks, linkscope::ActorOps table, u64 first, u64 count, u64* result,
               const linkscope::BlockTable* further) {
  return stamped_block(context, blocks, table, first, count, result, further, nullptr);
}

}  // namespace

void add_blocks(std::map<std::string, Prepare>& kernels) {
  kernels.insert({{"linkscope_block", by_types(block)},
                  {"linkscope_block_tma", by_types(block)},
                  {"linkscope_block_stamped", by_types(stamped_block)},
                  {"linkscope_block_tma_stamped", by_types(stamped_block)}});
}

}  // namespace fake
