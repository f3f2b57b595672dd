// Memory kinds on the toy machine: costs against closed forms, and proof that every allocation is freed.
#include <doctest.h>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"
#include "program/allocation.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

constexpr double us = 1e-6;

nlohmann::json with_memory(nlohmann::json machine = toy()) {
  machine["memory"] = nlohmann::json::parse(R"({
    "page_kib": 4, "block_kib": 2048, "map_us": 2, "fault_us": 0.5, "clear_gbps": 8, "free_page_us": 0.25,
    "pin_us": 10, "pin_page_us": 0.125, "unpin_page_us": 0.0625, "pinned_page_us": 1, "free_pinned_page_us": 0.5, "host_pointer_us": 0.3,
    "device_us": 20, "device_block_us": 8, "free_block_us": 4, "pool_us": 6, "device_map_us": 30, "map_block_us": 3,
    "wc_read_gbps": 0.25, "wc_write_gbps": 3, "export_us": 1.5, "open_us": 50, "import_us": 25})");
  machine["numa"][0]["huge_2mib_pages"] = 512;
  return machine;
}

Case allocation(const std::string& kind, const std::string& phase, const std::string& size,
                std::map<std::string, std::string> more = {}) {
  const auto memory = parse_mem_kind(kind);
  const bool on_gpu = memory == MemKind::device || memory == MemKind::pool || memory == MemKind::vmm ||
                      memory == MemKind::ipc || memory == MemKind::posix_fd;
  const bool by_system = is_pageable(memory);
  more["phase"] = phase;
  more["size"] = size;
  const std::string src = on_gpu ? "gpu:0" : "numa:0", dst = by_system ? "numa:0" : "gpu:0";
  auto c = copy_case("allocation", src, kind, dst, on_gpu || by_system ? kind : "device", 0, std::move(more));
  c.engine = Engine::cpu;
  return c;
}

double cost(const nlohmann::json& machine, const Case& c) { return single(*make_sim(machine, 1), build_program(c)); }

}  // namespace

TEST_CASE("each phase of each memory kind costs the sum of its calls, pages and blocks") {
  const auto machine = with_memory();
  const auto takes = [&](const char* kind, const char* phase, const char* size, double expected,
                         std::map<std::string, std::string> more = {}) {
    CAPTURE(kind);
    CAPTURE(phase);
    CHECK(cost(machine, allocation(kind, phase, size, std::move(more))) == about(expected).epsilon(1e-6));
  };
  takes("pageable", "allocate", "1MiB", 2 * us);
  takes("pageable", "touch", "1MiB", 256 * 0.5 * us + mib / 8e9);
  takes("pageable", "free", "1MiB", (2 + 256 * 0.25) * us);
  takes("pinned", "allocate", "1MiB", (10 + 256) * us);
  takes("wc", "map", "1MiB", 0.3 * us);
  takes("mapped", "touch", "1MiB", 256 * 0.1 * us);
  takes("pinned", "free", "1MiB", (10 + 128) * us);
  takes("registered", "register", "1MiB", (10 + 32) * us);
  takes("registered", "unregister", "1MiB", (10 + 16) * us);
  takes("device", "allocate", "16MiB", (20 + 8 * 8) * us);
  takes("device", "free", "16MiB", (20 + 8 * 4) * us);
  takes("device", "touch", "16MiB", (3 + 4) * us + 16 * mib / 1000e9);
  takes("vmm", "map", "16MiB", (30 + 8 * 3) * us);
  takes("vmm", "unmap", "1MiB", (30 + 3) * us);
  takes("ipc", "allocate", "16MiB", (20 + 8 * 8) * us);
  takes("ipc", "export", "16MiB", 1.5 * us);
  for (const char* phase : {"open", "close"}) takes("ipc", phase, "16MiB", (50 + 8 * 3) * us);
  takes("ipc", "free", "16MiB", (20 + 8 * 4) * us);
  takes("posix_fd", "export", "1MiB", 1.5 * us);
  takes("posix_fd", "import", "16MiB", 25 * us);
  takes("posix_fd", "map", "16MiB", (30 + 8 * 3) * us);
  takes("posix_fd", "unmap", "1MiB", (30 + 3) * us);
  takes("shm", "allocate", "1MiB", 2 * us);
  takes("shm", "touch", "1MiB", 256 * 0.5 * us + mib / 8e9);
  takes("shm", "open", "1MiB", 2 * us);
  takes("shm", "register", "1MiB", (10 + 32) * us);
  takes("shm", "free", "1MiB", (2 + 256 * 0.25) * us);
  for (const char* pages : {"2MiB", "transparent"}) {  // 8 pages instead of 4096
    takes("registered_hugepage", "register", "16MiB", (10 + 8 * 0.125) * us, {{"pages", pages}});
    takes("hugepage", "touch", "16MiB", 8 * 0.5 * us + 16 * mib / 8e9, {{"pages", pages}});
  }
}

