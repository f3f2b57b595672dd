// A block that performs a table of ops (base/actor_ops.hpp): its first thread sets words and waits for others, and all
// of its threads copy, load and store. If the other side never answers, the block gives up after a time-out.
#include "base/actor_ops.hpp"
#include "base/block_words.hpp"
#include "base/bulk_copy.hpp"
#include "base/descriptor_ops.hpp"
#include "base/pattern.hpp"

typedef unsigned long long u64;

static __device__ __forceinline__ ulonglong2 load_pair(u64 at) {
  u64 x, y;
  asm volatile("ld.global.cs.v2.u64 {%0, %1}, [%2];"
               : "=l"(x), "=l"(y)
               : "l"(reinterpret_cast<const char*>(at))
               : "memory");
  return ulonglong2{x, y};
}

static __device__ __forceinline__ void store_pair(u64 at, u64 x, u64 y) {
  asm volatile("st.global.cs.v2.u64 [%0], {%1, %2};" ::"l"(reinterpret_cast<char*>(at)), "l"(x), "l"(y) : "memory");
}

// What the first thread needs for a ring of descriptors (base/ring.hpp).
struct DescriptorWords : BlockWords {
  static __device__ __forceinline__ linkscope::Pair load_pair(u64 at) {
    linkscope::Pair pair;
    look(at, pair.first, pair.second);
    return pair;
  }
  static __device__ __forceinline__ void store_pair(u64 at, const linkscope::Pair& pair) {
    tell(at, pair.first, pair.second);
  }
  static __device__ __forceinline__ void fence() { __threadfence_system(); }
};

// Spans are multiples of 8 bytes and aligned to 16; the first thread handles a last word.
struct BlockMemory : BlockWords {
  static constexpr unsigned in_flight = 4;  // vectors of 16 bytes of a thread
  u64 sum;                                  // of what this thread loaded
  linkscope::Operation* taken;              // of the latest descriptor, which all threads see
  BulkCopies* bulk;                         // of the first thread
  u64 seen_word, seen;                      // that this thread polled last; no word has address 0

  // Each thread polls words of its own, so the words of many blocks cost the time of one. The barrier hands what a thread
  // acquired to the others.
  __device__ __forceinline__ bool wait(u64 first, u64 count, u64 value, u64 timeout_ns) {
    bool there = true;
    for (u64 i = threadIdx.x; there && i < count; i += blockDim.x) there = has_seen(first + i * 8, value, timeout_ns);
    return blockDim.x > 1 ? __syncthreads_and(there) != 0 : there;
  }

  // A word that the thread polled last is not loaded again if it had come farther: a ring with room costs no load.
  __device__ __forceinline__ bool has_seen(u64 word, u64 value, u64 timeout_ns) {
    if (word == seen_word && linkscope::has_come(seen, value)) return true;
    seen_word = word;
    return until(timeout_ns, [&] { return linkscope::has_come(seen = acquire(word), value); });
  }

  // A compiler would repeat the body of this loop up to 256 times.
  template <class Look>
  static __device__ __forceinline__ bool until(u64 timeout_ns, Look look) {
    constexpr unsigned looks = 256;  // between two readings of the clock
    const u64 start = now_ns();
    do {
#pragma unroll 1
      for (unsigned i = 0; i < looks; ++i)
        if (look()) return true;
    } while (now_ns() - start <= timeout_ns);
    return false;
  }

  // Each thread sends and receives words of its own.
  static __device__ __forceinline__ void send(const linkscope::ReadyOp& at) {
    for (u64 i = u64{threadIdx.x} * 8; i < at.bytes; i += u64{blockDim.x} * 8)
      tell(at.to + 2 * i, *reinterpret_cast<const u64*>(at.from + i), at.value);
  }

  static __device__ __forceinline__ bool receive(const linkscope::ReadyOp& at, u64 timeout_ns) {
    bool there = true;
    for (u64 i = u64{threadIdx.x} * 8; there && i < at.bytes; i += u64{blockDim.x} * 8) {
      u64 payload = 0;
      there = look_for(at.from + 2 * i, at.value, timeout_ns, payload);
      if (there) *reinterpret_cast<u64*>(at.to + i) = payload;
    }
    return blockDim.x > 1 ? __syncthreads_and(there) != 0 : there;
  }

  static __device__ __forceinline__ bool look_for(u64 word, u64 value, u64 timeout_ns, u64& payload) {
    u64 found = 0;
    return until(timeout_ns, [&] {
      look(word, payload, found);
      return linkscope::has_come(found, value);
    });
  }

  static __device__ __forceinline__ void fence() {
    __threadfence_system();
    join_block();
  }

