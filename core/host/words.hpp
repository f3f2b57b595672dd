// A CPU thread that performs ops (base/actor_ops.hpp): it sets words, waits for others by polling, and moves data between.
#pragma once
#include <array>
#include <span>

#include "base/actor_ops.hpp"
#include "base/ring.hpp"
#include "base/units.hpp"
#include "host/crew.hpp"
#include "host/uring.hpp"

namespace linkscope {

/// Memory that stands for a file: copies from and to it are read from the file and written to it. With a queue, each is
/// divided into `depth` requests that are in flight together.
struct FileMemory {
  Word start = 0, bytes = 0;
  int file = -1;
  Uring* queue = nullptr;
  u32 depth = 1;
};

/// Memory in rows of `row` bytes, `pitch` apart: copies from and to it leave out what lies between the rows.
struct RowMemory {
  Word start = 0, bytes = 0, row = 0, pitch = 0;
};

/// The CPU's memory. Addresses are those of this process.
struct CpuMemory {
  u64 sum = 0;           // of all that was loaded
  Crew* crew = nullptr;  // shares the copies; null: this thread makes them
  std::span<const FileMemory> files;
  std::span<const RowMemory> rows{};
  std::array<Operation, most_descriptor_words> taken{};  // of the latest descriptor

  [[nodiscard]] static Word acquire(Word word);
  [[nodiscard]] static Word now_ns();
  static void set(Word word, Word value);
  [[nodiscard]] bool wait(Word first, Word count, Word value, Word timeout_ns);
  static void send(const ReadyOp&);
  [[nodiscard]] static bool receive(const ReadyOp&, Word timeout_ns);
  static void fence();
  static void add(Word word, Word value);
  static void post(const ActorOp& op, Word iteration);
  [[nodiscard]] bool take(const ActorOp& op, Word iteration);
  void copy_taken(const ActorOp& op);
  void set_taken(const ActorOp& op);
  /// No CPU has it, and no table of a CPU thread asks for it.
  static void copy_tma(Word, Word, Word) {}
  /// Throws Error{failed} if a file cannot be read or written.
  void copy(Word to, Word from, Word bytes);
  void copy_rows(Word to, Word from, Word bytes, const RowMemory* source, const RowMemory* target);
  void load(Word from, Word bytes);
  static void store(Word to, Word bytes, Word seed, Word first_index);
};

/// `count` iterations from `first`.
[[nodiscard]] WaitedInVain perform_on_cpu(std::span<const ActorOp>, u64 first, u64 count, CpuMemory&);

}  // namespace linkscope