TEST_CASE("a pool reuses freed memory in the same time for any size") {
  const auto machine = with_memory();
  for (const char* size : {"4KiB", "64MiB"})
    CHECK(cost(machine, allocation("pool", "allocate", size)) == about(6 * us));
  CHECK(cost(machine, allocation("pool", "grow", "64MiB")) == about((6 + 20 + 32 * 8) * us));
  CHECK(cost(machine, allocation("pool", "free", "64MiB")) == about(6 * us));
}

TEST_CASE("write-combined memory is slow for reads by a CPU, but not for a copy engine") {
  const auto machine = with_memory();
  const auto platform = make_sim(machine, 1);
  const auto rate = [&](const char* benchmark, const char* src, const char* src_memory, const char* dst,
                        const char* dst_memory) {
    return 1_MiB / slope(*platform, build_program(copy_case(benchmark, src, src_memory, dst, dst_memory, 1_MiB))) *
           1e-9;
  };
  CHECK(rate("h2h", "numa:0", "wc", "numa:0", "pageable") == about(0.25).epsilon(0.01));
  CHECK(rate("h2h", "numa:0", "pageable", "numa:0", "wc") == about(3).epsilon(0.01));
  CHECK(rate("h2d", "numa:0", "wc", "gpu:0", "device") == about(rate("h2d", "numa:0", "pinned", "gpu:0", "device")));
}

TEST_CASE(
    "copies of other GPU memory kinds cost the same as of device memory, and huge pages are staged like small pages") {
  const auto platform = make_sim(with_memory(), 1);
  const auto takes = [&](const char* benchmark, const char* src, const char* src_memory, const char* dst,
                         const char* dst_memory) {
    return slope(*platform, build_program(copy_case(benchmark, src, src_memory, dst, dst_memory, 4_MiB)));
  };
  for (const char* kind : {"pool", "vmm", "ipc", "posix_fd"}) {
    CHECK(takes("h2d", "numa:0", "pinned", "gpu:0", kind) ==
          about(takes("h2d", "numa:0", "pinned", "gpu:0", "device")));
    CHECK(takes("d2d", "gpu:0", kind, "gpu:1", kind) == about(takes("d2d", "gpu:0", "device", "gpu:1", "device")));
    CHECK(takes("local", "gpu:0", kind, "gpu:0", kind) == about(takes("local", "gpu:0", "device", "gpu:0", "device")));
  }
  const double pageable = takes("h2d", "numa:0", "pageable", "gpu:0", "device"),
               pinned = takes("h2d", "numa:0", "pinned", "gpu:0", "device");
  CHECK(takes("h2d", "numa:0", "hugepage", "gpu:0", "device") == about(pageable));
  CHECK(takes("h2d", "numa:0", "registered_hugepage", "gpu:0", "device") == about(pinned));
  CHECK(takes("h2d", "numa:0", "shm", "gpu:0", "device") == about(pinned));
  CHECK(pageable > 1.5 * pinned);
}

