// A machine file (machines/*.toml, as JSON) as the simulation uses it: SI units, indices instead of names. The file's
// own checks with path and cure are Python's (linkscope/machine/model.py); here only what would crash is refused.
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/place.hpp"

namespace linkscope::sim {

/// A node of the graph: NUMA nodes first, then GPUs, then what data only pass, NICs and switches, then disks.
using Node = u32;

/// What idles goes to sleep: the longer, the more of it. The first to come waits `most` after a long time, and 63 % of
/// that after `constant`.
struct WakeUp {
  double most = 0, constant = 0;  // s

  [[nodiscard]] double after(double idle) const;
};

struct NumaNode {
  Place place;
  u64 memory_bytes = 0;
  double dram = 0;                         // B/s, reads and writes together
  double memcpy_near = 0, memcpy_far = 0;  // B/s of one thread; far: where a side lies on another node
  double streamed = 0;                     // B/s of one thread that writes past the caches
  double load = 0;                         // s of a load that meets no cache, from a core of the node; 0: not known
  u64 llc_bytes = 0;
  double llc = 0;                    // B/s of one thread that copies within the last-level cache; 0: not known
  double dirty = 0;                  // the same where another core's cache holds it modified; 0: not known
  u64 huge_2mib = 0, huge_1gib = 0;  // reserved huge pages
  u32 cpus = 1;
};

struct GpuNode {
  Place place;
  Node numa = 0;
  u64 memory_bytes = 0;
  u32 copy_engines = 1;
  u32 sms = 1;
  double memory = 0;      // B/s, reads and writes together
  double local_copy = 0;  // B/s of one copy within the GPU
  u64 l2_bytes = 0;
  double l2 = 0;  // B/s of threads from and to what the L2 holds; 0: not known
  WakeUp wake_up{};
  double compute_capability = 0;  // 0: not known
};

/// One direction of a link.
struct Link {
  std::string name;  // "pcie numa:0->gpu:0"
  Node from = 0, to = 0;
  double rate = 0;          // B/s, after its efficiency
  double latency = 0;       // s
  double kernel_share = 1;  // what a GPU's threads get of the rate
  WakeUp wake_up{};
  bool nvlink = false;
};

/// A capacity that several directed links have in common.
struct Share {
  double rate = 0;
  std::vector<u32> links;
};

struct Route {
  Node from = 0, to = 0;
  std::vector<u32> links;
};

enum Direction : u8 { to_device, from_device, between_devices, within_device };

/// Copies whose bytes are in the command itself: up to how many, their set-up, and the most that they get.
struct Inline {
  u64 bytes = 0;
  double setup = 0, rate = 0;
};

/// What copies cost besides their bytes and the latency of their way. A stream's work goes through channels: kernels,
/// copies within the GPU and small copies to it (their bytes in the command itself) through the compute channel, the
/// rest through a copy engine's. A stream that changes from one to the other pays for it (docs/notes/single-copies.md).
struct CopyCosts {
  std::array<double, 4> setup{};  // by Direction
  Inline in_command{};            // copies to the device
  double channel = 0;
  std::optional<double> small_peer;  // set-up between GPUs of copies up to inline_bytes, where that is another
  std::optional<double> row;         // s that a row takes at least, where one copy is of several
  double both_ways = 0;              // s of set-up more while the GPU's engine of the other direction works
  bool by_stream = false;            // an engine does all that a stream has queued before it serves another
  double arrive = 0;                 // s from the last bytes to a host until they are known to be there
  std::array<double, 4> late{};      // by Direction: s that a copy ends later for each doubling of its parts
};

/// Copies that one call queues together. The first is set up as any; the set-ups of the others go on while bytes of those
/// before flow.
struct BatchCosts {
  double issue = 0;  // s from one copy's set-up to the next
  double host = 0;   // s of the call for each of its copies
};

/// Copies that are nodes of a graph, one after the other.
struct GraphCosts {
  double launch = 0;  // s from the graph's turn in its stream to its first node
  double node = 0;    // s a node costs more than a copy in a stream
};

/// What a copy between GPUs costs more where the destination's stream queues it: so long before its bytes, of which a part
/// of the bytes' own time goes on meanwhile, down to the least.
struct PullCosts {
  double extra = 0, overlap = 0, least = 0;
};

/// How a GPU's threads access memory. A tile is what a block of 512 threads has in flight: four accesses of 16 B each.
/// The GPU keeps the translations of so much host memory; for a page beyond it walks the page table, a walk at a time.
struct KernelCosts {
  double launch = 0;                     // s from one kernel to the next in a stream
  double load = 0;                       // s of a load from the GPU's own memory that meets no cache
  double read_tile = 0, write_tile = 0;  // s a block needs for a tile, besides the latency of its loads
  double memory_share = 1;               // what threads get of the memory's rate
  double host_reach = 0, host_page = 0;  // B; 0: all host memory is in reach
  double host_walk = 0;                  // s
  double packet = 0;                     // B that each request takes of a link besides its bytes
};

/// How pages of managed memory move: as somebody faults on them, or by prefetch.
struct ManagedCosts {
  u64 page_bytes = 0;
  double launch = 0,
         peer_launch = 0;  // s of a kernel that touches a host's, or another GPU's pages, besides what its faults take
  u64 gpu_batch_bytes = 0,
      cpu_fault_bytes = 0;               // what a batch of a GPU's faults, or the first of one CPU thread, brings
  u64 cpu_block_bytes = 0;               // in which each further fault brings as much as is there already
  double gpu_batch = 0, gpu_page = 0;    // s a batch, and more a page of it
  double gpu_region = 0, gpu_block = 0;  // s more for each region, or block, of which nothing was there before
  double cpu_fault = 0, cpu_page = 0;    // s a fault, and more a page that is touched; threads fault at the same time
  double to_device = 0, from_device = 0, peer = 0;  // B/s of pages that move because of faults
  double cpu_reach = 0;                             // B/s of a CPU thread on a GPU's pages where they are; 0: it cannot
  double prefetch = 0;                              // s a call
  u64 piece_bytes = 0;                              // of a prefetch
  double to_device_piece = 0, from_device_piece = 0;  // s a piece, besides its bytes
};

/// What another process's memory of a GPU costs besides: s of making what others open it by, of a call that opens or closes
/// it, of taking in a file descriptor.
struct SharingCosts {
  double make = 0, open = 0, import = 0;
};

/// What memory costs besides its rate. A page is of the kernel, or a huge one where memory has such; a block is what GPU
/// memory is made of and mapped by. Times are of one thread.
struct MemoryCosts {
  u64 page_bytes = 0, block_bytes = 0;
  double call = 0;  // s of mmap or munmap, besides its pages
  double fault = 0, clear = 0,
         free_page = 0;  // s of the fault on an untouched page; B/s of clearing it; s of giving it back
  double pin = 0, pin_page = 0, unpin_page = 0;  // s of a call that pins; s a page
  double made_page = 0, unmade_page = 0;         // s a page of memory that the driver allocates pinned, and gives back
  double host_pointer = 0;                       // s of asking by which address a GPU reaches pinned memory
  double device = 0, device_block = 0, free_block = 0;  // s of a call; s a block that is made, and given back
  double pool = 0;                                      // s of memory that the pool keeps
  double map = 0, map_block = 0;                        // s of mapping or unmapping; s a block
  double wc_read = 0, wc_write = 0;                     // B/s of one CPU thread at write-combined memory
  std::optional<SharingCosts> sharing{};                // not known: nobody's shared memory is timed
};

struct Costs {
  double call = 0, launch = 0, sync = 0;  // CPU time of a call: enqueue, kernel launch, wait for an idle stream
  double event = 0, event_tick = 0;       // between two events back to back; the step of their stamps
  double host_stamp = 0, cpu_copy = 0;    // reading the clock; calling memcpy
  std::optional<double> stream_wait;      // from an event of one stream until another that waits for it goes on
};

/// What calls cost the CPU thread that makes them, in s.
struct CallCosts {
  double launch = 0, locked = 0,
         argument = 0;  // of a launch: in all, in the driver's lock, and more a byte of arguments
  double end = 0;       // from its return until its kernel has ended, as a thread that waits sees it
  double synchronize = 0, record = 0, query = 0;  // where nothing is waited for
  double create_stream = 0, destroy_stream = 0;
  double instantiate = 0, instantiate_node = 0, upload = 0, upload_node = 0, graph = 0, graph_node = 0;
};

/// How a GPU's threads add to words by atomic operations, where the words are.
struct AtomicCosts {
  double gpu = 0, host = 0;                  // s an operation that is waited for, besides its way
  double gpu_rate = 0, host_rate = 0;        // operations a second, each on a word of its own
  double same_rate = 0, same_peer_rate = 0;  // all on one, of the GPU itself or of another
  double link_bytes = 0;                     // of a link, an operation
};

/// How a GPU is shared by processes: one context at a time.
struct TimeSlices {
  double change = 0;  // s from one process's context to another's
  double length = 0;  // s after which another's turn comes
};

/// A ring of pinned chunks through which the driver takes what it cannot send directly.
struct Ring {
  u64 chunk_bytes = 0;
  u32 slots = 1;
};

/// Spreads (sigma of a log-normal factor) of one level of noise: times of the compute channel, of copy engines and of the
/// change between them; rates of links; speeds of CPU threads.
struct Spread {
  double compute = 0, engine = 0, channel = 0, rate = 0, host = 0;
  double correlation = 0;        // of a sample's factors with those of the sample before
  double second = 1, share = 0;  // two modes: in a `share` of cases everything takes `second` times as long
};

struct Fault {
  enum class Kind : u8 { corrupt, hang, die, ramp, throttle, slow, flaky, lie } kind = Kind::corrupt;
  std::string match;  // glob on the key, "POINT_ID#ROUND"
  u64 after_samples = 0;
  u64 samples = 0;         // ramp, throttle: how many are slower; lie: how many later the bytes arrive, 0: never
  double factor = 1;       // ramp, throttle: how many times slower; slow, flaky: the part of its rate that a link has
  double share = 1;        // flaky: of samples
  std::vector<u32> links;  // slow, flaky
};

struct Machine {
  std::string name;
  std::vector<NumaNode> numa;
  std::vector<GpuNode> gpus;
  u32 passed = 0;  // NICs and switches
  std::vector<Place> disks;
  std::vector<Link> links;
  std::vector<Share> shares;
  std::vector<Route> overrides;
  std::vector<u8> peers;  // [from * gpus + to]: may GPU `from` reach GPU `to` directly

