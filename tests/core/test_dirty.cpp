// Memory that a core's cache holds modified: which thread writes it, and when.
#include <doctest.h>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "host/dirty.hpp"
#include "host/pages.hpp"
#include "host/topology.hpp"
#include "platform/cuda/cuda_platform.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

struct Writes {
  u64 bytes_by_caller = 0, bytes_by_other_core = 0;
};
Writes requested;

}  // namespace

// The linker redirects the calls of other files to this one (CMakeLists.txt).
extern "C" {
void __real__ZN9linkscope11write_againEPSt4bytem(std::byte*, u64);
void __wrap__ZN9linkscope11write_againEPSt4bytem(std::byte* start, u64 bytes) {
  requested.bytes_by_caller += bytes;
  __real__ZN9linkscope11write_againEPSt4bytem(start, bytes);
}
void __real__ZN9linkscope21dirty_in_another_coreEPSt4bytemj(std::byte*, u64, u32);
void __wrap__ZN9linkscope21dirty_in_another_coreEPSt4bytemj(std::byte* start, u64 bytes, u32 node) {
  requested.bytes_by_other_core += bytes;
  __real__ZN9linkscope21dirty_in_another_coreEPSt4bytemj(start, bytes, node);
}
}

namespace {

/// A page that the first write to it makes writable. The handler of the page fault notes who writes.
struct WatchedPage {
  static constexpr std::size_t bytes = 4096;
  static std::byte* page;
  static volatile pid_t writer;
  static cpu_set_t allowed;  // the CPUs on which the writer may run

  WatchedPage() {
    page = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    mprotect(page, bytes, PROT_READ);
    writer = 0;
    struct sigaction action{};
    action.sa_handler = note_writer;
    sigaction(SIGSEGV, &action, &before);
  }
  ~WatchedPage() {
    sigaction(SIGSEGV, &before, nullptr);
    munmap(page, bytes);
  }
  WatchedPage(const WatchedPage&) = delete;
  WatchedPage& operator=(const WatchedPage&) = delete;

 private:
  static void note_writer(int) {
    writer = gettid();
    sched_getaffinity(0, sizeof allowed, &allowed);
    mprotect(page, bytes, PROT_READ | PROT_WRITE);
  }
  struct sigaction before{};
};
std::byte* WatchedPage::page = nullptr;
volatile pid_t WatchedPage::writer = 0;
cpu_set_t WatchedPage::allowed;

/// Keeps the calling thread on its CPU.
struct OnOneCpu {
  OnOneCpu() : cpu{sched_getcpu()} {
    sched_getaffinity(0, sizeof before, &before);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCpu() { sched_setaffinity(0, sizeof before, &before); }
  OnOneCpu(const OnOneCpu&) = delete;
  OnOneCpu& operator=(const OnOneCpu&) = delete;
  int cpu;

 private:
  cpu_set_t before;
};

/// The bytes that a copy with this cache state writes again before its samples.
Writes writes_before_samples(const char* cache) {
  const auto c = copy_case("h2h", "numa:0", "pageable", "numa:0", "pinned", 4_KiB, {{"cache", cache}});
  const auto platform = make_cuda();
  const auto session = platform->prepare(build_program(c), "key#0");
  requested = {};
  (void)platform->run(*session, {3, {{1}}, true});
  return requested;
}

}  // namespace

TEST_CASE("another core than the caller's dirties the cache lines") {
  (void)host_nodes();  // read before this thread is bound
  const OnOneCpu bound;
  if (!why_no_other_core(0).empty()) {
    MESSAGE("this machine has one core");
    return;
  }
  const WatchedPage page;
  dirty_in_another_core(WatchedPage::page, WatchedPage::bytes, 0);
  CHECK(WatchedPage::writer != 0);
  CHECK(WatchedPage::writer != gettid());
  for (const int sibling : cpus_of_core(bound.cpu)) CHECK_FALSE(CPU_ISSET(sibling, &WatchedPage::allowed));
  CHECK(CPU_COUNT(&WatchedPage::allowed) == 1);
}

TEST_CASE("the calling thread itself writes cache lines again") {
  const WatchedPage page;
  write_again(WatchedPage::page, WatchedPage::bytes);
  CHECK(WatchedPage::writer == gettid());
}

TEST_CASE("before each sample, cache=dirty has another core write and cache=written the calling core") {
  const u64 slice = 4_KiB;
  const auto cold = writes_before_samples("cold"), written = writes_before_samples("written");
  CHECK((cold.bytes_by_caller == 0 && cold.bytes_by_other_core == 0));
  CHECK((written.bytes_by_caller >= 3 * slice && written.bytes_by_other_core == 0));
  if (!why_no_other_core(0).empty()) return;
  const auto dirty = writes_before_samples("dirty");
  CHECK((dirty.bytes_by_caller == 0 && dirty.bytes_by_other_core >= 3 * slice));
}