TEST_CASE("huge pages stay within the reach of a GPU's TLB where small pages do not") {
  auto machine = with_memory();
  machine["kernel"]["host_reach_mib"] = 4;
  machine["kernel"]["host_page_kib"] = 64;
  machine["kernel"]["host_walk_us"] = 40;
  const auto platform = make_sim(machine, 1);
  const auto takes = [&](const char* kind) {
    auto c = copy_case("read", "numa:0", kind, "gpu:0", "device", 16_MiB);
    c.engine = Engine::sm;
    return slope(*platform, build_program(c));
  };
  CHECK(takes("registered") > 1.5 * takes("registered_hugepage"));
}

TEST_CASE("huge pages that are not reserved are not supported, and the reason names the key that reserves them") {
  const auto platform = make_sim(with_memory(), 1);
  const auto why = [&](const char* pages, const char* size) {
    return platform->supports(build_program(allocation("hugepage", "touch", size, {{"pages", pages}}))).why_not;
  };
  CHECK(why("1GiB", "1MiB") ==
        "0 huge pages of 1 GiB are reserved on numa:0 of the model toy, and 4 are needed: huge_1gib_pages of its "
        "[[numa]]");
  CHECK(why("2MiB", "256MiB").empty());  // a footprint of four allocations
  CHECK(why("2MiB", "1GiB")
            .find("512 huge pages of 2 MiB are reserved on numa:0 of the model toy, and 2048 are needed") !=
        std::string::npos);
  CHECK(why("transparent", "1GiB").empty());
  const auto without_costs = make_sim(toy(), 1);
  CHECK(without_costs->supports(build_program(allocation("pinned", "allocate", "4KiB"))).why_not.find("no [memory]") !=
        std::string::npos);
}

TEST_CASE("every allocation is counted while it exists, and is freed") {
  const auto platform = make_sim(with_memory(exact(bundled("h200x2"))), 1);
  const std::vector places{numa(0), gpu(0), gpu(1)};
  const auto none = [&] {
    for (const auto& place : places)
      if (platform->in_use(place) != 0) return false;
    return true;
  };
  u32 supported = 0;
  for (const auto& row : benchmarks())
    for (const auto& memories : row.memories) {
      auto c = default_case(row);
      std::tie(c.src_memory, c.dst_memory) = memories;
      if (!c.others.empty()) c.others = {gpu(c.src == gpu(0) || c.dst == gpu(0) ? 1 : 0)};
      const auto program = build_program(c);
      if (!platform->supports(program)) continue;
      ++supported;
      CAPTURE(row.name);
      {
        const auto session = platform->prepare(program, "key#0");
        bool calls = false;
        u64 held = 0, wanted = 0;
        for (u32 region = 0; region < program.regions.size(); ++region) {
          calls = calls || allocated_by_calls(program, region);
          wanted += program.regions[region].bytes;
        }
        for (const auto& place : places) held += platform->in_use(place);
        CHECK(held == (calls ? 0 : wanted));
        (void)platform->run(*session, {2, {std::vector<u32>(program.actors.size(), 1)}, true});
      }
      CHECK(none());
    }
  CHECK(supported > 40);
}

TEST_CASE("memory that runs out during a run causes an error of kind memory and leaves nothing allocated") {
  auto machine = with_memory();
  machine["gpu"][0]["memory_gib"] = 0.25;
  const auto platform = make_sim(machine, 1);
  const auto all = build_program(allocation("device", "allocate", "1MiB"));  // at most 32 allocations
  REQUIRE(all.most_iterations == 32);
  {
    const auto other = platform->prepare(
        build_program(copy_case("local", "gpu:0", "device", "gpu:0", "device", 30_MiB)), "other#0");  // holds 240 MiB
    REQUIRE(platform->in_use(gpu(0)) == 240_MiB);
    const auto session = platform->prepare(all, "key#0");
    CHECK_NOTHROW((void)platform->run(*session, {1, {{16}}, false}));
    CHECK(platform->in_use(gpu(0)) == 256_MiB);
    try {
      (void)platform->run(*session, {1, {{17}}, false});
      FAIL("17 of 1 MiB do not fit 16 MiB");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::memory);
      CHECK(std::string{error.what()} ==
            "gpu:0 has 0 B of memory left, and 1 MiB were requested; choose smaller sizes (--sizes), or a machine "
            "with more");
    }
  }
  CHECK(platform->in_use(gpu(0)) == 0);
}

