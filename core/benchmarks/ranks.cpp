// Messages of MPI, UCX and NIXL between ranks, and of UCX between two processes that need no launcher: round trips, and
// rates of messages in windows (SP-3, SP-8). The ends are host memory, or a GPU's memory that the library takes itself or
// that is staged here through pinned slots, whole or chunk by chunk (JO-3, JO-4).
#include <algorithm>
#include <iterator>
#include <string_view>

#include "benchmarks/chunks.hpp"
#include "benchmarks/copies.hpp"
#include "benchmarks/rank_programs.hpp"

namespace linkscope {
namespace {

using namespace literals;

Param chunk_param() {
  Param param{"chunk", {}, "bytes of a message with way=double"};
  for (const auto& [text, bytes] : chunks)
    if (bytes > 0 && bytes <= 4_MiB) param.values.push_back(text);
  param.default_in_id = false;
  return param;
}

using Memories = std::vector<std::pair<MemKind, MemKind>>;
constexpr const char *spafford = "Spafford 3.2", *jorda = "Jorda et al.";

Memories host_memories() {
  using enum MemKind;
  return {{pageable, pageable}, {pinned, pinned}, {managed, managed}};
}
Memories gpu_memories() {
  using enum MemKind;
  return {{device, device}, {pinned, device}, {device, pinned}};
}

Param window_param() {
  return {"window", {"64", "1", "4", "16", "256"}, "messages under way before the receiver answers"};
}

Param hidden_default(Param param) {
  param.default_in_id = false;
  return param;
}

Benchmark row(Engine engine, const char* name, const char* summary, const char* source, Memories memories,
              std::vector<Param> params, Program (*build)(const Case&)) {
  const bool sized = std::string_view{name} != "rank_empty";
  return {name,
          summary,
          source,
          engine,
          PlaceKind::rank,
          PlaceKind::rank,
          Relation::different,
          std::move(memories),
          std::move(params),
          build,
          sized};
}

/// MPI or UCX: the receiver says where a message goes.
std::vector<Benchmark> two_sided_rows(Engine engine) {
  const auto host = host_memories(), gpu = gpu_memories();
  const Param window = window_param(), either = hidden_default(bidirectional_param());
  const Param way{"way",
                  {"staged", "double", "aware"},
                  "staged: each message goes through one pinned slot; double: in chunks through several; aware: "
                  "the library takes the GPU's memory itself"};
  const Param slots = hidden_default({"slots", {"2", "3", "4", "8"}, "pinned slots with way=double"});
  const Param sends = hidden_default(
      {"sends",
       {"ahead", "one"},
       "ahead: with way=double, messages of all slots but one may be under way while the next one starts; one: "
       "each has come before the next one starts"});
  constexpr bool hidden = false, paths = true;
  const Param with{"with", {"none"}, "the other pairs, as in rank:2->rank:3,rank:4->rank:5", hidden, paths};
  Param short_window = hidden_default(window);
  short_window.values = {"16", "1", "4", "64"};
  return {row(engine, "rank_empty", "round trips of an empty message between two ranks", spafford, {host.front()}, {},
              build_ping_pong),
          row(engine, "rank_ping_pong", "round trips of a message between two ranks; bytes count in one direction",
              spafford, host, {}, build_ping_pong),
          row(engine, "rank_rate", "messages from one rank to another, many under way", spafford, host,
              {window, bidirectional_param()}, build_both),
          row(engine, "rank_ping_pong", "round trips of a message between ranks whose ends are in memory of GPUs",
              jorda, gpu, {way, chunk_param(), slots, sends}, build_ping_pong),
          row(engine, "rank_rate", "messages between ranks whose ends are in memory of GPUs", jorda, gpu,
              {way, window, either, chunk_param(), slots, sends}, build_both),
          row(engine, "node_ping_pong", "round trips of pairs of ranks at once; bytes count in one direction", spafford,
              host, {with}, build_trips_of_pairs),
          row(engine, "node_rate", "messages of pairs of ranks at once, many under way", spafford, host,
              {with, short_window}, build_rates_of_pairs)};
}

/// NIXL: the sender writes, and a notification tells the receiver. It takes memory of GPUs itself.
std::vector<Benchmark> one_sided_rows() {
  const auto host = host_memories(), gpu = gpu_memories();
  const Param window = window_param();
  return {row(Engine::nixl, "rank_empty", "round trips of a notification without bytes between two ranks", spafford,
              {host.front()}, {}, build_ping_pong),
          row(Engine::nixl, "rank_ping_pong",
              "round trips of a write with a notification between two ranks; bytes count in one direction", spafford,
              host, {}, build_ping_pong),
          row(Engine::nixl, "rank_rate", "writes from one rank to another, a window and then a notification", spafford,
              host, {window, bidirectional_param()}, build_both),
          row(Engine::nixl, "rank_ping_pong",
              "round trips of a write with a notification between ranks whose ends are in memory of GPUs", jorda, gpu,
              {}, build_ping_pong),
          row(Engine::nixl, "rank_rate", "writes between ranks whose ends are in memory of GPUs", jorda, gpu,
              {window, hidden_default(bidirectional_param())}, build_both)};
}

/// Without ranks: two processes that linkscope starts itself.
std::vector<Benchmark> rows_of_processes() {
  auto trips = row(Engine::ucx, "process_ping_pong",
                   "round trips of a message between two processes; bytes count in one direction", spafford,
                   host_memories(), {}, build_ping_pong);
  auto rate = row(Engine::ucx, "process_rate", "messages from one process to another, many under way", spafford,
                  host_memories(), {window_param(), bidirectional_param()}, build_both);
  for (auto* of : {&trips, &rate}) {
    of->src = of->dst = PlaceKind::numa;
    of->relation = Relation::any;
  }
  return {std::move(trips), std::move(rate)};
}

}  // namespace

std::vector<Benchmark> ranks() {
  std::vector<Benchmark> rows;
  const auto add = [&](std::vector<Benchmark> some) { std::ranges::move(some, std::back_inserter(rows)); };
  add(two_sided_rows(Engine::mpi));
  add(two_sided_rows(Engine::ucx));
  add(one_sided_rows());
  add(rows_of_processes());
  return of_role(Role::message, std::move(rows));
}

}  // namespace linkscope
