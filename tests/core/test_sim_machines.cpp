// The bundled machines against the measurements that they were made from, stated here and not read from their files.
#include <algorithm>

#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

struct Bench {
  std::unique_ptr<Platform> sim;

  explicit Bench(const std::string& name) : sim{make_sim(exact(bundled(name)), 1)} {}

  using Text = const std::string&;

  [[nodiscard]] double us(Text benchmark, Text src, Text dst, u64 bytes, Params params = {}) const {
    return slope(*sim, program(benchmark, src, dst, bytes, std::move(params)), 8) * 1e6;
  }
  [[nodiscard]] double single_us(Text benchmark, Text src, Text dst, u64 bytes, Params params = {}) const {
    return single(*sim, program(benchmark, src, dst, bytes, std::move(params))) * 1e6;
  }
  /// The joint rate of all directions at 1 GiB.
  [[nodiscard]] double gbps(Text benchmark, Text src, Text dst, Params params = {}) const {
    const auto p = program(benchmark, src, dst, 1_GiB, std::move(params));
    return static_cast<double>(p.actors.size()) * 1.073741824 / slope(*sim, p, 2);
  }

  static Program program(Text benchmark, Text src, Text dst, u64 bytes, Params params) {
    const auto place = [](Text text) { return text.substr(0, text.find('.')); };
    const auto memory = [](Text text) { return text.substr(text.find('.') + 1); };
    return build_program(
        copy_case(benchmark, place(src), memory(src), place(dst), memory(dst), bytes, std::move(params)));
  }
};

/// The joint rate of concurrent copies, one per GPU and direction, in GB/s.
double concurrent_gbps(Platform& sim, bool in, bool out) {
  Program all;
  for (u32 gpu = 0; gpu < 4; ++gpu) {
    const auto place = "gpu:" + std::to_string(gpu);
    for (const bool inwards : {true, false}) {
      if (!(inwards ? in : out)) continue;
      const auto one = inwards ? Bench::program("h2d", "numa:0.pinned", place + ".device", 1_GiB, {})
                               : Bench::program("d2h", place + ".device", "numa:0.pinned", 1_GiB, {});
      const auto shift = static_cast<u32>(all.regions.size());
      all.regions.insert(all.regions.end(), one.regions.begin(), one.regions.end());
      auto actor = one.actors[0];
      std::get<Move>(actor.loop[0]).from.region += shift;
      std::get<Move>(actor.loop[0]).to.region += shift;
      all.actors.push_back(actor);
    }
  }
  return static_cast<double>(all.actors.size()) * 1.073741824 / slope(sim, all, 2);
}

void near(double found, double expected, double tolerance = 0.01) {
  CHECK(found == about(expected).epsilon(tolerance));
}

}  // namespace

TEST_CASE("ac922: local pinned copies reach 72 GB/s, remote ones 41 (CS-28, CS-29)") {
  const Bench ac922{"ac922"};
  near(ac922.gbps("h2d", "numa:0.pinned", "gpu:0.device"), 72);
  near(ac922.gbps("d2h", "gpu:3.device", "numa:1.pinned"), 72);
  near(ac922.gbps("h2d", "numa:0.pinned", "gpu:2.device"), 41);
  near(ac922.gbps("d2h", "gpu:1.device", "numa:1.registered"), 41);
}

TEST_CASE(
    "ac922: pageable is slower than a host copy, and that is slower than pinned (CS-30); bidirectional doubles pinned "
    "and adds less than 10 % to pageable (CS-31)") {
  const Bench ac922{"ac922"};
  const double pageable = ac922.gbps("h2d", "numa:0.pageable", "gpu:0.device");
  const double host = ac922.gbps("h2h", "numa:0.pageable", "numa:0.pinned");
  CHECK(pageable < host);
  CHECK(host < 41);
  CHECK(ac922.gbps("h2d", "numa:0.pageable", "gpu:2.device") < 41);
  near(ac922.gbps("h2d", "numa:0.pinned", "gpu:0.device", {{"bidirectional", "true"}}), 144);
  const double bidirectional = ac922.gbps("h2d", "numa:0.pageable", "gpu:0.device", {{"bidirectional", "true"}});
  CHECK(bidirectional > pageable);
  CHECK(bidirectional < 1.1 * pageable);
}

TEST_CASE("ac922: local peers gain from peer access (CS-33)") {
  const Bench ac922{"ac922"};
  near(ac922.gbps("d2d", "gpu:0.device", "gpu:1.device"), 72);
  CHECK(ac922.gbps("d2d", "gpu:0.device", "gpu:1.device", {{"peer", "off"}}) < 0.7 * 72);
  near(ac922.gbps("d2d", "gpu:0.device", "gpu:3.device"), 41);
}

