// A machine file (machines/*.toml, as JSON) for the simulation: SI units, indices instead of names. Python checks the
// file and names key and cure (linkscope/machine/model.py). This reader refuses only values that would crash the
// simulation.
#pragma once
#include <array>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/place.hpp"

namespace linkscope::sim {

/// A node of the graph: NUMA nodes first, then GPUs, then nodes that data only pass (NICs and switches), then disks.
using Node = u32;

/// Wake-up after idling: the first user waits `most` after a long time, and 63 % of that after `constant`.
struct WakeUp {
  double most = 0, constant = 0;  // s

  [[nodiscard]] double after(double idle) const;
};

struct NumaNode {
  Place place;
  u64 memory_bytes = 0;
  double dram = 0;                         // B/s, reads and writes together
  double memcpy_near = 0, memcpy_far = 0;  // B/s of one thread; far: with a side on another node
  double streamed = 0;                     // B/s of one thread that writes past the caches
  double load = 0;                         // s of a load that misses all caches, from a core of the node; 0: unknown
  u64 llc_bytes = 0;
  double llc = 0;                    // B/s of one thread that copies within the last-level cache; 0: unknown
  double dirty = 0;                  // the same if another core's cache holds the data modified; 0: unknown
  u64 huge_2mib = 0, huge_1gib = 0;  // reserved huge pages
  u32 cpus = 1;
};

/// How a network card takes descriptors from threads, and what they cost the threads.
struct Posting {
  bool in_registers = false;  // the card's own, or a ring in memory, of which a word in its registers tells it
  u64 descriptor_bytes = 0;
  double cpu_post = 0, gpu_post = 0;    // s of a thread until it has written a descriptor
  double cpu_take = 0, gpu_take = 0;    // s of a thread that takes a notification, besides the load that sees it
  std::optional<double> gpu_message{};  // s of a message whose descriptor a GPU writes into the registers
};

/// A network card.
struct Nic {
  Node node = 0;
  Place place;
  std::optional<Posting> posting{};  // unknown: it takes no descriptors
  std::optional<double> message{};   // s of a message besides its path and its bytes; unknown: it sends none
  // B/s at which it reads and writes the memory of GPUs; unknown: it does not
  std::optional<double> gpu_read{}, gpu_write{};
  // Messages up to this size are copied to and from the card's own buffers, at these B/s from its nearest and from
  // another node; larger ones first ask the receiver.
  u64 eager_bytes = 0;
  double eager = 0, eager_far = 0;
  // Messages above this size are read from a GPU at a rate of their own.
  u64 gpu_short_bytes = 0;
  double gpu_long_read = 0;
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
  double l2 = 0;  // B/s of SM accesses to data in the L2; 0: unknown
  WakeUp wake_up{};
  double compute_capability = 0;               // 0: unknown
  std::map<std::string, double> operations{};  // per second, by element; absent: unknown
  double reached = 1;                          // the part of them that computations reach
};

/// One direction of a link.
struct Link {
  std::string name;  // "pcie numa:0->gpu:0"
  Node from = 0, to = 0;
  double rate = 0;          // B/s, after its efficiency
  double latency = 0;       // s
  double kernel_share = 1;  // the part of the rate that SMs get
  WakeUp wake_up{};
  bool nvlink = false;
};

/// A capacity that several directed links share.
struct Share {
  double rate = 0;
  std::vector<u32> links;
};

struct Route {
  Node from = 0, to = 0;
  std::vector<u32> links;
};

enum Direction : u8 { to_device, from_device, between_devices, within_device };

/// Copies whose bytes are in the command itself: their largest size, their set-up, and their highest rate.
struct Inline {
  u64 bytes = 0;
  double setup = 0, rate = 0;
};

/// The cost of copies besides their bytes and the latency of their path. A stream's work goes through channels:
/// kernels, copies within the GPU and small copies to it (their bytes in the command) through the compute channel, the
/// rest through a copy engine's. A stream that switches between them pays for it (docs/notes/single-copies.md).
struct CopyCosts {
  std::array<double, 4> setup{};  // by Direction
  Inline in_command{};            // copies to the device
  double channel = 0;
  std::optional<double> small_peer;  // set-up between GPUs of copies up to inline_bytes, if that differs
  std::optional<double> row;         // least s of a row in a copy of several
  double opposite = 0;               // additional s of set-up while the GPU's engine of the other direction works
  bool by_stream = false;            // an engine finishes all that a stream has queued before it serves another
  double arrive = 0;                 // s from the last bytes to a host until their arrival is known
  std::array<double, 4> late{};      // by Direction: additional s of a copy for each doubling of its parts
};

/// Copies that one call queues together. The first is set up as usual; the set-ups of the others overlap with earlier
/// bytes.
struct BatchCosts {
  double issue = 0;  // s from one copy's set-up to the next
  double host = 0;   // s of the call per copy
};

/// Copies that are nodes of a graph, one after the other.
struct GraphCosts {
  double launch = 0;  // s from the graph's turn in its stream to its first node
  double node = 0;    // additional s of a node over a copy in a stream
};

/// The additional cost of a copy between GPUs that the destination's stream queues: a delay before its bytes, reduced
/// by a part of the bytes' own time, down to the least.
struct PullCosts {
  double extra = 0, overlap = 0, least = 0;
};

/// SM accesses to memory. A tile is what a block of 512 threads has in flight: four accesses of 16 B each. The GPU
/// keeps the translations of a limited amount of host memory; for a page beyond it walks the page table, one walk at a
/// time.
struct KernelCosts {
  double launch = 0;                     // s from one kernel to the next in a stream
  double load = 0;                       // s of a load from the GPU's own memory that misses all caches
  double read_tile = 0, write_tile = 0;  // s that a block needs for a tile, besides the latency of its loads
  double memory_share = 1;               // the part of the memory's rate that SMs get
  double host_reach = 0, host_page = 0;  // B; 0: all host memory is in reach
  double host_walk = 0;                  // s
  double packet = 0;                     // B that each request uses of a link besides its bytes
};

/// How pages of managed memory move: on faults, or by prefetch.
struct ManagedCosts {
  u64 page_bytes = 0;
  double launch = 0,
         peer_launch = 0;  // s of a kernel that accesses pages of a host, or of another GPU, besides its faults
  u64 gpu_batch_bytes = 0,
      cpu_fault_bytes = 0;               // pages in a batch of a GPU's faults, or in the first fault of one CPU thread
  u64 cpu_block_bytes = 0;               // block in which each further fault brings as much as is there already
  double gpu_batch = 0, gpu_page = 0;    // s per batch, and per page of it
  double gpu_region = 0, gpu_block = 0;  // additional s per region, or block, of which nothing was there before
  double cpu_fault = 0, cpu_page = 0;    // s per fault, and per accessed page; threads fault side by side
  double to_device = 0, from_device = 0, peer = 0;  // B/s of pages that move because of faults
  double cpu_reach = 0;                             // B/s of a CPU thread on a GPU's pages in place; 0: not possible
  u64 modified_bytes = 0;   // that the caches of a host hold modified after it has written pages
  double modified_far = 0;  // B/s of those that move to a GPU of another node; 0: as any
  double prefetch = 0;      // s per call
  u64 piece_bytes = 0;      // of a prefetch
  double to_device_piece = 0, from_device_piece = 0;  // s per piece, besides its bytes
};

/// The additional cost of GPU memory of another process: s of making a handle, of a call that opens or closes it, of
/// importing a file descriptor.
struct SharingCosts {
  double make = 0, open = 0, import = 0;
};

/// The cost of memory besides its rate. A page is that of the kernel, or a huge one; a block is the unit of GPU memory.
/// Times are of one thread.
struct MemoryCosts {
  u64 page_bytes = 0, block_bytes = 0;
  double call = 0;  // s of mmap or munmap, besides its pages
  double fault = 0, clear = 0,
         free_page = 0;  // s of the fault on an untouched page; B/s of clearing it; s of freeing it
  double pin = 0, pin_page = 0, unpin_page = 0;         // s of a call that pins; s per page
  double made_page = 0, unmade_page = 0;                // s per page that the driver allocates pinned, and frees
  double host_pointer = 0;                              // s of a query for the GPU address of pinned memory
  double device = 0, device_block = 0, free_block = 0;  // s per call; s per block that is made, and freed
  double pool = 0;                                      // s of memory that the pool keeps
  double map = 0, map_block = 0;                        // s of mapping or unmapping; s per block
  double wc_read = 0, wc_write = 0;                     // B/s of one CPU thread on write-combined memory
  std::optional<SharingCosts> sharing{};                // unknown: phases of shared memory are not timed
};

struct Costs {
  double call = 0, launch = 0, sync = 0;  // CPU time of a call: enqueue, kernel launch, wait for an idle stream
  double event = 0, event_tick = 0;       // between two consecutive events; the resolution of their stamps
  double host_stamp = 0, cpu_copy = 0;    // reading the clock; calling memcpy
  std::optional<double> stream_wait;      // from an event of one stream until another that waits for it continues
};

/// The cost of calls for the calling CPU thread, in s.
struct CallCosts {
  double launch = 0, locked = 0,
         argument = 0;                            // of a launch: total, in the driver's lock, and per byte of arguments
  double end = 0;                                 // from its return until its kernel has ended, for a waiting thread
  double synchronize = 0, record = 0, query = 0;  // of objects that are already complete
  double create_stream = 0, destroy_stream = 0;
  bool graphs = false;  // whether the driver has them
  double instantiate = 0, instantiate_node = 0, upload = 0, upload_node = 0, graph = 0, graph_node = 0;
};

/// How SMs add to words by atomic operations, by the place of the words.
struct AtomicCosts {
  double gpu = 0, host = 0;                  // s of a dependent operation, besides its path
  double cpu = 0;                            // s of a CPU's addition to a word in its cache; 0: unknown
  double gpu_rate = 0, host_rate = 0;        // operations a second, each on a word of its own
  double same_rate = 0, same_peer_rate = 0;  // all on one word, of the GPU itself or of another
  double link_bytes = 0;                     // of a link, per operation
};

/// Messages between processes of a host: s of one direction by Channel, besides the bytes and the path between nodes.
struct MessageCosts {
  std::array<double, 3> latency{0.3e-6, 3e-6, 7e-6};
};

/// How a GPU is shared by processes: one context at a time.
struct TimeSlices {
  double change = 0;  // s from one process's context to another's
  double length = 0;  // s after which another process gets its turn
};

/// A ring of pinned chunks through which the driver moves what it cannot send directly.
struct Ring {
  u64 chunk_bytes = 0;
  u32 slots = 1;
};

/// Spreads (sigma of a log-normal factor) of one level of noise: times of the compute channel, of copy engines and of
/// the switch between them; rates of links; speeds of CPU threads.
struct Spread {
  double compute = 0, engine = 0, channel = 0, rate = 0, host = 0;
  double correlation = 0;        // correlation of a sample's factors with those of the sample before
  double second = 1, share = 0;  // two modes: with probability `share` the time is multiplied by `second`
};

struct Fault {
  enum class Kind : u8 { corrupt, hang, die, ramp, throttle, slow, flaky, lie } kind = Kind::corrupt;
  std::string match;  // glob on the key, "POINT_ID#ROUND"
  u64 after_samples = 0;
  u64 samples = 0;         // ramp, throttle: number of slower samples; lie: delay of the bytes in samples, 0: for ever
  double factor = 1;       // ramp, throttle: factor of times; slow, flaky: the part of its rate that a link keeps
  double share = 1;        // flaky: of samples
  std::vector<u32> links;  // slow, flaky
};

struct Machine {
  std::string name;
  std::vector<NumaNode> numa;
  std::vector<GpuNode> gpus;
  u32 passed = 0;  // NICs and switches
  std::vector<Nic> nics;
  std::vector<Place> disks;
  std::vector<Link> links;
  std::vector<Share> shares;
  std::vector<Route> overrides;
  std::vector<u8> peers;  // [from * gpus + to]: may GPU `from` reach GPU `to` directly

