// Common parts of operations: regions, rotating slices, and for explicit copies one actor per direction.
#pragma once
#include "benchmarks/case.hpp"

namespace linkscope {

/// The ends of one explicit copy: a pattern region, a poisoned one, and the Move between them over as many slices as
/// the footprint requires.
struct Copy {
  Place src, dst;
  MemKind src_memory, dst_memory;
  Rows src_rows{}, dst_rows{};  // layout of a slice that is not contiguous
  bool row_by_row = false;
};

/// Of words that actors set and wait for. Each word has cache lines of its own.
constexpr u64 word_bytes = sizeof(u64), line_bytes = 256;

/// Throws Error{usage}: the name of the benchmark, then the text.
[[noreturn]] void misfit(const Case&, const std::string& what);

/// A program without actors, in the state that the case's parameters select.
[[nodiscard]] Program empty_program(const Case&);

/// Adds regions, an actor with the copy as its loop, and the flow. `actor` carries place, kind and clock; the case
/// carries the engine, and the launch shape for kernels.
void add_copy(Program&, const Case&, const Copy&, Actor actor);

/// A stream that a host thread on node `cpu` keeps: host threads exchange the words of its loop.
[[nodiscard]] Actor stream_at(const Place& gpu, const Place& cpu, std::vector<Step> loop);

/// The stream of the GPU that copies; of two GPUs, that of the initiator.
[[nodiscard]] Actor stream_of(const Case&);
/// One copy on that stream, with peer access between GPUs.
[[nodiscard]] Program one_copy(const Case&, const Copy&);

/// The parameters of all copies by copy engine, ready for a row: mode, then what precedes the copy in its stream.
[[nodiscard]] Param mode_param();
[[nodiscard]] Param after_param();

/// The clock: GPUs time work that was queued before; the host times from its first call until the end.
[[nodiscard]] Param clock_param();
/// The idle time before a single operation.
[[nodiscard]] Param idle_param();
/// The settings of clock and idle time, for any program. Throws Error{usage} if they do not fit the others.
void set_clock(Program&, const Case&);
void let_idle(Program&, const Case&);

/// For copies from and to host memory: the state of CPU caches.
[[nodiscard]] Param cache_param();

/// For copies of files: whether the page cache has them.
[[nodiscard]] Param file_cache_param();

/// Parameter `depth` of reads and writes of files: the requests in flight. The shape of a move has their number.
[[nodiscard]] Param depth_param();
[[nodiscard]] Shape file_shape(const Case&);

/// For SM accesses to GPU memory: the state of the L2.
[[nodiscard]] Param l2_param();

/// The NUMA node of the host thread that drives streams: that of the memory, or a given one. `bound` returns its place.
[[nodiscard]] Param cpu_param();
[[nodiscard]] Place bound(const Case&, const Place& memory);

/// Whether memory and host threads are bound to a NUMA node. `bind` frees those of a case without binding; throws
/// Error{usage} for a thread on a given node.
[[nodiscard]] Param binding_param();
void bind(Program&, const Case&);

/// The parameters of SM copies, and their launch shape.
[[nodiscard]] Param blocks_param();
[[nodiscard]] Param threads_param();
[[nodiscard]] Shape kernel_shape(const Case&);
[[nodiscard]] Param initiator_param();
[[nodiscard]] Param bidirectional_param();
/// Work that runs alone once more after the work at once, so that a drift shows. The program is the same.
[[nodiscard]] Param again_param();

/// Whether blocks of a GPU that do the same are one kernel, or each is a kernel on a stream of its own.
[[nodiscard]] Param launch_param();
/// The grid of a block by that parameter: one of this number, or none.
[[nodiscard]] std::optional<u32> grid_of(const Case&, u32 number);

/// How two processes use one GPU at once.
[[nodiscard]] Param two_processes_param();

/// The kind of huge pages of host memory.
[[nodiscard]] Param pages_param();
/// The region with the requirements of its kind: page size, and the other process that owns it.
[[nodiscard]] Region completed(const Case&, Region);

/// The number of distinct slices in a batch, and their distance.
[[nodiscard]] u32 slice_count(u64 bytes, u64 footprint_bytes, Engine engine);
[[nodiscard]] u64 slice_stride(u64 bytes);

/// A region, and one actor at `by` (a stream or a CPU thread) whose loop is `kernel`.
[[nodiscard]] Program one_sided(const Case&, const Region&, const Place& by, Kernel kernel);

/// Rows that `memory_kinds` repeats with other memory.
[[nodiscard]] std::vector<Benchmark> kernel_copies();
[[nodiscard]] std::vector<Benchmark> kernel_accesses();

/// These rows, with a role.
[[nodiscard]] std::vector<Benchmark> of_role(Role, std::vector<Benchmark>);

extern const Benchmark host_to_host, host_to_device, device_to_host, device_to_device, device_local;

}  // namespace linkscope
