// Samples of a duration on the simulation, against closed forms.
#include <doctest.h>

#include "benchmarks/case.hpp"
#include "error_of.hpp"
#include "program/series.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

constexpr Duration tenth{Seconds{0.1}, Seconds{0.01}};

Trace run_for(Platform& platform, const Program& program, const Duration& lasts, u32 samples = 1) {
  const auto session = platform.prepare(program, "duration#0");
  return platform.run(*session, {samples, {}, true, lasts});
}

Program copies(u64 bytes, const std::string& gpu = "gpu:0", const std::string& memory = "pinned") {
  return build_program(copy_case("h2d", "numa:0", memory, gpu, "device", bytes));
}

}  // namespace

TEST_CASE("a copy runs to the end of the duration, and ends the iteration that it has begun") {
  const auto sim = make_sim(toy(), 1);
  const auto program = copies(64_MiB);
  const double each = slope(*sim, program);
  const auto trace = run_for(*sim, program, tenth);
  REQUIRE(trace.series.size() == 1);
  const auto& marks = trace.series[0].marks;
  const double took = marks.back().at_s - marks.front().at_s;
  CHECK(took >= 0.1);
  CHECK(took < 0.1 + each * 1.001);
  CHECK(marks.back().iterations == static_cast<u64>(0.1 / each) + 1);
  CHECK(trace.stamps[0].enter_s == marks.front().at_s);
  CHECK(trace.stamps[0].exit_s == marks.back().at_s);
  CHECK(trace.verdict->ok);
}

TEST_CASE("every interval has the rate of the link, also where copies are longer or much shorter than an interval") {
  const auto sim = make_sim(toy(), 1);
  for (const u64 bytes : {1_MiB, 64_MiB, 256_MiB}) {
    const auto program = copies(bytes);
    const double rate = static_cast<double>(bytes) / slope(*sim, program);
    const auto trace = run_for(*sim, program, {Seconds{0.2}, Seconds{0.01}});
    const auto& intervals = trace.series[0].interval_bytes;
    CHECK(intervals.size() >= 20);
    for (const u64 moved : intervals) CHECK(static_cast<double>(moved) / 0.01 == doctest::Approx(rate).epsilon(0.001));
  }
}

TEST_CASE("stamps of a batch show the times of single iterations, whose mean is the cost of an operation") {
  const auto sim = make_sim(exact(bundled("h200x2")), 1);
  for (const char* dst : {"gpu:0", "gpu:1"}) {
    auto c = copy_case("put_ping_pong", "gpu:0", "device", dst, "device", 4096);
    c.engine = Engine::sm;
    const auto program = build_program(c);
    const auto session = sim->prepare(program, "stamps#0");
    const auto trace = sim->run(*session, {.samples = 2, .batches = {{50, 50}}, .stamped = true});
    REQUIRE(trace.latencies.size() == 2);
    for (const auto& of : trace.latencies) {
      CHECK(of.count() == 2 * 49);
      CHECK(*of.mean() == about(slope(*sim, program)).epsilon(0.001));
      CHECK(*of.quantile(0.5) == about(*of.mean()).epsilon(0.02));
    }
    CHECK(sim->run(*session, {.samples = 1, .batches = {{50, 50}}}).latencies.empty());
  }
}

TEST_CASE("two copies that share a link have a common window and share its rate") {
  const auto sim = make_sim(toy(), 1);
  const auto one = copies(8_MiB);
  const auto trace = run_for(*sim, together({one, one}), tenth);
  REQUIRE(trace.windows.size() == 1);
  const auto& window = trace.windows[0];
  CHECK(window.start_s == std::max(trace.stamps[0].enter_s, trace.stamps[1].enter_s));
  CHECK(window.end_s <= std::min(trace.stamps[0].exit_s, trace.stamps[1].exit_s) + 1e-9);
  const double alone = static_cast<double>(8_MiB) / slope(*sim, one);
  double total = 0;
  for (const auto& series : trace.series) {
    CHECK(series.interval_bytes.size() == trace.series[0].interval_bytes.size());
    for (const u64 moved : series.interval_bytes) total += static_cast<double>(moved);
  }
  CHECK(total / (window.end_s - window.start_s) == doctest::Approx(alone).epsilon(0.02));
}