TEST_CASE("a failure leaves nothing allocated, at any point") {
  auto machine = with_memory();
  machine["gpu"][0]["memory_gib"] = 0.25;
  const auto platform = make_sim(machine, 1);
  const auto held = [&] { return platform->in_use(numa(0)) + platform->in_use(gpu(0)) + platform->in_use(gpu(1)); };
  const auto copy = build_program(copy_case("d2d", "gpu:0", "device", "gpu:1", "device", 10_MiB));
  {  // the first region fits, the second does not
    const auto other =
        platform->prepare(build_program(copy_case("local", "gpu:1", "device", "gpu:1", "device", 30_MiB)), "other#0");
    const u64 before = held();
    CHECK_THROWS_WITH_AS((void)platform->prepare(copy, "key#0"),
                         doctest::Contains("gpu:1 has 16 MiB of memory left, and 40 MiB were requested"), Error);
    CHECK(held() == before);
  }
  CHECK(held() == 0);
  {  // a wait for a word that no actor sets
    auto c = copy_case("ping_pong", "gpu:0", "ipc", "gpu:1", "ipc", 0);
    c.engine = Engine::sm;
    auto words = build_program(c);
    std::get<Wait>(words.actors[1].loop[0]).value = 100;
    const auto session = platform->prepare(words, "words#0");
    CHECK_THROWS_AS((void)platform->run(*session, {1, {{3, 3}}, false}), Error);
    CHECK(held() > 0);
  }
  CHECK(held() == 0);
  {  // an invalid batch
    const auto session = platform->prepare(copy, "key#0");
    CHECK_THROWS_AS((void)platform->run(*session, {1, {{1, 1}}, false}), Error);
  }
  CHECK(held() == 0);
}

TEST_CASE(
    "shared memory is not supported without its costs in the machine file, and each phase belongs to one process") {
  auto machine = with_memory();
  for (const char* key : {"export_us", "open_us", "import_us"}) machine["memory"].erase(key);
  const auto without_costs = make_sim(machine, 1);
  CHECK(without_costs->supports(build_program(allocation("ipc", "open", "4KiB"))).why_not ==
        "the model toy does not say what sharing memory costs: export_us, open_us and import_us of [memory]");
  CHECK(without_costs->supports(build_program(allocation("shm", "open", "4KiB"))).why_not.empty());
  CHECK(
      without_costs->supports(build_program(copy_case("d2d", "gpu:0", "ipc", "gpu:1", "ipc", 1_MiB))).why_not.empty());
  auto program = build_program(allocation("ipc", "export", "4KiB"));
  CHECK(program.actors[0].process == 1);
  program.actors[0].process = 0;
  CHECK(make_sim(with_memory(), 1)->supports(program).why_not ==
        "the phase 'export' of ipc memory is done by the process that owns it");
  program = build_program(allocation("ipc", "open", "4KiB"));
  CHECK(program.actors[0].process == 0);
  program.actors[0].process = 1;
  CHECK(make_sim(with_memory(), 1)->supports(program).why_not ==
        "the phase 'open' of ipc memory is done by the process that opens it");
}

TEST_CASE("a phase that the memory kind lacks is refused") {
  CHECK_THROWS_WITH_AS((void)build_program(allocation("device", "register", "4KiB")),
                       doctest::Contains("phase is allocate, touch, free, not 'register'"), Error);
  CHECK_THROWS_WITH_AS((void)phase_index(MemKind::managed, "free"),
                       doctest::Contains("managed memory has no phase 'free'"), Error);
}
