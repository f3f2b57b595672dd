// Stamps of single iterations on the cuda platform, with the fake driver (tests/fake_cuda).
#include <algorithm>
#include <memory>

#include "base/actor_ops.hpp"
#include "benchmarks/case.hpp"
#include "cuda_testing.hpp"
#include "platform/cuda/stamps.hpp"

using namespace linkscope;
using namespace linkscope::literals;

namespace {

/// Iterations of 1 µs by a clock of 2 ticks in a nanosecond, of which each tenth takes 5 µs.
std::unique_ptr<BlockStamps> stamps_of(u64 iterations, unsigned begun) {
  auto stamps = std::make_unique<BlockStamps>();
  stamps->begun_clock = begun;
  unsigned now = begun;
  for (u64 i = 0; i < iterations; ++i) stamps->clocks[i] = now += i % 10 == 9 ? 10'000 : 2'000;
  stamps->ended_clock =
      stamps->begun_clock + (now - begun);  // the difference is modulo 2^32, and the clock has 64 bits
  stamps->ended_ns = stamps->begun_ns + (now - begun) / 2;
  return stamps;
}

Trace run(const Case& c, const Order& order) {
  const auto session = platform().prepare(build_program(c), "stamps");
  return platform().run(*session, order);
}

Case trips(const char* dst, Engine engine = Engine::sm) {
  const auto to = parse_place(dst);
  const auto memory = to.kind == PlaceKind::gpu ? MemKind::device : MemKind::pinned;
  return {"put_ping_pong", engine, gpu(0), to, MemKind::device, memory, 64, 0, {}};
}

}  // namespace

TEST_CASE("times of iterations are differences of the clock's readings in seconds, also where its low half overflows") {
  for (const unsigned begun : {0u, ~0u - 50'000u}) {
    Latencies latencies;
    add_latencies(*stamps_of(1000, begun), 1000, latencies);
    CHECK(latencies.count() == 999);  // the first iteration includes the start of the other side
    CHECK(*latencies.quantile(0.5) == doctest::Approx(1e-6).epsilon(0.011).scale(0));
    CHECK(*latencies.quantile(0.99) == doctest::Approx(5e-6).epsilon(0.011).scale(0));
    CHECK(*latencies.mean() == doctest::Approx(1.4e-6).epsilon(0.002).scale(0));
  }
}

TEST_CASE("iterations beyond the room for stamps are not counted") {
  Latencies latencies;
  add_latencies(*stamps_of(most_stamps, 0), most_stamps + 100, latencies);
  CHECK(latencies.count() == most_stamps - 1);
}

TEST_CASE("blocks, CPU threads and streams that the host drives note each iteration of a stamped batch") {
  for (const auto& c : {trips("gpu:1"), trips("gpu:0"), trips("numa:0"), trips("gpu:1", Engine::ce)}) {
    CAPTURE(to_string(c.dst));
    const auto trace = run(c, {.samples = 2, .batches = {{40, 40}}, .stamped = true});
    REQUIRE(trace.latencies.size() == 2);
    for (const auto& of : trace.latencies) {
      CHECK(of.count() == 2 * 39);
      CHECK(*of.quantile(0.5) <= *of.quantile(0.99));
    }
  }
}

TEST_CASE("only the first block of a kernel notes its iterations") {
  auto c = trips("gpu:1");
  c.benchmark = "put";
  c.params = {{"connections", "4"}, {"threads", "32"}};
  const auto trace = run(c, {.samples = 1, .batches = {std::vector<u32>(8, 40)}, .stamped = true});
  std::vector<u64> counts;
  for (const auto& of : trace.latencies) counts.push_back(of.count());
  CHECK(std::ranges::count(counts, 39u) == 2);
  CHECK(std::ranges::count(counts, 0u) == 6);
}

TEST_CASE("a batch without stamps has no times of iterations, and a program without words cannot have them") {
  CHECK(run(trips("gpu:1"), {.samples = 1, .batches = {{40, 40}}}).latencies.empty());
  const Case copy{"h2d", Engine::ce, numa(0), gpu(0), MemKind::pinned, MemKind::device, 64, 0, {}};
  CHECK(!may_stamp(build_program(copy)));
  CHECK_THROWS_WITH_AS(run(copy, {.samples = 1, .batches = {{4}}, .stamped = true}),
                       doctest::Contains("actors all exchange words"), Error);
}
