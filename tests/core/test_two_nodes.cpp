// A machine with two NUMA nodes, simulated below the host platform: pages are where they were bound, except misplaced
// ones, and threads run on the node to which they were bound. The linker redirects the calls below to this file
// (CMakeLists.txt).
#include <doctest.h>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "host/crew.hpp"
#include "host/pages.hpp"
#include "host/topology.hpp"
#include "platform/cuda/cuda_platform.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

/// While it lives, this host has two nodes.
struct TwoNodes {
  TwoNodes() { current = this; }
  ~TwoNodes() { current = nullptr; }
  TwoNodes(const TwoNodes&) = delete;
  TwoNodes& operator=(const TwoNodes&) = delete;

  std::vector<HostNode> nodes{{0, {}}, {1, {}}};  // without CPUs: a thread may run anywhere
  std::mutex guard;
  std::map<u64, std::pair<u64, int>> bound;             // by start of a range: its end and its node
  double misplaced = 0;                                 // this part of each range, at its end, lies on the other node
  std::map<std::thread::id, std::vector<u32>> threads;  // the nodes to which each thread was bound, in order

  static TwoNodes* current;

  int node_of(u64 address) {
    const std::scoped_lock lock{guard};
    const auto after = bound.upper_bound(address);
    if (after == bound.begin()) return 0;
    const auto& [start, range] = *std::prev(after);
    const auto bytes = static_cast<double>(range.first - start);
    return static_cast<double>(address - start) < (1 - misplaced) * bytes ? range.second : 1 - range.second;
  }
};
TwoNodes* TwoNodes::current = nullptr;

}  // namespace

extern "C" {
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  std::va_list list;
  va_start(list, number);
  std::array<long, 6> a{};
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  auto* const two = TwoNodes::current;
  if (two && number == SYS_set_mempolicy) return 0;
  if (two && number == SYS_mbind) {
    const std::scoped_lock lock{two->guard};
    const auto start = static_cast<u64>(a[0]);
    std::erase_if(two->bound, [&](const auto& old) {  // memory that was freed
      return old.first < start + static_cast<u64>(a[1]) && old.second.first > start;
    });
    two->bound[start] = {start + static_cast<u64>(a[1]), *reinterpret_cast<const unsigned long*>(a[3]) == 2 ? 1 : 0};
    return 0;
  }
  if (two && number == SYS_move_pages) {
    for (long i = 0; i < a[1]; ++i)
      reinterpret_cast<int*>(a[4])[i] = two->node_of(reinterpret_cast<const u64*>(a[2])[i]);
    return 0;
  }
  return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

const std::vector<HostNode>& __real__ZN9linkscope10host_nodesEv();
const std::vector<HostNode>& __wrap__ZN9linkscope10host_nodesEv() {
  return TwoNodes::current ? TwoNodes::current->nodes : __real__ZN9linkscope10host_nodesEv();
}

void __real__ZN9linkscope19bind_thread_to_nodeEj(u32);
void __wrap__ZN9linkscope19bind_thread_to_nodeEj(u32 node) {
  auto* const two = TwoNodes::current;
  if (!two) return __real__ZN9linkscope19bind_thread_to_nodeEj(node);
  const std::scoped_lock lock{two->guard};
  two->threads[std::this_thread::get_id()].push_back(node);
}
}