  Costs costs;
  std::optional<TimeSlices> slices;  // unknown: GPUs are not shared by processes
  MessageCosts messages;
  CopyCosts copy;
  PullCosts pull;
  std::optional<BatchCosts> batch;      // unknown: such copies are unsupported
  std::optional<GraphCosts> graph;      // the same
  std::optional<KernelCosts> kernel;    // unknown: kernels are unsupported
  std::optional<ManagedCosts> managed;  // unknown: managed memory is unsupported
  std::optional<CallCosts> calls;       // unknown: only queueing of copies is supported
  std::optional<AtomicCosts> atomic;    // unknown: atomic operations are unsupported
  std::optional<MemoryCosts> memory;    // unknown: allocations are not timed, and no CPU copies write-combined memory
  Ring pageable;
  double pageable_rate[2] = {0, 0};            // B/s of the copying thread, to_device and from_device
  double pageable_call[2] = {0, 0};            // s per call, besides its chunks
  double small_pageable_rate = 0;              // B/s of the thread for small copies to a device
  std::optional<double> small_pageable_setup;  // s of their set-up; unknown: as for any copy
  double pageable_end = 0;                     // s from the last bytes to a device until a waiting thread continues
  bool pageable_by_caller = false;  // each calling thread copies; otherwise one thread of the driver, for all
  Ring staged_peer;
  double staged_peer_chunk = 0;  // s per chunk and stage: hand-over between the two GPUs
  Spread machine_noise, round_noise, sample_noise;
  std::vector<Fault> faults;

  [[nodiscard]] Node nodes() const { return first_disk() + static_cast<Node>(disks.size()); }
  [[nodiscard]] Node first_gpu() const { return static_cast<Node>(numa.size()); }
  [[nodiscard]] Node first_passed() const { return first_gpu() + static_cast<Node>(gpus.size()); }
  [[nodiscard]] Node first_disk() const { return first_passed() + passed; }
  /// Whether data may pass through the node.
  [[nodiscard]] bool is_passed(Node node) const { return !is_gpu(node) && node < first_disk(); }
  [[nodiscard]] bool is_gpu(Node node) const { return node >= first_gpu() && node < first_passed(); }
  /// The network card of that node; null for other nodes.
  [[nodiscard]] const Nic* nic(Node node) const;
  [[nodiscard]] const GpuNode& gpu(Node node) const { return gpus[node - first_gpu()]; }
  [[nodiscard]] bool peer(Node from, Node to) const {
    return peers[(from - first_gpu()) * gpus.size() + (to - first_gpu())] != 0;
  }
  [[nodiscard]] std::optional<Node> find(const Place&) const;
};

/// Throws Error{usage} that names the key of an unusable file.
[[nodiscard]] Machine parse_machine(const nlohmann::json&);

}  // namespace linkscope::sim
