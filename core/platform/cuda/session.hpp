// A prepared program on this machine, and the ways of timing it.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/actor_ops.hpp"
#include "gpu/cufile.hpp"
#include "gpu/device.hpp"
#include "gpu/graph.hpp"
#include "gpu/green.hpp"
#include "gpu/memory.hpp"
#include "gpu/stream.hpp"
#include "host/crew.hpp"
#include "host/peers.hpp"
#include "host/uring.hpp"
#include "host/words.hpp"
#include "mpi/world.hpp"
#include "nixl/messages.hpp"
#include "platform/cuda/buffers.hpp"
#include "platform/cuda/step_runner.hpp"
#include "program/platform.hpp"
#include "ucx/messages.hpp"

namespace linkscope {

/// One page of pinned memory for the gate's word and its time-out flag.
class Gate {
 public:
  Gate(const Driver&, Device&);

  void close() const;
  /// Queues what waits for open() on a stream: a kernel that gives up after the time-out, or a wait of the stream.
  void queue(Device&, CUstream, HeldBy, Seconds timeout) const;
  void open() const;
  /// Opens it after a time-out: timed_out() is true until the next close().
  void give_up() const;
  [[nodiscard]] bool timed_out() const;

 private:
  const Driver& driver_;
  PinnedMemory page_;
  volatile unsigned* words_ = nullptr;
  CUdeviceptr address_ = 0;
};

/// Keeps the gate closed while it lives; after an exception while queueing, queued work does not wait for ever. The
/// kernel at the gate has its own time-out; a thread releases a waiting stream.
class GateKeeper {
 public:
  GateKeeper(const Gate&, HeldBy, Seconds timeout);  // a kernel's time-out is set when it is queued
  ~GateKeeper();
  GateKeeper(const GateKeeper&) = delete;
  GateKeeper& operator=(const GateKeeper&) = delete;

 private:
  const Gate& gate_;
  std::mutex guard_;
  std::condition_variable_any ended_;
  std::jthread clock_;
};

/// The copies of one call.
struct Pieces {
  std::vector<CUdeviceptr> to, from;
  std::vector<std::size_t> bytes;
};

/// The blocks of a kernel that performs ops: the actor that launches it, and the others of its grid.
struct Grid {
  u32 blocks = 1;
  bool tma = false;      // whether one of them copies by TMA
  DeviceMemory further;  // tables of the others; none: a block alone
};

/// Another GPU's stream that makes some of an actor's moves, and the events that keep the order.
struct Helper {
  Device* device = nullptr;
  Stream* stream = nullptr;
  std::unique_ptr<Event> before, after;
};
class Caller;
class Cublas;
class DueWords;
class NcclGroup;

/// An actor with what it needs to run.
struct ActorState {
  /// Queues (streams) or does (CPU threads) a number of iterations.
  using Loop = void (*)(CudaSession&, ActorState&, u32 count);

