// Axes of Comm|Scope's paper that a parameter selects: memory and threads without NUMA binding, the node of the thread
// behind staged peer copies, one host thread for both directions, and a GPU and a CPU at the same memory. On the small
// machine of sim_testing.hpp; all expected times are stated here, in us.
#include <set>
#include <string>

#include "base/error.hpp"
#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

Program h2d(const std::string& memory, Params params) {
  return build_program(copy_case("h2d", "numa:0", memory, "gpu:0", "device", megabyte, std::move(params)));
}

Program shared_words(Params params) {
  auto c = copy_case("atomic_shared", "gpu:0", "device", "numa:0", "pinned", 8000, std::move(params));
  c.engine = Engine::sm;
  return build_program(c);
}

Program shared_access(const std::string& memory, Params params) {
  auto c = copy_case("shared_access", "numa:0", memory, "gpu:0", memory == "managed" ? memory : "device", megabyte,
                     std::move(params));
  c.engine = memory == "managed" ? Engine::fault : Engine::sm;
  return build_program(c);
}

void check_within_a_thousandth(double seconds, double us) { CHECK(seconds * 1e6 == doctest::Approx(us).epsilon(1e-3)); }

/// Time of each actor in its first iteration, alone in a sample.
double seconds_of(Platform& sim, const Program& program, std::size_t actor) {
  const auto session = sim.prepare(program, "key#0");
  const std::vector<u32> batch(program.actors.size(), 1);
  const auto trace = sim.run(*session, {1, {batch}, true});
  CHECK(trace.verdict->ok);
  const auto& stamp = trace.at(0, 0, static_cast<u32>(actor));
  return stamp.exit_s - stamp.enter_s;
}

}  // namespace

TEST_CASE("without binding each round finds memory and thread on a node of its own") {
  const auto sim = make_sim(toy(), 1);
  const auto bound = h2d("pinned", {{"mode", "single"}}),
             free = h2d("pinned", {{"mode", "single"}, {"binding", "none"}});
  CHECK(is_bound(bound));
  CHECK_FALSE(is_bound(free));
  std::set<long> near, any;
  for (int round = 0; round < 16; ++round) {
    const auto key = "key#" + std::to_string(round);
    near.insert(std::lround(single(*sim, bound, key) * 1e9));
    any.insert(std::lround(single(*sim, free, key) * 1e9));
  }
  CHECK(near.size() == 1);
  CHECK(any.size() == 2);  // on the GPU's node, or beyond the link between the nodes
  CHECK(any.contains(*near.begin()));
}

TEST_CASE("the trace names the node of memory without binding") {
  const auto sim = make_sim(toy(), 1);
  const auto session = sim->prepare(h2d("pageable", {{"binding", "none"}}), "key#0");
  const auto notes = sim->run(*session, {1, {{1}}, false}).notes;
  CHECK(std::any_of(notes.begin(), notes.end(), [](const auto& note) {
    return note.first == "pages of no node" && note.second.starts_with("numa:");
  }));
}

TEST_CASE("a thread on a given node is bound, so that it excludes binding=none") {
  CHECK_THROWS_WITH_AS((void)h2d("pageable", {{"binding", "none"}, {"cpu", "numa:1"}}),
                       "h2d: a thread on numa:1 is bound: leave out cpu, or binding=none", Error);
  const auto text = to_text(h2d("pageable", {{"binding", "none"}}));
  CHECK(text.find("pattern on any node") != std::string::npos);
  CHECK(text.find("driven from any node") != std::string::npos);
}

TEST_CASE("without peer access a copy between GPUs goes through the node of its host thread") {
  const auto sim = make_sim(toy(), 1);
  const auto links = [&](Params params) {
    params["peer"] = "off";
    const auto program = build_program(copy_case("d2d", "gpu:0", "device", "gpu:1", "device", megabyte, params));
    const auto session = sim->prepare(program, "key#0");
    std::set<std::string> found;
    for (const auto& link : sim->run(*session, {1, {{1}}, false}).links) found.insert(link.link);
    return found;
  };
  CHECK(links({}) == links({{"cpu", "numa:0"}}));
  CHECK(links({{"cpu", "numa:0"}}).contains("smp numa:0->numa:1"));
  CHECK(links({{"cpu", "numa:1"}}).contains("smp numa:0->numa:1"));
  CHECK(slope(*sim, build_program(copy_case("d2d", "gpu:0", "device", "gpu:1", "device", megabyte,
                                            {{"peer", "off"}, {"cpu", "numa:1"}}))) > 0);
}

