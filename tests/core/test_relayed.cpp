// Copies over the links of helper GPUs on the simulation: their gain, and every byte.
#include <doctest.h>

#include "base/error.hpp"
#include "benchmarks/case.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

Case relayed(const char* src, const char* dst, u64 bytes, const char* helpers, const char* chunk = "4MiB") {
  const auto memory = [](const std::string& place) { return place[0] == 'g' ? "device" : "pinned"; };
  return copy_case("relayed", src, memory(src), dst, memory(dst), bytes,
                   {{"mode", "batched"}, {"helpers", helpers}, {"chunk", chunk}});
}

double slope_of(const Case& c) {
  const auto sim = make_sim(exact(bundled("h200x4")), 1);
  const auto program = build_program(c);
  const auto support = sim->supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  return slope(*sim, program);
}

}  // namespace

TEST_CASE("each helper's link adds most of its rate to a copy of pinned memory") {
  for (const auto& [src, dst, plain] : {std::tuple{"numa:0", "gpu:2", "h2d"}, std::tuple{"gpu:2", "numa:0", "d2h"}}) {
    CAPTURE(plain);
    const bool to_gpu = src[0] == 'n';
    const double alone = slope_of(
                     copy_case(plain, src, to_gpu ? "pinned" : "device", dst, to_gpu ? "device" : "pinned", 256_MiB)),
                 two = slope_of(relayed(src, dst, 256_MiB, "1")),
                 four = slope_of(relayed(src, dst, 256_MiB, "3", "8MiB"));
    CHECK(alone / two > 1.6);
    CHECK(alone / two < 2.0);
    CHECK(alone / four > 2.4);
    CHECK(alone / four < 4.0);
  }
}

TEST_CASE("the helpers are the GPUs with the lowest numbers, and the GPU's own link carries an equal part") {
  const auto program = build_program(relayed("numa:0", "gpu:1", 64_MiB, "3"));
  std::vector<std::string> helpers;
  u64 bytes = 0;
  for (const auto& flow : program.flows) {
    CHECK(flow.bytes == 16_MiB);
    if (flow.measured) bytes += flow.bytes;
    else helpers.push_back(to_string(flow.dst));
  }
  CHECK(program.flows[0].src == numa(0));
  CHECK(program.flows[0].dst == gpu(1));
  CHECK(helpers == std::vector<std::string>{"gpu:0", "gpu:2", "gpu:3"});
  CHECK(bytes == 64_MiB);
}

TEST_CASE("every chunk of a relayed copy arrives, and one that passes a helper too early is found") {
  const auto sim = make_sim(exact(bundled("h200x4")), 1);
  const auto verdict_of = [&](const Program& program) {
    const auto session = sim->prepare(program, "relayed#0");
    return *sim->run(*session, {1, {std::vector<u32>(program.actors.size(), 3)}, true}).verdict;
  };
  for (const auto& [src, dst] : {std::pair{"numa:0", "gpu:0"}, std::pair{"gpu:0", "numa:0"}}) {
    CAPTURE(std::string{src});
    const auto good = build_program(relayed(src, dst, 32_MiB, "3", "1MiB"));
    const auto verdict = verdict_of(good);
    CHECK(verdict.ok);
    CHECK(verdict.checked_bytes >= 96_MiB);
    // The slower leg shows it: a slot is emptied before it is full, or filled again before it is empty.
    auto early = good;
    std::get<Wait>(early.actors[src[0] == 'n'].loop[0]).value -= 1000;
    CHECK_FALSE(verdict_of(early).ok);
  }
}

TEST_CASE("a machine with too few GPUs, and sizes without equal parts of whole chunks are refused") {
  const auto sim = make_sim(exact(bundled("h200x4")), 1);
  CHECK(sim->supports(build_program(relayed("numa:0", "gpu:0", 64_MiB, "7"))).why_not ==
        "the machine h200x4 has no gpu:4");
  CHECK_THROWS_WITH_AS((void)build_program(relayed("numa:0", "gpu:0", 64_MiB + 8, "1")),
                       doctest::Contains("cannot be divided into 2 equal parts of whole chunks"), Error);
  CHECK_THROWS_WITH_AS((void)build_program(relayed("numa:0", "gpu:0", 8, "1")), doctest::Contains("2 equal parts"),
                       Error);
}
