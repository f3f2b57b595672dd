#include "emulated_gpu.hpp"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/pattern.hpp"
#include "base/short_floats.hpp"

namespace emulated {
namespace {

constexpr u64 guard = 4096, line = 256;
constexpr char guard_byte = '\xC3', fresh_byte = '\xA5';

std::vector<Memory*>& memories() {
  static std::vector<Memory*> alive;
  return alive;
}

}  // namespace

// --- memory -------------------------------------------------------------------------------------------------------

Memory::Memory(u64 bytes)
    : bytes_{bytes}, kept_(bytes + 2 * guard + line, guard_byte), reads_(bytes / 8), writes_(bytes / 8) {
  const auto first = reinterpret_cast<std::uintptr_t>(kept_.data()) + guard;
  start_ = kept_.data() + guard + (line - first % line) % line;
  std::memset(start_, fresh_byte, bytes_);
  memories().push_back(this);
}

Memory::~Memory() { std::erase(memories(), this); }

void Memory::fill_with_pattern(u64 seed, u64 first_index) const {
  for (u64 i = 0; i < bytes_ / 8; ++i) words()[i] = linkscope_pattern_word(seed, first_index + i);
}

bool Memory::holds_pattern(u64 seed, u64 first_index) const {
  for (u64 i = 0; i < bytes_ / 8; ++i)
    if (words()[i] != linkscope_pattern_word(seed, first_index + i)) return false;
  return true;
}

bool Memory::guards_intact() const {
  const auto intact = [](const char* from, const char* to) {
    return std::all_of(from, to, [](char c) { return c == guard_byte; });
  };
  return intact(kept_.data(), start_) && intact(start_ + bytes_, kept_.data() + kept_.size());
}

bool Memory::untouched() const {
  return std::all_of(start_, start_ + bytes_, [](char c) { return c == fresh_byte; });
}

bool Memory::each_vector_once(const std::vector<unsigned>& counts) const {
  const auto whole = counts.begin() + static_cast<std::ptrdiff_t>(bytes_ / 16 * 2);
  return std::all_of(counts.begin(), whole, [](unsigned n) { return n == 1; }) &&
         std::all_of(whole, counts.end(), [](unsigned n) { return n == 0; });
}

void fault(const std::string& what) {
  faults.push_back("block " + std::to_string(blockIdx.x) + " of " + std::to_string(gridDim.x) + ", thread " +
                   std::to_string(threadIdx.x) + " of " + std::to_string(blockDim.x) + ": " + what);
}

bool touch(const void* at, u64 bytes, bool writes) {
  const auto* start = static_cast<const char*>(at);
  accesses.push_back({blockIdx.x, threadIdx.x, start, writes, bytes});
  if (reinterpret_cast<std::uintptr_t>(at) % std::min<u64>(bytes, 16)) fault("uses an unaligned address");
  for (Memory* memory : memories()) {
    if (start < memory->data() || start + bytes > memory->data() + memory->bytes()) continue;
    auto& counts = writes ? memory->writes_ : memory->reads_;
    const auto first = static_cast<u64>(start - memory->data()) / 8;
    for (u64 word = first; word < first + bytes / 8; ++word) ++counts[word];
    return true;
  }
  fault(std::string{writes ? "writes" : "reads"} + " outside of all memory");
  return false;
}

// --- threads ------------------------------------------------------------------------------------------------------

namespace {

constexpr unsigned warp = 32;

struct Lane {
  ucontext_t context{};
  std::vector<char> stack = std::vector<char>(256 << 10);
  bool done = false, joins = false;
  unsigned exchanges = 0;
};

/// Warps that run together: one, or all of a block.
struct Warps {
  ucontext_t scheduler{};
  std::vector<Lane> lanes = std::vector<Lane>(warp);
  unsigned lane = 0;  // the running one
  // Two for each warp, because a fast lane writes the next value before the others have read this one.
  std::vector<std::array<std::array<u64, warp>, 2>> exchanged{1};
  const std::function<void()>* kernel = nullptr;
  Lanes order = Lanes::one_by_one;

