// Clients of one GPU on the cuda platform, with the fake driver: green contexts, single operations, messages between copies.
#include "cuda_testing.hpp"

#include "benchmarks/case.hpp"
#include "gpu/green.hpp"
#include "host/topology.hpp"

using namespace linkscope;
using namespace linkscope::literals;

namespace {

Case shared(const char* work, const char* clients, const char* way) {
  Case c;
  c.benchmark = work;
  c.engine = std::string{work} == "shared_launch" ? Engine::sm : Engine::ce;
  c.src = numa(0);
  c.dst = gpu(0);
  c.src_memory = MemKind::pinned;
  c.dst_memory = MemKind::device;
  c.params = {{"clients", clients}, {"way", way}};
  return c;
}

Trace run_for(const Program& program, double seconds) {
  const auto session = platform().prepare(program, "sharing#0");
  return platform().run(*session, {1, {}, true, Duration{Seconds{seconds}, Seconds{0.01}}});
}

std::string note(const Trace& trace, const std::string& name) {
  for (const auto& [key, value] : trace.notes)
    if (key == name) return value;
  return "";
}

}  // namespace

TEST_CASE("clients wait for each operation, and each operation has its time") {
  for (const char* work : {"shared_h2d", "shared_d2h", "shared_mix", "shared_launch"}) {
    CAPTURE(work);
    const auto trace = run_for(build_program(shared(work, "2", "threads")), 0.05);
    REQUIRE(trace.series.size() == 2);
    CHECK(trace.verdict->ok);
    for (const auto& series : trace.series) {
      CHECK(series.latencies.count() > 0);
      CHECK(series.latencies.count() == series.marks.back().iterations);
    }
  }
}

TEST_CASE("green contexts have equal parts of the SMs in whole groups, and their clients deliver their data") {
  const auto half = run_for(build_program(shared("shared_mix", "2", "green")), 0.05);
  CHECK(half.verdict->ok);
  CHECK(half.verdict->checked_bytes > 0);
  CHECK(note(half, "green_sms") == "64");
  CHECK(note(run_for(build_program(shared("shared_launch", "4", "green")), 0.02), "green_sms") == "32");
  CHECK(note(run_for(build_program(shared("shared_launch", "1", "green")), 0.02), "green_sms") == "128");
}

TEST_CASE("more green contexts than the SMs allow are unsupported") {
  auto program = build_program(shared("shared_launch", "1", "green"));
  program.actors[0].sms = SmShare{0, 100};
  CHECK_THROWS_WITH_AS((void)platform().prepare(program, "green#0"),
                       doctest::Contains("100 green contexts do not fit the 132 SMs of the GPU at"), Error);
}

TEST_CASE("processes under MPS need its daemon") {
  const auto support = platform().supports(build_program(shared("shared_h2d", "2", "mps")));
  CHECK(support.why_not == "processes under MPS need its daemon: CUDA_MPS_PIPE_DIRECTORY is not set");
}

TEST_CASE("the thread of a stream exchanges messages while its copies run") {
  if (host_nodes()[0].cpus.size() < 2) return;
  Case c = shared("tasks", "", "");
  c.bytes = 64_MiB;
  c.params = {{"sets", "1"}, {"threads", "one"}, {"message", "64KiB"}};
  const auto program = build_program(c);
  REQUIRE(program.actors[1].thread_of == 0);
  const auto trace = run_for(program, 0.1);
  CHECK(trace.verdict->ok);
  CHECK(trace.series[0].marks.back().iterations > 0);
  CHECK(trace.series[1].latencies.count() > 0);
  CHECK(trace.series[1].latencies.count() == trace.series[1].marks.back().iterations);
  CHECK(trace.stamps[1].exit_s > trace.stamps[1].enter_s);
}