  static __device__ __forceinline__ void add(u64 word, u64 value) {
    join_block();
    if (threadIdx.x != 0) return;
    __threadfence_system();  // the barrier ordered the other threads' stores before
    asm volatile("red.sys.global.add.u64 [%0], %1;" ::"l"(reinterpret_cast<u64*>(word)), "l"(value) : "memory");
  }

  static __device__ __forceinline__ void post(const linkscope::ActorOp& op, u64 iteration) {
    join_block();
    DescriptorWords words;
    if (threadIdx.x == 0) linkscope::post_descriptor(op, iteration, words);
  }

  __device__ __forceinline__ bool take(const linkscope::ActorOp& op, u64 iteration) {
    join_block();  // nobody reads the descriptor before
    DescriptorWords words;
    const bool there = threadIdx.x != 0 || linkscope::take_descriptor(op, iteration, words, taken);
    return blockDim.x > 1 ? __syncthreads_and(there) != 0 : there;
  }

  __device__ __forceinline__ void copy_taken(const linkscope::ActorOp& op) {
    linkscope::for_each_put(op, taken, [](u64 to, u64 from, u64 bytes) { copy(to, from, bytes); });
  }

  __device__ __forceinline__ void set_taken(const linkscope::ActorOp& op) {
    linkscope::for_each_word(op, taken, [](u64 word, u64 value) { set(word, value); });
  }

  __device__ __forceinline__ void copy_tma(u64 to, u64 from, u64 bytes) {
    join_block();  // the first thread copies what the others wrote
    if (threadIdx.x == 0) bulk->copy(to, from, bytes / 16 * 16, 0, 1);
    copy_last_word(to, from, bytes);
  }

  static __device__ __forceinline__ void copy_last_word(u64 to, u64 from, u64 bytes) {
    if (bytes % 16 && threadIdx.x == 0)
      *reinterpret_cast<u64*>(to + bytes - 8) = *reinterpret_cast<const u64*>(from + bytes - 8);
  }

  static __device__ __forceinline__ void copy(u64 to, u64 from, u64 bytes) {
    const u64 step = u64{blockDim.x} * 16, vectors_end = bytes / 16 * 16;
    u64 at = u64{threadIdx.x} * 16;
    for (; at + (in_flight - 1) * step < vectors_end; at += in_flight * step) {
      ulonglong2 held[in_flight];
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) held[k] = load_pair(from + at + k * step);
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) store_pair(to + at + k * step, held[k].x, held[k].y);
    }
    for (; at < vectors_end; at += step) {
      const ulonglong2 held = load_pair(from + at);
      store_pair(to + at, held.x, held.y);
    }
    copy_last_word(to, from, bytes);
  }

  __device__ __forceinline__ void load(u64 from, u64 bytes) {
    const u64 step = u64{blockDim.x} * 16, vectors_end = bytes / 16 * 16;
    u64 at = u64{threadIdx.x} * 16;
    for (; at + (in_flight - 1) * step < vectors_end; at += in_flight * step) {
      ulonglong2 held[in_flight];
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) held[k] = load_pair(from + at + k * step);
#pragma unroll
      for (unsigned k = 0; k < in_flight; ++k) sum += held[k].x + held[k].y;
    }
    for (; at < vectors_end; at += step) {
      const ulonglong2 held = load_pair(from + at);
      sum += held.x + held.y;
    }
    if (bytes % 16 && threadIdx.x == 0) sum += *reinterpret_cast<const u64*>(from + bytes - 8);
  }

  static __device__ __forceinline__ void store(u64 to, u64 bytes, u64 seed, u64 first_index) {
    const u64 step = u64{blockDim.x} * 16, vectors_end = bytes / 16 * 16;
    for (u64 at = u64{threadIdx.x} * 16; at < vectors_end; at += step)
      store_pair(to + at, linkscope_pattern_word(seed, first_index + at / 8),
                 linkscope_pattern_word(seed, first_index + at / 8 + 1));
    if (bytes % 16 && threadIdx.x == 0)
      *reinterpret_cast<u64*>(to + bytes - 8) = linkscope_pattern_word(seed, first_index + bytes / 8 - 1);
  }
};

// A table in shared memory, because acquiring loads would evict it from the L1. The table of the first block is a parameter,
// so that a block alone loads none; block b has further[b - 1].
struct OwnTable {
  linkscope::ActorOp* ops;
  unsigned count;
  u64* result;

  __device__ __forceinline__ void load(const linkscope::ActorOps& table, const linkscope::BlockTable* further) {
    count = table.count;
    if (blockIdx.x == 0) {
      if (threadIdx.x == 0)
        for (unsigned op = 0; op < count; ++op) ops[op] = table.ops[op];
    } else {
      const linkscope::BlockTable* own = further + (blockIdx.x - 1);
      count = own->table.count;
      result = own->result;
      if (threadIdx.x == 0)
        for (unsigned op = 0; op < count; ++op) ops[op] = own->table.ops[op];
    }
    join_block();
  }

