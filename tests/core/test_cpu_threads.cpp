// CPU threads without a driver: the memory that they touch is flushed before every sample (cold) or cached (hot), and
// verification compares the end of a chase. The linker redirects every flush to this file (CMakeLists.txt).
#include <doctest.h>

#include <mutex>
#include <vector>

#include "host/flush.hpp"
#include "host/patience.hpp"
#include "host/topology.hpp"
#include "platform/cuda/cuda_platform.hpp"
#include "platform/cuda/session.hpp"
#include "platform/cuda/verification.hpp"
#include "program/chain.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

struct Flushed {
  const std::byte* start;
  u64 bytes;
};
std::vector<Flushed> flushes;
std::mutex guard;  // several threads share a large flush

}  // namespace

extern "C" void __real__ZN9linkscope16flush_cpu_cachesEPKvm(const void*, u64);
extern "C" void __wrap__ZN9linkscope16flush_cpu_cachesEPKvm(const void* start, u64 bytes) {
  {
    const std::scoped_lock lock{guard};
    flushes.push_back({static_cast<const std::byte*>(start), bytes});
  }
  __real__ZN9linkscope16flush_cpu_cachesEPKvm(start, bytes);
}

namespace {

/// A prepared pointer chase by a CPU thread of this machine. It needs no GPU.
struct Chase {
  std::unique_ptr<CudaPlatform> platform = make_cuda();
  std::unique_ptr<Session> session;

  Chase(const std::string& range, const std::string& cache) {
    Case c;
    c.benchmark = "latency";
    c.engine = Engine::cpu;
    c.src = c.dst = numa(0);
    c.params = {{"range", range}, {"cache", cache}};
    session = platform->prepare(build_program(c), "key#0");
    flushes.clear();
  }
  [[nodiscard]] CudaSession& inside() const { return static_cast<CudaSession&>(*session); }
  [[nodiscard]] std::byte* memory() const { return inside().buffers.front()->host(); }
  [[nodiscard]] u64 steps_taken() const { return inside().actors.front().iteration; }
  [[nodiscard]] Trace run(u32 samples, std::vector<std::vector<u32>> batches, bool verify = true) const {
    return platform->run(*session, {samples, std::move(batches), verify});
  }
};

/// The least and the largest number of flushes of a line of the chain.
std::pair<u64, u64> flushes_of_a_line(const std::byte* start, u64 bytes) {
  u64 least = ~u64{0}, most = 0;
  for (u64 offset = 0; offset < bytes; offset += linkscope_chain_line) {
    u64 count = 0;
    for (const auto& range : flushes)
      count += start + offset >= range.start && start + offset < range.start + range.bytes;
    least = std::min(least, count);
    most = std::max(most, count);
  }
  return {least, most};
}

}  // namespace

TEST_CASE("a cold CPU pointer chase flushes every line before every sample") {
  const Chase chase{"2MiB", "cold"};
  CHECK(chase.steps_taken() == 1);  // the warm-up step, which loads code
  REQUIRE(chase.run(3, {{8}, {16}}, false).stamps.size() == 6);
  if (3 * last_level_cache_bytes() <= 2_MiB) {
    MESSAGE("this machine hides its caches or has very small ones: nothing is flushed");
    return;
  }
  CHECK(flushes_of_a_line(chase.memory(), 2_MiB) == std::pair<u64, u64>{6, 6});
}

TEST_CASE("a hot CPU pointer chase visits all lines before the first sample and flushes none") {
  for (const auto& [range, bytes] : {std::pair{"2MiB", 2_MiB}, std::pair{"64MiB", 64_MiB}}) {
    const Chase chase{range, "hot"};
    CHECK(chase.steps_taken() == bytes / linkscope_chain_line);
    REQUIRE(chase.run(3, {{8}, {16}}, false).stamps.size() == 6);
    CHECK(flushes.empty());
  }
}

TEST_CASE("a CPU pointer chase visits every line of its range once") {
  for (const auto& [range, bytes] : {std::pair{"2MiB", 2_MiB}, std::pair{"64MiB", 64_MiB}}) {
    const Chase chase{range, "hot"};
    const u64 lines = bytes / linkscope_chain_line;
    std::vector<bool> visited(lines);
    const auto* at = chase.memory();
    u64 distinct = 0;
    for (u64 step = 0; step < lines; ++step) {
      const auto line = static_cast<u64>(at - chase.memory()) / linkscope_chain_line;
      REQUIRE(line < lines);
      distinct += !visited[line];
      visited[line] = true;
      at = *reinterpret_cast<const std::byte* const*>(at);
    }
    CHECK(distinct == lines);
    CHECK(at == chase.memory());
  }
}

