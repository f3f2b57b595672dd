// Actors that are blocks of one kernel: in programs, in the benchmarks, and in the simulation.
#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

/// Blocks of one kernel, each of which waits for a word of a CPU thread and answers with a word of its own.
Program answering(u32 blocks) {
  Program p;
  p.regions = {{numa(0), MemKind::pinned, (1 + blocks) * line, Content::zero}};
  const auto at = [](u32 number) { return Span{0, number * line, word}; };
  Actor asks;
  asks.place = numa(0);
  asks.kind = ActorKind::cpu_thread;
  asks.clock = Clock::host;
  asks.loop = {Set{at(0), 1, 1}};
  for (u32 block = 0; block < blocks; ++block) {
    Actor actor;
    actor.place = gpu(0);
    actor.kind = ActorKind::gpu_block;
    actor.grid = 0;
    actor.loop = {Wait{at(0), 1, 1}, Set{at(1 + block), 1, 1}};
    p.actors.push_back(actor);
    asks.loop.emplace_back(Wait{at(1 + block), 1, 1});
  }
  p.actors.push_back(asks);
  for (u32 actor = 0; actor <= blocks; ++actor)
    p.flows.push_back({actor, gpu(0), numa(0), MemKind::device, MemKind::pinned, word});
  return p;
}

/// The number of kernels that the blocks of a GPU are.
std::size_t kernels_of(const Program& program, const Place& gpu) {
  std::set<u32> leaders;
  for (u32 actor = 0; actor < program.actors.size(); ++actor)
    if (program.actors[actor].kind == ActorKind::gpu_block && program.actors[actor].place == gpu)
      leaders.insert(leader_of(program, actor));
  return leaders.size();
}

}  // namespace

TEST_CASE("blocks of one kernel are blocks of one GPU with the same number") {
  auto p = answering(3);
  CHECK(leader_of(p, 2) == 0);
  p.actors[1].place = gpu(1);
  CHECK(leader_of(p, 1) == 1);
  p.actors[2].grid = 1;
  CHECK(leader_of(p, 2) == 2);
  p.actors[0].grid.reset();
  p.actors[1].grid.reset();
  CHECK_FALSE(same_grid(p.actors[0], p.actors[1]));
}

TEST_CASE("the text of a program names the grid of a block") {
  CHECK(to_text(answering(2)).find("actor a1 gpu_block gpu:0 clock event of 1 threads in grid 0") != std::string::npos);
}

TEST_CASE("programs that run together keep their kernels apart") {
  const auto both = together({answering(2), answering(3)});
  CHECK(kernels_of(both, gpu(0)) == 2);
  CHECK(leader_of(both, 1) == 0);
  CHECK(leader_of(both, 5) == 3);
}

TEST_CASE("blocks of one kernel that differ, or always take other counts, are refused") {
  const auto refused = [](auto change, const char* why) {
    auto p = answering(2);
    validate(p);
    change(p);
    CHECK_THROWS_WITH_AS(validate(p), doctest::Contains(why), Error);
  };
  refused([](Program& p) { p.actors[1].threads = 32; }, "have the same threads");
  refused([](Program& p) { p.actors[1].clock = Clock::host; }, "have the same threads");
  refused([](Program& p) { p.actors[0].singly = true; }, "run in batches");
  refused([](Program& p) { p.actors[2].grid = 0; }, "only GPU blocks are blocks of one kernel");
  refused([](Program& p) { p.actors[0].loop = {Fence{}}; }, "exchange words");
}

TEST_CASE("an order that gives the blocks of one kernel different counts is refused") {
  auto p = answering(2);
  p.actors.pop_back();
  p.flows.pop_back();
  for (auto& actor : p.actors) actor.loop = {actor.loop.back()};
  const auto sim = make_sim(toy(), 1);
  const auto session = sim->prepare(p, "key#0");
  CHECK_NOTHROW((void)sim->run(*session, {1, {{2, 2}}, false}));
  CHECK_THROWS_WITH_AS((void)sim->run(*session, {1, {{2, 3}}, false}), doctest::Contains("the blocks of one kernel"),
                       Error);
}

TEST_CASE("in the simulation a kernel begins once, and ends with the last of its blocks") {
  auto p = answering(2);
  p.held_by = HeldBy::nothing;
  p.regions.push_back({numa(0), MemKind::pinned, 1_MiB, Content::poison});
  p.regions.push_back({gpu(0), MemKind::device, 1_MiB, Content::pattern});
  p.actors[1].loop.emplace_back(Move{{2, 0, 1_MiB}, {1, 0, 1_MiB}, Engine::sm});
  const auto stamps = [](const Program& program) {
    const auto sim = make_sim(toy(), 1);
    const auto session = sim->prepare(program, "key#0");
    return sim->run(*session, {1, {{1, 1, 1}}, true}).stamps;
  };
  const auto one = stamps(p);
  CHECK(one[0].enter_s == one[1].enter_s);
  CHECK(one[0].exit_s == one[1].exit_s);
  CHECK(one[0].exit_s - one[0].enter_s > 100e-6);  // 1 MiB at 10 GB/s
  for (auto& actor : p.actors) actor.grid.reset();
  const auto each = stamps(p);
  CHECK(each[0].enter_s < each[1].enter_s);
  CHECK(each[0].exit_s < each[1].exit_s);
}

TEST_CASE("the bystanders of a product are one kernel, however many blocks post or poll") {
  for (const char* beside : {"post", "poll"})
    CHECK(
        kernels_of(valid_program("bystander", Engine::sm, "gpu:0", "numa:0", {{"beside", beside}, {"blocks", "32"}}, 0),
                   gpu(0)) == 1);
}

TEST_CASE("connections are blocks of one kernel for each thing that a GPU does, or each is a kernel of its own") {
  const auto of = [](const char* benchmark, Engine engine, const char* src, const char* dst, const char* launch) {
    return valid_program(benchmark, engine, src, dst, {{"connections", "8"}, {"launch", launch}});
  };
  CHECK(kernels_of(of("queued_put", Engine::sm, "gpu:0", "gpu:0", "one"), gpu(0)) == 3);  // serves, posts, receives
  CHECK(kernels_of(of("queued_put", Engine::sm, "gpu:0", "gpu:0", "each"), gpu(0)) == 24);
  CHECK(kernels_of(of("queued_put", Engine::cpu, "numa:0", "numa:0", "one"), gpu(0)) == 1);
  for (const u32 side : {0u, 1u}) {
    CHECK(kernels_of(of("put", Engine::sm, "gpu:0", "gpu:1", "one"), gpu(side)) == 1);
    CHECK(kernels_of(of("put", Engine::sm, "gpu:0", "gpu:1", "each"), gpu(side)) == 8);
  }
}

TEST_CASE("two kernels of one GPU that answer each other stay two kernels") {
  CHECK(kernels_of(valid_program("queued_put_ping_pong", Engine::sm, "gpu:0", "gpu:0", {}), gpu(0)) == 4);
}
