// Puts that a GPU posts as descriptors: what the ring, its server and its users are, and their times in the simulation.
#include <algorithm>

#include "base/error.hpp"
#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

/// The steps of all loops that post or take a descriptor.
std::vector<const Step*> jobs_of(const Program& program, bool taken) {
  std::vector<const Step*> found;
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop)
      if (job_of(step) && std::holds_alternative<Wait>(step) == taken) found.push_back(&step);
  return found;
}

const Actor& server_of(const Program& program) {
  return *std::ranges::find_if(program.actors, [](const Actor& actor) {
    return std::ranges::any_of(actor.loop,
                               [](const Step& step) { return std::holds_alternative<Wait>(step) && job_of(step); });
  });
}

double slope_us(const Program& program) { return 1e6 * slope(*make_sim(toy(), 1), program, 100); }

}  // namespace

TEST_CASE("a descriptor of 16 bytes holds a put or its word, and a larger one holds both") {
  for (const auto& [bytes, count] : {std::pair{"16", 2u}, std::pair{"32", 1u}, std::pair{"128", 1u}}) {
    const auto program = valid_program("queued_put", Engine::sm, "gpu:0", "gpu:1", {{"descriptor", bytes}});
    for (const bool taken : {false, true}) {
      const auto jobs = jobs_of(program, taken);
      CHECK(jobs.size() == count);
      for (const auto* step : jobs) CHECK(job_of(*step)->bytes == std::stoul(bytes));
      CHECK((job_of(*jobs.front())->to && job_of(*jobs.back())->signal));
      CHECK(job_of(*jobs.front())->signal.has_value() == (count == 1));
    }
  }
}

TEST_CASE("the ring lies in the memory that is asked for, and its slots are taken in the order of posting") {
  for (const auto& [queue, at] : {std::pair{"host", "numa:0"}, std::pair{"own", "gpu:0"}, std::pair{"peer", "gpu:1"}}) {
    const auto program = valid_program("queued_put", Engine::sm, "gpu:0", "gpu:1", {{"queue", queue}});
    const auto &post = *jobs_of(program, false).front(), &take = *jobs_of(program, true).front();
    CHECK(to_string(program.regions[word_of(post)->region].at) == at);
    CHECK(word_of(post)->region == word_of(take)->region);
    CHECK(word_of(post)->slices == 16);
  }
}

TEST_CASE("a kernel, a stream's host thread or a CPU thread serves the ring, and does what descriptors say") {
  using enum ActorKind;
  for (const auto& [engine, src, dst, kind] :
       {std::tuple{Engine::sm, "gpu:0", "gpu:0", gpu_block}, std::tuple{Engine::sm, "gpu:0", "numa:0", gpu_block},
        std::tuple{Engine::ce, "gpu:0", "gpu:1", stream}, std::tuple{Engine::cpu, "numa:0", "numa:0", cpu_thread}})
    for (const char* benchmark : {"queued_put", "queued_put_ping_pong"}) {
      const auto program = valid_program(benchmark, engine, src, dst);
      const auto& server = server_of(program);
      CHECK(server.kind == kind);
      CHECK(program.flows.front().bytes == 4096);
      CHECK(&program.actors[program.flows.front().actor] == &server);
      std::size_t ordered = 0;
      for (const auto& step : server.loop) ordered += is_of_job(server, step);
      CHECK(ordered == 2);  // the copy and the word, but not the credit
    }
}

TEST_CASE("each connection has a ring, a poster, a server and a receiver of its own") {
  const auto program = valid_program("queued_put", Engine::ce, "gpu:0", "gpu:1", {{"connections", "8"}});
  CHECK(program.actors.size() == 24);
  std::vector<u32> rings;
  for (const auto* step : jobs_of(program, true)) rings.push_back(word_of(*step)->region);
  std::ranges::sort(rings);
  CHECK(rings.size() == 8);
  CHECK(std::ranges::adjacent_find(rings) == rings.end());
}

