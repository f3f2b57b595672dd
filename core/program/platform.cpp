#include "program/platform.hpp"

#include <algorithm>
#include <functional>

namespace linkscope {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error{ErrorKind::usage, why}; }

void check_duration(const Program& program, const Duration& lasts) {
  if (lasts.length <= Seconds{0} || lasts.length > longest_duration)
    refuse("a sample lasts more than 0 s and at most " + std::to_string(longest_duration.count()) + " s, and not " +
           std::to_string(lasts.length.count()) + " s");
  if (lasts.interval <= Seconds{0} || lasts.interval > lasts.length)
    refuse("an interval of " + std::to_string(lasts.interval.count()) + " s does not fit into a sample of " +
           std::to_string(lasts.length.count()) + " s");
  if (program.most_iterations)
    refuse("a program of at most " + std::to_string(program.most_iterations) +
           " iterations per sample cannot run for a duration");
}

}  // namespace

bool may_stamp(const Program& program) {
  return program.passes == 1 && std::all_of(program.actors.begin(), program.actors.end(), exchanges_words) &&
         std::none_of(program.actors.begin(), program.actors.end(), talks_to_ranks);
}

void check_order(const Program& program, const Order& order) {
  if (order.stamped && (order.lasts || !may_stamp(program)))
    refuse("iterations are stamped in batches of programs whose actors all exchange words, in one pass each");
  if (order.lasts) return check_duration(program, *order.lasts);
  for (const auto& batch : order.batches) {
    if (in_step(program) && std::adjacent_find(batch.begin(), batch.end(), std::not_equal_to<>{}) != batch.end())
      refuse("a batch has different counts, and the program's actors wait for each other");
    for (u32 actor = 0; actor < program.actors.size() && actor < batch.size(); ++actor)
      if (batch[actor] != batch[leader_of(program, actor)])
        refuse("a batch has different counts for the blocks of one kernel");
    for (const u32 count : batch)
      if (program.most_iterations && count > program.most_iterations)
        refuse("a batch has " + std::to_string(count) + " iterations; the program allows at most " +
               std::to_string(program.most_iterations) + " per sample");
  }
}

void Trace::make_room(const Order& order, std::size_t count) {
  samples = order.samples;
  batches = order.lasts ? 1 : static_cast<u32>(order.batches.size());
  actors = static_cast<u32>(count);
  stamps.resize(std::size_t{samples} * batches * actors);
  if (order.stamped) latencies.resize(count);
  if (!order.lasts) return;
  series.resize(std::size_t{samples} * actors);
  windows.resize(samples);
}

}  // namespace linkscope