// The model uses only the joint rates of all GPUs from that run. Each number states its tolerance.
TEST_CASE("h200x4: the time of one copy (medians of results/h200x4-standard-a, us)") {
  const Bench h200{"h200x4"};
  const std::string host = "numa:0.pinned", gpu = "gpu:2.device", other = "gpu:0.device";
  near(h200.us("h2d", host, gpu, 8), 2.242);
  near(h200.us("h2d", host, gpu, 256), 2.371, 0.03);
  near(h200.us("h2d", host, gpu, 4_KiB), 2.501);
  near(h200.us("h2d", host, gpu, 64_KiB), 3.631);
  near(h200.us("h2d", host, gpu, 1_MiB), 21.40);
  near(h200.us("h2d", host, gpu, 16_MiB), 304.6);
  near(h200.single_us("h2d", host, gpu, 8), 2.240);
  near(h200.single_us("h2d", host, gpu, 4_KiB), 7.536, 0.02);
  near(h200.single_us("h2d", host, gpu, 1_MiB), 26.29);
  near(h200.single_us("h2d", host, gpu, 4_KiB, {{"after", "wait"}}), 2.472, 0.025);
  near(h200.us("d2h", gpu, host, 8), 1.991, 0.1);
  near(h200.us("d2h", gpu, host, 4_KiB), 2.256);
  near(h200.us("d2h", gpu, host, 1_MiB), 21.73, 0.035);
  near(h200.us("local", gpu, gpu, 64_KiB), 2.355, 0.04);
  near(h200.us("local", gpu, gpu, 16_MiB), 11.02, 0.08);
  near(h200.us("d2d", other, gpu, 8), 2.334, 0.09);
  near(h200.us("d2d", other, gpu, 64_KiB), 2.678);
  near(h200.us("d2d", other, gpu, 1_MiB), 5.100, 0.03);
  near(h200.us("d2h", gpu, "numa:0.pageable", 8), 7.409, 0.02);
}

TEST_CASE(
    "h200x4: the time of a copy between GPUs that the destination queues (medians of results/h200x4-standard-a, us)") {
  const Bench h200{"h200x4"};
  const std::map<u64, double> measured{{4_KiB, 13.13}, {64_KiB, 13.40}, {1_MiB, 14.40},
                                       {4_MiB, 19.74}, {16_MiB, 53.68}, {256_MiB, 688.1}};
  for (const auto& [bytes, us] : measured)
    near(h200.us("d2d", "gpu:1.device", "gpu:3.device", bytes, {{"initiator", "dst"}}), us, 0.03);
}

TEST_CASE("h200x4: the rate of large copies (results/h200x4-standard-a, GB/s; concurrent copies: anchors)") {
  const Bench h200{"h200x4"};
  const std::string host = "numa:0.pinned", gpu = "gpu:1.device", other = "gpu:3.device";
  near(h200.gbps("h2d", host, gpu), 55.57);
  near(h200.gbps("d2h", gpu, host), 55.43);
  near(h200.gbps("h2d", host, gpu, {{"bidirectional", "true"}}), 102.9);
  near(h200.gbps("h2d", "numa:0.pageable", gpu), 10.49);
  near(h200.gbps("d2h", gpu, "numa:0.pageable"), 19.66, 0.02);
  near(h200.gbps("h2d", "numa:0.pageable", gpu, {{"bidirectional", "true"}}),
       2 * 10.49);                                        // each caller copies its own data
  near(h200.gbps("h2h", "numa:0.pageable", host), 12.8);  // copies of 256 MiB bypass the caches
  near(h200.us("h2h", "numa:0.pageable", host, 64_MiB), 67.108864e3 / 7.95);
  near(h200.gbps("d2d", gpu, other), 395.2, 0.02);
  near(h200.gbps("d2d", gpu, other, {{"bidirectional", "true"}}), 767.8, 0.02);
  near(h200.gbps("d2d", gpu, other, {{"peer", "off"}}), 38.48, 0.03);
  near(h200.gbps("d2d", gpu, other, {{"peer", "off"}, {"bidirectional", "true"}}), 64.5, 0.05);
  near(h200.us("d2d", gpu, other, 8, {{"peer", "off"}}), 16.5, 0.1);
  CHECK(concurrent_gbps(*h200.sim, true, false) == about(181.9).epsilon(0.01));
  CHECK(concurrent_gbps(*h200.sim, false, true) == about(150.1).epsilon(0.01));
  CHECK(concurrent_gbps(*h200.sim, true, true) == about(188.2).epsilon(0.01));
}

TEST_CASE("with noise, the median of rounds has the same rate") {
  for (const std::string name : {"h200x1", "h200x2", "h200x4", "ac922"}) {
    const auto sim = make_sim(bundled(name), 2);
    for (const u64 bytes : {16_MiB, 256_MiB}) {
      const auto program = Bench::program("h2d", "numa:0.pinned", "gpu:0.device", bytes, {});
      std::vector<double> rounds;
      for (int round = 0; round < 7; ++round) rounds.push_back(slope(*sim, program, 2, "p#" + std::to_string(round)));
      std::sort(rounds.begin(), rounds.end());
      const double rate = name == "ac922" ? 72e9 : 55.5e9, setup = name == "ac922" ? 2.3e-6 : 2.45e-6;
      CHECK(rounds[3] == about(setup + static_cast<double>(bytes) / rate).epsilon(0.01));
    }
  }
}
