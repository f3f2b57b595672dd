// A GPU and a CPU thread at the same memory, and touched pages in random order or with gaps, on the cuda platform with the
// fake driver.
#include <map>
#include <string>

#include "benchmarks/case.hpp"
#include "cuda_testing.hpp"
#include "host/flush.hpp"

using namespace linkscope;

namespace {

using Params = std::map<std::string, std::string>;

Verdict verdict_of(const Case& c) {
  const auto program = build_program(c);
  const auto support = platform().supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  const auto session = platform().prepare(program, "test#0");
  return *platform().run(*session, {2, {std::vector<u32>(program.actors.size(), 1)}, true}).verdict;
}

void check_data(const Case& c) {
  const auto verdict = verdict_of(c);
  CHECK_MESSAGE(verdict.ok, verdict.first_wrong);
  CHECK(verdict.checked_bytes > 0);
}

}  // namespace

Case additions(const char* by, const char* words) {
  return {"atomic_shared",
          Engine::sm,
          gpu(0),
          numa(0),
          MemKind::device,
          MemKind::pinned,
          65536,
          0,
          {{"by", by}, {"words", words}}};
}

TEST_CASE("the sum of a word counts the additions of a GPU and of a CPU thread") {
  check_data(additions("both", "apart"));
  for (const char* by : {"gpu", "cpu"})
    for (const char* words : {"one", "apart"}) {
      CAPTURE(by);
      CAPTURE(words);
      check_data(additions(by, words));
    }
}

TEST_CASE("a word of host memory to which both sides add is refused where the link carries no atomic operations") {
  const auto support = platform().supports(build_program(additions("both", "one")));
  CHECK_FALSE(support);
  CHECK(support.why_not.find("HOST_NATIVE_ATOMIC_SUPPORTED is 0") != std::string::npos);
}

TEST_CASE("a GPU and a CPU thread read the same bytes, in place and as managed pages") {
  for (const char* bytes : {"same", "apart"}) {
    CAPTURE(bytes);
    for (const char* order : {"linear", "random"})
      check_data({"shared_access",
                  Engine::sm,
                  numa(0),
                  gpu(0),
                  MemKind::pinned,
                  MemKind::device,
                  1 << 20,
                  0,
                  {{"bytes", bytes}, {"order", order}}});
    check_data({"shared_access",
                Engine::fault,
                numa(0),
                gpu(0),
                MemKind::managed,
                MemKind::managed,
                1 << 20,
                0,
                {{"bytes", bytes}}});
  }
}

TEST_CASE("pages are touched in random order, and with gaps between them") {
  for (const char* access : {"write", "read"})
    for (const Params& params :
         {Params{{"order", "random"}}, Params{{"stride", "131072"}}, Params{{"order", "random"}, {"stride", "2097152"}},
          Params{{"blocks", "1"}, {"block_threads", "32"}}}) {
      Params all = params;
      all["access"] = access;
      check_data(
          {"demand", Engine::fault, numa(0), gpu(0), MemKind::managed, MemKind::managed, (4 << 20) + 4096, 0, all});
    }
}

TEST_CASE("copies without NUMA binding, and of memory that was written back, deliver their bytes") {
  for (const MemKind memory : {MemKind::pageable, MemKind::pinned, MemKind::registered}) {
    check_data({"h2d", Engine::ce, numa(0), gpu(0), memory, MemKind::device, 1 << 20, 0, {{"binding", "none"}}});
    check_data({"d2h", Engine::ce, gpu(0), numa(0), MemKind::device, memory, 1 << 20, 0, {{"binding", "none"}}});
  }
  const Case cleaned{
      "h2d", Engine::ce, numa(0), gpu(0), MemKind::pageable, MemKind::device, 1 << 16, 0, {{"cache", "cleaned"}}};
  if (const auto why = why_no_write_back(); !why.empty())
    CHECK(platform().supports(build_program(cleaned)).why_not == why);
  else check_data(cleaned);
}

TEST_CASE("one host thread queues both directions of pageable copies, and events time them") {
  const Case one{"h2d",
                 Engine::ce,
                 numa(0),
                 gpu(0),
                 MemKind::pageable,
                 MemKind::device,
                 1 << 20,
                 0,
                 {{"bidirectional", "true"}, {"mode", "single"}, {"host_threads", "one"}}};
  const auto session = platform().prepare(build_program(one), "test#0");
  CHECK(platform().run(*session, {1, {{1, 1}}, true}).timing == "events");
  Case each = one;
  each.params["host_threads"] = "each";
  const auto other = platform().prepare(build_program(each), "test#0");
  CHECK(platform().run(*other, {1, {{1, 1}}, true}).timing == "host");
}