TEST_CASE("verification finds a CPU pointer chase that ends at the wrong line") {
  for (const char* cache : {"cold", "hot"}) {
    const Chase chase{"2MiB", cache};
    CHECK(chase.run(2, {{8}, {16}}).verdict->ok);
    auto& first = *reinterpret_cast<std::byte**>(chase.memory());
    auto* const right = first;
    first = chase.memory() + 256 * 77;  // the first line now points elsewhere on the same cycle
    const auto wrong = chase.run(2, {{8}, {16}}).verdict;
    REQUIRE(wrong);
    CHECK_FALSE(wrong->ok);
    CHECK(wrong->wrong_bytes == sizeof(u64));
    CHECK(wrong->first_wrong.find("numa:0.pageable at byte ") == 0);
    first = right;
    CHECK_FALSE(
        chase.run(2, {{8}, {16}}).verdict->ok);  // this run also compares the end of the run before, which was wrong
    CHECK(chase.run(2, {{8}, {16}}).verdict->ok);
  }
}

TEST_CASE("verification finds a CPU pointer chase with one step too few or too many") {
  for (const int off : {-1, 1}) {
    const Chase chase{"2MiB", "cold"};
    (void)chase.run(1, {{8}});
    chase.inside().actors.front().iteration += static_cast<u64>(off);
    const auto verdict = chase.run(1, {{8}}).verdict;  // this run also compares the end of the last run
    CHECK_FALSE(verdict->ok);
  }
}

TEST_CASE("every source has content of its own, so that a copy from another source is found") {
  const auto platform = make_cuda();
  std::vector<u64> seeds;
  for (const auto& [src_memory, dst_memory] :
       {std::pair{MemKind::pageable, MemKind::pinned}, std::pair{MemKind::pinned, MemKind::pageable}}) {
    Case c;
    c.benchmark = "h2h";
    c.engine = Engine::cpu;
    c.src = c.dst = numa(0);
    c.src_memory = src_memory;
    c.dst_memory = dst_memory;
    c.bytes = c.footprint_bytes = 64_KiB;
    const auto session = platform->prepare(build_program(c), "key#0");
    const auto& inside = static_cast<CudaSession&>(*session);
    for (std::size_t i = 0; i < inside.buffers.size(); ++i)
      if (inside.program.regions[i].content == Content::pattern) seeds.push_back(inside.buffers[i]->seed());
  }
  REQUIRE(seeds.size() == 2);
  CHECK(seeds[0] != seeds[1]);
}

TEST_CASE("the time-out of the gate follows the longest batch of all actors") {
  const Chase chase{"2MiB", "cold"};
  chase.inside().expected_loop = Seconds{0.1};
  for (const auto& batch : {std::vector<u32>{1, 50}, std::vector<u32>{50, 1}})
    CHECK(gate_timeout(chase.inside(), batch).count() == doctest::Approx(patient(Seconds{2.0}).count() + 5 * 50 * 0.1));
}

TEST_CASE(
    "a cold CPU copy flushes the slices of its batch, and no others, in source and destination before every sample") {
  for (const auto& [src_memory, dst_memory] :
       {std::pair{MemKind::pageable, MemKind::pinned}, std::pair{MemKind::pinned, MemKind::pageable}}) {
    Case c;
    c.benchmark = "h2h";
    c.engine = Engine::cpu;
    c.src = c.dst = numa(0);
    c.src_memory = src_memory;
    c.dst_memory = dst_memory;
    c.bytes = 4_KiB;
    c.footprint_bytes = 64_KiB;
    const auto platform = make_cuda();
    const auto session = platform->prepare(build_program(c), "key#0");
    if (3 * last_level_cache_bytes() <= c.footprint_bytes) continue;
    for (const u32 batch : {4u, 6u}) {  // of 16 slices; a batch of 6 begins again at the first slice
      flushes.clear();
      (void)platform->run(*session, {8, {{batch}}, false});
      const u64 times = 8 * batch / 16;
      u64 bytes = 0;
      for (const auto& range : flushes) bytes += range.bytes;
      CHECK(bytes == 2 * times * c.footprint_bytes);
      for (const auto* buffer : static_cast<CudaSession&>(*session).buffers)
        CHECK(flushes_of_a_line(buffer->host(), c.footprint_bytes) == std::pair<u64, u64>{times, times});
    }
  }
}

TEST_CASE("of two verdicts the first that is wrong names its first wrong byte, and both count") {
  const Verdict right{true, 8, 0, ""}, one{false, 8, 2, "one"}, other{false, 8, 4, "other"};
  CHECK(both(right, other).first_wrong == "other");
  CHECK(both(one, right).first_wrong == "one");
  const auto wrong = both(one, other);
  CHECK(wrong.first_wrong == "one");
  CHECK_FALSE(wrong.ok);
  CHECK(wrong.checked_bytes == 16);
  CHECK(wrong.wrong_bytes == 6);
}