  const Actor* actor = nullptr;
  std::vector<std::unique_ptr<StepRunner>> steps;  // of its loop
  Loop loop = nullptr;
  Device* device = nullptr;  // streams only
  Stream* stream = nullptr;  // likewise
  std::unique_ptr<Event> enter, exit;
  std::optional<u32> leader{};  // the actor whose kernel has this one as a further block, which queues nothing itself
  Grid grid;                    // of an actor that launches
  u32 node = 0;                 // NUMA node of its host thread
  std::vector<int> cpus{};      // of that node, which the thread may use; none: all of them
  u64 iteration = 0;
  CUdeviceptr result = 0;          // results of its kernels to be checked, in its GPU's memory; 0: none
  u64 turns = 0;                   // launches of its chase on one SM, which that SM counts behind the result
  const void* position = nullptr;  // position of a CPU thread's chase; null: at the start
  Latencies* latencies = nullptr;  // while its iterations are stamped (stamps.hpp),
  CUdeviceptr stamps = 0;          // and where its kernel notes them; 0: it has none
  u64 sum = 0;                     // sum of what CPU threads read from managed pages
  std::unique_ptr<Crew> crew;      // the threads, if there are several
  std::map<u32, Helper> helpers;   // by GPU
  std::map<u32, std::unique_ptr<CopyGraph>> graphs;           // by batch
  Pieces pieces;                                              // of the next batch
  std::shared_ptr<Caller> caller;                             // of a CPU thread whose loop consists of calls
  std::shared_ptr<DueWords> due;                              // of a stream that exchanges words
  std::shared_ptr<Cublas> products;                           // of a stream with parts of an LU, which share one handle
  std::vector<ActorOp> ops;                                   // of its loop, if it performs ops
  std::vector<FileMemory> files;                              // that its ops read and write
  std::shared_ptr<Uring> requests;                            // of these files; null: one call at a time
  std::map<u32, std::shared_ptr<Cufile::File>> direct_files;  // by region
  std::vector<std::unique_ptr<Stream>> mapped_copies;         // of each thread that maps windows of a file
  std::vector<RowMemory> rows;                                // that its ops copy
  std::vector<RankPost> posts;                                // messages of MPI of its loop, in order
  Device* device_of_posts = nullptr;                          // the GPU whose memory they send or receive
};

enum class Timing { gate, events, host };

struct CudaSession final : Session {
  /// `p`: the processes that run the program with this one; null: none. `m`: null without MPI.
  CudaSession(const Driver& d, Peers* p, const MpiWorld* m, const Program& all);
  ~CudaSession() override;  // ends after the others have closed memory of this process
  const Driver& driver;
  Peers* peers;
  const MpiWorld* mpi;
  std::shared_ptr<UcxMessages> ucx;    // null without messages of UCX
  std::shared_ptr<NixlMessages> nixl;  // null without messages of NIXL
  u32 process;                         // the number of this one
  Program whole;                       // with the actors of all processes
  Program program;                     // with the actors of this one
  bool lockstep;                       // whether the processes meet before and after each sample
  std::vector<Buffer*> buffers;  // one per region; null: `called` has its memory, or another process uses it alone
  std::map<std::pair<u32, const Device*>, std::unique_ptr<IpcOpened>>
      opened;                                            // by region and GPU, for memory that a GPU opens for itself
  std::vector<std::unique_ptr<Buffer>> managed, shared;  // those that end with the session
  std::vector<std::unique_ptr<Buffer>> theirs;           // memory of other processes, as opened by this one
  std::map<u32, std::vector<std::unique_ptr<Allocation>>> called;       // by region whose memory calls allocate
  std::vector<std::pair<u32, Device*>> gpus;                            // by number, with managed memory
  std::map<std::pair<u32, u32>, std::unique_ptr<GreenContexts>> green;  // by GPU and number of parts
  std::vector<ActorState> actors;
  std::shared_ptr<NcclGroup> nccl;  // of collectives between GPUs; null: there are none
  Timing timing = Timing::gate;
  std::string why_timing;
  std::vector<std::vector<u32>> rehearsed,
      blocking;          // batches queued behind the gate without and with blocking the host
  bool sampled = false;  // whether anything ran since the warm-up
  std::vector<std::pair<std::string, std::string>> notes;

  /// Poisons destinations, sets words to zero and begins at the first slice, so that the next comparison sees only
  /// later writes.
  void start_afresh();
  /// The start of a region as an address for a GPU.
  [[nodiscard]] CUdeviceptr address(u32 region, const Device& by) const;
  /// Time that another process may take to allocate, fill or compare its memory.
  [[nodiscard]] Seconds patience() const;
  /// Brings caches into the state that the program asks for.
  void settle_caches(const std::vector<u32>& batch);

 private:
  void reset_destinations() const;
  std::set<u32> flushed_;  // regions that stay out of the CPU caches for the whole session
};

/// Queues all work behind a closed gate and opens it: stamps by events, without the cost of queueing. False if the host
/// was blocked for longer than `patience` while it queued: nothing was measured. `queueing`: how long it queued, without
/// its waits for a CPU.
[[nodiscard]] bool sample_gated(CudaSession&, const Gate&, const std::vector<u32>& batch, Seconds patience,
                                Stamp* stamps, Seconds* queueing = nullptr);
/// Binds the calling thread as the host thread of an actor.
void place_thread(const ActorState&);
/// Time limit for queueing a batch that is known to pass.
[[nodiscard]] Seconds gate_timeout(const CudaSession&, const std::vector<u32>& batch);
/// Event pairs without a gate, for cases in which something (a profiler, CUDA_LAUNCH_BLOCKING) makes the host wait for
/// each call.
void sample_events(CudaSession&, const std::vector<u32>& batch, Stamp* stamps);
/// The host's clock, in seconds.
[[nodiscard]] double host_now();
/// Untimed preparation before a sample.
void make_ready(CudaSession&, const std::vector<u32>& batch);
/// After a sample: throws what its kernels reported.
void check_results(const CudaSession&);
/// After a sample: further blocks of a kernel have the stamps and the iterations of the actor that launched it.
void follow_leaders(CudaSession&, Stamp* stamps);
/// Runs each actor on a host thread of its own, bound to its node and with its GPU's context: `ready`, then, when all are
/// ready, `go` with the time of the common start. Throws the first error that is no wait for another actor.
struct HostThreads {
  std::function<void(std::size_t actor)> ready;
  std::function<void(std::size_t actor, double begun)> go;
};
void run_on_host_threads(CudaSession&, const HostThreads&);
/// One host thread per actor, started together, stamped by the host's clock; streams are drained before the exit stamp.
void sample_host(CudaSession&, const std::vector<u32>& batch, Stamp* stamps);

}  // namespace linkscope
