// Copies from a GPU to untouched memory on the simulation: known times, every byte, and errors that verification finds.
#include <doctest.h>

#include <algorithm>

#include "base/error.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

nlohmann::json h200() { return exact(bundled("h200x4")); }

double constant(const char* table, const char* key) { return h200()[table][key]["v"].get<double>(); }

Program program_of(const char* name, u64 bytes, Params params = {}, const char* memory = "pageable") {
  params.emplace("mode", "batched");
  return build_program(copy_case(name, "gpu:1", "device", "numa:0", memory, bytes, std::move(params)));
}

double seconds(const Program& program) {
  const auto sim = make_sim(h200(), 1);
  const auto support = sim->supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  return slope(*sim, program, program.most_iterations ? program.most_iterations / 2 : 8);
}

Verdict verdict_of(const Program& program) {
  const auto sim = make_sim(h200(), 1);
  const auto session = sim->prepare(program, "fresh#0");
  return *sim->run(*session, {1, {std::vector<u32>(program.actors.size(), 2)}, true}).verdict;
}

}  // namespace

TEST_CASE("memory that nobody has touched costs a fault and its clearing for each page, less with huge pages") {
  const double fault = constant("memory", "fault_us") * 1e-6, clear = 4096 / (constant("memory", "clear_gbps") * 1e9);
  const double touched = seconds(program_of("d2h", 64_MiB)), fresh = seconds(program_of("fresh", 64_MiB));
  CHECK(fresh - touched == about(16384 * (fault + clear)).epsilon(0.1));
  CHECK(fresh > 1.3 * seconds(program_of("fresh", 64_MiB, {}, "hugepage")));
}

TEST_CASE("threads that empty a ring share the first touch of its destination") {
  const auto staged = [](const char* threads) {
    return seconds(program_of("fresh_staged", 64_MiB, {{"threads", threads}}));
  };
  const double fault = constant("memory", "fault_us") * 1e-6, clear = 4096 / (constant("memory", "clear_gbps") * 1e9),
               copy = 64.0 * (1 << 20) / (h200()["numa"][0]["memcpy_gbps"]["v"].get<double>() * 1e9);
  CHECK(staged("1") == about(16384 * (fault + clear) + copy).epsilon(0.1));
  CHECK(staged("1") > 3.5 * staged("4"));
  CHECK(seconds(program_of("fresh", 64_MiB)) > 4 * seconds(program_of("fresh_staged", 64_MiB, {}, "hugepage")));
}

TEST_CASE("a sample of copies to memory that nobody has touched has no more copies than untouched memory") {
  for (const char* name : {"fresh", "fresh_staged"}) {
    CAPTURE(name);
    const auto program = program_of(name, 16_MiB);
    const auto target = std::find_if(program.regions.begin(), program.regions.end(),
                                     [](const Region& region) { return region.kind == MemKind::pageable; });
    REQUIRE(target != program.regions.end());
    REQUIRE(program.most_iterations > 0);
    CHECK(program.most_iterations * 16_MiB <= target->bytes);
  }
}

TEST_CASE("every byte arrives in memory that nobody has touched, and a slot that is emptied too early is found") {
  for (const char* name : {"fresh", "fresh_staged"}) {
    CAPTURE(name);
    const auto verdict = verdict_of(program_of(name, 8_MiB));
    CHECK(verdict.ok);
    CHECK(verdict.checked_bytes >= 8_MiB);
  }
  auto early = program_of("fresh_staged", 8_MiB);
  for (auto& actor : early.actors) std::get<Wait>(actor.loop[0]).value -= 1000;
  CHECK_FALSE(verdict_of(early).ok);
}

TEST_CASE("fresh copies of sizes without whole chunks, and models without the cost of a page are refused") {
  CHECK_THROWS_WITH_AS((void)program_of("fresh_staged", 6_MiB), doctest::Contains("no whole number of chunks"), Error);
  CHECK_THROWS_WITH_AS((void)program_of("fresh", 4_MiB + 8), doctest::Contains("no whole pages of 4 KiB"), Error);
  CHECK_THROWS_WITH_AS((void)program_of("fresh_staged", 1_MiB, {}, "hugepage"),
                       doctest::Contains("no whole pages of 2 MiB"), Error);
  CHECK_THROWS_WITH_AS((void)program_of("fresh", 4_MiB, {{"chunk", "4MiB"}}), doctest::Contains("no parameter 'chunk'"),
                       Error);
  const auto sim = make_sim(exact(bundled("jorda-a")), 1);
  CHECK(sim->supports(program_of("fresh", 4_MiB)).why_not.find("what the first touch of a page costs") !=
        std::string::npos);
}
