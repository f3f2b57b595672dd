// The shapes of Comm|Scope's unified-memory curves, which the bundled machines must reproduce, and our measurements of
// the H200.
#include <algorithm>
#include <array>

#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

struct Modelled {
  std::unique_ptr<Platform> sim;
  explicit Modelled(const std::string& name) : sim{make_sim(exact(bundled(name)), 1)} {}

  /// GB/s of a single operation on managed memory.
  [[nodiscard]] double managed(const std::string& benchmark, const std::string& src, const std::string& dst, u64 bytes,
                               Params params = {}) const {
    auto c = copy_case(benchmark, src, "managed", dst, "managed", bytes, std::move(params));
    c.engine = benchmark == "prefetch" ? Engine::prefetch : Engine::fault;
    return static_cast<double>(bytes) / single(*sim, build_program(c)) * 1e-9;
  }
  /// GB/s of a single explicit copy. `memory` is the kind of host memory.
  [[nodiscard]] double copied(const std::string& src, const std::string& dst, u64 bytes,
                              const std::string& memory) const {
    const bool to_gpu = src.starts_with("numa");
    const auto c =
        copy_case(to_gpu ? "h2d" : "d2h", src, to_gpu ? memory : "device", dst, to_gpu ? "device" : memory, bytes);
    return static_cast<double>(bytes) / single(*sim, build_program(c)) * 1e-9;
  }
};

const char* far_gpu(const std::string& name) { return name == "4029gp" ? "gpu:4" : "gpu:2"; }

}  // namespace

TEST_CASE("CS-36: demand paging can exceed pageable copies; towards the host it needs more than one thread") {
  for (const char* name : {"ac922", "s822lc"}) {
    CAPTURE(name);
    const Modelled machine{name};
    CHECK(machine.managed("demand", "numa:0", "gpu:0", 256_MiB) >
          1.1 * machine.copied("numa:0", "gpu:0", 256_MiB, "pageable"));
  }
  for (const char* name : {"ac922", "s822lc", "4029gp"}) {
    CAPTURE(name);
    const Modelled machine{name};
    const double pageable = machine.copied("gpu:0", "numa:0", 256_MiB, "pageable");
    const auto gbps_with = [&](const char* threads) {
      return machine.managed("demand", "gpu:0", "numa:0", 256_MiB, {{"threads", threads}});
    };
    CHECK(gbps_with("1") < 0.7 * pageable);
    CHECK(std::max(gbps_with("8"), gbps_with("16")) > pageable);
    CHECK(gbps_with("1") < gbps_with("2"));
    CHECK(gbps_with("2") < gbps_with("4"));
    CHECK(gbps_with("16") < machine.copied("gpu:0", "numa:0", 256_MiB, "pinned"));
  }
}

TEST_CASE("CS-37: a prefetch reaches over 93 % of an explicit copy at 1 GiB, and far less from 4 KiB to 32 MiB") {
  for (const char* name : {"ac922", "s822lc", "4029gp"})
    for (const auto& [src, dst] : {std::pair{"numa:0", "gpu:0"}, std::pair{"gpu:0", "numa:0"}}) {
      CAPTURE(name);
      CAPTURE(src);
      const Modelled machine{name};
      const auto fraction = [&](u64 bytes) {
        return machine.managed("prefetch", src, dst, bytes) / machine.copied(src, dst, bytes, "pinned");
      };
      CHECK(fraction(1_GiB) > 0.93);
      CHECK(fraction(1_GiB) < 1);
      CHECK(fraction(32_MiB) < 0.7);
      for (const u64 bytes : {4_KiB, 64_KiB, 1_MiB}) CHECK(fraction(bytes) < 0.2);
    }
}

TEST_CASE("CS-32: demand paging keeps over 80 % of its rate for remote memory, more than explicit copies keep") {
  for (const char* name : {"ac922", "s822lc", "4029gp"}) {
    CAPTURE(name);
    const Modelled machine{name};
    const std::string far = far_gpu(name);
    const auto remote_to_local = [&](auto rate) { return rate(far) / rate(std::string{"gpu:0"}); };
    const double in =
        remote_to_local([&](const std::string& gpu) { return machine.managed("demand", "numa:0", gpu, 256_MiB); });
    const double out =
        remote_to_local([&](const std::string& gpu) { return machine.managed("demand", gpu, "numa:0", 256_MiB); });
    CHECK(in > 0.8);
    CHECK(out > 0.8);
    const double explicit_in =
        remote_to_local([&](const std::string& gpu) { return machine.copied("numa:0", gpu, 256_MiB, "pinned"); });
    CHECK(in > explicit_in - 0.01);
    if (std::string{name} == "ac922") CHECK(explicit_in < 0.65);
  }
}

