// The library in one object: copies that choose their method.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <shared_mutex>
#include <string>

#include "gpu/driver.hpp"
#include "transfer/blocks.hpp"
#include "transfer/checks.hpp"
#include "transfer/files.hpp"
#include "transfer/methods.hpp"
#include "transfer/registrations.hpp"
#include "transfer/saves.hpp"
#include "transfer/tuning.hpp"

namespace linkscope {

class Transfers {
 public:
  explicit Transfers(const Options& = Options::from_environment());
  /// Waits for the GPUs to finish with the arena. No copy is under way.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// Copies in the order of the stream, as cuMemcpyAsync does. On return a pageable source may be changed, and a
  /// pageable destination holds the data. Throws Error.
  void copy(const CopyRequest& request) {
    if (request.bytes < small_ && copy_small(request)) return;
    Progress progress;
    copy_large(request, progress);
  }
  /// The same for a copy that another thread watches and may cancel.
  void copy_large(const CopyRequest&, Progress&);

  /// Copies many blocks in the order of the stream, in any order among themselves. No destination may overlap
  /// another one or a source; refuse_overlaps() finds some that do. Throws Error.
  void copy_blocks(std::span<const Block>, CUstream);
  /// Reads pieces of a file to memory of one GPU, in the order of the stream, or to host memory. On return the file may
  /// be changed, and pieces on the host hold the data.
  void read(const FileReader&, std::span<const FilePiece>, CUstream, ReadCounts&, Progress&);
  /// Replaces the file `path` by the sources, one behind the other. After an error the file is as it was. `durable`:
  /// returns when the data is on the disk.
  void save(const std::string& path, std::span<const FileSource>, bool durable, WriteCounts&, Progress&);

  /// A copy whose memory, size and stream are known in advance: each run makes it again.
  class Prepared {
   public:
    void run() {
      owner_.registrations_.require_writable(copy_.request.dst, copy_.request.bytes);  // it may be registered since
      if (!direct_ || is_in_child_of_fork() || !is_here() || direct_(*this) != CUDA_SUCCESS) run_any();
    }

   private:
    friend class Transfers;
    explicit Prepared(Transfers& owner, const PlannedCopy& copy) : owner_{owner}, copy_{copy} {}
    void run_any();
    /// Whether the driver would take the stream for the same one: a default stream is that of the current context.
    [[nodiscard]] bool is_here() const {
      CUcontext current = nullptr;
      return copy_.request.stream ||
             (owner_.driver_.cuCtxGetCurrent(&current) == CUDA_SUCCESS && copy_.lane->context == current);
    }
    Transfers& owner_;
    PlannedCopy copy_;
    CUresult (*direct_)(const Prepared&) = nullptr;  // one call of the driver, if that is the method
  };
  [[nodiscard]] Prepared prepare(const CopyRequest&);

  /// The name of the method that copy() would use.
  [[nodiscard]] const char* method_of(const CopyRequest&);
  /// The number of copies that a method has made. Copies below small_bytes() are not counted.
  [[nodiscard]] u64 count_of(MethodId id) const { return counts_[static_cast<std::size_t>(id)]; }
  /// Why the latest copy fell back to the driver's own, or why a file took another way; "" if no copy fell back.
  [[nodiscard]] std::string latest_fallback() const { return fallbacks_.latest(); }
  [[nodiscard]] const Driver& driver() const { return driver_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] u64 arena_bytes() const { return arena_.allocated_bytes(); }
  /// How often a method failed and the driver's own copies replaced it.
  [[nodiscard]] u64 fallbacks() const { return fallbacks_.count(); }
  /// Changes how a method divides copies of the size class that has `bytes`. No copy is under way.
  void set(MethodId id, u64 bytes, const Knobs& knobs);
  void set(Towards, u64 mean_bytes, const BlockKnobs& knobs);
  void set(StagedWork, u64 bytes, const Knobs& knobs);
  /// The same for the name of a method or of staged work. Throws Error{usage} for another name.
  void set(const std::string& name, u64 bytes, const Knobs& knobs);
  [[nodiscard]] const Knobs& knobs(const std::string& name, u64 bytes) const;
  /// The GPUs, in PCI bus order, whose links copies from and to other GPUs may use. Each gives three slots of memory for
  /// a direction and a GPU. Throws Error{usage} for a GPU that is not here. No copy is under way.
  void set_helpers(const std::vector<u32>& gpus);

