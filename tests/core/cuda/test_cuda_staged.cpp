// Staged copies on the cuda platform, with the fake driver (tests/fake_cuda): host threads drive the streams.
#include "benchmarks/case.hpp"
#include "cuda_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;

namespace {

Program staged(const char* src, MemKind src_memory, const char* dst, MemKind dst_memory,
               std::map<std::string, std::string> params) {
  constexpr u64 bytes = 512_KiB;
  params.emplace("chunk", "64KiB");
  return build_program({"staged", Engine::ce, parse_place(src), parse_place(dst), src_memory, dst_memory, bytes,
                        2 * bytes, std::move(params)});
}

Trace run(const Program& program, u32 iterations) {
  const auto support = platform().supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  const auto session = platform().prepare(program, "staged#0");
  const std::vector<u32> batch(program.actors.size(), iterations), twice(program.actors.size(), 2 * iterations);
  return platform().run(*session, {2, {batch, twice}, true});
}

}  // namespace

TEST_CASE("staged copies deliver every byte, from host memory to a GPU, back, and between GPUs") {
  using enum MemKind;
  for (const char* slots : {"1", "2", "8"})
    for (const char* both : {"false", "true"})
      for (const auto& program :
           {staged("numa:0", pageable, "gpu:0", device, {{"slots", slots}, {"bidirectional", both}}),
            staged("gpu:0", device, "numa:0", pageable, {{"slots", slots}, {"bidirectional", both}}),
            staged("gpu:0", device, "gpu:1", device, {{"slots", slots}, {"bidirectional", both}})}) {
        const auto trace = run(program, 3);
        CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
        CHECK(trace.verdict->checked_bytes >= 1_MiB);
        CHECK(trace.timing == "host");
      }
}

TEST_CASE("a ring with more slots than the source has slices holds the same slice several times") {
  const auto program =
      staged("numa:0", MemKind::pageable, "gpu:0", MemKind::device, {{"slots", "8"}, {"chunk", "whole"}});
  REQUIRE(program.regions[0].bytes < program.regions[1].bytes);
  for (const u32 iterations : {1u, 2u}) {
    const auto trace = run(program, iterations);
    CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  }
}

TEST_CASE("relayed copies deliver every byte through the memory of a helper, in both directions") {
  using enum MemKind;
  for (const auto& [src, dst] : {std::pair{"numa:0", "gpu:1"}, std::pair{"gpu:1", "numa:0"}}) {
    const bool to_gpu = src[0] == 'n';
    const auto program = build_program({"relayed",
                                        Engine::ce,
                                        parse_place(src),
                                        parse_place(dst),
                                        to_gpu ? pinned : device,
                                        to_gpu ? device : pinned,
                                        8_MiB,
                                        16_MiB,
                                        {{"chunk", "1MiB"}, {"mode", "batched"}}});
    const auto trace = run(program, 3);
    CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
    CHECK(trace.verdict->checked_bytes >= 8_MiB);
  }
}

TEST_CASE("several CPU threads share the copy of a chunk") {
  using enum MemKind;
  const auto program = staged("numa:0", pageable, "gpu:0", device, {{"threads", "2"}, {"chunk", "whole"}});
  if (!platform().supports(program)) return;  // a host with one CPU
  CHECK(run(program, 2).verdict->ok);
}

TEST_CASE("a slot that is used too early is found") {
  auto early = staged("numa:0", MemKind::pageable, "gpu:0", MemKind::device, {});
  // The CPU thread fills a slot when its chunk has been copied to the GPU.
  std::get<Wait>(early.actors[0].loop[0]).value = 1;
  std::get<Wait>(early.actors[1].loop[0]).value -= 1000;
  CHECK_FALSE(run(early, 2).verdict->ok);
}

TEST_CASE("a stream that waits for a slot that nobody fills gives up, and says what it waited for") {
  auto stuck = staged("numa:0", MemKind::pageable, "gpu:0", MemKind::device, {});
  std::get<Wait>(stuck.actors[1].loop[0]).value += 1000;
  for (auto& actor : stuck.actors) std::get<Wait>(actor.loop[0]).timeout = Seconds{0.05};
  CHECK_THROWS_WITH_AS(run(stuck, 1), doctest::Contains("s for a word in numa:0.pinned to become"), Error);
}

TEST_CASE("a stream that exchanges words is timed by the host's clock and leaves pageable memory to others") {
  auto by_event = staged("numa:0", MemKind::pageable, "gpu:0", MemKind::device, {});
  by_event.actors[1].clock = Clock::event;
  CHECK(platform().supports(by_event).why_not.find("only the host's clock times it") != std::string::npos);
  auto pageable = staged("numa:0", MemKind::pageable, "gpu:0", MemKind::device, {});
  pageable.regions[1].kind = MemKind::pageable;
  CHECK(platform().supports(pageable).why_not.find("keep a stream's host thread from its words") != std::string::npos);
}