TEST_CASE("CS-32: the location of managed memory matters most near 16 MiB on ac922, and less at other sizes") {
  const Modelled machine{"ac922"};
  const auto near_over_far = [&](u64 bytes) {
    return machine.managed("demand", "numa:0", "gpu:0", bytes) / machine.managed("demand", "numa:0", "gpu:2", bytes);
  };
  u64 largest = 0;
  double most = 0;
  for (u64 bytes = 256_KiB; bytes <= 1_GiB; bytes *= 2)
    if (const double found = near_over_far(bytes); found > most) largest = bytes, most = found;
  CHECK(largest >= 8_MiB);
  CHECK(largest <= 32_MiB);
  CHECK(most > 1.1 * near_over_far(256_KiB));
  CHECK(most > 1.1 * near_over_far(1_GiB));
}

TEST_CASE("MB-2, MB-3, MB-7: minsky and newell have launches, faults, managed memory and atomic operations") {
  const auto run = [](const char* name, const char* benchmark, Engine engine, std::array<const char*, 4> ends) {
    auto c = copy_case(benchmark, ends[0], ends[1], ends[2], ends[3], 0);
    c.engine = engine;
    return slope(*make_sim(exact(bundled(name)), 1), build_program(c), 100) * 1e6;
  };
  const auto fault_in = [&](const char* name) {
    return run(name, "fault_latency", Engine::fault, {"numa:0", "managed", "gpu:0", "managed"});
  };
  const auto fault_out = [&](const char* name) {
    return run(name, "fault_latency", Engine::fault, {"gpu:0", "managed", "numa:0", "managed"});
  };
  CHECK(fault_in("newell") > fault_in("minsky"));
  CHECK(fault_out("newell") > fault_out("minsky"));
  for (const char* name : {"minsky", "newell"}) {
    CAPTURE(name);
    CHECK(run(name, "launch", Engine::cpu, {"numa:0", "pageable", "gpu:0", "device"}) ==
          doctest::Approx(5).epsilon(0.05));
    CHECK(run(name, "atomic_latency", Engine::sm, {"gpu:0", "device", "numa:0", "pinned"}) > 1);
    const Modelled machine{name};
    CHECK(machine.managed("demand", "numa:0", "gpu:0", 64_MiB) > 1);
    CHECK(machine.managed("prefetch", "numa:0", "gpu:0", 64_MiB) > 1);
    auto graph = copy_case("graph", "numa:0", "pageable", "gpu:0", "device", 0);
    graph.engine = Engine::cpu;
    CHECK(machine.sim->supports(build_program(graph)).why_not ==
          std::string{"the driver of the model "} + name + " has no graphs: graph_us of [calls]");
  }
}

TEST_CASE("MB-3, MB-7: a page fault takes longer on POWER9 than on POWER8, and 5 to 100 us on x86") {
  const auto fault = [](const char* name, const char* src, const char* dst) {
    auto c = copy_case("fault_latency", src, "managed", dst, "managed", 0);
    c.engine = Engine::fault;
    return slope(*make_sim(exact(bundled(name)), 1), build_program(c), 100) * 1e6;
  };
  for (const auto& [src, dst] : {std::pair{"numa:0", "gpu:0"}, std::pair{"gpu:0", "numa:0"}}) {
    CHECK(fault("ac922", src, dst) > fault("s822lc", src, dst));
    CHECK(fault("4029gp", src, dst) > 5);
    CHECK(fault("4029gp", src, dst) < 100);
  }
  CHECK(fault("h200x1", "numa:0", "gpu:0") == doctest::Approx(28.4).epsilon(0.03));
}

