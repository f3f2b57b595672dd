// Collectives: by NCCL over GPUs of one process, or of a GPU for each rank of MPI; and by MPI over host memory (MB-4).
#include <array>
#include <string>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

/// A rank: where its actor is, the process that it belongs to, and the name of its end.
struct Seat {
  Place memory, numa, name;
  u32 process = 0;
};

Seat seat_of(const Case& c, u32 rank) {
  const u32 number = c.src.index + rank;
  if (c.src.kind == PlaceKind::gpu) {
    const Place gpu{PlaceKind::gpu, number, c.src.host, {}};
    return {gpu, {}, gpu, 0};
  }
  const Place name{PlaceKind::rank, number, c.src.host, {}};
  if (number >= c.ranks.size())
    throw Error{ErrorKind::usage, c.benchmark + ": there is no " + to_string(name) + "; there are " +
                                      std::to_string(c.ranks.size()) + " ranks"};
  const auto& places = c.ranks[number];
  if (c.src_memory != MemKind::device) return {places.numa, places.numa, name, number};
  if (!places.gpu) throw Error{ErrorKind::unsupported, to_string(name) + " has no GPU"};
  return {*places.gpu, places.numa, name, number};
}

/// The buffers of all ranks.
class Buffers {
 public:
  Buffers(const Case& c, CollectiveKind kind, u32 ranks, Program& program)
      : case_{c},
        kind_{kind},
        ranks_{ranks},
        program_{program},
        slices_{slice_count(c.bytes, c.footprint_bytes, c.engine)} {}

  /// The input and the output of a rank.
  std::pair<Span, Span> of(const Seat& seat, u32 rank) {
    const auto bytes = bytes_of(kind_, case_.bytes, ranks_);
    const bool always_in_place = case_.engine == Engine::mpi && kind_ == CollectiveKind::broadcast;
    if (case_.param("place", "out") != "in" && !always_in_place)
      return {add(seat, bytes.in, Content::numbers), add(seat, bytes.out, Content::poison)};
    const Span whole = add(seat, case_.bytes, Content::changing);
    Span part = whole;
    part.bytes = case_.bytes / ranks_;
    part.offset = rank * part.bytes;
    if (kind_ == CollectiveKind::all_gather) return {part, whole};
    return {whole, kind_ == CollectiveKind::reduce_scatter ? part : whole};
  }

 private:
  Span add(const Seat& seat, u64 bytes, Content content) {
    const u64 stride = slice_stride(bytes);
    const MemKind kind = case_.param("buffers", "driver") == "vmm" ? MemKind::vmm : case_.src_memory;
    Region region{seat.memory, kind, slices_ * stride, content};
    region.process = seat.process;
    program_.regions.push_back(std::move(region));
    return {static_cast<u32>(program_.regions.size() - 1), 0, bytes, stride, slices_};
  }

  const Case& case_;
  CollectiveKind kind_;
  u32 ranks_;
  Program& program_;
  u32 slices_;
};

Actor actor_of(const Case& c, const Seat& seat, Collective collective) {
  Actor actor;
  const bool by_gpu = c.src_memory == MemKind::device;
  actor.kind = by_gpu ? ActorKind::stream : ActorKind::cpu_thread;
  actor.place = seat.memory;
  if (by_gpu && c.src.kind == PlaceKind::rank) actor.cpu = seat.numa;
  actor.process = seat.process;
  actor.clock = Clock::host;  // no event orders the work of several GPUs
  actor.loop.emplace_back(std::move(collective));
  return actor;
}