  [[nodiscard]] bool lockstep() const { return order != Lanes::one_by_one; }
};

Warps& running() {
  static auto* one = new Warps;
  return *one;
}

void run_lane() {
  auto& all = running();
  (*all.kernel)();
  all.lanes[all.lane].done = true;  // the context ends, the scheduler goes on
}

void run_together(unsigned first, unsigned count) {
  auto& all = running();
  all.lanes.resize(std::max<std::size_t>(all.lanes.size(), count));
  all.exchanged.resize((all.lanes.size() + warp - 1) / warp);
  for (unsigned i = 0; i < count; ++i) {
    auto& lane = all.lanes[i];
    lane.done = lane.joins = false;
    lane.exchanges = 0;
    getcontext(&lane.context);
    lane.context.uc_stack.ss_sp = lane.stack.data();
    lane.context.uc_stack.ss_size = lane.stack.size();
    lane.context.uc_link = &all.scheduler;
    makecontext(&lane.context, run_lane, 0);
  }
  for (unsigned ended = 0; ended < count;) {
    unsigned joining = ended = 0;
    for (all.lane = 0; all.lane < count; ++all.lane) {
      auto& lane = all.lanes[all.lane];
      threadIdx.x = first + all.lane;
      if (!lane.done && !lane.joins) swapcontext(&all.scheduler, &lane.context);
      ended += lane.done;
      joining += lane.joins;
    }
    if (ended && ended < count && (count <= warp || ended + joining == count)) fault("waits for lanes that have ended");
    if (ended + joining == count)
      for (unsigned i = 0; i < count; ++i) all.lanes[i].joins = false;
  }
}

// --- TMA copies ---------------------------------------------------------------------------------------------------

struct Fetch {
  unsigned to;
  const char* from;
  unsigned bytes;
};

struct Barrier {
  unsigned arrivals = 0, arrived = 0, phase = 0;
  u64 expected = 0;
  std::vector<Fetch> fetches;
};

struct Store {
  char* to;
  unsigned from, bytes;
};

std::map<unsigned, Barrier> barriers;
std::vector<Store> gathered;
std::vector<std::vector<Store>> committed;

/// The groups of asynchronous copies of each thread of the running block; the last one is open.
std::map<unsigned, std::vector<std::vector<Fetch>>> groups_of_threads;

char anchor;  // shared memory is static here, so 32-bit offsets from this address reach it

char* in_shared(unsigned address) { return &anchor + static_cast<std::int32_t>(address); }

Barrier& at(unsigned address) {
  if (!barriers.contains(address)) fault("uses a barrier that was not initialized");
  return barriers[address];
}

/// Checks a piece as the 16-byte vectors that it consists of.
bool touch_all(const char* start, unsigned bytes, bool writes) {
  if (bytes == 0 || bytes % 16) fault("a TMA copy of " + std::to_string(bytes) + " B");
  bool there = true;
  for (unsigned offset = 0; there && offset < bytes; offset += 16) there = touch(start + offset, 16, writes);
  return there;
}

void end_block() {
  for (const auto& [address, barrier] : barriers)
    if (!barrier.fetches.empty()) fault("ends while a TMA copy to its shared memory is pending");
  for (const auto& [thread, groups] : groups_of_threads)
    if (std::any_of(groups.begin(), groups.end(), [](const auto& group) { return !group.empty(); }))
      fault("ends while an asynchronous copy to its shared memory is pending");
  if (!gathered.empty() || !committed.empty()) fault("ends while a TMA copy from its shared memory is pending");
  barriers.clear();
  gathered.clear();
  committed.clear();
  groups_of_threads.clear();
}

}  // namespace

void launch(unsigned blocks, unsigned threads, const std::function<void()>& kernel, Lanes lanes) {
  running().kernel = &kernel;
  running().order = lanes;
  accesses.clear();
  gridDim.x = blocks;
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    if (lanes == Lanes::block) run_together(0, threads);
    else if (lanes == Lanes::lockstep)
      for (unsigned first = 0; first < threads; first += warp) run_together(first, std::min(warp, threads - first));
    else
      for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel();
    end_block();
  }
}

