#include "mock_card.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace linkscope {
namespace {

constexpr u32 block = 64, segment = 16;
constexpr u8 rdma_write = 0x08, send_immediate = 0x0b, rdma_read = 0x10, atomic_fetch_add = 0x12;
constexpr u8 length_error = 0x01, queue_error = 0x02, protection_error = 0x04, flushed = 0x05, remote_request = 0x12,
             remote_access = 0x13, no_answer = 0x15, not_ready = 0x16;
constexpr u8 asks_for_completion = 0x08, fence = 0x80;
constexpr u8 of_request = 0x0, of_receive = 0x3, of_failed_request = 0xd, of_failed_receive = 0xe;

/// A big-endian number of `bytes` bytes.
u64 number_at(const std::byte* at, u32 bytes) {
  u64 number = 0;
  for (u32 i = 0; i < bytes; ++i) number = number << 8 | static_cast<u64>(at[i]);
  return number;
}
void put_number(std::byte* at, u32 bytes, u64 number) {
  for (u32 i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(number >> 8 * (bytes - 1 - i));
}
u32 record_of(const u32* record) {
  const u32 found = std::atomic_ref{*const_cast<u32*>(record)}.load(std::memory_order_acquire);
  return static_cast<u32>(number_at(reinterpret_cast<const std::byte*>(&found), 4));
}

/// Aligned words are whole, as posters and pollers use them.
void move_bytes(std::byte* to, const std::byte* from, u64 bytes) {
  if (bytes != sizeof(u64) || reinterpret_cast<u64>(to) % sizeof(u64) != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  u64 word = 0;
  std::memcpy(&word, from, sizeof word);
  std::atomic_ref{*reinterpret_cast<u64*>(to)}.store(word, std::memory_order_release);
}

}  // namespace

/// An element as the card reads it: its bytes, and where its segments begin.
struct MockCard::Element {
  u32 index;
  std::vector<std::byte> bytes;
  [[nodiscard]] u8 at(u32 offset) const { return static_cast<u8>(bytes[offset]); }
  [[nodiscard]] u64 number(u32 offset, u32 size) const { return number_at(bytes.data() + offset, size); }
  [[nodiscard]] u8 opcode() const { return at(3); }
  [[nodiscard]] u32 blocks() const { return std::max<u32>(1, static_cast<u32>((bytes.size() + block - 1) / block)); }
  [[nodiscard]] bool has_remote() const { return opcode() != send_immediate; }
  [[nodiscard]] u32 data() const { return segment * (1 + has_remote() + (opcode() == atomic_fetch_add)); }
  [[nodiscard]] bool carries() const { return (at(data()) & 0x80) != 0; }
  [[nodiscard]] u64 payload_bytes() const { return number(data(), 4) & 0x7fffffff; }
};

void MockCard::expect(bool holds, const std::string& otherwise) {
  if (!holds) faults.push_back(otherwise);
}

u32 MockCard::add_region(std::span<std::byte> memory) {
  const auto key = static_cast<u32>(0x00c0de01 + 0x10100 * regions_.size());
  regions_.push_back({key, memory});
  return key;
}

u32 MockCard::add_completions(std::span<std::byte> entries, const u32& record) {
  completions_.push_back({entries, &record, 0, {}, 0});
  return static_cast<u32>(completions_.size() - 1);
}

u32 MockCard::add_pair(Pair pair) {
  *pair.doorbell = idle;
  pairs_.push_back(pair);
  return static_cast<u32>(pairs_.size() - 1);
}

std::byte* MockCard::range(u32 key, u64 address, u64 bytes) const {
  for (const auto& region : regions_) {
    const auto start = reinterpret_cast<u64>(region.memory.data());
    if (region.key == key && address >= start && bytes <= region.memory.size() &&
        address - start <= region.memory.size() - bytes)
      return reinterpret_cast<std::byte*>(address);
  }
  return nullptr;
}

void MockCard::work() {
  for (u32 pair = 0; pair < pairs_.size(); ++pair)
    if (std::atomic_ref{*pairs_[pair].doorbell}.load(std::memory_order_acquire) != idle) serve(pair);
}

/// Blocks that the reader of completions gave back must be stamped until they are posted again.
void MockCard::check_stamps(u32 at) {
  auto& pair = pairs_[at];
  auto& ring = completions_[pair.completions];
  const u32 read = record_of(ring.record);
  for (; (ring.confirmed & 0xffffff) != read && !ring.told.empty(); ++ring.confirmed) {
    if (const auto& told = ring.told.front(); told.pair != ~0u) pairs_[told.pair].confirmed = told.end;
    ring.told.pop_front();
  }
  const auto blocks = static_cast<u32>(pair.send.size() / block);
  const u32 posted = record_of(pair.send_record);
  if (((posted - pair.confirmed) & 0xffff) > blocks) {
    faults.push_back("a block is posted again before its completion was read");
    return;
  }
  for (u32 free = posted; free != ((pair.confirmed + blocks) & 0xffff); free = (free + 1) & 0xffff)
    expect(number_at(pair.send.data() + free % blocks * block, 4) == 0xffffffff,
           "block " + std::to_string(free) + " is free and has no stamp");
}

void MockCard::serve(u32 at) {
  auto& pair = pairs_[at];
  const u64 rung = std::atomic_ref{*pair.doorbell}.exchange(idle, std::memory_order_acq_rel);
  const u32 posted = record_of(pair.send_record);
  const auto blocks = static_cast<u32>(pair.send.size() / block);
  expect(posted <= 0xffff, "the doorbell record has more than 16 bits");
  u32 left = (posted - pair.executed) & 0xffff;
  expect(left > 0, "the doorbell rang and the record announces nothing");
  if (left > blocks) {
    faults.push_back("the queue of " + std::to_string(blocks) + " blocks is overrun by " + std::to_string(left));
    return;
  }
  const auto before = faults.size();
  if (beside_posters) left = announced(pair, left, rung);
  else check_stamps(at);
  u64 last = 0;
  while (left > 0) {
    const Element element = decode(pair, left);
    std::memcpy(&last, element.bytes.data(), sizeof last);
    execute(at, element);
    pair.executed = (pair.executed + element.blocks()) & 0xffff;
    left -= std::min(left, element.blocks());
  }
  read_late(at);
  expect(rung == last || faults.size() != before, "the doorbell is not the start of the last element");
}

/// The blocks up to the element whose doorbell rang; all `left` if it is not among them.
u32 MockCard::announced(const Pair& pair, u32 left, u64 rung) {
  const auto blocks = static_cast<u32>(pair.send.size() / block);
  for (u32 end = 0; end < left;) {
    const std::byte* first = pair.send.data() + (pair.executed + end) % blocks * block;
    end += std::max(1u, ((static_cast<u32>(first[7]) & 0x3f) + 3) / 4);
    if (std::memcmp(first, &rung, sizeof rung) == 0) return end;
  }
  return left;
}

MockCard::Element MockCard::decode(const Pair& pair, u32 left) {
  const auto blocks = static_cast<u32>(pair.send.size() / block);
  const std::byte* first = pair.send.data() + pair.executed % blocks * block;
  u32 segments = static_cast<u32>(first[7]) & 0x3f;
  if (segments == 0 || segments > left * 4) {
    faults.push_back("an element of " + std::to_string(segments) + " segments does not end within what is posted");
    segments = std::clamp(segments, 1u, left * 4);
  }
  Element element{pair.executed, {}};
  for (u32 i = 0; i < segments; ++i) {
    const std::byte* from =
        pair.send.data() + (pair.executed + i / 4) % blocks * block + static_cast<u64>(i % 4) * segment;
    element.bytes.insert(element.bytes.end(), from, from + segment);
  }
  return element;
}

void MockCard::check_control(const Pair& pair, const Element& element) {
  expect(element.number(0, 4) != 0xffffffff, "a stamped block is posted");
  expect(element.at(0) == 0, "an opcode modifier is set");
  expect(element.number(1, 2) == element.index, "the element's index is " + std::to_string(element.number(1, 2)) +
                                                    ", and its place " + std::to_string(element.index));
  expect(element.number(4, 3) == pair.number, "the element names queue " + std::to_string(element.number(4, 3)));
  expect((element.at(7) & 0xc0) == 0, "reserved bits beside the number of segments are set");
  expect(element.number(8, 3) == 0, "a signature or a stream channel is set");
  expect((element.at(11) & ~(asks_for_completion | fence)) == 0, "unknown flags are set");
  expect(element.opcode() == send_immediate || element.number(12, 4) == 0, "an immediate is set without a send");
}

void MockCard::check_segments(const Element& element) {
  const u8 opcode = element.opcode();
  if (opcode != rdma_write && opcode != rdma_read && opcode != atomic_fetch_add && opcode != send_immediate) {
    faults.push_back("opcode " + std::to_string(opcode) + " is unknown");
    return;
  }
  const u32 data = element.data();
  if (element.bytes.size() <= data) {
    faults.push_back("the element has no data segment");
    return;
  }
  if (element.has_remote()) expect(element.number(28, 4) == 0, "reserved bytes behind the remote key are set");
  if (opcode == atomic_fetch_add) {
    expect(element.number(40, 8) == 0, "a fetch-add has a value to compare with");
    expect(element.number(data, 4) == 8, "a fetch-add returns " + std::to_string(element.number(data, 4)) + " bytes");
  }
  expect(element.payload_bytes() > 0, "an element moves nothing");
  u64 end = data + segment;
  if (element.carries()) {
    expect(opcode == rdma_write || opcode == send_immediate, "a request that fetches carries a payload");
    const u64 bytes_end = data + 4 + element.payload_bytes();
    end = (bytes_end + segment - 1) / segment * segment;
    for (u64 at = bytes_end; at < std::min<u64>(end, element.bytes.size()); ++at)
      expect(element.bytes[at] == std::byte{0}, "bytes behind a carried payload are set");
  }
  expect(element.bytes.size() == end, "the element has " + std::to_string(element.bytes.size() / segment) +
                                          " segments and needs " + std::to_string(end / segment));
}

void MockCard::execute(u32 at, const Element& element) {
  auto& pair = pairs_[at];
  const auto before = faults.size();
  check_control(pair, element);
  check_segments(element);
  if ((element.at(11) & fence) != 0) read_late(at);
  const u8 syndrome = faults.size() != before ? queue_error
                      : pair.failed           ? flushed
                      : pair.cut              ? no_answer
                                              : perform(at, element);
  if (late_reads && syndrome == 0 && element.opcode() == rdma_read) late_.emplace_back(element.index, element.bytes);
  pair.failed = pair.failed || syndrome != 0;
  if (syndrome != 0 || (element.at(11) & asks_for_completion) != 0) complete(at, element, syndrome);
}

void MockCard::read_late(u32 at) {
  for (const auto& [index, bytes] : late_) (void)perform(at, {index, bytes});
  late_.clear();
}

/// The syndrome, 0 for success.
u8 MockCard::perform(u32 at, const Element& element) {
  const u32 data = element.data();
  const u64 bytes = element.payload_bytes();
  std::vector<std::byte> carried;
  std::byte* local = nullptr;
  if (element.carries()) {
    carried.assign(element.bytes.begin() + data + 4, element.bytes.begin() + static_cast<long>(data + 4 + bytes));
    local = carried.data();
  } else {
    local = range(static_cast<u32>(element.number(data + 4, 4)), element.number(data + 8, 8), bytes);
  }
  if (!local) return protection_error;
  if (!element.has_remote()) return deliver(at, element, {local, bytes});
  const u64 address = element.number(16, 8);
  if (element.opcode() == atomic_fetch_add && address % 8 != 0) return remote_request;
  std::byte* remote = range(static_cast<u32>(element.number(24, 4)), address, bytes);
  if (!remote) return remote_access;
  if (element.opcode() == rdma_write) move_bytes(remote, local, bytes);
  if (element.opcode() == rdma_read) move_bytes(local, remote, bytes);
  if (element.opcode() == atomic_fetch_add) {
    const u64 found = std::atomic_ref{*reinterpret_cast<u64*>(remote)}.fetch_add(element.number(32, 8));
    std::memcpy(local, &found, sizeof found);
  }
  return 0;
}

u8 MockCard::deliver(u32 at, const Element& element, std::span<const std::byte> payload) {
  auto& peer = pairs_[pairs_[at].peer];
  if (peer.receive.empty() || record_of(peer.receive_record) == peer.received) return not_ready;
  expect(((record_of(peer.receive_record) - peer.received) & 0xffff) <= peer.receive.size() / segment,
         "a receive queue is overrun");
  const std::byte* entry = peer.receive.data() + peer.received * segment % peer.receive.size();
  const u64 room = number_at(entry, 4);
  std::byte* to = range(static_cast<u32>(number_at(entry + 4, 4)), number_at(entry + 8, 8), room);
  const u8 failure = !to ? protection_error : payload.size() > room ? length_error : u8{0};
  if (failure == 0) std::memcpy(to, payload.data(), payload.size());
  std::array<std::byte, block> made{};
  put_number(made.data() + 36, 4, failure == 0 ? element.number(12, 4) : 0);
  put_number(made.data() + 44, 4, failure == 0 ? payload.size() : 0);
  if (failure != 0) made[55] = std::byte{failure};
  put_number(made.data() + 56, 4, peer.number);
  put_number(made.data() + 60, 2, peer.received);
  made[63] = static_cast<std::byte>((failure == 0 ? of_receive : of_failed_receive) << 4);
  peer.received = (peer.received + 1) & 0xffff;
  write_entry(completions_[peer.completions], made, {~0u, 0});
  return failure == 0 ? u8{0} : remote_request;
}

void MockCard::complete(u32 at, const Element& element, u8 syndrome) {
  const auto& pair = pairs_[at];
  std::array<std::byte, block> made{};
  if (syndrome != 0) made[55] = std::byte{syndrome};
  put_number(made.data() + 56, 4, u64{element.opcode()} << 24 | pair.number);
  put_number(made.data() + 60, 2, element.index);
  made[63] = static_cast<std::byte>((syndrome == 0 ? of_request : of_failed_request) << 4);
  write_entry(completions_[pair.completions], made, {at, (element.index + element.blocks()) & 0xffff});
}

void MockCard::write_entry(CompletionRing& ring, std::span<const std::byte> entry, CompletionRing::Told told) {
  const u64 count = ring.entries.size() / block;
  const u64 used = (ring.written - record_of(ring.record)) & 0xffffff;
  if (used >= count) {
    faults.push_back("the completion queue of " + std::to_string(count) + " entries is overrun");
    return;
  }
  std::byte* to = ring.entries.data() + ring.written % count * block;
  constexpr u32 tail = block - sizeof(u64);  // its last byte has the owner bit, so all of it comes last
  std::array<std::byte, sizeof(u64)> last{};
  std::memcpy(last.data(), entry.data() + tail, sizeof last);
  last.back() |= static_cast<std::byte>(ring.written / count & 1);
  std::memcpy(to, entry.data(), tail);
  move_bytes(to + tail, last.data(), sizeof last);
  ring.told.push_back(told);
  ++ring.written;
}

}  // namespace linkscope