TEST_CASE("one host thread for both directions copies pageable memory one direction after the other") {
  const auto sim = make_sim(toy(), 1);
  const auto time = [&](const Params& params) { return time_of(*sim, h2d("pageable", params), 1); };
  const Params both{{"bidirectional", "true"}, {"mode", "single"}};
  Params one = both;
  one["host_threads"] = "one";
  const double single_way = time({{"mode", "single"}});
  CHECK(time(one) > 1.7 * single_way);
  CHECK(build_program(copy_case("h2d", "numa:0", "pageable", "gpu:0", "device", 8, one)).held_by == HeldBy::nothing);
  CHECK(build_program(copy_case("h2d", "numa:0", "pageable", "gpu:0", "device", 8, both)).held_by != HeldBy::nothing);
}

TEST_CASE("a CPU adds slower to a word to which a GPU adds too, and as fast to a word of its own") {
  auto machine = toy();
  machine["atomic"]["cpu_us"] = 0.01;
  const auto sim = make_sim(machine, 1);
  // 1000 additions; the GPU's each take the round trip of 1 us and 0.2 us, in which the line is away for 0.1 us
  check_within_a_thousandth(seconds_of(*sim, shared_words({{"by", "cpu"}}), 0), 10);
  check_within_a_thousandth(seconds_of(*sim, shared_words({{"words", "apart"}}), 1), 10);
  check_within_a_thousandth(seconds_of(*sim, shared_words({}), 1), 10 / (1 - 0.1 / 1.2));
  const auto gpu_us = seconds_of(*sim, shared_words({{"by", "gpu"}}), 0) * 1e6;
  check_within_a_thousandth(seconds_of(*sim, shared_words({}), 0), gpu_us);
  CHECK(gpu_us > 1000 * 1.2);
  const auto without = make_sim(toy(), 1)->supports(shared_words({}));
  CHECK(without.why_not == "the model toy does not say how long an addition by a CPU takes: cpu_us of [atomic]");
}

TEST_CASE("a GPU and a CPU thread read the same host memory, or memory of their own") {
  const auto sim = make_sim(toy(), 1);
  for (const char* bytes : {"same", "apart"}) {
    const auto both = shared_access("pinned", {{"bytes", bytes}});
    CHECK(both.actors.size() == 2);
    CHECK(both.flows.size() == 2);
    CHECK(seconds_of(*sim, both, 0) > 0);
    const auto text = to_text(both);
    CHECK((text.find("[0 +1000000] -> r1") != std::string::npos) == (std::string{bytes} == "same"));
  }
  check_within_a_thousandth(seconds_of(*sim, shared_access("pinned", {{"by", "cpu"}}), 0), 0.1 + megabyte / 5e3);
  CHECK(shared_access("pinned", {{"by", "gpu"}}).actors.size() == 1);
}

TEST_CASE("managed pages that a CPU reads while a GPU reads them are the ones that the GPU needs") {
  const auto sim = make_sim(toy(), 1);
  const double alone = seconds_of(*sim, shared_access("managed", {{"by", "gpu"}}), 0);
  CHECK(alone > 0);
  CHECK(seconds_of(*sim, shared_access("managed", {{"bytes", "apart"}}), 0) == doctest::Approx(alone).epsilon(0.05));
  CHECK(seconds_of(*sim, shared_access("managed", {{"bytes", "same"}}), 0) >= alone * 0.99);
}

TEST_CASE("the model touches pages in their order; blocks and threads of a GPU are a parameter") {
  const auto demand = [](Params params) {
    auto c = copy_case("demand", "numa:0", "managed", "gpu:0", "managed", 1_MiB, std::move(params));
    c.engine = Engine::fault;
    return build_program(c);
  };
  const auto sim = make_sim(toy(), 1);
  for (const Params& params : {Params{{"order", "random"}}, Params{{"stride", "131072"}}})
    CHECK(sim->supports(demand(params)).why_not == "the model's pages are touched in their order, without gaps");
  CHECK(to_text(demand({{"blocks", "16"}, {"block_threads", "32"}})).find("touch <16, 32>") != std::string::npos);
  CHECK(to_text(demand({{"order", "random"}, {"stride", "131072"}})).find("at random by 131072") != std::string::npos);
  CHECK_THROWS_WITH_AS((void)demand({{"order", "random"}, {"touch", "all"}}),
                       "demand: order and stride are of touched pages; touch=all and advice access all bytes", Error);
}
