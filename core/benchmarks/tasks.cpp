// Spafford 5 (SP-9, SP-11): GPU transfer tasks and message tasks, one kind alone or both at once. Every task has CPUs of its
// own: transfers the first ones of the source's node, messages a pair each behind them, on the other nodes when the first is
// full. Tasks of ranks run where the launcher has put the ranks, and exchange their messages by MPI.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "benchmarks/messages.hpp"

namespace linkscope {
namespace {

using namespace literals;

/// The GPUs of the transfer tasks: from the case's GPU in the order of numbers. GPUs that are not there are refused when
/// the program is prepared.
std::vector<Place> gpus_of(const Case& c) {
  const auto sets = c.param("sets", "all");
  if (sets == "all") return c.others.empty() ? std::vector{c.dst} : c.others;
  std::vector<Place> gpus(std::stoul(sets), c.dst);
  for (u32 i = 0; i < gpus.size(); ++i) gpus[i].index += i;
  return gpus;
}

u64 message_bytes(const Case& c) { return c.param("message", "8B") == "8B" ? 8 : 64_KiB; }

/// The number of message tasks: one for each transfer task, or as many pairs of CPUs as are left.
u32 message_tasks(const Case& c, u32 transfers) {
  if (c.param("messages", "each") == "each") return transfers;
  const u32 cpus = std::accumulate(c.cpus.begin(), c.cpus.end(), 0U);
  return cpus > transfers + 1 ? (cpus - transfers) / 2 : 1;
}

/// A CPU: its node, and its place there.
struct Cpu {
  Place node;
  u32 number = 0;
};

/// The n-th CPU, counted from the source's node. Beyond the last one, a CPU that its node lacks: platforms refuse it.
Cpu cpu(const Case& c, u32 n) {
  Cpu found{c.src, n};
  for (u32 i = 0; i < c.cpus.size(); ++i) {
    found.node.index = (c.src.index + i) % static_cast<u32>(c.cpus.size());
    const u32 here = c.cpus[found.node.index];
    if (found.number < here) return found;
    found.number -= here;
  }
  return {c.src, n};
}

Program build_tasks(const Case& c) {
  const auto gpus = gpus_of(c);
  const auto transfers = static_cast<u32>(gpus.size()), tasks = message_tasks(c, transfers);
  const auto at = c.param("at", "both");
  const bool one_thread = c.param("threads", "two") == "one";
  if (one_thread && tasks != transfers)
    throw Error{ErrorKind::usage, "tasks: one thread has one transfer task and one message task: messages is each"};
  Program program = empty_program(c);
  for (u32 i = 0; i < transfers && at != "messages"; ++i) {
    Case one = c;
    one.dst = gpus[i];
    Actor stream = stream_of(one);
    const Cpu own = cpu(c, i);
    stream.cpu = own.node;
    stream.core = own.number;
    add_copy(program, one, {c.src, gpus[i], c.src_memory, c.dst_memory}, std::move(stream));
  }
  std::vector<Program> all;
  if (at != "messages") all.push_back(std::move(program));
  Case between = c;
  for (u32 i = 0; i < tasks && at != "transfers"; ++i) {
    const u32 first = one_thread ? i : transfers + 2 * i, second = one_thread ? transfers + i : first + 1;
    const Cpu from = cpu(c, first), to = cpu(c, second);
    between.src = from.node;
    between.dst = to.node;
    auto message = message_program(between, message_bytes(c), from.number, to.number);
    message.cache = CacheState::cold;
    if (one_thread && at == "both") {
      // The thread that drives the i-th stream exchanges the messages too: program 0 has the streams.
      all.front().actors.push_back(message.actors[0]);
      all.front().actors.back().thread_of = i;
      auto flow = message.flows[0];
      flow.actor = static_cast<u32>(all.front().actors.size() - 1);
      all.front().flows.push_back(flow);
      continue;
    }
    all.push_back(std::move(message));
  }
  return together(all);
}

// --- tasks of ranks -------------------------------------------------------------------------------------------------

/// Pairs of ranks: the pair of the case first, then the other ranks in order. With an odd number, the last rank has no pair.
std::vector<std::pair<Place, Place>> pairs_of_all(const Case& c) {
  std::vector<std::pair<Place, Place>> pairs{{c.src, c.dst}};
  std::optional<Place> single;
  for (u32 rank = 0; rank < c.ranks.size(); ++rank) {
    const Place place{PlaceKind::rank, rank, c.src.host, {}};
    if (place == c.src || place == c.dst) continue;
    if (single) pairs.emplace_back(*std::exchange(single, {}), place);
    else single = place;
  }
  return pairs;
}

/// The ranks with a transfer task, in the order of the pairs. Ranks that share a GPU have one task: the first of them.
std::vector<u32> transferring(const Case& c, const std::vector<std::pair<Place, Place>>& pairs) {
  std::vector<u32> found;
  for (const auto& [first, second] : pairs)
    for (const u32 rank : {first.index, second.index}) {
      if (rank >= c.ranks.size())
        throw Error{ErrorKind::usage, c.benchmark + ": there is no rank:" + std::to_string(rank) + "; there are " +
                                          std::to_string(c.ranks.size()) + " ranks"};
      const auto& gpu = c.ranks[rank].gpu;
      const auto has_it = [&](u32 other) { return c.ranks[other].gpu == gpu; };
      if (gpu && std::none_of(found.begin(), found.end(), has_it)) found.push_back(rank);
    }
  const auto sets = c.param("sets", "all");
  const std::size_t wanted = sets == "all" ? std::max<std::size_t>(1, found.size()) : std::stoul(sets);
  if (wanted > found.size())
    throw Error{ErrorKind::unsupported,
                "each transfer task needs a rank with a GPU of its own: " + std::to_string(wanted) +
                    " wanted, and there are " + std::to_string(found.size())};
  found.resize(wanted);
  return found;
}

/// A transfer task in a rank's process, from its NUMA node to its GPU.
Program transfer_of(const Case& c, u32 rank) {
  Case one = c;
  one.engine = Engine::ce;
  one.src = c.ranks[rank].numa;
  one.dst = *c.ranks[rank].gpu;
  Program program = empty_program(one);
  Actor stream = stream_of(one);
  stream.cpu = one.src;
  stream.process = rank;
  add_copy(program, one, {one.src, one.dst, one.src_memory, one.dst_memory}, std::move(stream));
  for (auto& region : program.regions) region.process = rank;
  return program;
}

Program build_of_ranks(const Case& c) {
  const auto pairs = pairs_of_all(c);
  const auto transfers = transferring(c, pairs);
  const auto at = c.param("at", "both");
  const bool one_thread = c.param("threads", "two") == "one" && at == "both",
             each = c.param("messages", "each") == "each";
  const auto stream_of_rank = [&](u32 rank) {
    return static_cast<u32>(std::find(transfers.begin(), transfers.end(), rank) - transfers.begin());
  };
  std::vector<Program> all;
  for (const u32 rank : transfers)
    if (at != "messages") all.push_back(transfer_of(c, rank));
  for (const auto& [from, to] : pairs) {
    const bool beside = std::min(stream_of_rank(from.index), stream_of_rank(to.index)) < transfers.size();
    if (at == "transfers" || (each && !beside)) continue;
    auto trips = rank_trips(c, from, to, message_bytes(c));
    trips.cache = CacheState::cold;
    trips.held_by = HeldBy::kernel;
    trips.actors[0].singly = true;
    all.push_back(std::move(trips));
  }
  for (auto& program : all) program.held_by = HeldBy::kernel;
  Program program = together(all);
  for (auto& actor : program.actors)  // the streams come first
    if (const u32 stream = stream_of_rank(actor.process);
        one_thread && talks_to_ranks(actor) && stream < transfers.size())
      actor.thread_of = stream;
  return program;
}

Benchmark of_ranks() {
  constexpr bool default_in_id = false;
  Benchmark row{
      "rank_tasks",
      "GPU transfer tasks and messages between ranks, one kind alone or both at once; CPUs are the launcher's",
      "Spafford 5.1 and 5.3, as the operation `tasks`",
      Engine::mpi,
      PlaceKind::rank,
      PlaceKind::rank,
      Relation::different,
      {{MemKind::pinned, MemKind::device}},
      {{"at", {"both", "transfers", "messages"}, "both kinds of tasks at once, or one kind alone"},
       {"message", {"8B", "64KiB"}, "the size of a message"},
       {"messages", {"each", "all"}, "pairs of ranks in which one has a transfer task, or all pairs"},
       {"sets", {"all", "1", "2", "3", "4"}, "transfer tasks, each by a rank with a GPU of its own"},
       {"threads", {"two", "one"}, "transfer and messages by two threads of a rank, or by one", default_in_id},
       again_param()},
      build_of_ranks};
  row.role = Role::contention;
  return row;
}

}  // namespace

std::vector<Benchmark> task_sets() {
  constexpr bool default_in_id = false;
  Benchmark row{"tasks",
                "GPU transfer tasks and message tasks, one kind alone or both at once",
                "Spafford 5.1 and 5.3 (SP-9, SP-11)",
                Engine::ce,
                PlaceKind::numa,
                PlaceKind::gpu,
                Relation::any,
                {{MemKind::pinned, MemKind::device}},
                {{"at", {"both", "transfers", "messages"}, "both kinds of tasks at once, or one kind alone"},
                 {"message", {"8B", "64KiB"}, "the size of a message"},
                 {"messages", {"each", "cores"}, "a message task for each transfer task, or for each two CPUs left"},
                 {"sets", {"all", "1", "2", "3", "4"}, "transfer tasks, each with a GPU of its own"},
                 {"threads", {"two", "one"}, "transfer and messages by two bound threads, or by one", default_in_id},
                 {"channel", {channel_names.begin(), channel_names.end()}, "as of `message`", default_in_id},
                 again_param()},
                build_tasks};
  row.role = Role::contention;
  return {std::move(row), of_ranks()};
}

}  // namespace linkscope
