// The update of a blocked LU in the spirit of HPL (SP-7): each rank has a GPU, and its matrix in the memory of a NUMA
// node. An iteration brings a tile to the GPU, multiplies a column of blocks by a row of blocks, and brings the product
// back. With two slots the next tile comes while the GPU computes, as with look-ahead.
#include <algorithm>
#include <array>
#include <string>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr u64 block = 768;  // NB of the paper's runs
constexpr Seconds tile_timeout{5.0};

/// One rank: its places, and the lengths of its work.
struct Rank {
  Place gpu, node;
  u64 tile, depth;
  u32 slots;
};

void add_rank(Program& program, const Rank& rank) {
  using enum Access::Dir;
  const u64 tile_bytes = rank.tile * rank.tile * sizeof(double), blocks_bytes = rank.tile * rank.depth * sizeof(double);
  const auto first = static_cast<u32>(program.regions.size());
  program.regions.insert(program.regions.end(), {{rank.node, MemKind::pinned, tile_bytes, Content::pattern},
                                                 {rank.node, MemKind::pinned, tile_bytes, Content::poison},
                                                 {rank.gpu, MemKind::device, rank.slots * tile_bytes, Content::poison},
                                                 {rank.gpu, MemKind::device, rank.slots * tile_bytes, Content::poison},
                                                 {rank.gpu, MemKind::device, blocks_bytes, Content::numbers},
                                                 {rank.gpu, MemKind::device, blocks_bytes, Content::numbers},
                                                 {rank.node, MemKind::pinned, 4 * line_bytes, Content::zero}});
  const auto whole = [&](u32 region, u64 bytes, u32 slots) { return Span{first + region, 0, bytes, bytes, slots}; };
  const auto flag = [&](u64 number) { return Span{first + 6, number * line_bytes, word_bytes}; };
  const Span filled = flag(0), used = flag(1), computed = flag(2), emptied = flag(3);
  const Span arrived = whole(2, tile_bytes, rank.slots), product = whole(3, tile_bytes, rank.slots);
  const auto n = static_cast<double>(rank.tile);
  const double operations = 2 * n * n * static_cast<double>(rank.depth);
  const auto actor_of = [&](std::vector<Step> loop) {
    Actor actor;
    actor.place = rank.gpu;
    actor.cpu = rank.node;
    actor.clock = Clock::host;  // host threads exchange the words
    actor.loop = std::move(loop);
    return actor;
  };
  const auto actor = static_cast<u32>(program.actors.size());
  const u64 before_reuse = 1 - u64{rank.slots};  // the first iterations wait for no slot
  const Opaque update{"cublas_gemm",
                      "f64",
                      {rank.tile, rank.tile, rank.depth},
                      {{whole(4, blocks_bytes, 1), read}, {whole(5, blocks_bytes, 1), read}, {product, write}},
                      operations};
  program.actors.push_back(actor_of({Wait{filled, 1, 1, tile_timeout}, Wait{emptied, before_reuse, 1, tile_timeout},
                                     update, Set{used, 1, 1}, Set{computed, 1, 1}}));
  program.actors.push_back(
      actor_of({Wait{used, before_reuse, 1, tile_timeout}, Move{whole(0, tile_bytes, 1), arrived}, Set{filled, 1, 1}}));
  program.actors.push_back(
      actor_of({Wait{computed, 1, 1, tile_timeout}, Move{product, whole(1, tile_bytes, 1)}, Set{emptied, 1, 1}}));
  using enum MemKind;
  program.flows.push_back({actor, rank.gpu, rank.gpu, device, device, 0, true, operations});
  program.flows.push_back({actor + 1, rank.node, rank.gpu, pinned, device, 0, false});
  program.flows.push_back({actor + 2, rank.gpu, rank.node, device, pinned, 0, false});
}

Program build_lu(const Case& c) {
  Program program;
  program.held_by = HeldBy::nothing;
  const auto nodes = c.param("nodes", "0");
  const bool small = c.param("size", "shoc") == "small";
  for (u32 rank = 0; rank < nodes.size(); ++rank)
    add_rank(program, {{PlaceKind::gpu, rank, c.src.host, {}},
                       {PlaceKind::numa, static_cast<u32>(nodes[rank] - '0'), c.src.host, {}},
                       u64{small ? 128u : 2048u},
                       small ? u64{64} : block,
                       c.number("slots", "2")});
  return program;
}

constexpr std::array<std::string_view, 30> placements{"0",    "1",    "00",   "01",   "10",   "11",   "000",  "001",
                                                      "010",  "011",  "100",  "101",  "110",  "111",  "0000", "0001",
                                                      "0010", "0011", "0100", "0101", "0110", "0111", "1000", "1001",
                                                      "1010", "1011", "1100", "1101", "1110", "1111"};

/// A matrix of numbers, and its factors. On average a step reads and writes a third of the matrix.
Program factorization(const Case& c) {
  using enum Access::Dir;
  constexpr u64 block_on_gpu = 64;
  const u64 n = std::stoul(c.param("n", "8192")), bytes = n * n * sizeof(double);
  const auto order = static_cast<double>(n);
  const double operations = 2.0 / 3 * order * order * order;
  Program program;
  program.regions = {{c.src, MemKind::device, bytes, Content::numbers},
                     {c.src, MemKind::device, bytes, Content::poison}};
  Actor stream;
  stream.place = c.src;
  const u64 steps = n / block_on_gpu;
  stream.loop = {Opaque{"lu",
                        "f64",
                        {n, block_on_gpu},
                        {{Span{0, 0, bytes, bytes}, read}, {Span{1, 0, bytes, bytes}, write}},
                        operations,
                        std::max<u64>(1, steps / 3)}};
  program.actors = {std::move(stream)};
  program.flows = {{0, c.src, c.dst, c.src_memory, c.dst_memory, 0, true, operations}};
  return program;
}

}  // namespace

std::vector<Benchmark> lu_updates() {
  constexpr bool sized = false;
  return {{"lu",
           "blocked LU with look-ahead of an f64 matrix in a GPU's memory, without pivots",
           "HPL, Spafford 4.2",
           Engine::sm,
           PlaceKind::gpu,
           PlaceKind::gpu,
           Relation::same,
           {{MemKind::device, MemKind::device}},
           {{"n", {"8192", "256", "16384"}, "rows and columns"}},
           factorization,
           sized,
           Taken::by_name,
           Role::computation},
          {"lu_update",
           "update of a blocked LU by one to four GPUs, from the NUMA nodes of a placement",
           "HPL, Spafford 4.2",
           Engine::sm,
           PlaceKind::gpu,
           PlaceKind::gpu,
           Relation::same,
           {{MemKind::device, MemKind::device}},
           {{"nodes",
             {placements.begin(), placements.end()},
             "the NUMA node of each rank's memory and thread; rank i has GPU i",
             true,
             false,
             {"0", "01", "011", "and all others of up to four ranks on two nodes"}},
            {"slots", {"2", "1"}, "tiles on the GPU; 1: no look-ahead"},
            {"size", {"shoc", "small"}, "tiles of 2048 x 2048, or a small one"}},
           build_lu,
           sized,
           Taken::by_name,
           Role::computation}};
}

}  // namespace linkscope
