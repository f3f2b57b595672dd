// What operations have in common: regions, rotating slices, and for explicit copies one actor a direction.
#pragma once
#include "benchmarks/case.hpp"

namespace linkscope {

/// The ends of one explicit copy: a pattern region, a poisoned one, and the Move between them over as many slices as the
/// footprint asks for.
struct Copy {
  Place src, dst;
  MemKind src_memory, dst_memory;
  Rows src_rows{}, dst_rows{};  // how the bytes of a slice lie where they are not in one piece
  bool row_by_row = false;
};

/// A program without actors, in the state that the case's parameters ask for.
[[nodiscard]] Program empty_program(const Case&);

/// Adds regions, an actor with the copy as its loop, and the flow. `actor` carries place, kind and clock; the case the
/// engine, and the shape of the launch where a kernel copies.
void add_copy(Program&, const Case&, const Copy&, Actor actor);

/// The stream of the GPU that copies: the one that takes part, or of two the one that initiates.
[[nodiscard]] Actor stream_of(const Case&);
/// One copy on that stream, with peer access where it goes between GPUs.
[[nodiscard]] Program one_copy(const Case&, const Copy&);

/// The parameters that all copies by copy engine have, ready for a row: mode, then what precedes the copy in its stream.
[[nodiscard]] Param mode_param();
[[nodiscard]] Param after_param();

/// Who takes the time: GPUs, of work that was queued before, or the host, from its first call until all is done.
[[nodiscard]] Param clock_param();
/// How long nobody works before one operation alone.
[[nodiscard]] Param idle_param();
/// What the two ask for: the same of all programs. Throws Error{usage} where they do not fit the others.
void set_clock(Program&, const Case&);
void let_idle(Program&, const Case&);

/// Of copies from and to host memory: whether CPU caches hold it.
[[nodiscard]] Param cache_param();

/// Of what a GPU's threads do with the memory of GPUs: whether their L2 holds it.
[[nodiscard]] Param l2_param();

/// The NUMA node of the host thread that drives streams: that of the memory, or one by its number. `bound` gives its place.
[[nodiscard]] Param cpu_param();
[[nodiscard]] Place bound(const Case&, const Place& memory);

/// The parameters of copies by a GPU's threads, and the shape that they ask for.
[[nodiscard]] Param blocks_param();
[[nodiscard]] Param threads_param();
[[nodiscard]] Shape kernel_shape(const Case&);
[[nodiscard]] Param initiator_param();
[[nodiscard]] Param bidirectional_param();

/// Of host memory in huge pages: which.
[[nodiscard]] Param pages_param();
/// The region with what its kind needs besides: the pages that the case asks for, the other process that owns it.
[[nodiscard]] Region completed(const Case&, Region);

/// How many distinct slices a batch rotates over, and how far apart they lie.
[[nodiscard]] u32 slice_count(u64 bytes, u64 footprint_bytes, Engine engine);
[[nodiscard]] u64 slice_stride(u64 bytes);

/// A region of its own at `at`, and one actor at `by` (a stream or a CPU thread) whose loop is `kernel`.
[[nodiscard]] Program one_sided(const Case&, const Place& at, MemKind memory, const Place& by, Content content,
                                u64 region_bytes, Kernel kernel);

/// Rows of one file each, for several engines or kinds of places.
[[nodiscard]] std::vector<Benchmark> kernel_copies();
[[nodiscard]] std::vector<Benchmark> joint_copies();
[[nodiscard]] std::vector<Benchmark> kernel_accesses();
[[nodiscard]] std::vector<Benchmark> exchanges();
[[nodiscard]] std::vector<Benchmark> latencies();
[[nodiscard]] std::vector<Benchmark> demands();
[[nodiscard]] std::vector<Benchmark> prefetches();
[[nodiscard]] std::vector<Benchmark> fault_latencies();
[[nodiscard]] std::vector<Benchmark> copies_together();
[[nodiscard]] std::vector<Benchmark> pieces();
[[nodiscard]] std::vector<Benchmark> split_copies();
[[nodiscard]] std::vector<Benchmark> strided_copies();
[[nodiscard]] std::vector<Benchmark> halos();
[[nodiscard]] std::vector<Benchmark> calls();
[[nodiscard]] std::vector<Benchmark> ping_pongs();
[[nodiscard]] std::vector<Benchmark> atomics();
[[nodiscard]] std::vector<Benchmark> memory_kinds();
[[nodiscard]] std::vector<Benchmark> allocations();
[[nodiscard]] std::vector<Benchmark> concurrent_copies();

extern const Benchmark host_to_host, host_to_device, device_to_host, device_to_device, device_local;

}  // namespace linkscope