TEST_CASE("a proxy serves its share of the rings in turn, and a CPU thread receives from as many") {
  for (const auto& [engine, src, dst] :
       {std::tuple{Engine::ce, "gpu:0", "numa:0"}, std::tuple{Engine::cpu, "numa:0", "numa:0"}}) {
    const auto program = valid_program("queued_put", engine, src, dst, {{"connections", "8"}, {"proxies", "2"}});
    CHECK(program.actors.size() == 2 + 8 + 2);
    CHECK(std::ranges::count(program.actors, ActorKind::gpu_block, &Actor::kind) == 8);
    std::vector<u32> rings;
    for (u32 proxy = 0; proxy < 2; ++proxy) {
      std::size_t ordered = 0;
      for (const auto& step : program.actors[proxy].loop) {
        ordered += is_of_job(program.actors[proxy], step);
        if (std::holds_alternative<Wait>(step)) rings.push_back(word_of(step)->region);
      }
      CHECK(ordered == 2 * 4);
    }
    CHECK(rings.size() == 8);
    std::ranges::sort(rings);
    CHECK(std::ranges::adjacent_find(rings) == rings.end());
    // A flow for each ring, so that rates count messages.
    CHECK(std::ranges::count(program.flows, true, &Flow::measured) == 8);
    CHECK(std::ranges::count(program.flows, 0u, &Flow::actor) == 4);
  }
  CHECK(valid_program("queued_put", Engine::ce, "gpu:0", "gpu:1", {{"connections", "2"}, {"proxies", "8"}})
            .actors.size() == 6);
}

TEST_CASE("in the simulation one proxy takes the time of all of its rings, and more proxies share it") {
  const auto time = [](const char* proxies) {
    return slope_us(
        valid_program("queued_put", Engine::cpu, "numa:0", "numa:0", {{"connections", "8"}, {"proxies", proxies}}));
  };
  CHECK(time("1") > 1.5 * time("2"));
  CHECK(time("2") > time("8"));  // where others are the slowest
}

TEST_CASE("slots that are no descriptors of a ring, and unequal ends of a put, are refused") {
  auto program = valid_program("queued_put", Engine::sm, "gpu:0", "gpu:1");
  for (auto& actor : program.actors)
    for (auto& step : actor.loop)
      if (auto* set = std::get_if<Set>(&step); set && set->job) set->job->to->bytes = 8;
  CHECK_THROWS_WITH_AS(validate(program), doctest::Contains("unequal lengths"), Error);
  program = valid_program("queued_put", Engine::sm, "gpu:0", "gpu:1");
  for (auto& actor : program.actors)
    for (auto& step : actor.loop)
      if (auto* set = std::get_if<Set>(&step); set && set->job) set->job->bytes = set->word.bytes = 24;
  CHECK_THROWS_WITH_AS(validate(program), doctest::Contains("no slot of a ring"), Error);
}

TEST_CASE(
    "in the simulation a put through descriptors costs more than one by the poster, and more so by a copy engine") {
  const double direct = slope_us(valid_program("put_ping_pong", Engine::sm, "gpu:0", "gpu:1")),
               by_kernel =
                   slope_us(valid_program("queued_put_ping_pong", Engine::sm, "gpu:0", "gpu:1", {{"queue", "own"}})),
               in_host = slope_us(valid_program("queued_put_ping_pong", Engine::sm, "gpu:0", "gpu:1")),
               by_engine = slope_us(valid_program("queued_put_ping_pong", Engine::ce, "gpu:0", "gpu:1"));
  CHECK(direct < by_kernel);
  CHECK(by_kernel < in_host);
  CHECK(in_host < by_engine);
}

TEST_CASE("in the simulation a post is cheapest in the memory of the GPU that posts, and 16 bytes need two posts") {
  const double own = slope_us(valid_program("post", Engine::sm, "gpu:0", "gpu:0", {}, 0)),
               peer = slope_us(valid_program("post", Engine::sm, "gpu:0", "gpu:1", {}, 0)),
               two = slope_us(valid_program("post", Engine::sm, "gpu:0", "numa:0", {{"descriptor", "16"}}, 0)),
               one = slope_us(valid_program("post", Engine::sm, "gpu:0", "numa:0", {}, 0));
  CHECK(own < peer);
  CHECK(peer < one);
  CHECK(two == doctest::Approx(2 * one).epsilon(0.02));
}
