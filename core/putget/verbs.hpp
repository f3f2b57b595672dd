// Work queues of RDMA network cards, written by a GPU or a CPU: the layout of mlx5 cards. An element is one to four basic
// blocks of 64 bytes, made of segments of 16 bytes, whose fields are big-endian. A stamp marks a block that holds no posted
// element, as older cards (mlx4) require because they read ahead; mlx5 cards do not look at it. Facts are from the public
// headers of rdma-core (mlx5dv.h, mlx4) and of Linux.
//
// Compiled by g++ and NVRTC, so nothing but the language is used here. Every processor that runs this is little-endian. A
// `Memory` says how its processor reaches what the card reads and writes:
//   store(at, Segment), store(at, Word)   plain stores of 16 and 4 bytes
//   load(at)                              a plain load of a segment
//   byte(at)                              a plain load of a byte of a payload
//   acquire(at)                           8 bytes that the card writes; later loads see what it wrote before
//   fence()                               earlier stores reach the card before later ones
//   record(at, Word)                      4 bytes of a doorbell record
//   ring(at, LongWord)                    the doorbell, a register of 8 bytes
// Addresses are those of the processor, except in a Request.
#pragma once
#include "base/ring.hpp"

namespace linkscope::verbs {

using Word = unsigned;
using LongWord = unsigned long long;

inline constexpr Word block_bytes = 64, segment_bytes = 16, segments_of_block = block_bytes / segment_bytes;
inline constexpr Word most_blocks = 4;              // of an element
inline constexpr Word most_queue_blocks = 1 << 15;  // an index has 16 bits, and a full queue differs from an empty one
inline constexpr Word entry_bytes = 64;             // of a completion queue
inline constexpr Word stamp = 0xffffffff;

/// 16 bytes as the card reads them: word i holds bytes 4 i to 4 i + 3.
struct alignas(16) Segment {
  Word words[4];
};

/// `value` in the byte order of the card, and back.
[[nodiscard]] LINKSCOPE_ANYWHERE Word swapped(Word value) {
#ifdef __CUDACC__
  return __byte_perm(value, 0, 0x0123);  // one instruction; NVRTC makes six of the shifts
#else
  return value >> 24 | (value >> 8 & 0xff00) | (value & 0xff00) << 8 | value << 24;
#endif
}

enum class Opcode : unsigned char { write = 0x08, send = 0x0b, read = 0x10, fetch_add = 0x12 };

/// One operation on registered memory. A key is what registration gave for a region, an address one of that region as it
/// was registered.
struct Request {
  Opcode opcode = Opcode::write;
  bool completes = true;     // the card writes a completion. An error always has one.
  bool after_reads = false;  // the card begins when earlier reads and atomic operations are done
  bool in_element = false;   // write, send: the element carries the payload, `local` is an address of the processor
  Word immediate = 0;        // send: a number that the receiver finds in its completion
  LongWord remote = 0;       // not for send
  Word remote_key = 0;
  LongWord local = 0;  // write, send: the payload; read: where it goes; fetch_add: where the old value goes, 8 bytes
  Word local_key = 0, bytes = 0;
  LongWord add = 0;  // fetch_add: to 8 bytes at a multiple of 8
};

[[nodiscard]] LINKSCOPE_ANYWHERE Word segments_of(const Request& request) {
  const Word data = request.in_element ? (sizeof(Word) + request.bytes + segment_bytes - 1) / segment_bytes : 1;
  return 1 + (request.opcode != Opcode::send) + (request.opcode == Opcode::fetch_add) + data;
}
[[nodiscard]] LINKSCOPE_ANYWHERE Word blocks_of(Word segments) {
  return (segments + segments_of_block - 1) / segments_of_block;
}

/// Whether an element can express the request.
[[nodiscard]] LINKSCOPE_ANYWHERE bool is_valid(const Request& request) {
  const bool carries = request.opcode == Opcode::write || request.opcode == Opcode::send;
  if (request.in_element)
    return carries && request.bytes > 0 && request.bytes <= most_blocks * block_bytes &&
           blocks_of(segments_of(request)) <= most_blocks;
  if (request.opcode == Opcode::fetch_add) return request.bytes == sizeof(LongWord) && request.remote % 8 == 0;
  return request.bytes > 0 && request.bytes < 1u << 31;
}

// --- segments -----------------------------------------------------------------------------------------------------

[[nodiscard]] LINKSCOPE_ANYWHERE Segment control(const Request& request, Word queue, Word index, Word segments) {
  constexpr Word completion = 2 << 2, fence = 4 << 5;
  const Word flags = (request.completes ? completion : 0) | (request.after_reads ? fence : 0);
  return {{swapped((index & 0xffff) << 8 | static_cast<Word>(request.opcode)), swapped(queue << 8 | segments),
           flags << 24, request.opcode == Opcode::send ? swapped(request.immediate) : 0}};
}
[[nodiscard]] LINKSCOPE_ANYWHERE Segment remote(LongWord address, Word key) {
  return {{swapped(static_cast<Word>(address >> 32)), swapped(static_cast<Word>(address)), swapped(key), 0}};
}
[[nodiscard]] LINKSCOPE_ANYWHERE Segment addend(LongWord add) {
  return {{swapped(static_cast<Word>(add >> 32)), swapped(static_cast<Word>(add)), 0, 0}};
}
[[nodiscard]] LINKSCOPE_ANYWHERE Segment data(LongWord address, Word key, Word bytes) {
  return {
      {swapped(bytes), swapped(key), swapped(static_cast<Word>(address >> 32)), swapped(static_cast<Word>(address))}};
}

/// Segment `part` of a payload that the element carries: a header, then the bytes, then zeros.
template <class Memory>
[[nodiscard]] LINKSCOPE_ANYWHERE Segment carried(LongWord from, Word bytes, Word part, Memory& memory) {
  constexpr Word is_carried = 1u << 31;
  Segment made{};
  if (part == 0) made.words[0] = swapped(is_carried | bytes);
  for (Word at = part == 0 ? sizeof(Word) : 0; at < segment_bytes; ++at)
    if (const Word byte = part * segment_bytes + at - sizeof(Word); byte < bytes)
      made.words[at / sizeof(Word)] |= static_cast<Word>(memory.byte(from + byte)) << at % sizeof(Word) * 8;
  return made;
}

/// Segment `at` of an element, which is not the control segment.
template <class Memory>
[[nodiscard]] LINKSCOPE_ANYWHERE Segment segment_of(const Request& request, Word at, Memory& memory) {
  const Word before = 1 + (request.opcode != Opcode::send) + (request.opcode == Opcode::fetch_add);
  if (at >= before)
    return request.in_element ? carried(request.local, request.bytes, at - before, memory)
                              : data(request.local, request.local_key, request.bytes);
  return at == 1 ? remote(request.remote, request.remote_key) : addend(request.add);
}

// --- the send queue -----------------------------------------------------------------------------------------------

/// What one thread posts to. Counters count blocks since the start.
struct SendQueue {
  LongWord ring = 0;  // the blocks, at a multiple of 64
  Word blocks = 0;    // a power of two
  Word number = 0;    // of the queue pair, 24 bits
  LongWord record =
      0;  // 4 bytes, where the card reads how many blocks are posted: mlx5 has them behind those for receives
  LongWord doorbell = 0;  // 8 bytes
  Word posted = 0, retired = 0;
  LongWord last = 0;  // the first 8 bytes of the last element
};

[[nodiscard]] LINKSCOPE_ANYWHERE LongWord block_at(const SendQueue& queue, Word index) {
  return queue.ring + LongWord{index & (queue.blocks - 1)} * block_bytes;
}

enum class Posted : unsigned char { yes, full, invalid };

/// Writes the element of a request, which the card sees at the next `submit`. `full`: completions must be polled first.
template <class Memory>
LINKSCOPE_ANYWHERE Posted post(SendQueue& queue, const Request& request, Memory& memory) {
  if (!is_valid(request)) return Posted::invalid;
  const Word segments = segments_of(request), blocks = blocks_of(segments);
  if (queue.posted - queue.retired + blocks > queue.blocks) return Posted::full;
  const Segment first = control(request, queue.number, queue.posted, segments);
  for (Word at = 0; at < segments; ++at)
    memory.store(
        block_at(queue, queue.posted + at / segments_of_block) + LongWord{at % segments_of_block} * segment_bytes,
        at == 0 ? first : segment_of(request, at, memory));
  queue.posted += blocks;
  queue.last = first.words[0] | LongWord{first.words[1]} << 32;
  return Posted::yes;
}

/// Shows the card everything that was posted.
template <class Memory>
LINKSCOPE_ANYWHERE void submit(const SendQueue& queue, Memory& memory) {
  memory.fence();
  memory.record(queue.record, swapped(queue.posted & 0xffff));
  memory.fence();
  memory.ring(queue.doorbell, queue.last);
}

// --- completions --------------------------------------------------------------------------------------------------

/// What a card says of an operation.
enum class Status : unsigned char {
  success = 0,
  local_length = 0x01,
  queue_operation = 0x02,  // the element is invalid
  local_protection = 0x04,
  flushed = 0x05,  // an earlier element of the queue failed
  remote_request = 0x12,
  remote_access = 0x13,
  no_answer = 0x15,  // the other side's card did not answer any of several attempts
  receiver_not_ready = 0x16,
};

struct Completion {
  Status status = Status::success;
  bool received = false;          // of a receive, not of a request
  Word queue = 0, index = 0;      // the number of the queue pair; the element's first block, modulo 2^16
  Word bytes = 0, immediate = 0;  // of a receive
};

/// Entries are of 64 bytes. Their last byte has an owner bit, which the card flips every lap.
struct CompletionQueue {
  LongWord entries = 0;  // at a multiple of 64
  Word count = 0;        // a power of two
  LongWord record = 0;   // 4 bytes, where the card reads how many entries are free again
  Word polled = 0;       // entries since the start
};

/// Takes the next completion if there is one. `confirm` gives its entry back.
template <class Memory>
[[nodiscard]] LINKSCOPE_ANYWHERE bool poll(CompletionQueue& queue, Completion& completion, Memory& memory) {
  constexpr Word receive = 1, first_error = 0xd, receive_error = 0xe;
  const LongWord entry = queue.entries + LongWord{queue.polled & (queue.count - 1)} * entry_bytes;
  const LongWord tail = memory.acquire(entry + 56);
  const Word owner = (queue.polled & queue.count) != 0;
  if ((tail >> 56 & 1) != owner) return false;
  const Word opcode = static_cast<Word>(tail >> 60);
  completion = {};
  completion.received = opcode != receive_error && opcode >= receive && opcode < first_error;
  completion.queue = swapped(static_cast<Word>(tail)) & 0xffffff;
  completion.index = swapped(static_cast<Word>(tail >> 32)) >> 16;
  if (opcode >= first_error) {
    completion.received = opcode == receive_error;
    completion.status = static_cast<Status>(memory.load(entry + 48).words[1] >> 24);
  } else if (completion.received) {
    const Segment middle = memory.load(entry + 32);
    completion.immediate = swapped(middle.words[1]);
    completion.bytes = swapped(middle.words[3]);
  }
  ++queue.polled;
  return true;
}

template <class Memory>
LINKSCOPE_ANYWHERE void confirm(const CompletionQueue& queue, Memory& memory) {
  memory.fence();
  memory.record(queue.record, swapped(queue.polled & 0xffffff));
}

/// Frees the blocks of a completed request and of all before it, and stamps them.
template <class Memory>
LINKSCOPE_ANYWHERE void retire(SendQueue& queue, const Completion& completion, Memory& memory) {
  for (bool found = false; !found && queue.retired != queue.posted;) {
    const Word segments = swapped(memory.load(block_at(queue, queue.retired)).words[1]) & 0x3f;
    found = (queue.retired & 0xffff) == completion.index;
    const Word end = queue.retired + blocks_of(segments);
    for (; queue.retired != end; ++queue.retired) memory.store(block_at(queue, queue.retired), stamp);
  }
}

/// Polls a completion queue that serves one queue pair, and gives back what the completion of a request frees.
template <class Memory>
[[nodiscard]] LINKSCOPE_ANYWHERE bool complete(SendQueue& send, CompletionQueue& queue, Completion& completion,
                                               Memory& memory) {
  if (!poll(queue, completion, memory)) return false;
  if (!completion.received) retire(send, completion, memory);
  confirm(queue, memory);
  return true;
}

// --- the receive queue --------------------------------------------------------------------------------------------

/// Where sent messages go, in order. An entry is one data segment.
struct ReceiveQueue {
  LongWord ring = 0;              // the entries
  Word entries = 0;               // a power of two
  LongWord record = 0;            // 4 bytes, where the card reads how many entries are posted
  Word posted = 0, received = 0;  // the user of the queue counts what it received
};

/// Posts memory for one message, which the card sees at the next `submit`.
template <class Memory>
[[nodiscard]] LINKSCOPE_ANYWHERE bool post(ReceiveQueue& queue, LongWord address, Word key, Word bytes,
                                           Memory& memory) {
  if (queue.posted - queue.received == queue.entries) return false;
  memory.store(queue.ring + LongWord{queue.posted & (queue.entries - 1)} * segment_bytes, data(address, key, bytes));
  ++queue.posted;
  return true;
}

template <class Memory>
LINKSCOPE_ANYWHERE void submit(const ReceiveQueue& queue, Memory& memory) {
  memory.fence();
  memory.record(queue.record, swapped(queue.posted & 0xffff));
}

}  // namespace linkscope::verbs
