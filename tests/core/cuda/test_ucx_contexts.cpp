// UCX and the contexts of GPUs over the life of platforms: with the fake driver, which records uses of what has ended, and
// the fake UCX, which looks at the current context.
#include <dlfcn.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/case.hpp"
#include "cuda_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;

namespace {

template <class Answer>
Answer told(const char* library, const char* function) {
  const auto call = reinterpret_cast<Answer (*)()>(dlsym(dlopen(library, RTLD_NOW | RTLD_LOCAL), function));
  const bool found = call != nullptr;
  REQUIRE(found);
  return call();
}

u64 misuses() { return told<unsigned long long>("libcuda.so.1", "fake_cuda_misuses"); }
u64 made_with_gpu() { return told<unsigned long long>("libucp.so.0", "fake_ucx_made_with_gpu"); }
u64 made() { return told<unsigned long long>("libucp.so.0", "fake_ucx_made"); }
u64 freed_before_end() { return told<unsigned long long>("libucp.so.0", "fake_ucx_freed_before_end"); }

void count_calls() {
  using Fail = void (*)(const char*, unsigned long long, unsigned long long, int);
  reinterpret_cast<Fail>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "fake_cuda_fail"))(nullptr, 0, 0, 0);
}

u64 calls(const char* symbol) {
  using Calls = unsigned long long (*)(const char*);
  return reinterpret_cast<Calls>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "fake_cuda_calls"))(symbol);
}

std::unique_ptr<CudaPlatform> with_ucx() {
  auto made = make_cuda({}, nullptr, {}, {{"libucp.so.0", "the tests have it"}});
  REQUIRE_MESSAGE(made->facts().present, made->facts().why_not);
  return made;
}

/// Messages of UCX from rank 0 to rank 1, each with a GPU of its own.
Program messages(MemKind from, MemKind to) {
  Case c;
  c.benchmark = "rank_rate";
  c.engine = Engine::ucx;
  c.src = parse_place("rank:0");
  c.dst = parse_place("rank:1");
  c.src_memory = from;
  c.dst_memory = to;
  c.bytes = 64_KiB;
  c.params = {{"window", "64"}};
  if (to == MemKind::device) c.params["way"] = "aware";
  else c.params["bidirectional"] = "false";
  c.ranks = {{numa(0), gpu(0)}, {numa(0), gpu(1)}};
  return build_program(c);
}

Program messages(MemKind memory) { return messages(memory, memory); }

/// Both processes as threads: each meets, prepares programs and ends its platform.
void run_both(const std::vector<Program>& programs) {
  static int meetings = 0;
  const auto meeting = "ucx-contexts-" + std::to_string(getpid()) + "-" + std::to_string(++meetings);
  const auto process = [&](u32 own) {
    const auto platform = with_ucx();
    platform->join(own, 2, meeting, {});
    for (const auto& program : programs) (void)platform->prepare(program, "ucx#0");
  };
  std::thread other{process, 1};
  process(0);
  other.join();
}

}  // namespace

// The first of the file: later tests find the contexts kept.
TEST_CASE("the context of a GPU whose memory a library got is kept, once, until the process ends") {
  u64 kept = 0;
  for (int again = 0; again < 2; ++again) {
    count_calls();
    run_both({messages(MemKind::device)});
    kept += calls("cuDevicePrimaryCtxRetain") - calls("cuDevicePrimaryCtxRelease");
  }
  CHECK(kept == 2);  // of two GPUs
}

TEST_CASE("UCX is made with the context of the GPU whose memory it gets, also when a machine is opened again") {
  const auto misused = misuses(), before = made(), with_gpu = made_with_gpu();
  for (int opened = 0; opened < 3; ++opened) {
    const auto platform = with_ucx();
    REQUIRE(platform->supports(messages(MemKind::device)).why_not == "");
  }
  CHECK(made() == before + 3);
  CHECK(made_with_gpu() == with_gpu + 3);
  CHECK(misuses() == misused);
}

TEST_CASE("UCX that was made for memory of the host is made anew, once, for memory of a GPU") {
  const auto before = made(), with_gpu = made_with_gpu();
  const auto device = messages(MemKind::device);
  run_both({messages(MemKind::pageable), device, device});
  CHECK(made() == before + 2 * 2);  // two processes
  CHECK(made_with_gpu() == with_gpu + 2);
}

TEST_CASE("a platform that ends leaves no context of its own current, and nothing in a context that ends") {
  const auto misused = misuses(), before = made(), with_gpu = made_with_gpu();
  for (int opened = 0; opened < 2; ++opened) {
    const auto platform = make_cuda();
    Case c;
    c.benchmark = "h2d";
    c.src = numa(0);
    c.dst = gpu(0);
    c.src_memory = MemKind::pinned;
    c.dst_memory = MemKind::device;
    c.bytes = 1_MiB;
    const auto session = platform->prepare(build_program(c), "copies#0");
  }
  run_both({messages(MemKind::pageable)});
  CHECK(made() == before + 2);
  CHECK(made_with_gpu() == with_gpu);
  CHECK(misuses() == misused);
}

TEST_CASE("UCX ends in all processes before one of them frees memory of a GPU") {
  for (int again = 0; again < 2; ++again) {
    count_calls();
    const auto before = freed_before_end();
    run_both({messages(again ? MemKind::device : MemKind::pinned, MemKind::device)});
    CHECK(freed_before_end() == before);
  }
}