namespace {

/// Gives a value to the other lanes of the warp; returns those of all lanes.
const std::array<u64, warp>& exchange(unsigned lanes, u64 value) {
  auto& all = running();
  auto& lane = all.lanes[all.lane];
  if (lanes != ~0u || blockDim.x % warp) fault("exchanges values in part of a warp");
  auto& exchanged = all.exchanged[all.lane / warp][lane.exchanges++ % 2];
  exchanged[all.lane % warp] = value;
  if (all.lockstep()) swapcontext(&lane.context, &all.scheduler);
  else fault("exchanges values between lanes that do not run in lockstep");
  return exchanged;
}

}  // namespace

u64 __shfl_xor_sync(unsigned lanes, u64 value, unsigned mask) {
  const unsigned self = running().lane;
  return exchange(lanes, value)[(self ^ mask) % warp];
}

int __syncthreads_and(int value) {
  auto& all = running();
  if (!all.lockstep() || blockDim.x > warp) {
    fault("joins threads that do not run in lockstep");
    return value;
  }
  auto& lane = all.lanes[all.lane];
  auto& exchanged = all.exchanged[0][lane.exchanges++ % 2];
  exchanged[all.lane] = value != 0;
  swapcontext(&lane.context, &all.scheduler);
  return std::all_of(exchanged.begin(), exchanged.begin() + blockDim.x, [](u64 one) { return one != 0; });
}

void __syncthreads() {
  auto& all = running();
  if (all.order != Lanes::block) return (void)__syncthreads_and(1);
  auto& lane = all.lanes[all.lane];
  lane.joins = true;
  swapcontext(&lane.context, &all.scheduler);
}

namespace {

std::vector<std::vector<Fetch>>& groups_of_thread() {
  auto& groups = groups_of_threads[threadIdx.x];
  if (groups.empty()) groups.emplace_back();
  return groups;
}

double number(Short kind, unsigned word) {
  if (kind == Short::tf32) return std::bit_cast<float>(word & ~0x1FFFu);
  const auto bits = static_cast<std::uint16_t>(word);
  return kind == Short::bf16 ? linkscope::from_bf16(bits) : linkscope::from_f16(bits);
}

}  // namespace

void ptx_cp_async_cg_shared_global(unsigned to, const char* from, unsigned bytes) {
  if (bytes != 16 || reinterpret_cast<std::uintptr_t>(in_shared(to)) % 16)
    fault("an asynchronous copy that is no vector");
  groups_of_thread().back().push_back({to, from, bytes});
}

void ptx_cp_async_commit_group() { groups_of_thread().emplace_back(); }

void ptx_cp_async_wait_group(unsigned pending) {
  auto& groups = groups_of_thread();
  while (groups.size() > pending + 1) {
    for (const auto& piece : groups.front())
      if (touch(piece.from, piece.bytes, false)) std::memcpy(in_shared(piece.to), piece.from, piece.bytes);
    groups.erase(groups.begin());
  }
}

void ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3, unsigned at) {
  const unsigned self = running().lane % warp;
  const auto addresses = exchange(~0u, at);
  unsigned* registers[] = {&r0, &r1, &r2, &r3};
  for (unsigned tile = 0; tile < 4; ++tile) {
    const char* row = in_shared(static_cast<unsigned>(addresses[8 * tile + self / 4]));
    if (reinterpret_cast<std::uintptr_t>(row) % 16) fault("loads a row from an unaligned address in shared memory");
    std::memcpy(registers[tile], row + self % 4 * 4, 4);
  }
}

/// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and for mma.m16n8k8: register i of A has row
/// lane / 4 + i % 2 * 8 and the words lane % 4 + i / 2 * 4 of a row of 8, register i of B the words lane % 4 + i * 4 of
/// column lane / 4.
void multiply(Short kind, const Registers& registers) {
  const unsigned self = running().lane % warp;
  const auto both = [](unsigned low, unsigned high) { return u64{high} << 32 | low; };
  const std::array words{exchange(~0u, both(registers.a[0], registers.a[1])),
                         exchange(~0u, both(registers.a[2], registers.a[3])),
                         exchange(~0u, both(registers.b[0], registers.b[1]))};
  const auto word = [&](unsigned pair, unsigned lane, unsigned half) {
    return static_cast<unsigned>(words[pair][lane] >> 32 * half);
  };
  const unsigned in_word = kind == Short::tf32 ? 1 : 2;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = self / 4 + i / 2 * 8, column = self % 4 * 2 + i % 2;
    double sum = registers.c[i];
    for (unsigned k = 0; k < 8 * in_word; ++k) {
      const unsigned at = k / in_word, shift = k % in_word * 16;
      const unsigned a = word(at / 4, row % 8 * 4 + at % 4, row / 8), b = word(2, column * 4 + at % 4, at / 4);
      sum += number(kind, a >> shift) * number(kind, b >> shift);
    }
    *registers.d[i] = static_cast<float>(sum);
  }
}

void ptx_mov_u64(u64& now) {
  static u64 clock = 0;
  now = clock += 100;
  if (on_clock_read) on_clock_read();
}

long long clock64() {
  static long long clock = 0;
  return clock += 64;
}

u64 __cvta_generic_to_shared(const void* address) {
  return static_cast<u64>(static_cast<const char*>(address) - &anchor);
}

void ptx_mbarrier_init_shared_cta_b64(unsigned barrier, unsigned arrivals) {
  barriers[barrier] = {};
  barriers[barrier].arrivals = arrivals;
}

void ptx_mbarrier_arrive_expect_tx_shared_cta_b64(unsigned barrier, unsigned bytes) {
  ++at(barrier).arrived;
  at(barrier).expected += bytes;
}

void ptx_cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(unsigned to, const char* from, unsigned bytes,
                                                                        unsigned barrier) {
  if (reinterpret_cast<std::uintptr_t>(in_shared(to)) % 16)
    fault("a TMA copy to an unaligned address in shared memory");
  at(barrier).fetches.push_back({to, from, bytes});
}

void ptx_mbarrier_try_wait_parity_shared_cta_b64(unsigned barrier, unsigned parity, unsigned& done, unsigned if_done,
                                                 unsigned if_not) {
  if (if_done == if_not) fault("does not distinguish whether a barrier was passed");
  auto& found = at(barrier);
  done = if_done ? if_done : if_not;      // the kernel continues in any case
  if (found.phase % 2 != parity) return;  // that phase has ended
  u64 bytes = 0;
  for (const auto& fetch : found.fetches) {
    if (touch_all(fetch.from, fetch.bytes, false)) std::memcpy(in_shared(fetch.to), fetch.from, fetch.bytes);
    bytes += fetch.bytes;
  }
  if (found.arrived != found.arrivals || bytes != found.expected) fault("waits forever at a barrier");
  found.fetches.clear();
  found.arrived = 0;
  found.expected = 0;
  ++found.phase;
}

void ptx_cp_async_bulk_global_shared_cta_bulk_group(char* to, unsigned from, unsigned bytes) {
  gathered.push_back({to, from, bytes});
}

void ptx_cp_async_bulk_commit_group() {
  committed.push_back(gathered);
  gathered.clear();
}

void ptx_cp_async_bulk_wait_group(unsigned pending) {
  while (committed.size() > pending) {
    for (const auto& store : committed.front())
      if (touch_all(store.to, store.bytes, true)) std::memcpy(store.to, in_shared(store.from), store.bytes);
    committed.erase(committed.begin());
  }
}

}  // namespace emulated