namespace {

Case host_copy(const char* from, const char* to) { return copy_case("h2h", from, "pageable", to, "pinned", 64_KiB); }

/// One copy on each node, concurrently, by a CPU thread of the node.
Program copy_on_each_node() {
  return together({build_program(host_copy("numa:0", "numa:0")), build_program(host_copy("numa:1", "numa:1"))});
}

std::string why_not_prepared(const Program& program) {
  try {
    (void)make_cuda()->prepare(program, "key#0");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("memory whose pages all lie on the requested node is accepted, and the trace names the node") {
  const TwoNodes two;
  const auto platform = make_cuda();
  const auto session = platform->prepare(build_program(host_copy("numa:1", "numa:0")), "key#0");
  const auto notes = platform->run(*session, {1, {{1}}, true}).notes;
  const auto has = [&](const std::pair<std::string, std::string>& note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  CHECK(has({"pages numa:1.pageable", "numa:1"}));
  CHECK(has({"pages numa:0.pinned", "numa:0"}));
}

TEST_CASE("memory with some pages on another node than requested is refused with both nodes") {
  TwoNodes two;
  Case c = host_copy("numa:0", "numa:0");
  c.bytes = c.footprint_bytes = 2_MiB;
  for (const auto& [part, found] :
       {std::pair{0.5, "numa:0 32 of 64, numa:1 32 of 64"}, std::pair{1.0 / 64, "numa:0 63 of 64, numa:1 1 of 64"},
        std::pair{63.0 / 64, "numa:0 1 of 64, numa:1 63 of 64"}, std::pair{1.0, "numa:1"}}) {
    two.misplaced = part;
    CHECK(why_not_prepared(build_program(c)) == std::string{"pages asked for on numa:0 are on "} + found);
  }
}

TEST_CASE("memory without binding lies where the kernel puts it, which the trace names, and no thread is bound") {
  TwoNodes two;
  auto program = build_program(host_copy("numa:1", "numa:1"));
  for (auto& region : program.regions) region.bound = false;
  for (auto& actor : program.actors) actor.bound = false;
  const auto platform = make_cuda();
  const auto session = platform->prepare(program, "key#0");
  const auto notes = platform->run(*session, {1, {{1}}, true}).notes;
  const std::pair<std::string, std::string> elsewhere{"pages numa:1.pageable", "numa:0"};
  CHECK(std::find(notes.begin(), notes.end(), elsewhere) != notes.end());
  CHECK(two.threads.empty());
  CHECK(two.bound.empty());
}

TEST_CASE("the pages whose node is checked are spread over the whole range") {
  TwoNodes two;
  for (const u64 bytes : {256_KiB, 4_MiB, 256_MiB}) {
    HostPages pages{0, bytes};
    two.misplaced = 0;
    CHECK(page_nodes(pages.data(), bytes) == "numa:0");
    two.misplaced = 0.25;
    CHECK(page_nodes(pages.data(), bytes) == "numa:0 48 of 64, numa:1 16 of 64");
  }
}

TEST_CASE("each CPU thread is bound to the node of its actor before every batch") {
  TwoNodes two;
  const auto platform = make_cuda();
  const auto session = platform->prepare(copy_on_each_node(), "key#0");
  two.threads.clear();
  (void)platform->run(*session, {3, {{1, 1}}, false});
  const auto own = std::this_thread::get_id();
  REQUIRE(two.threads.contains(own));
  CHECK(two.threads[own] == std::vector<u32>{0, 0, 0});
  u32 others = 0;
  for (const auto& [id, nodes] : two.threads) {
    if (id == own) continue;
    for (const u32 node : nodes) CHECK(node == 1);
    others += static_cast<u32>(nodes.size());
  }
  CHECK(others == 3);
}

TEST_CASE("the calling thread is bound to the node of the first actor while memory is prepared and work is queued") {
  TwoNodes two;
  (void)make_cuda()->prepare(build_program(host_copy("numa:1", "numa:0")), "key#0");
  REQUIRE(two.threads.size() == 1);
  CHECK(two.threads.begin()->second == std::vector<u32>{1, 1});  // by the preparation, and by its warm-up
}

TEST_CASE("the threads of a crew are bound to its node") {
  TwoNodes two;
  {
    Crew crew{1, 4};
    crew.run([](u32) {});
  }
  CHECK(two.threads.size() == 3);  // the caller is the fourth; its session binds it
  for (const auto& [id, nodes] : two.threads) CHECK(nodes == std::vector<u32>{1});
}
