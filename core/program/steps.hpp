// What a program is made of: regions of memory, the spans of them that steps access, and the steps themselves. Nothing here
// knows CUDA, a clock, or the number of samples.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/channel.hpp"
#include "base/place.hpp"
#include "base/units.hpp"
#include "program/collectives.hpp"
#include "program/kernels.hpp"
#include "program/memory_kinds.hpp"

namespace linkscope {

/// `prefetch` and `fault` are the two migrations of managed memory: in bulk, or page by page on first touch.
/// `nic`: network cards, from memory of one host to memory of another. `mpi`, `ucx` and `nixl` carry messages between
/// processes, `nccl` collectives between GPUs.
enum class Engine : u8 { ce, sm, tma, batch, graph, cpu, prefetch, fault, file, nic, mpi, nccl, ucx, nixl };
[[nodiscard]] const char* to_string(Engine);
/// Throws Error{usage} that lists the known names.
[[nodiscard]] Engine parse_engine(std::string_view);

/// Contents of a region before the first sample. `pattern` depends on region and offset, so a slice that is missing or
/// delivered to the wrong place is detected. `poison` fills destinations. `chain` is a pointer chase: a cycle through all
/// lines of the region in which each line holds the address of the next (program/chain.hpp). `zero` is for counters.
/// `numbers` is a pattern of valid floating-point numbers, for computations; the program overwrites `changing` numbers.
/// `bytes` are numbers of 8 bits (e4m3).
enum class Content : u8 { pattern, poison, chain, zero, numbers, changing, bytes };
/// Bits of the seed of a pattern that make it one of numbers (base/pattern.hpp).
[[nodiscard]] constexpr u64 seed_bits(Content content) {
  if (content == Content::bytes) return u64{0xFF} << 56;
  return content == Content::numbers || content == Content::changing ? u64{1} << 63 : 0;
}
/// Whether a region's contents follow from a seed.
[[nodiscard]] constexpr bool has_pattern(Content content) {
  return content == Content::pattern || seed_bits(content) != 0;
}

/// A hint to the driver about memory whose pages move (cuMemAdvise): mostly read, preferred location, or accessed by
/// `place`.
struct Advice {
  enum class Kind : u8 { read_mostly, preferred, accessed_by } kind = Kind::read_mostly;
  Place place;  // unused for read_mostly
};

struct Region {
  Place at;
  MemKind kind = MemKind::pageable;
  u64 bytes = 0;
  Content content = Content::pattern;
  u64 page_bytes = 0;  // for hugepage and registered_hugepage memory; 0: the platform's default
  u32 process = 0;     // the process that allocates the region; the others map it if its kind is shared
  std::optional<Advice> advice{};
  bool transparent = false;  // true: transparent huge pages, granted or not by the kernel; false: reserved huge pages
  // false: host memory that is bound to no NUMA node. The kernel puts its pages where the thread that makes it runs.
  bool bound = true;
};

/// Layout of a strided slice: rows `pitch` apart. If `in_plane` is set, `in_plane` rows form a plane, and planes are
/// `plane_pitch` apart.
struct Rows {
  u64 bytes = 0;  // of a row; 0: the slice is contiguous
  u64 pitch = 0;
  u64 in_plane = 0;  // rows of a plane; 0: all rows form one plane
  u64 plane_pitch = 0;

  [[nodiscard]] u64 offset_of(u64 row) const {
    return in_plane ? row / in_plane * plane_pitch + row % in_plane * pitch : row * pitch;
  }
};

/// A part of a region. Iteration i of a loop accesses `bytes` at offset + (i % slices) * stride. A batch rotates over
/// distinct slices, so that caches see the requested footprint instead of one buffer.
struct Span {
  u32 region = 0;
  u64 offset = 0;
  u64 bytes = 0;  // moved bytes; with rows, the sum over all rows without the gaps
  u64 stride = 0;
  u32 slices = 1;
  Rows rows{};

