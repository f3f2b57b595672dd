#include "host/words.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/cpu_pairs.hpp"
#include "base/descriptor_ops.hpp"
#include "base/error.hpp"
#include "base/pattern.hpp"

namespace linkscope {
namespace {

u64& word_at(Word address) { return *reinterpret_cast<u64*>(address); }

/// A word whose number is polled together with its payload.
struct PackedWord {
  Word payload = 0;
  Word acquire(Word word) {
    const auto [first, second] = load_whole_pair(word);
    payload = first;
    return second;
  }
  [[nodiscard]] static Word now_ns() { return CpuMemory::now_ns(); }
};

/// The words of a ring of descriptors.
struct DescriptorWords {
  static Pair load_pair(Word at) {
    const auto [first, second] = load_whole_pair(at);
    return {first, second};
  }
  static void store_pair(Word at, const Pair& pair) { store_whole_pair(at, {pair.first, pair.second}); }
  static Word acquire(Word word) { return CpuMemory::acquire(word); }
  static void fence() { CpuMemory::fence(); }
  static Word now_ns() { return CpuMemory::now_ns(); }
};

/// The file or the rows at an address; null for other memory.
template <class Part>
const Part* part_at(std::span<const Part> parts, Word address) {
  const auto found =
      std::find_if(parts.begin(), parts.end(), [&](const Part& one) { return address - one.start < one.bytes; });
  return found == parts.end() ? nullptr : &*found;
}

/// Calls `move` with an offset and the rest until all is moved.
template <class Move>
void move_all(Word bytes, const char* what, Move move) {
  for (Word done = 0; done < bytes;) {
    const ssize_t moved = move(done, bytes - done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0)
      throw Error{ErrorKind::failed,
                  std::string{"a file cannot be "} + what + ": " + std::strerror(moved ? errno : EIO)};
    done += static_cast<Word>(moved);
  }
}

/// A range of memory and its place in a file.
struct FileRange {
  Word memory = 0, in_file = 0, bytes = 0;
};

/// By calls of this thread.
void read_file(int file, const FileRange& range) {
  move_all(range.bytes, "read", [&](Word done, Word rest) {
    return pread(file, reinterpret_cast<void*>(range.memory + done), rest, static_cast<off_t>(range.in_file + done));
  });
}

void write_file(int file, const FileRange& range) {
  move_all(range.bytes, "written", [&](Word done, Word rest) {
    return pwrite(file, reinterpret_cast<const void*>(range.memory + done), rest,
                  static_cast<off_t>(range.in_file + done));
  });
}

/// By requests of whole pages, all in flight. This thread moves what the kernel refuses and what a short one leaves, after
/// all have ended: an error must not leave requests that write into memory which its owner then frees.
void move_in_flight(const FileMemory& target, const FileRange& range, bool writes) {
  constexpr Word page = 4096;
  constexpr Seconds patience{60.0};
  const Word part = ((range.bytes + target.depth - 1) / target.depth + page - 1) / page * page;
  std::vector<FileRange> rests;
  const auto leave = [&](Word at, Word done) {
    const FileRange rest{range.memory + at + done, range.in_file + at + done, std::min(part, range.bytes - at) - done};
    if (rest.bytes > 0) rests.push_back(rest);
  };
  std::int64_t wrong = 0;
  for (Word at = 0; at < range.bytes; at += part) {
    const std::span memory{reinterpret_cast<std::byte*>(range.memory + at), std::min(part, range.bytes - at)};
    if (!(writes ? target.queue->write(target.file, memory, range.in_file + at, at)
                 : target.queue->read(target.file, memory, range.in_file + at, at)))
      leave(at, 0);
  }
  while (target.queue->in_flight() > 0) {
    const auto done = target.queue->wait(patience);
    if (!done) throw Error{ErrorKind::timeout, "a request of io_uring has not ended for 60 s"};
    if (done->moved < 0) wrong = done->moved;
    else leave(done->tag, static_cast<Word>(done->moved));
  }
  if (wrong != 0)
    throw Error{ErrorKind::failed, std::string{"io_uring cannot "} + (writes ? "write" : "read") +
                                       " a file: " + std::strerror(static_cast<int>(-wrong))};
  for (const auto& rest : rests) writes ? write_file(target.file, rest) : read_file(target.file, rest);
}

}  // namespace

Word CpuMemory::acquire(Word word) { return std::atomic_ref{word_at(word)}.load(std::memory_order_acquire); }

Word CpuMemory::now_ns() {
  return static_cast<Word>(std::chrono::nanoseconds{std::chrono::steady_clock::now().time_since_epoch()}.count());
}

void CpuMemory::set(Word word, Word value) { std::atomic_ref{word_at(word)}.store(value, std::memory_order_release); }

bool CpuMemory::wait(Word first, Word count, Word value, Word timeout_ns) {
  for (Word i = 0; i < count; ++i)
    if (!poll(*this, first + i * sizeof(Word), value, timeout_ns)) return false;
  return true;
}

void CpuMemory::send(const ReadyOp& at) {
  for (Word i = 0; i < at.bytes; i += sizeof(u64)) store_whole_pair(at.to + 2 * i, {word_at(at.from + i), at.value});
}

bool CpuMemory::receive(const ReadyOp& at, Word timeout_ns) {
  for (Word i = 0; i < at.bytes; i += sizeof(u64)) {
    PackedWord packed;
    if (!poll(packed, at.from + 2 * i, at.value, timeout_ns)) return false;
    word_at(at.to + i) = packed.payload;
  }
  return true;
}

void CpuMemory::add(Word word, Word value) {
  std::atomic_ref{word_at(word)}.fetch_add(value, std::memory_order_acq_rel);
}

void CpuMemory::post(const ActorOp& op, Word iteration) {
  DescriptorWords words;
  post_descriptor(op, iteration, words);
}

bool CpuMemory::take(const ActorOp& op, Word iteration) {
  DescriptorWords words;
  return take_descriptor(op, iteration, words, taken.data());
}

void CpuMemory::copy_taken(const ActorOp& op) {
  for_each_put(op, taken.data(), [this](Word to, Word from, Word bytes) { copy(to, from, bytes); });
}

void CpuMemory::set_taken(const ActorOp& op) {
  for_each_word(op, taken.data(), [](Word word, Word value) { set(word, value); });
}

void CpuMemory::fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

void CpuMemory::copy(Word to, Word from, Word bytes) {
  const auto move_file = [bytes](const FileMemory& file, Word in_file, Word memory, bool writes) {
    const FileRange range{memory, in_file - file.start, bytes};
    if (file.queue) move_in_flight(file, range, writes);
    else if (writes) write_file(file.file, range);
    else read_file(file.file, range);
  };
  if (const auto* source = part_at(files, from)) return move_file(*source, from, to, false);
  if (const auto* target = part_at(files, to)) return move_file(*target, to, from, true);
  const RowMemory *source = part_at(rows, from), *target = part_at(rows, to);
  if (source || target) return copy_rows(to, from, bytes, source, target);
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

void CpuMemory::copy_rows(Word to, Word from, Word bytes, const RowMemory* source, const RowMemory* target) {
  const Word row = (source ? source : target)->row, count = bytes / row;
  const Word from_pitch = source ? source->pitch : row, to_pitch = target ? target->pitch : row;
  const auto copy_range = [&](Word begin, Word end) {
    for (Word i = begin; i < end; ++i)
      std::memcpy(reinterpret_cast<void*>(to + i * to_pitch), reinterpret_cast<const void*>(from + i * from_pitch),
                  row);
  };
  if (!crew) return copy_range(0, count);
  const Word part = (count + crew->size() - 1) / crew->size();
  crew->run([&](u32 thread) { copy_range(std::min(count, thread * part), std::min(count, (thread + 1) * part)); });
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