  /// The fingerprint of this machine, and the tuning file in use with the classes that left it.
  [[nodiscard]] std::string fingerprint() const { return linkscope::fingerprint(driver_, gpus_.facts()); }
  [[nodiscard]] Tuning tuning() const;
  /// Writes the present knobs to a file ("": that of this machine) and returns its path. Throws Error{failed}.
  std::string save_tuning(const std::string& path, const std::string& version) const;

  /// Pins host memory that many copies will use, or ends that (registrations.hpp). Between the two, copies are as from and
  /// to pinned memory: the source must not change, and a destination does not hold the data, before the stream has made
  /// the copy. Throws Error.
  void register_memory(void* start, u64 bytes);
  void unregister_memory(void* start);
  [[nodiscard]] u64 registered_bytes() const { return registrations_.bytes(); }

  /// Whether memory of a GPU can be granted to another one, by their indices.
  [[nodiscard]] bool can_grant(u32 owner, u32 other) const { return hops_.can_relay(owner, other); }
  [[nodiscard]] const std::vector<DeviceFacts>& gpu_facts() const { return gpus_.facts(); }
  [[nodiscard]] Device& gpu(u32 index) { return gpus_.at(index); }
  /// Whether this process is a child of fork(), in which the parent's threads and GPUs do not exist.
  [[nodiscard]] static bool is_in_child_of_fork();
  /// The facts of a copy. Throws Error{usage} for one that cannot be.
  [[nodiscard]] PlannedCopy look_up(const CopyRequest&);
  /// If a copy between two GPUs is on a default stream, `stream`, of its lane's context, waits for the default stream of the
  /// other GPU. The copy has a lane.
  void follow_other_gpu(PlannedCopy, CUstream stream);

 private:
  [[nodiscard]] bool copy_small(const CopyRequest& request) const {
    if (!small_copy_ || is_in_child_of_fork() || overlap(request) || !may_be_memory(request)) return false;
    if (request.stream == stream_of_memory && gpus_.facts().size() > 1) return false;
    registrations_.require_writable(request.dst, request.bytes);
    return small_copy_(reinterpret_cast<CUdeviceptr>(request.dst), reinterpret_cast<CUdeviceptr>(request.src),
                       request.bytes, driver_stream(request.stream)) == CUDA_SUCCESS;
  }
  [[nodiscard]] static bool overlap(const CopyRequest& request) {
    const auto dst = reinterpret_cast<u64>(request.dst), src = reinterpret_cast<u64>(request.src);
    return (dst > src ? dst - src : src - dst) < request.bytes;
  }
  /// False for small integers and negative ones that are taken for addresses: the driver would end the process there.
  [[nodiscard]] static bool may_be_memory(const CopyRequest& request) {
    constexpr u64 never_mapped = 64 << 10;
    const auto [low, high] = std::minmax({reinterpret_cast<u64>(request.dst), reinterpret_cast<u64>(request.src)});
    return low >= never_mapped && static_cast<std::int64_t>(high) > 0;
  }
  [[nodiscard]] Location find(const void* start, u64 bytes) const;
  [[nodiscard]] bool captured(const CopyLane&) const;
  [[nodiscard]] const CopyMethod& choose(const PlannedCopy&);
  void run_timed(const CopyMethod&, const PlannedCopy&, Progress&);
  void run(const CopyMethod&, const PlannedCopy&, Progress&);
  void write(const FileWriter&, std::span<const FileSource>, WriteCounts&, Progress&);
  void copy_one_by_one(std::span<const Block>, CUstream);
  template <class Method>
  void or_one_by_one(std::span<const Block>, CUstream, Method);
  void pack(const std::vector<Block>&, StagedWork, const CopyLane&, CUstream);
  void find_smallest();
  [[nodiscard]] Resources resources() {
    return {driver_, options_, gpus_, arena_, movers_, hops_, cufile_, fallbacks_, pages_};
  }

  Driver driver_;
  Options options_;
  Gpus gpus_;
  Arena arena_;
  Hops hops_;
  Registrations registrations_;
  Movers movers_;
  u64 small_ = 0;  // below it, every method is the driver's own copy
  decltype(Driver::cuMemcpyAsync) small_copy_ = nullptr;
  std::array<std::atomic<u64>, method_count> counts_{};
  Cufile cufile_;
  Fallbacks fallbacks_;
  PageAccess pages_;
  Tuning tuning_;
  PlainChecks checks_;
};

}  // namespace linkscope
