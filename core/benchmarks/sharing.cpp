// Several clients do the same work on one GPU. A client waits for each operation before it begins the next, so each
// operation has a latency.
#include <string>

#include "base/units.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

using namespace literals;
using enum MemKind;

constexpr u64 copied = 16_MiB, computed = 64_MiB, in_flight = 4;

Case case_of(const char* benchmark, const Place& src, const Place& dst, u64 bytes) {
  const auto memory = [](const Place& place) { return place.kind == PlaceKind::gpu ? device : pinned; };
  const bool kernel = src == dst;
  return {benchmark, kernel ? Engine::sm : Engine::ce, src, dst, memory(src), memory(dst), bytes, in_flight * bytes,
          {}};
}

Program copy_in(const Case& c) { return build_program(case_of("h2d", c.src, c.dst, copied)); }
Program copy_out(const Case& c) { return build_program(case_of("d2h", c.dst, c.src, copied)); }
Program kernel(const Case& c) { return build_program(case_of("local", c.dst, c.dst, computed)); }

/// A kernel of one block that reads one line, so that its launch takes the time.
Program launch(const Case& c) {
  Case tiny = case_of("read", c.dst, c.dst, 256);
  tiny.params = {{"blocks", "1"}, {"threads", "256"}};
  auto program = build_program(tiny);
  program.flows[0].bytes = 0;
  return program;
}

/// Copies in, computes and copies out, one after the other on one stream. Its bytes are those of one direction.
Program mix(const Case& c) {
  auto parts = std::vector{copy_in(c), kernel(c), copy_out(c)};
  for (auto& part : parts) part.cache = CacheState::cold, part.held_by = HeldBy::kernel;
  auto program = together(parts);
  for (std::size_t actor = 1; actor < program.actors.size(); ++actor)
    for (auto& step : program.actors[actor].loop) program.actors[0].loop.push_back(std::move(step));
  program.actors.resize(1);
  program.flows.resize(1);
  return program;
}

struct Work {
  const char *name, *summary;
  Program (*program)(const Case&);
};
constexpr Work works[] = {
    {"shared_h2d", "clients of one GPU copy to it, each 16 MiB at a time", copy_in},
    {"shared_d2h", "clients of one GPU copy from it, each 16 MiB at a time", copy_out},
    {"shared_mix", "clients of one GPU copy 16 MiB in, copy 64 MiB within it by SMs, and copy 16 MiB out", mix},
    {"shared_launch", "clients of one GPU launch small kernels and wait for each", launch},
};

Program build(const Case& c) {
  const auto way = c.param("way", "threads");
  const auto clients = c.number("clients", "1");
  std::vector<Program> programs;
  for (const auto& work : works) {
    if (c.benchmark != work.name) continue;
    for (u32 client = 0; client < clients; ++client) {
      auto program = work.program(c);
      program.cache = CacheState::cold;
      program.held_by = HeldBy::kernel;
      program.mps = way == "mps";
      const u32 process = way == "processes" || way == "mps" ? client : 0;
      for (auto& region : program.regions) region.process = process;
      for (auto& actor : program.actors) {
        actor.process = process;
        actor.singly = true;
        if (way == "green") actor.sms = SmShare{client, clients};
      }
      programs.push_back(std::move(program));
    }
  }
  return together(programs);
}

}  // namespace

std::vector<Benchmark> shared_gpus() {
  const Param way{
      "way",
      {"threads", "processes", "mps", "green"},
      "the clients are threads of one process, processes that take turns, processes under MPS, or green contexts with "
      "equal parts of the SMs"};
  const Param clients{"clients", {"1", "2", "3", "4", "8"}, "clients that do the work at once"};
  std::vector<Benchmark> rows;
  for (const auto& work : works) {
    constexpr bool sized = false;
    const bool copies = work.program != launch;
    rows.push_back({work.name,
                    work.summary,
                    "linkscope",
                    copies ? Engine::ce : Engine::sm,
                    PlaceKind::numa,
                    PlaceKind::gpu,
                    Relation::any,
                    {{pinned, device}},
                    {clients, way},
                    build,
                    sized,
                    Taken::by_name,
                    Role::contention});
  }
  return rows;
}

}  // namespace linkscope