TEST_CASE("H200: dependent faults 4 KiB, 64 KiB and 2 MiB apart match the measurement") {
  const auto sim = make_sim(exact(bundled("h200x1")), 1);
  const auto fault = [&](const char* src, const char* dst, const char* step) {
    auto c = copy_case("fault_latency", src, "managed", dst, "managed", 0, {{"step", step}});
    c.engine = Engine::fault;
    return slope(*sim, build_program(c), std::string_view{step} == "2MiB" ? 200 : 1024) * 1e6;
  };
  // faults of a GPU (results/h200x2-full-a)
  CHECK(fault("numa:0", "gpu:0", "4KiB") == doctest::Approx(0.84).epsilon(0.1));
  CHECK(fault("numa:0", "gpu:0", "64KiB") == doctest::Approx(6.93).epsilon(0.05));
  CHECK(fault("numa:0", "gpu:0", "2MiB") == doctest::Approx(28.4).epsilon(0.03));
  // faults of a CPU (results/h200x4-full and h200x2-full-a)
  CHECK(fault("gpu:0", "numa:0", "4KiB") == doctest::Approx(0.66).epsilon(0.2));
  CHECK(fault("gpu:0", "numa:0", "64KiB") == doctest::Approx(8.6).epsilon(0.2));
  CHECK(fault("gpu:0", "numa:0", "2MiB") == doctest::Approx(30.6).epsilon(0.25));
}

TEST_CASE("H200: CPU demand paging from a GPU matches the measurement (results/h200x4-full and h200x2-full-a)") {
  const Modelled machine{"h200x1"};
  const auto us = [&](const char* threads, u64 bytes) {
    return static_cast<double>(bytes) / machine.managed("demand", "gpu:0", "numa:0", bytes, {{"threads", threads}}) *
           1e-3;
  };
  const auto approx = [](double measured, double tolerance) { return doctest::Approx(measured).epsilon(tolerance); };
  for (const auto& [bytes, measured] : {std::pair<u64, double>{4_KiB, 18.3},
                                        {64_KiB, 35.7},
                                        {128_KiB, 60.6},
                                        {256_KiB, 104},
                                        {512_KiB, 158},
                                        {1_MiB, 263},
                                        {2_MiB, 451},
                                        {16_MiB, 3600},
                                        {64_MiB, 15900},
                                        {256_MiB, 56000}}) {
    CAPTURE(bytes);
    CHECK(us("1", bytes) == approx(measured, 0.2));
  }
  for (const auto& [threads, measured] : {std::pair{"2", 11400.0}, {"4", 7700.0}, {"8", 5350.0}, {"16", 4430.0}}) {
    CAPTURE(threads);
    CHECK(us(threads, 64_MiB) == approx(measured, 0.2));
  }
  for (const auto& [threads, measured] : {std::pair{"2", 3070.0}, {"4", 2090.0}, {"8", 1450.0}, {"16", 1300.0}}) {
    CAPTURE(threads);
    CHECK(us(threads, 16_MiB) == approx(measured, 0.25));
  }
  CHECK(us("16", 1_MiB) >= us("1", 1_MiB));  // measured: 340 and 263
}

TEST_CASE(
    "H200: demand paging and prefetch of 256 MiB match the measurement (results/h200x2-standard-b and -findings)") {
  const Modelled machine{"h200x1"};
  CHECK(machine.managed("demand", "numa:0", "gpu:0", 256_MiB) == doctest::Approx(10).epsilon(0.1));  // 8.3 and 11.1
  CHECK(machine.managed("prefetch", "numa:0", "gpu:0", 256_MiB) == doctest::Approx(46.9).epsilon(0.05));
  CHECK(machine.managed("prefetch", "gpu:0", "numa:0", 256_MiB) == doctest::Approx(17.5).epsilon(0.05));
}

TEST_CASE(
    "H200: demand paging from another GPU and from the host matches the measurement (middle of results/h200x2-full and "
    "h200x4-full)") {
  const Modelled machine{"h200x2"};
  const auto us = [&](const char* src, const char* dst, u64 bytes) {
    return static_cast<double>(bytes) / machine.managed("demand", src, dst, bytes) * 1e-3;
  };
  for (const auto& [bytes, peer, host] : {std::tuple<u64, double, double>{4_KiB, 42, 78},
                                          {64_KiB, 71, 74},
                                          {512_KiB, 118, 122},
                                          {1_MiB, 192, 168},
                                          {64_MiB, 5700, 7650}}) {
    CAPTURE(bytes);
    CHECK(us("gpu:0", "gpu:1", bytes) == doctest::Approx(peer).epsilon(0.35));
    CHECK(us("numa:0", "gpu:0", bytes) == doctest::Approx(host).epsilon(0.35));
  }
  // The driver unmaps pages of a CPU before it moves them.
  CHECK(us("numa:0", "gpu:0", 4_KiB) - us("gpu:0", "gpu:1", 4_KiB) == doctest::Approx(32).epsilon(0.1));
}
