#include "putget/verbs_host.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

#include "base/error.hpp"

namespace linkscope::verbs {
namespace {

LongWord address_of(const void* at) { return reinterpret_cast<LongWord>(at); }

/// The number of pieces of `piece` bytes in a queue's memory.
Word pieces_of(std::span<std::byte> memory, u64 piece, u64 least, u64 most, const char* what) {
  if (address_of(memory.data()) % piece != 0)
    throw Error{ErrorKind::usage,
                std::string{what} + " must begin at a multiple of " + std::to_string(piece) + " bytes"};
  const u64 pieces = memory.size() / piece;
  if (memory.size() % piece != 0 || !std::has_single_bit(pieces) || pieces < least || pieces > most)
    throw Error{ErrorKind::usage, std::string{what} + " must have a power of two of pieces of " +
                                      std::to_string(piece) + " bytes, from " + std::to_string(least) + " to " +
                                      std::to_string(most) + "; it has " + std::to_string(memory.size()) + " bytes"};
  return static_cast<Word>(pieces);
}

const char* meaning(Status status) {
  switch (status) {
    case Status::success:
      return "success";
    case Status::local_length:
      return "local length error: the message does not fit the memory that was posted for it";
    case Status::queue_operation:
      return "queue operation error: the card does not understand the element";
    case Status::local_protection:
      return "local protection error: the local key, or the range, is not registered";
    case Status::flushed:
      return "flushed: an earlier element of this queue failed";
    case Status::remote_request:
      return "remote invalid request: a misaligned atomic operation";
    case Status::remote_access:
      return "remote access error: the remote key, or the range, is not registered";
    case Status::no_answer:
      return "transport retry error: the other side does not answer, or has ended";
    case Status::receiver_not_ready:
      return "receiver not ready: no memory is posted for the message";
  }
  return nullptr;
}

}  // namespace

SendQueue send_queue_of(std::span<std::byte> memory, Word number) {
  if (number >= 1u << 24) throw Error{ErrorKind::usage, "the number of a queue pair has 24 bits"};
  SendQueue queue;
  queue.blocks = pieces_of(memory, block_bytes, most_blocks, most_queue_blocks, "a send queue");
  queue.ring = address_of(memory.data());
  queue.number = number;
  return queue;
}

SendQueue make_send_queue(std::span<std::byte> memory, Word number, Word& record, LongWord& doorbell) {
  SendQueue queue = send_queue_of(memory, number);
  queue.record = address_of(&record);
  queue.doorbell = address_of(&doorbell);
  std::ranges::fill(memory, std::byte{free_byte_of_send_queue});
  return queue;
}

ReceiveQueue make_receive_queue(std::span<std::byte> memory, Word& record) {
  ReceiveQueue queue;
  queue.entries = pieces_of(memory, segment_bytes, 1, most_queue_blocks, "a receive queue");
  queue.ring = address_of(memory.data());
  queue.record = address_of(&record);
  return queue;
}

CompletionQueue completion_queue_of(std::span<std::byte> memory) {
  constexpr u64 most_entries = 1 << 23;  // counters of the card have 24 bits
  CompletionQueue queue;
  queue.count = pieces_of(memory, entry_bytes, 1, most_entries, "a completion queue");
  queue.entries = address_of(memory.data());
  return queue;
}

CompletionQueue make_completion_queue(std::span<std::byte> memory, Word& record) {
  CompletionQueue queue = completion_queue_of(memory);
  queue.record = address_of(&record);
  std::ranges::fill(memory, std::byte{free_byte_of_completion_queue});
  return queue;
}

Completion await_completion(CompletionQueue& queue, Seconds timeout) {
  const auto start = std::chrono::steady_clock::now();
  CardFromCpu card;
  Completion completion;
  do {
    if (poll(queue, completion, card)) return completion;
  } while (std::chrono::steady_clock::now() - start < timeout);
  throw Error{ErrorKind::timeout, "completion " + std::to_string(queue.polled) + " of a queue of " +
                                      std::to_string(queue.count) + " entries did not come within " +
                                      std::to_string(timeout.count()) + " s"};
}

std::string text_of(const Completion& completion) {
  const char* known = meaning(completion.status);
  return (completion.received ? "receive " : "element ") + std::to_string(completion.index) + " of queue " +
         std::to_string(completion.queue) + ": " +
         (known ? known : "error " + std::to_string(static_cast<unsigned>(completion.status)) + " of the card");
}

}  // namespace linkscope::verbs