  [[nodiscard]] u64 offset_at(u64 iteration) const { return offset + (iteration % slices) * stride; }
  /// Distance from the first byte of a slice to its end, gaps included.
  [[nodiscard]] u64 extent() const { return rows.bytes ? rows.offset_of(bytes / rows.bytes - 1) + rows.bytes : bytes; }
};

/// Whether a GPU's copy engines move the bytes.
[[nodiscard]] constexpr bool by_copy_engine(Engine engine) {
  return engine == Engine::ce || engine == Engine::batch || engine == Engine::graph;
}

/// Launch shape of a kernel. 0 blocks: one block per SM, so that several kernels can run concurrently. 0 threads: not a
/// kernel. For CPU threads, `all_cpus` means one thread per CPU of the node. A CPU thread's copy of several threads is
/// divided among them. For engine `file`, `blocks` is the number of requests in flight that share a read or write; 0: one.
struct Shape {
  u32 blocks = 0, threads = 0;
};
constexpr u32 all_cpus = ~u32{0};  // threads

/// A transfer: `engine` moves `from.bytes`, byte k of one span to byte k of the other. If both spans have rows, their rows
/// have the same length; a contiguous span is read or written without gaps. Engine `batch` does all iterations of a batch
/// in one call, engine `graph` in one graph launch whose copies depend on one another.
struct Move {
  Span from, to;
  Engine engine = Engine::ce;
  // Between GPUs: use cuMemcpyPeerAsync, which names both contexts, instead of cuMemcpyDtoDAsync.
  bool peer_call = false;
  Shape shape{};            // launch shape for engines sm and tma; the threads that share a copy for engine cpu
  bool row_by_row = false;  // true: one copy per row; false: one 2D or 3D copy
  // The GPU whose stream or SMs copy, if not the actor's own. The copy starts after the actor's earlier steps, and the
  // actor's later steps wait for the copy.
  std::optional<Place> by{};
};

/// A move as rows of equal length on both sides.
struct RowCopy {
  u64 bytes = 0, count = 1;  // bytes per row; number of rows
  Rows from, to;             // planes of equal height if either side has planes
};
[[nodiscard]] RowCopy in_rows(const Move&);

inline constexpr u32 sector_bytes = 32;      // smallest unit that a GPU's memory system moves
inline constexpr u32 peer_write_bytes = 16;  // smallest unit that crosses a link when a GPU writes to a peer

/// One side of the traffic that a kernel states. Strided and random accesses touch the first `width` bytes of every
/// `stride` bytes once. Neighboring threads make neighboring strided accesses; random accesses follow the order of
/// program/line_order.hpp.
struct Access {
  Span span;
  enum class Dir : u8 { read, write } dir = Dir::read;
  enum class Pattern : u8 {
    linear,
    strided,
    random,
    chase,
    same
  } pattern = Pattern::linear;  // same: every access goes to the first word
  u32 width = 16;               // bytes per access of a thread
  u64 stride = 0;               // for strided and random; 0: the platform's page size
  u32 unit = sector_bytes;      // smallest unit that moves
};

/// Scope of memory ordering: the threads of one GPU, or the whole system.
enum class Scope : u8 { gpu, system };

/// Number of accesses of `width` bytes in one iteration.
[[nodiscard]] u64 access_count(const Access&);
/// Bytes that the accesses request, and bytes that move: whole units.
[[nodiscard]] u64 asked_bytes(const Access&);
[[nodiscard]] u64 moved_bytes(const Access&);

/// Device or CPU code with its launch shape (for CPU threads: their number) and the traffic that it causes. With
/// `dependent_steps`, each access needs the result of the one before, and a whole batch is one launch whose iterations are
/// these steps. With `sm`, one block starts on every SM, and only the block on SM number `sm` takes the steps.
struct Kernel {
  KernelId id = KernelId::read;
  Shape shape{1, 32};
  u32 dependent_steps = 0;
  std::vector<Access> traffic;
  Scope scope = Scope::gpu;  // for atomic operations
  std::optional<u32> sm{};   // for a pointer chase; none: any SM
};

/// Why a kernel's traffic is not that of its row in the table of kernels; "" if it is.
[[nodiscard]] std::string why_no_traffic(const Kernel&);

/// What a descriptor of a ring (base/ring.hpp) asks for: a put from one span to another of the same slices, or a number in a
/// word, or both. The slot of iteration i is a slice of the word's span of a Set or Wait. The ring begins at `ring` in that
/// region, and slots of several steps may lie in turns in it.
struct Job {
  u64 ring = 0, bytes = 0;  // of a descriptor
  std::optional<Span> from{}, to{};
  std::optional<Span> signal{};  // becomes the value of the Set
};

/// Writes a word of 8 bytes with release semantics; iteration i writes value + i * step.
///
/// With a payload the step is a message: the span of the word has 16 bytes for each 8 of the payload, which hold those and
/// the value. Nothing orders such words, because who sees the value sees the payload.
///
/// With `adds` the word grows by `value`, so that several actors bring it to a number. With a job the span is a slot in
/// which the step posts a descriptor.
struct Set {
  Span word;
  u64 value = 0, step = 0;
  Scope scope = Scope::system;
  std::optional<Span> payload{};
  bool adds = false;
  std::optional<Job> job{};
};

/// Waits until a word has reached value + i * step, a sequence number: a ring of n slots waits for 1 - n + i, so that its
/// first n iterations wait for nobody. A time-out fails the sample. A span of several words: until all of them have.
/// With a payload it waits for a message of packed words (Set), and stores their bytes there. With a job it takes a
/// descriptor. A copy to the job's `to` and a set of its word that follow are done as the descriptor says.
/// With a pointer the word is a notification in the queue of a network card: the step takes it from the queue, frees its
/// entry, and writes the word `pointer`, by which the card knows.
struct Wait {
  Span word;
  u64 value = 0, step = 0;
  Seconds timeout{2.0};
  std::optional<Span> payload{};
  std::optional<Job> job{};
  std::optional<Span> pointer{};
};

/// Earlier stores of the actor are visible to the whole system before its later ones.
struct Fence {};

/// A computation on the actor's stream, by a library that is found at run time or by device code of several launches,
/// with the traffic that it causes. On a model it takes the time of its traffic or of its operations, whichever is
/// longer.
struct Opaque {
  // "cublas_gemm": C (m x n) = A (m x k) B (k x n), column by column; "tensor_gemm": C = A^T B, where A is k x m
  std::string library_call;
  std::string element;          // "f32", "f64", "bf16", "u32"
  std::vector<u64> shape;       // lengths: m, n, k of a product
  std::vector<Access> traffic;  // of its arrays in order: of a product, A and B are read, C is written
  double operations = 0;        // arithmetic operations; 0: it only moves data
  u64 times = 1;                // how often the traffic occurs
};
/// Bytes that a computation reads and writes in the GPU's memory.
[[nodiscard]] u64 traffic_bytes(const Opaque&);

/// Migrates pages of managed memory to `to` in bulk on the actor's stream. Pages that are already there stay. The home of
/// a region is its place `at`.
struct Prefetch {
  Span span;
  Place to;
  u32 ranges = 0;  // upper bound of ranges for one cuMemPrefetchBatchAsync; 0: cuMemPrefetchAsync
  // Discards the contents, so that no bytes need to move: by a separate call before, or by the prefetch call itself.
  enum class Discard : u8 { no, before, with } discard = Discard::no;
};

/// A timed driver call. Calls for a GPU (`on`), such as "launch" and "create_stream", are made by a CPU thread; the work
/// that they queue may still run when the thread's last iteration ends. All other calls are phases in the life of memory
/// (allocation.hpp): each slice of the span is one allocation, and iteration i handles slice i.
struct Call {
  std::string api;
  std::optional<Span> span;
  std::optional<Span> to{};   // destination of a copy
  std::optional<Place> on{};  // the GPU of the call
  u64 amount = 0;             // argument bytes of a launch, or nodes of a graph
  bool until = false;         // true: run all phases before this one on all slices, but not this one
};

struct Range {
  u64 offset = 0, bytes = 0;
};
/// The ranges of a prefetch: equal lengths in whole pages of 4 KiB from the start of the span; the last has the remainder.
[[nodiscard]] std::vector<Range> ranges_of(const Prefetch&);

/// A message of `bytes` to a process that answers with the same bytes: an iteration is a round trip. The other process runs
/// on the NUMA node `to`. `cpu` and `other_cpu` bind both threads to one CPU: the place in the list of those CPUs of their
/// node that this process may use; none: any CPU of the node.
struct Message {
  Channel channel = Channel::shm;
  u64 bytes = 0;
  Place to;
  std::optional<u32> cpu{}, other_cpu{};
};

/// A message of MPI, UCX or NIXL that a CPU thread sends to another process of the program, or receives from it. Iteration
/// i of one side meets iteration i of the other. A message of NIXL is one-sided: the sender writes to `theirs`, and a
/// notification tells the receiver. `span`: the bytes here; `theirs`: those of the other process. Both are absent in a
/// message without bytes. `window`: the messages that are under way before both sides wait for all of them; with messages
/// in one direction the receiver then answers. 0: each message is one blocking call. `ahead`, of sends: a message
/// may start while that many before it are under way, so after the step of iteration i those up to i - ahead have come.
struct RankMessage {
  bool sends = false;
  u32 peer = 0;
  std::optional<Span> span{}, theirs{};
  u32 window = 0;
  Engine by = Engine::mpi;
  u32 ahead = 0;
};

/// A rank's part of a collective, which is the whole loop of its actor: a stream calls NCCL, a CPU thread MPI. Iteration i
/// of one rank meets iteration i of the others. In place, `in` lies within `out`, or `out` within `in`.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  u32 rank = 0;
  NumberType type = NumberType::f32;  // of the numbers that are added
  Span in, out;
  std::vector<Span> inputs{};  // of all ranks
  Seconds timeout{5.0};        // besides what the iterations should take

  [[nodiscard]] u32 ranks() const { return static_cast<u32>(inputs.size()); }
  [[nodiscard]] bool in_place() const { return in.region == out.region; }
  [[nodiscard]] u64 bytes() const { return in.bytes > out.bytes ? in.bytes : out.bytes; }
};

using Step = std::variant<Move, Kernel, Opaque, Set, Wait, Fence, Call, Prefetch, Message, RankMessage, Collective>;

/// A span that a step reads or writes.
struct Touch {
  Span span;
  bool writes = false;
};
[[nodiscard]] std::vector<Touch> touches(const Step&);
/// The word that a step sets or waits for; null for other steps. The payload that comes with it; null without one.
[[nodiscard]] const Span* word_of(const Step&);
[[nodiscard]] const Span* payload_of(const Step&);
/// The descriptor that a step posts or takes; null for other steps.
[[nodiscard]] const Job* job_of(const Step&);
/// The read pointer that a step writes behind a notification; null for other steps.
[[nodiscard]] const Span* pointer_of(const Step&);

}  // namespace linkscope
