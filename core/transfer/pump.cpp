#include "transfer/pump.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "base/actor_ops.hpp"
#include "base/error.hpp"
#include "gpu/context.hpp"
#include "host/patience.hpp"
#include "host/words.hpp"
#include "transfer/capture.hpp"
#include "transfer/pump_task.hpp"

namespace linkscope {
namespace {

using namespace literals;
using namespace std::chrono_literals;

constexpr u64 cache_line = 64;
constexpr Seconds timeout{2.0};  // of the kernel, for a chunk
constexpr std::chrono::nanoseconds between_questions = 50ms;

/// The ring of one copy, in one slot of the arena: words first, then the slots. Each word has a cache line of its own.
linkscope_pump_task task_in(std::byte* memory, u64 memory_bytes, const PumpedCopy& copy, u64 chunk) {
  const u64 stride = chunk + cache_line, per_slot = stride + 2 * cache_line,
            slots = (memory_bytes - 2 * cache_line) / per_slot;
  const u64 start = reinterpret_cast<u64>(memory), words = start + cache_line,
            ring = words + slots * 2 * cache_line + copy.device % vector_bytes;
  return {copy.device,
          copy.bytes,
          chunk,
          (copy.bytes + chunk - 1) / chunk,
          ring,
          stride,
          slots,
          words,
          words + cache_line,
          2 * cache_line,
          start,
          static_cast<u64>(patient(timeout).count() * 1e9)};
}

/// Blocks take chunks in turn. One that has no SM yet would hold up all others: its chunk's slot stays in use.
unsigned blocks_of(const Resources& with, const CopyLane& lane, const Knobs& knobs, u64 chunks) {
  const int sms = with.gpus.facts()[lane.gpu].attribute("MULTIPROCESSOR_COUNT", 1);
  return static_cast<unsigned>(std::min({u64{knobs.sm_blocks}, chunks, static_cast<u64>(std::max(sms, 1))}));
}

/// What the threads of one copy share.
struct Pumping {
  const Driver& driver;
  const PumpedCopy& copy;
  const linkscope_pump_task& task;
  Slot& slot;
  u64 piece;
  Progress& progress;
  std::atomic<u64> next{0};
  std::mutex mutex;
  std::exception_ptr failure;

  void fail(std::exception_ptr with) {
    const std::lock_guard lock{mutex};
    if (!failure) failure = std::move(with);
    CpuMemory::set(task.given_up, 1);
  }
  /// The kernel ends only when all is done or when it has given up, unless the GPU failed, which this throws.
  void ask_driver(Word word, Word value) {
    const std::lock_guard lock{mutex};
    if (slot.is_free(driver) && !has_come(CpuMemory::acquire(word), value))
      throw Error{ErrorKind::failed, "the kernel that moves chunks has ended early"};
  }
  void wait(Word word, Word value) {
    const auto begin = std::chrono::steady_clock::now();
    auto asked = begin;
    while (!has_come(CpuMemory::acquire(word), value)) {
      if (progress.cancelled) throw Cancelled{};
      if (CpuMemory::acquire(task.given_up))
        throw Error{ErrorKind::timeout, "the kernel that moves chunks has waited in vain for a CPU thread"};
      const auto now = std::chrono::steady_clock::now();
      if (now - asked > between_questions) {
        ask_driver(word, value);
        asked = now;
      }
      if (now - begin < polling_time) std::this_thread::yield();
      else std::this_thread::sleep_for(20us);
    }
  }
};

/// One thread's part: the next chunk that nobody has taken, until there is none.
void move_chunks(Pumping& all, Towards towards) {
  const auto& task = all.task;
  for (u64 i = all.next++; i < task.chunks; i = all.next++) {
    const u64 slot = i % task.slots, at = i * task.chunk, bytes = std::min(task.chunk, task.bytes - at);
    const u64 filled = task.filled + slot * task.word_gap, emptied = task.emptied + slot * task.word_gap;
    auto* in_ring = reinterpret_cast<std::byte*>(task.ring + slot * task.stride);
    if (towards == Towards::gpu) {
      all.wait(emptied, i + 1 - task.slots);
      copy_in_pieces(in_ring, all.copy.host + at, bytes, all.piece);
      CpuMemory::set(filled, i + 1);
    } else {
      all.wait(filled, i + 1);
      copy_in_pieces(all.copy.host + at, in_ring, bytes, all.piece);
      CpuMemory::set(emptied, i + 1);
    }
    all.progress.add(bytes);
  }
}

void launch(const Resources& with, const CopyLane& lane, linkscope_pump_task task, unsigned blocks, Towards towards) {
  unsigned to_gpu = towards == Towards::gpu;
  std::array<void*, 2> arguments{&task, &to_gpu};
  with.gpus.at(lane.gpu).launch(with.gpus.pump_kernel(lane.gpu), blocks, threads_of_block, lane.stream,
                                arguments.data());
}

}  // namespace

void run_pump(const Resources& with, const CopyLane& lane, const PumpedCopy& copy, const Knobs& knobs, Towards towards,
              Progress& progress) {
  const CurrentContext current{with.driver, lane.context};
  const DuringCaptures allowed{with.driver};
  auto lease = with.arena.take_free(1);
  if (lease.size() == 0) throw Error{ErrorKind::memory, "the arena has no free slot for the ring of a copy"};
  Slot& slot = lease[0];
  const u64 most = with.arena.slot_bytes() / 4,
            chunk = std::clamp(knobs.sm_chunk / vector_bytes * vector_bytes, vector_bytes, most);
  const auto task = task_in(slot.data(), with.arena.slot_bytes(), copy, chunk);
  std::memset(slot.data(), 0, cache_line + task.slots * task.word_gap);
  slot.expose(lane);
  launch(with, lane, task, blocks_of(with, lane, knobs, task.chunks), towards);
  slot.guard(with.driver);
  Pumping all{with.driver, copy, task, slot, knobs.piece, progress, {}, {}, {}};
  with.movers.run(static_cast<u32>(std::min<u64>(knobs.threads, task.chunks)), [&](u32) {
    try {
      move_chunks(all, towards);
    } catch (...) {
      all.fail(std::current_exception());
    }
  });
  if (all.failure) std::rethrow_exception(all.failure);
}

}  // namespace linkscope
