#include "program/processes.hpp"

#include <algorithm>
#include <utility>

#include "program/allocation.hpp"

namespace linkscope {
namespace {

bool uses(const Actor& actor, u32 region) {
  return std::any_of(actor.loop.begin(), actor.loop.end(), [&](const Step& step) {
    const auto touched = touches(step);
    return std::any_of(touched.begin(), touched.end(), [&](const Touch& touch) { return touch.span.region == region; });
  });
}

/// The processes whose actors use a region.
std::set<u32> users_of(const Program& program, u32 region) {
  std::set<u32> users;
  for (const auto& actor : program.actors)
    if (uses(actor, region)) users.insert(actor.process);
  return users;
}

/// GPUs of a process that open a region for themselves.
std::set<u32> separate_gpus(const Program& program, u32 region, u32 process) {
  std::set<u32> gpus;
  if (program.regions[region].kind != MemKind::ipc) return gpus;
  for (const auto& actor : program.actors)
    if (actor.process == process && actor.place.kind == PlaceKind::gpu && actor.place != program.regions[region].at &&
        uses(actor, region))
      gpus.insert(actor.place.index);
  return gpus;
}

std::set<u32> acting(const Program& program) {
  std::set<u32> processes;
  for (const auto& actor : program.actors) processes.insert(actor.process);
  return processes;
}

}  // namespace

u32 processes_of(const Program& program) {
  u32 last = 0;
  for (const auto& region : program.regions) last = std::max(last, region.process);
  for (const auto& actor : program.actors) last = std::max(last, actor.process);
  return last + 1;
}

bool in_lockstep(const Program& program) {
  if (acting(program).size() > 1) return true;
  for (u32 r = 0; r < program.regions.size(); ++r)
    if (program.regions[r].process != 0 && is_shared(program.regions[r].kind) && allocated_by_calls(program, r))
      return true;
  return false;
}

bool acts(const Program& program, u32 process) { return in_lockstep(program) || acting(program).contains(process); }

u32 filler_of(const Program& program, u32 region) {
  const auto users = users_of(program, region);
  return users.empty() ? program.regions[region].process : *users.begin();
}

std::vector<Opening> openings(const Program& program) {
  std::vector<Opening> all;
  for (u32 r = 0; r < program.regions.size(); ++r) {
    const auto& region = program.regions[r];
    if (!is_shared(region.kind)) continue;
    auto users = allocated_by_calls(program, r) ? std::set<u32>{0} : users_of(program, r);
    users.erase(region.process);
    for (const u32 process : users) {
      all.push_back({r, process});
      for (const u32 gpu : separate_gpus(program, r, process)) all.push_back({r, process, gpu});
    }
  }
  return all;
}

std::string openings_text(const Program& program) {
  std::string text;
  for (const auto& one : openings(program)) {
    const auto& region = program.regions[one.region];
    text += to_string(region.at) + "." + to_string(region.kind) + " " + std::to_string(region.process) + ">" +
            std::to_string(one.process) + (one.gpu ? " gpu:" + std::to_string(*one.gpu) : "") + "\n";
  }
  return text;
}

Program part_of(const Program& program, u32 process) {
  Program part = program;
  // `thread_of` is an index into the actors of the part, no longer into those of all processes.
  for (auto& actor : part.actors)
    if (actor.process == process && actor.thread_of)
      actor.thread_of = static_cast<u32>(
          std::count_if(program.actors.begin(), program.actors.begin() + static_cast<std::ptrdiff_t>(*actor.thread_of),
                        [&](const Actor& before) { return before.process == process; }));
  std::erase_if(part.actors, [&](const Actor& actor) { return actor.process != process; });
  return part;
}

Order part_of(const Program& program, const Order& order, u32 process) {
  Order part = order;
  for (std::size_t b = 0; b < order.batches.size(); ++b) {
    part.batches[b].clear();
    for (std::size_t a = 0; a < program.actors.size(); ++a)
      if (program.actors[a].process == process) part.batches[b].push_back(order.batches[b][a]);
  }
  return part;
}

Trace among_all(const Program& program, Trace part, u32 process) {
  const auto stamps = std::exchange(part.stamps, {});
  part.actors = static_cast<u32>(program.actors.size());
  auto next = stamps.begin();
  for (u64 i = 0; i < u64{part.samples} * part.batches; ++i)
    for (const auto& actor : program.actors) part.stamps.push_back(actor.process == process ? *next++ : Stamp{});
  if (!part.latencies.empty()) {
    auto stamped = std::exchange(part.latencies, {});
    auto mine = stamped.begin();
    for (const auto& actor : program.actors)
      part.latencies.push_back(actor.process == process ? std::move(*mine++) : Latencies{});
  }
  if (part.windows.empty()) return part;
  const auto own = std::exchange(part.series, {});
  auto found = own.begin();
  for (u32 sample = 0; sample < part.samples; ++sample) {
    Series nothing{{{part.windows[sample].start_s, 0}}, {}, {}, {}};  // as many intervals as the others
    if (!own.empty()) {
      nothing.interval_bytes.resize(found->interval_bytes.size());
      nothing.interval_iterations.resize(found->interval_iterations.size());
    }
    for (const auto& actor : program.actors) part.series.push_back(actor.process == process ? *found++ : nothing);
  }
  return part;
}

}  // namespace linkscope
