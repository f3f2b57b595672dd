// Random traffic between warps that have a ring of messages for each ordered pair, as tests/core/putget/traffic.hpp has it
// between threads. test_put_get.py compiles it with the header that applications get.
#include "linkscope_device.hpp"

using namespace linkscope;
using u64 = unsigned long long;

constexpr unsigned slots = 5, words = 9, most_actors = 16;
constexpr u64 ring_bytes = 128 + slots * words * pair_bytes;

__device__ u64 mixed(u64 value) {
  value = (value ^ (value >> 31)) * 0x7FB5D329728EA185ull;
  value = (value ^ (value >> 27)) * 0x81DADEF4BC2DD44Dull;
  return value ^ (value >> 33);
}
__device__ u64 key(u64 from, u64 to, u64 number) { return mixed((from << 48 | to << 40) + number); }
__device__ Ring ring(u64 start, unsigned actors, unsigned from, unsigned to) {
  const u64 at = start + (from * actors + to) * ring_bytes;
  return {at + 128, at, slots, words};
}

enum Wrong : u64 { nothing, timed_out, wrong_length, wrong_words, twice };

// Block b is actor first + b; each has one warp. result: a Wrong for each block.
extern "C" __global__ void __launch_bounds__(32)
    exchange(u64 start, unsigned actors, unsigned first, u64 each, u64 timeout_ns, u64* result) {
  DeviceMemoryWords memory;
  const unsigned self = first + blockIdx.x;
  MessageSender senders[most_actors];
  MessageReceiver receivers[most_actors];
  for (unsigned other = 0; other < actors; ++other) {
    senders[other].ring = ring(start, actors, self, other);
    receivers[other].ring = ring(start, actors, other, self);
  }
  u64 left = 2 * (actors - 1) * each, random = self + 1, latest = memory.now_ns();
  u64 wrong = nothing;
  while (left > 0 && wrong == nothing) {
    random = mixed(random + 0x9E3779B97F4A7C15ull);
    const unsigned other = random % actors;
    if (other == self) continue;
    bool moved = false, same = true;
    if (random >> 40 & 1 && senders[other].sent < each) {
      const u64 of = key(self, other, senders[other].sent);
      moved = senders[other].try_send(memory, Warp{}, static_cast<unsigned>(of % (words * 8 + 1)),
                                      [&](unsigned i) { return mixed(of + i); });
    } else if (receivers[other].received < each) {
      const u64 of = key(other, self, receivers[other].received);
      moved = receivers[other].try_receive(memory, Warp{},
                                           [&](unsigned i, u64 word) { same = same && word == mixed(of + i); });
      if (moved && receivers[other].bytes != of % (words * 8 + 1)) wrong = wrong_length;
      if (moved && !Warp::all(same)) wrong = wrong_words;
    }
    const u64 now = memory.now_ns();
    if (moved) --left, latest = now;
    if (!Warp::all(now - latest < timeout_ns)) wrong = timed_out;
  }
  for (unsigned other = 0; other < actors && wrong == nothing; ++other)
    if (other != self && receivers[other].try_receive(memory, Warp{}, [](unsigned, u64) {})) wrong = twice;
  if (threadIdx.x == 0) result[blockIdx.x] = wrong + 1;
}

// A ping-pong of messages of 8 bytes between two actors, whose rings have 64 slots of one word. Actor 0 speaks first, and
// actor 1 adds 1 to what came. result: the nanoseconds of `count` round trips, or 0 if one did not come or is wrong, and the
// cycles of the SM's clock in them. clocks: the clock after each round trip, its low half.
extern "C" __global__ void ping_pong(u64 mine, u64 theirs, unsigned self, u64 count, u64 timeout_ns, u64* result,
                                     unsigned* clocks) {
  DeviceMemoryWords memory;
  MessageSender sender{{theirs + 128, mine, 64, 1}};
  MessageReceiver receiver{{mine + 128, theirs, 64, 1}};
  const u64 begin = memory.now_ns(), begin_clock = clock64();
  const auto until = [&](auto moved) {
    for (unsigned looks = 1; !moved(); ++looks)
      if (looks % 1024 == 0 && memory.now_ns() - begin > timeout_ns) return false;
    return true;
  };
  const auto send = [&](u64 value) {
    return until([&] { return sender.try_send(memory, OneThread{}, 8, [&](unsigned) { return value; }); });
  };
  u64 next = 0;  // the number of round trips at the end
  if (self == 0 && !send(next)) return;
  for (u64 i = 0; i < count; ++i) {
    if (!until(
            [&] { return receiver.try_receive(memory, OneThread{}, [&](unsigned, u64 came) { next = came + self; }); }))
      return;
    if ((self == 1 || i + 1 < count) && !send(next)) return;
    clocks[i] = static_cast<unsigned>(clock64());
  }
  if (next == count) result[0] = memory.now_ns() - begin, result[1] = clock64() - begin_clock;
}

// One look at a word of the channel's local region. there: 1 if the word is below the value, 2 if not; 0 after an error.
extern "C" __global__ void look(Channel channel, u64 word, u64 value, u64* there) {
  DevicePoster<Block> poster{channel, DeviceMemoryWords{}, Block{}};
  bool found = false;
  const Posted done = poster.poll(word, value, found);
  if (threadIdx.x == 0) *there = done == Posted::ok ? 1 + found : 0;
}

// A stream of messages of 64 bytes: each 8 lanes have a ring of their own, of `stream_slots` slots, in the receiver's memory.
// `count` messages go through each ring. result: for each block its start, its end, and a Wrong.
constexpr unsigned stream_words = 8, stream_slots = 32;
using Eight = Lanes<stream_words>;

extern "C" __global__ void stream(u64 slots_at, u64 credits_at, unsigned sends, u64 count, u64 timeout_ns,
                                  u64* result) {
  DeviceMemoryWords memory;
  const u64 number = (u64{blockIdx.x} * blockDim.x + threadIdx.x) / stream_words;
  const Ring ring{slots_at + number * stream_slots * stream_words * pair_bytes, credits_at + number * 128, stream_slots,
                  stream_words};
  MessageSender sender{ring};
  MessageReceiver receiver{ring};
  const u64 start = memory.now_ns();
  u64 wrong = nothing;
  unsigned looks = 0;
  for (u64 i = 0; i < count && wrong == nothing;) {
    bool same = true;
    const bool moved =
        sends ? sender.try_send(memory, Eight{}, 64, [&](unsigned word) { return number + i * stream_words + word; })
              : receiver.try_receive(memory, Eight{}, [&](unsigned word, u64 found) {
                  same = same && found == number + i * stream_words + word;
                });
    i += moved;
    if (moved && !Eight::all(same)) wrong = wrong_words;
    if (!moved && ++looks % 4096 == 0 && !Eight::all(memory.now_ns() - start < timeout_ns)) wrong = timed_out;
  }
  if (wrong != nothing) atomicMax(result + 3 * blockIdx.x + 2, wrong);
  __syncthreads();
  if (threadIdx.x != 0) return;
  result[3 * blockIdx.x] = start;
  result[3 * blockIdx.x + 1] = memory.now_ns();
}
