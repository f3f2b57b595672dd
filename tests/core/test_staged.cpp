// Staged copies on the simulation: known times of the pipeline, and data in the wrong order.
#include <doctest.h>

#include "base/error.hpp"
#include "benchmarks/case.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

// Seconds of the legs of 1 MiB on the toy: a CPU thread copies 5 GB/s, the bus carries 10 GB/s. A copy on a stream needs
// a call of 2 us, a set-up of 2 us (to the GPU) or 3 us (from it), 0.5 us on the bus, and 4 us until its end is seen.
constexpr double by_cpu = 0.1e-6 + mib / 5e9, in = 8.5e-6 + mib / 10e9, out = 9.5e-6 + mib / 10e9;
constexpr double empty_sample = 4e-6;  // which single() subtracts: the host sees the end of an idle stream as late

Case staged(const char* src, const char* dst, u64 bytes, std::map<std::string, std::string> params) {
  const auto memory = [](const std::string& place) { return place[0] == 'g' ? "device" : "pageable"; };
  params.emplace("mode", "single");
  return copy_case("staged", src, memory(src), dst, memory(dst), bytes, std::move(params));
}

nlohmann::json toy_with_cpus() {
  auto made = toy();
  made["numa"][0]["cpus"] = 8;
  return made;
}

double seconds(const Case& c) {
  const auto sim = make_sim(toy_with_cpus(), 1);
  const auto program = build_program(c);
  const auto support = sim->supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  return single(*sim, program);
}

double seconds(const char* src, const char* dst, u64 bytes, std::map<std::string, std::string> params) {
  return seconds(staged(src, dst, bytes, std::move(params)));
}

Verdict verdict_of(const Program& program, u32 iterations) {
  const auto sim = make_sim(toy(), 1);
  const auto session = sim->prepare(program, "staged#0");
  return *sim->run(*session, {1, {std::vector<u32>(program.actors.size(), iterations)}, true}).verdict;
}

}  // namespace

TEST_CASE("a staged copy in one chunk takes the time of both legs, one after the other") {
  CHECK(seconds("numa:0", "gpu:0", 1_MiB, {{"chunk", "whole"}}) == about(by_cpu + in).epsilon(0.002));
  CHECK(seconds("gpu:0", "numa:0", 1_MiB, {{"chunk", "whole"}}) == about(by_cpu + out - empty_sample).epsilon(0.002));
}

TEST_CASE("with two slots the slower leg sets the pace: fill, steady state and drain") {
  // The CPU thread is slower: the last chunk's copy to the GPU drains.
  CHECK(seconds("numa:0", "gpu:0", 16_MiB, {}) == about(16 * by_cpu + in).epsilon(0.002));
  // Four threads are faster than the bus: the first chunk fills.
  CHECK(seconds("numa:0", "gpu:0", 16_MiB, {{"threads", "4"}}) == about(by_cpu / 4 + 16 * in).epsilon(0.002));
  CHECK(seconds("gpu:0", "numa:0", 16_MiB, {}) == about(out + 16 * by_cpu - empty_sample).epsilon(0.002));
}

TEST_CASE("with one slot the legs of a staged copy take turns") {
  CHECK(seconds("numa:0", "gpu:0", 16_MiB, {{"slots", "1"}}) == about(16 * (by_cpu + in)).epsilon(0.002));
}

TEST_CASE("GPUs without peer access exchange chunks through a pinned ring; both buses work at once") {
  const double near = seconds("gpu:0", "gpu:1", 16_MiB, {});
  CHECK(near == about(out + 16 * in).epsilon(0.02));
  CHECK(seconds("gpu:0", "gpu:1", 16_MiB, {{"slots", "1"}}) > 1.8 * near);
}

TEST_CASE("smaller chunks shorten the fill and cost more calls, so a staged copy has a best chunk") {
  const auto with = [](const char* chunk) { return seconds("gpu:0", "gpu:1", 16_MiB, {{"chunk", chunk}}); };
  CHECK(with("1MiB") < with("16MiB"));
  CHECK(with("1MiB") < with("64KiB"));
}