TEST_CASE("actors that wait for each other do the same number of iterations in a duration") {
  const auto sim = make_sim(toy(), 1);
  Case c = copy_case("ping_pong", "numa:0", "pinned", "gpu:0", "pinned", 0);
  c.engine = Engine::cpu;
  const auto program = build_program(c);
  const auto trace = run_for(*sim, program, {Seconds{0.001}, Seconds{0.0001}});
  CHECK(trace.series[0].marks.back().iterations == trace.series[1].marks.back().iterations);
  CHECK(trace.series[0].marks.back().iterations == doctest::Approx(0.001 / slope(*sim, program)).epsilon(0.02));
}

TEST_CASE("calls whose copies overlap end whole") {
  const auto sim = make_sim(toy(), 1);
  const auto program = copies(1_MiB, "gpu:0", "pageable");
  const auto trace = run_for(*sim, program, tenth);
  const double each = slope(*sim, program);
  CHECK(static_cast<double>(trace.series[0].marks.back().iterations) == doctest::Approx(0.1 / each).epsilon(0.02));
  CHECK(trace.verdict->ok);
}

TEST_CASE("small copies in a duration take at least the time of their calls") {
  auto machine = toy();
  machine["costs"]["call_us"] = 20;  // a gate would hide it
  const auto sim = make_sim(machine, 1);
  const auto trace = run_for(*sim, copies(8), {Seconds{0.01}, Seconds{0.001}});
  const u64 iterations = trace.series[0].marks.back().iterations;
  CHECK(iterations <= 502);
  CHECK(iterations >= 490);
}

TEST_CASE("samples of a duration repeat with the same noise, and samples of batches go on after them") {
  const auto run = [] {
    const auto sim = make_sim(bundled("h200x1"), 3);
    const auto session = sim->prepare(copies(1_MiB), "noisy#0");
    (void)sim->run(*session, {2, {}, false, tenth});
    return sim->run(*session, {1, {{4}}, false}).stamps[0].exit_s;
  };
  CHECK(run() == run());
}

TEST_CASE("an actor that rests after each iteration works for its share of the time and leaves the rest to others") {
  const auto sim = make_sim(toy(), 1);
  const auto steady = copies(8_MiB);
  const double all = static_cast<double>(run_for(*sim, steady, tenth).series[0].marks.back().iterations);
  for (const u32 tenths : {1U, 5U, 9U}) {
    auto resting = steady;
    resting.actors[0].tenths = tenths;
    const auto alone = run_for(*sim, resting, tenth);
    CHECK(static_cast<double>(alone.series[0].marks.back().iterations) ==
          doctest::Approx(all * tenths / 10).epsilon(0.06));
    const auto both = run_for(*sim, together({steady, resting}), tenth);
    const auto done = [&](u32 actor) { return both.series[actor].marks.back().iterations; };
    if (tenths < 9) CHECK(done(0) > done(1));
    CHECK(static_cast<double>(done(0) + done(1)) == doctest::Approx(all).epsilon(0.05));
  }
}

TEST_CASE("rests of less than one tenth, and rests of actors on whose words others wait, are refused") {
  auto program = copies(8_MiB);
  program.actors[0].tenths = 0;
  CHECK(error_of([&] { validate(program); }).find("1 to 10 tenths") != std::string::npos);
  program.actors[0].tenths = 11;
  CHECK(error_of([&] { validate(program); }).find("not 11") != std::string::npos);
  program.actors[0].tenths = 3;
  CHECK(to_text(program).find("working 3 tenths of the time") != std::string::npos);
  Case c = copy_case("ping_pong", "numa:0", "pinned", "gpu:0", "pinned", 0);
  c.engine = Engine::cpu;
  auto words = build_program(c);
  words.actors[0].tenths = 3;
  CHECK(error_of([&] { validate(words); }).find("cannot rest") != std::string::npos);
}
