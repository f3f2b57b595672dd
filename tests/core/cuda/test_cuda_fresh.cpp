// Copies to memory that nobody has touched, on the fake driver: every byte arrives, and pages are new for each sample.
#include <unistd.h>

#include <fstream>

#include "benchmarks/case.hpp"
#include "cuda_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;

namespace {

Program program_of(const char* name, MemKind memory, u64 bytes, std::map<std::string, std::string> params = {}) {
  params.emplace("mode", "batched");
  return build_program({name, Engine::ce, parse_place("gpu:0"), parse_place("numa:0"), MemKind::device, memory, bytes,
                        4 * bytes, std::move(params)});
}

void check_bytes(const Program& program, u64 least) {
  const auto support = platform().supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  const auto session = platform().prepare(program, "fresh#0");
  const std::vector<u32> batch(program.actors.size(), 1), twice(program.actors.size(), 2);
  const auto trace = platform().run(*session, {2, {batch, twice}, true});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  CHECK(trace.verdict->checked_bytes >= least);
}

/// Page faults of this process that needed no disk.
u64 faults() {
  std::ifstream stat{"/proc/self/stat"};
  std::string word;
  for (int field = 0; field < 10; ++field) stat >> word;
  return std::stoull(word);
}

}  // namespace

TEST_CASE("copies to memory that nobody has touched deliver every byte, however often its pages are given back") {
  check_bytes(program_of("fresh", MemKind::pageable, 256_KiB), 256_KiB);
  check_bytes(program_of("fresh_staged", MemKind::pageable, 1_MiB, {{"threads", "1"}, {"chunk", "256KiB"}}), 1_MiB);
}

TEST_CASE("each sample of a copy to memory that nobody has touched takes its pages from the kernel again") {
  constexpr u32 samples = 20;
  const auto staged = program_of("fresh_staged", MemKind::pageable, 1_MiB, {{"threads", "1"}, {"chunk", "256KiB"}});
  for (const auto& program : {program_of("fresh", MemKind::pageable, 1_MiB), staged}) {
    const auto session = platform().prepare(program, "fresh#0");
    const u64 before = faults();
    (void)platform().run(*session, {samples, {std::vector<u32>(program.actors.size(), 1)}, false});
    CHECK(faults() - before >= samples * (1_MiB / 4096));
  }
}

TEST_CASE("memory that nobody has touched is measured in huge pages, or their absence is said") {
  const auto program = program_of("fresh", MemKind::hugepage, 2_MiB);
  if (const auto support = platform().supports(program); !support)
    CHECK_MESSAGE(support.why_not.find("transparent huge pages") != std::string::npos, support.why_not);
  else check_bytes(program, 2_MiB);
}
