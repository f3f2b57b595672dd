// Many small copies. One iteration moves pieces that lie apart on both sides: by a call each, by one call for all, as a
// graph, or by one kernel that gathers and scatters them. Both clocks are parameters, because the time of the GPU and
// that of the calls differ widely.
#include <algorithm>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

// The number of operations that fit behind a gate: a stream's queue, and one call (H200, driver 580).
constexpr u64 queued_copies = 1024, queued_by_one_call = 4096;

Program build_pieces(const Case& c) {
  const u64 piece = std::stoull(c.param("piece", "4096"));
  if (c.bytes % piece != 0 || c.bytes == piece)
    throw Error{ErrorKind::usage, c.benchmark + ": " + std::to_string(c.bytes) +
                                      " B is not a whole number (2 or more) of pieces of " + std::to_string(piece) +
                                      " B; 1000 of them are " + std::to_string(1000 * piece) + " B"};
  const Rows apart{piece, slice_stride(piece) + slice_stride(1)};  // no two are neighbours
  Program program = one_copy(c, {c.src, c.dst, c.src_memory, c.dst_memory, apart, apart, c.engine != Engine::sm});
  if (c.engine == Engine::sm || c.param("clock", "event") == "host") return program;
  const u64 most = c.engine == Engine::batch ? queued_by_one_call : queued_copies;
  program.most_iterations = static_cast<u32>(std::max<u64>(1, most / (c.bytes / piece)));
  return program;
}

}  // namespace

std::vector<Benchmark> pieces() {
  using enum PlaceKind;
  using enum MemKind;
  std::vector<Benchmark> rows;
  const auto add = [&](Engine engine, std::string_view summary) {
    std::vector<Param> params{mode_param(), {"piece", {"4096", "64", "512", "65536"}, "bytes of a piece"}};
    if (engine == Engine::sm) params.insert(params.end(), {blocks_param(), threads_param()});
    const auto row = [&](PlaceKind src, PlaceKind dst, Relation relation, std::pair<MemKind, MemKind> memories) {
      rows.push_back({"pieces",
                      summary,
                      "CUDA 13.0: cuMemcpyBatchAsync",
                      engine,
                      src,
                      dst,
                      relation,
                      {memories},
                      params,
                      build_pieces});
      if (relation == Relation::different) rows.back().params.push_back(initiator_param());
      rows.back().params.push_back(clock_param());
    };
    row(numa, gpu, Relation::any, {pinned, device});
    row(gpu, numa, Relation::any, {device, pinned});
    row(gpu, gpu, Relation::different, {device, device});
  };
  add(Engine::ce, "many small scattered pieces, one call each");
  add(Engine::batch, "many small scattered pieces, all in one call");
  add(Engine::graph, "many small scattered pieces, as the nodes of a graph");
  add(Engine::sm, "many small scattered pieces, gathered by one kernel");
  return rows;
}

}  // namespace linkscope