  Costs costs;
  std::optional<TimeSlices> slices;  // not known: no GPU is shared by processes
  CopyCosts copy;
  PullCosts pull;
  std::optional<BatchCosts> batch;      // not known: nothing is copied so
  std::optional<GraphCosts> graph;      // the same
  std::optional<KernelCosts> kernel;    // not known: nobody's kernels run
  std::optional<ManagedCosts> managed;  // not known: nobody has managed memory
  std::optional<CallCosts> calls;       // not known: only copies are queued
  std::optional<AtomicCosts> atomic;    // not known: no atomic operations
  std::optional<MemoryCosts>
      memory;  // not known: nobody's allocations are timed, and no CPU copies write-combined memory
  Ring pageable;
  double pageable_rate[2] = {0, 0};            // B/s of the thread that copies, to_device and from_device
  double pageable_call[2] = {0, 0};            // s of the call, besides its chunks
  double small_pageable_rate = 0;              // B/s of the thread, to a device, of copies that are small
  std::optional<double> small_pageable_setup;  // s of their set-up; not known: as of any copy
  double pageable_end = 0;                     // s from the last bytes to a device until a thread that waits goes on
  bool pageable_by_caller = false;             // each caller's thread copies; otherwise one of the driver, for all
  Ring staged_peer;
  double staged_peer_chunk = 0;  // s a chunk and stage: hand-over between the two GPUs
  Spread machine_noise, round_noise, sample_noise;
  std::vector<Fault> faults;

  [[nodiscard]] Node nodes() const { return first_disk() + static_cast<Node>(disks.size()); }
  [[nodiscard]] Node first_gpu() const { return static_cast<Node>(numa.size()); }
  [[nodiscard]] Node first_passed() const { return first_gpu() + static_cast<Node>(gpus.size()); }
  [[nodiscard]] Node first_disk() const { return first_passed() + passed; }
  /// Whether data may go through it on their way elsewhere.
  [[nodiscard]] bool is_passed(Node node) const { return !is_gpu(node) && node < first_disk(); }
  [[nodiscard]] bool is_gpu(Node node) const { return node >= first_gpu() && node < first_passed(); }
  [[nodiscard]] const GpuNode& gpu(Node node) const { return gpus[node - first_gpu()]; }
  [[nodiscard]] bool peer(Node from, Node to) const {
    return peers[(from - first_gpu()) * gpus.size() + (to - first_gpu())] != 0;
  }
  [[nodiscard]] std::optional<Node> find(const Place&) const;
};

/// Throws Error{usage} that names the key when the file cannot be used.
[[nodiscard]] Machine parse_machine(const nlohmann::json&);

}  // namespace linkscope::sim
