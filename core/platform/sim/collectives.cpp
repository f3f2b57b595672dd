// Collectives between GPUs, as one kernel on each. All-reduce, all-gather and reduce-scatter pass blocks around a ring;
// broadcast and reduce pass chunks along a chain; all-to-all and send-receive write directly. A step costs what a kernel's
// writes to the other GPU cost. The protocols of a library, its channels and its adding cost nothing here.
#include <algorithm>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {
namespace {

constexpr const char* waited_for_block = "a rank of a collective waited for a block";
constexpr u64 least_chunk = 64 << 10, most_chunks = 16;

/// The words of a pair of ranks: how many blocks have come, and how many iterations the receiver has ended.
enum class Count : u64 { come, ended };
u64 word_of(u32 from, u32 to, Count count) {
  constexpr u32 behind_all_regions = 0xF001, most_ranks = 4096;
  return address_of(behind_all_regions, ((u64{from} * most_ranks + to) * 2 + static_cast<u64>(count)) * sizeof(u64));
}

/// A rank's part, op by op. `write(peer, bytes)` makes the op that writes to another rank's GPU.
template <class Write>
class Part {
 public:
  Part(const Collective& of, Write write) : of_{of}, write_{write} {}

  std::vector<Op> made() {
    switch (of_.kind) {
      case CollectiveKind::all_reduce:
        around(2 * (of_.ranks() - 1));
        break;
      case CollectiveKind::all_gather:
      case CollectiveKind::reduce_scatter:
        around(of_.ranks() - 1);
        break;
      case CollectiveKind::broadcast:
        along(of_.rank, of_.rank + 1);
        break;
      case CollectiveKind::reduce:
        along(of_.ranks() - 1 - of_.rank, of_.rank - 1);
        break;
      case CollectiveKind::all_to_all:
        directly(of_.ranks() - 1, of_.bytes() / of_.ranks());
        break;
      case CollectiveKind::send_receive:
        directly(1, of_.bytes());
        break;
    }
    return std::move(ops_);
  }

 private:
  [[nodiscard]] u32 after(u32 distance) const { return (of_.rank + distance) % of_.ranks(); }
  [[nodiscard]] u32 before(u32 distance) const { return (of_.rank + of_.ranks() - distance) % of_.ranks(); }
  /// The number-th of `count` blocks of an iteration.
  void send(u32 peer, u64 bytes, u64 number, u64 count) {
    ops_.push_back(write_(peer, bytes, ops_.empty()));
    ops_.push_back(count_op(OpKind::set, word_of(of_.rank, peer, Count::come), number, count, waited_for_block));
  }
  void wait(u32 peer, u64 number, u64 count) {
    ops_.push_back(count_op(OpKind::wait, word_of(peer, of_.rank, Count::come), number, count, waited_for_block));
  }
  void around(u64 steps) {
    for (u64 step = 1; step <= steps; ++step) {
      send(after(1), std::max<u64>(1, of_.bytes() / of_.ranks()), step, steps);
      wait(before(1), step, steps);
    }
  }
  void directly(u32 peers, u64 bytes) {
    for (u32 distance = 1; distance <= peers; ++distance) send(after(distance), bytes, 1, 1);
    for (u32 distance = 1; distance <= peers; ++distance) wait(before(distance), 1, 1);
  }
  /// `at`: this rank's place in the chain.
  void along(u32 at, u32 next) {
    const u32 last = of_.ranks() - 1, earlier = 2 * of_.rank - next;
    const u64 chunks = std::clamp<u64>(of_.bytes() / least_chunk, 1, most_chunks);
    for (u64 chunk = 1; chunk <= chunks; ++chunk) {
      if (at > 0) wait(earlier, chunk, chunks);
      if (at < last) send(next, of_.bytes() / chunks, chunk, chunks);
    }
    // A rank is at most one iteration ahead of the next one: buffers are full then.
    if (at > 0) ops_.push_back(count_op(OpKind::set, word_of(of_.rank, earlier, Count::ended), 1, 1, waited_for_block));
    if (at < last)
      ops_.push_back(count_op(OpKind::wait, word_of(next, of_.rank, Count::ended), 0, 1, waited_for_block));
  }

  const Collective& of_;
  Write write_;
  std::vector<Op> ops_;
};

/// The actor of a rank.
const Actor& actor_of(const Program& program, u32 rank) {
  return *std::find_if(program.actors.begin(), program.actors.end(),
                       [&](const Actor& actor) { return collective_of(actor)->rank == rank; });
}

}  // namespace

Support Compiler::supports(const Program& program, const Actor& actor, const Collective& collective) const {
  if (actor.kind != ActorKind::stream) return Support::no("the model has no collectives of MPI: ranks need GPUs");
  if (!machine_.kernel)
    return Support::no("the model " + machine_.name +
                       " does not say how its GPUs' threads access memory: its file has no [kernel]");
  for (u32 rank = 0; rank < collective.ranks(); ++rank) {
    const Actor& other = actor_of(program, rank);
    if (!machine_.find(other.place))
      return Support::no("the machine " + machine_.name + " has no " + to_string(other.place));
    if (rank == collective.rank) continue;
    if (other.place == actor.place)
      return Support::no("NCCL takes one rank per GPU, and two ranks have " + to_string(actor.place));
    if (!machine_.peer(node(actor.place), node(other.place)))
      return Support::no("there is no peer access between " + to_string(actor.place) + " and " +
                         to_string(other.place) + " on this machine");
  }
  return {};
}

std::vector<Op> Compiler::ops(const Program& program, const Actor& actor, const Collective& collective) const {
  const auto copied = [&](const Span& to, u64 bytes) {
    Span source = collective.in, target = to;
    source.offset = target.offset = 0;
    source.bytes = target.bytes = bytes;
    source.slices = target.slices = 1;
    Op op = accessed(program, actor, kernel_of(Move{source, target, Engine::sm, false, {0, 512}}));
    op.moves.clear();  // a model keeps track of copies, and of no sums
    return op;
  };
  if (collective.ranks() == 1) {
    Op op = copied(collective.out, collective.bytes());
    if (collective.in_place()) op.bytes = op.chunk_bytes = 0;
    return {std::move(op)};
  }
  Part part{collective, [&](u32 peer, u64 bytes, bool first) {
              Op op = copied(collective.inputs[peer], bytes);
              if (!first) op.stages.front().setup -= machine_.kernel->launch;
              return op;
            }};
  auto made = part.made();
  // A rank that only receives is a kernel too.
  if (made.front().flag) made.front().stages.front().setup += machine_.kernel->launch;
  return made;
}

}  // namespace linkscope::sim
