// The queues of a network card (verbs.hpp): how they are made, and what errors mean.
#pragma once
#include <span>
#include <string>

#include "base/units.hpp"
#include "putget/verbs_cpu.hpp"

namespace linkscope::verbs {

// What fills queues that are empty: stamps, and entries that are invalid and not of the first lap.
inline constexpr u8 free_byte_of_send_queue = 0xff, free_byte_of_completion_queue = 0xf1;

/// Queues in memory that is not looked at. Record and doorbell are missing. They throw as the functions below.
[[nodiscard]] SendQueue send_queue_of(std::span<std::byte> memory, Word number);
[[nodiscard]] CompletionQueue completion_queue_of(std::span<std::byte> memory);

/// An empty send queue in `memory`, every block of it stamped. Throws Error{usage}: the memory does not begin at a
/// multiple of 64 bytes, or is no power of two of blocks from 4 to 2^15; the number has more than 24 bits.
[[nodiscard]] SendQueue make_send_queue(std::span<std::byte> memory, Word number, Word& record, LongWord& doorbell);

/// An empty receive queue. Throws Error{usage}: misaligned to 16 bytes, or no power of two of entries up to 2^15.
[[nodiscard]] ReceiveQueue make_receive_queue(std::span<std::byte> memory, Word& record);

/// An empty completion queue, no entry of which is the reader's. Throws Error{usage}: misaligned to 64 bytes, or no power
/// of two of entries up to 2^23.
[[nodiscard]] CompletionQueue make_completion_queue(std::span<std::byte> memory, Word& record);

/// The next completion. Throws Error{timeout} if none comes in time: the text names the queue's next entry.
[[nodiscard]] Completion await_completion(CompletionQueue& queue, Seconds timeout);

/// What a completion says, in words: "element 12 of queue 0x51: remote access error: …".
[[nodiscard]] std::string text_of(const Completion& completion);

}  // namespace linkscope::verbs