  // result[0] grows by the sum of what was loaded; result[1] becomes the op that waited in vain, if any.
  __device__ __forceinline__ void end(u64 sum, u64 in_vain) const {
    if (sum) atomicAdd(result, sum);
    if (in_vain && threadIdx.x == 0) result[1] = in_vain;
  }
};

// `count` iterations from `first`.
static __device__ __forceinline__ void perform_table(const linkscope::ActorOps& table, u64 first, u64 count,
                                                     u64* result, const linkscope::BlockTable* further,
                                                     BulkCopies* bulk) {
  __shared__ linkscope::ActorOp ops[linkscope::most_actor_ops];
  __shared__ linkscope::Operation taken[linkscope::most_descriptor_words];
  OwnTable own{ops, 0, result};
  own.load(table, further);
  BlockMemory memory{{}, 0, taken, bulk, 0, 0};
  const u64 in_vain = linkscope::perform_all(ops, own.count, first, count, memory);
  own.end(memory.sum, in_vain);
}

// The same with stamps of the first block's iterations. `clocks` holds them until the end: in shared memory no later
// release has to wait for them.
static __device__ __forceinline__ void perform_stamped(const linkscope::ActorOps& table, u64 first, u64 count,
                                                       u64* result, const linkscope::BlockTable* further,
                                                       BulkCopies* bulk, linkscope::BlockStamps* stamps,
                                                       unsigned* clocks) {
  __shared__ linkscope::ActorOp ops[linkscope::most_actor_ops];
  __shared__ linkscope::Operation taken[linkscope::most_descriptor_words];
  OwnTable own{ops, 0, result};
  own.load(table, further);
  BlockMemory memory{{}, 0, taken, bulk, 0, 0};
  const bool notes = blockIdx.x == 0 && threadIdx.x == 0;
  const u64 begun_ns = BlockMemory::now_ns(), begun_clock = clock64();
  const u64 in_vain = linkscope::perform_each(ops, own.count, first, count, memory, [&](u64 iteration) {
    if (notes && iteration < linkscope::most_stamps) clocks[iteration] = static_cast<unsigned>(clock64());
  });
  const u64 ended_ns = BlockMemory::now_ns(), ended_clock = clock64();
  own.end(memory.sum, in_vain);
  if (!notes) return;
  stamps->begun_ns = begun_ns;
  stamps->ended_ns = ended_ns;
  stamps->begun_clock = begun_clock;
  stamps->ended_clock = ended_clock;
  for (u64 i = 0; i < count && i < linkscope::most_stamps; ++i) stamps->clocks[i] = clocks[i];
}

extern "C" __global__ void __launch_bounds__(1024)
    linkscope_block(const linkscope::ActorOps table, u64 first, u64 count, u64* result,
                    const linkscope::BlockTable* further) {
  perform_table(table, first, count, result, further, nullptr);
}

extern "C" __global__ void __launch_bounds__(1024)
    linkscope_block_stamped(const linkscope::ActorOps table, u64 first, u64 count, u64* result,
                            const linkscope::BlockTable* further, linkscope::BlockStamps* stamps) {
  __shared__ unsigned clocks[linkscope::most_stamps];
  perform_stamped(table, first, count, result, further, nullptr, stamps, clocks);
}

// The same with shared memory for copies by TMA: compute capability 9.0 and later, and never launched below. It leaves no
// room for stamps, which lie in the GPU's memory.
extern "C" __global__ void __launch_bounds__(1024)
    linkscope_block_tma(const linkscope::ActorOps table, u64 first, u64 count, u64* result,
                        const linkscope::BlockTable* further) {
#if __CUDA_ARCH__ >= 900
  __shared__ BulkBuffer buffer;
  BulkCopies copies{&buffer, 0};
  if (threadIdx.x == 0) copies.start();
  perform_table(table, first, count, result, further, &copies);
#endif
}

extern "C" __global__ void __launch_bounds__(1024)
    linkscope_block_tma_stamped(const linkscope::ActorOps table, u64 first, u64 count, u64* result,
                                const linkscope::BlockTable* further, linkscope::BlockStamps* stamps) {
#if __CUDA_ARCH__ >= 900
  __shared__ BulkBuffer buffer;
  BulkCopies copies{&buffer, 0};
  if (threadIdx.x == 0) copies.start();
  perform_stamped(table, first, count, result, further, &copies, stamps, stamps->clocks);
#endif
}