TEST_CASE("a batch of staged copies overlaps the drain of one with the fill of the next") {
  const auto sim = make_sim(toy(), 1);
  const auto program = build_program(staged("numa:0", "gpu:0", 4_MiB, {{"mode", "batched"}}));
  CHECK(program.passes == 4);
  CHECK(slope(*sim, program) == about(4 * by_cpu).epsilon(0.005));
}

TEST_CASE("a bidirectional staged copy has a ring for each direction") {
  const auto c = staged("numa:0", "gpu:0", 4_MiB, {{"bidirectional", "true"}});
  const auto program = build_program(c);
  CHECK(program.actors.size() == 4);
  CHECK((program.flows[1].src == gpu(0) && program.flows[1].measured));
  CHECK_FALSE(program.flows[2].measured);
  CHECK(seconds(c) >= seconds("numa:0", "gpu:0", 4_MiB, {}));
}

TEST_CASE("every chunk of a staged copy arrives, and one that is read before its slot is full is found") {
  for (const char* dst : {"numa:0", "gpu:1"}) {
    const auto good = build_program(staged("gpu:0", dst, 4_MiB, {{"chunk", "256KiB"}, {"slots", "4"}}));
    const auto verdict = verdict_of(good, 3);
    CHECK(verdict.ok);
    CHECK(verdict.checked_bytes >= 12_MiB);
    auto early = good;  // a slot is read before it is filled
    std::get<Wait>(early.actors[0].loop[0]).value = 1;
    std::get<Wait>(early.actors[1].loop[0]).value -= 1000;
    CHECK_FALSE(verdict_of(early, 3).ok);
    auto crowded = good;  // fills a slot that has not been read
    std::get<Wait>(crowded.actors[0].loop[0]).value -= 64;
    const bool drains_slowly = dst == std::string{"numa:0"};  // a CPU thread; a GPU keeps up with the other one
    if (drains_slowly) CHECK_FALSE(verdict_of(crowded, 3).ok);
  }
}

TEST_CASE("a staged copy runs for a duration, and counts whole copies") {
  const auto sim = make_sim(toy(), 1);
  const auto program = build_program(staged("numa:0", "gpu:0", 4_MiB, {}));
  const auto session = sim->prepare(program, "staged#0");
  const auto trace = sim->run(*session, {1, {}, true, Duration{Seconds{0.1}, Seconds{0.01}}});
  CHECK(trace.verdict->ok);
  CHECK(trace.series[1].marks.back().iterations == trace.series[0].marks.back().iterations);
  for (const u64 moved : trace.series[1].interval_bytes)
    CHECK(static_cast<double>(moved) / 0.01 == about(5e9).epsilon(0.05));
}

TEST_CASE("sizes that are no whole chunks, more threads than CPUs and passes without words are refused") {
  CHECK_THROWS_WITH_AS((void)build_program(staged("numa:0", "gpu:0", 1_MiB + 8, {})),
                       doctest::Contains("no whole number of chunks of 1 MiB"), Error);
  CHECK_THROWS_WITH_AS((void)build_program(staged("numa:0", "gpu:0", 1_MiB, {{"slots", "5"}})),
                       doctest::Contains("slots is 2, 1, 3, 4, 8, not '5'"), Error);
  const auto sim = make_sim(exact(bundled("jorda-a")), 1);
  const auto crowd = build_program(staged("numa:0", "gpu:0", 1_MiB, {{"threads", "8"}}));
  CHECK(sim->supports(crowd).why_not == "8 threads share the copy, and numa:0 has 4 CPUs");
  auto plain = build_program(copy_case("h2d", "numa:0", "pinned", "gpu:0", "device", 1_MiB));
  plain.passes = 2;
  CHECK_THROWS_WITH_AS(validate(plain), doctest::Contains("2 passes an iteration need actors that all wait"), Error);
}