Program build_collectives(const Case& c) {
  const auto kind = parse_collective(c.benchmark);
  const auto ranks = c.number("ranks", "2");
  if (in_blocks(kind) && c.bytes % (sizeof(u64) * ranks))
    throw Error{ErrorKind::usage, c.benchmark + ": " + std::to_string(c.bytes) +
                                      " B do not divide into words of 8 B for " + std::to_string(ranks) +
                                      " ranks: choose a multiple of " + std::to_string(sizeof(u64) * ranks) + " B"};
  Program program;
  program.held_by = HeldBy::nothing;
  // MPI finds its bytes in the caches of the cores, as in other tools.
  program.cache = c.src_memory == MemKind::device ? CacheState::cold : CacheState::hot;
  if (c.param("mode", "batched") == "single") program.most_iterations = 1;
  program.peer = c.param("buffers", "driver") == "vmm";  // GPUs of one process may write to each other's buffers
  Buffers buffers{c, kind, ranks, program};
  std::vector<Seat> seats;
  std::vector<Collective> parts(ranks);
  std::vector<Span> inputs;
  for (u32 rank = 0; rank < ranks; ++rank) {
    seats.push_back(seat_of(c, rank));
    const auto [in, out] = buffers.of(seats.back(), rank);
    parts[rank].kind = kind;
    parts[rank].rank = rank;
    parts[rank].type = parse_number_type(c.param("element", "f32"));
    parts[rank].in = in;
    parts[rank].out = out;
    inputs.push_back(in);
  }
  for (u32 rank = 0; rank < ranks; ++rank) {
    parts[rank].inputs = inputs;
    const Place& name = seats[rank].name;
    program.actors.push_back(actor_of(c, seats[rank], std::move(parts[rank])));
    const bool measured = rank == 0;
    program.flows.push_back({rank, name, name, c.src_memory, c.dst_memory, measured ? c.bytes : 0, measured});
  }
  return program;
}

struct Text {
  CollectiveKind kind;
  const char* summary;
};
constexpr std::array<Text, collective_kinds> texts{{
    {CollectiveKind::all_reduce, "every rank gets the sum of all ranks' numbers"},
    {CollectiveKind::all_gather, "every rank gets the blocks of all ranks; bytes are those of the result"},
    {CollectiveKind::reduce_scatter, "every rank gets one block of the sum; bytes are those of the input"},
    {CollectiveKind::broadcast, "every rank gets the bytes of rank 0"},
    {CollectiveKind::reduce, "rank 0 gets the sum of all ranks' numbers"},
    {CollectiveKind::all_to_all, "every rank gets a block of each other rank"},
    {CollectiveKind::send_receive, "every rank sends to the next one and receives from the one before"},
}};

/// MPI's broadcast is always in place, and its reduce_scatter in place moves the result.
bool has_both_places(CollectiveKind kind, Engine engine) {
  using enum CollectiveKind;
  if (engine == Engine::mpi) return kind == all_reduce || kind == all_gather || kind == reduce;
  return kind != all_to_all && kind != send_receive;
}

Benchmark row_of(const Text& text, Engine engine, PlaceKind kind, MemKind memory) {
  constexpr bool hidden = false;
  std::vector<Param> params{
      {"ranks", {"2", "1", "3", "4", "5", "6", "7", "8", "16"}, "ranks, from the named place on"},
      mode_param(),
  };
  params[1].help = "batched: cost of one call among many queued ones; single: latency of one call";
  if (has_both_places(text.kind, engine))
    params.push_back(
        {"place", {"out", "in"}, "out: the result has a buffer of its own; in: it replaces the input", hidden});
  if (engine == Engine::nccl) {
    Param buffers{"buffers",
                  {"driver", "vmm"},
                  "driver: by cuMemAlloc; vmm: by virtual memory management, as ncclMemAlloc and nccl-tests allocate",
                  hidden};
    params.push_back(std::move(buffers));
  }
  if (adds(text.kind)) {
    Param element{"element", {"f32", "f64", "u32"}, "type of the numbers that are added", hidden};
    if (engine == Engine::nccl) element.values.push_back("bf16");
    params.push_back(std::move(element));
  }
  return {to_string(text.kind),
          text.summary,
          engine == Engine::nccl ? "nccl-tests" : "OSU micro-benchmarks",
          engine,
          kind,
          kind,
          Relation::same,
          {{memory, memory}},
          std::move(params),
          build_collectives};
}

}  // namespace

std::vector<Benchmark> collectives() {
  std::vector<Benchmark> rows;
  for (const auto& text : texts) {
    rows.push_back(row_of(text, Engine::nccl, PlaceKind::gpu, MemKind::device));
    rows.push_back(row_of(text, Engine::nccl, PlaceKind::rank, MemKind::device));
    if (text.kind != CollectiveKind::send_receive)
      rows.push_back(row_of(text, Engine::mpi, PlaceKind::rank, MemKind::pageable));
  }
  return of_role(Role::collective, std::move(rows));
}

}  // namespace linkscope
