// Operations after an idle gap on the small machine of sim_testing.hpp: an idle GPU or link wakes up, and its waiter
// pays for that. All expected times are stated here, in us.
#include <doctest.h>

#include <cmath>

#include "base/error.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

nlohmann::json toy_with_wake_times() {
  auto made = toy();
  made["gpu"][0]["wake_us"] = 20;
  made["gpu"][0]["wake_after_us"] = 1000;
  for (const auto& [link, wake] : {std::pair{0, 5}, {2, 8}}) {  // the bus and the bridge
    made["link"][link]["wake_us"] = wake;
    made["link"][link]["wake_after_us"] = 10000;
  }
  return made;
}

Program single_copy(const std::string& name, const std::string& src, const std::string& dst, Params params) {
  const auto memory = [](const std::string& place) { return place.starts_with("numa") ? "pinned" : "device"; };
  params.insert({"mode", "single"});
  return build_program(copy_case(name, src, memory(src), dst, memory(dst), 4096, std::move(params)));
}

Program single_call(const std::string& name, Params params) {
  params.insert({"mode", "single"});
  auto c = copy_case(name, "numa:0", "pageable", "gpu:0", "device", 0, std::move(params));
  c.engine = Engine::cpu;
  c.footprint_bytes = 0;
  return build_program(c);
}

/// The time that the gap adds, in us.
double extra_us(SimPlatform& sim, const Program& idle, const Program& busy) {
  return 1e6 * (single(sim, idle) - single(sim, busy));
}

double sleep_depth(double gap_us, double constant_us) { return 1 - std::exp(-gap_us / constant_us); }

}  // namespace

TEST_CASE("after an idle gap the host waits for the GPU and the link to wake up, longer after a longer gap") {
  const auto sim = make_sim(toy_with_wake_times(), 1);
  for (const auto& [gap, us] :
       std::map<std::string, double>{{"0.0001", 100}, {"0.001", 1000}, {"0.01", 10000}, {"0.1", 100000}}) {
    const double expected = 20 * sleep_depth(us, 1000) + 5 * sleep_depth(us, 10000);
    const auto gap_of = [&](Params params) { return params.insert({"idle_gap_s", gap}), params; };
    const Params host{{"clock", "host"}};
    CHECK(extra_us(*sim, single_copy("h2d", "numa:0", "gpu:0", gap_of(host)),
                   single_copy("h2d", "numa:0", "gpu:0", host)) == doctest::Approx(expected));
    CHECK(extra_us(*sim, single_copy("d2h", "gpu:0", "numa:0", gap_of(host)),
                   single_copy("d2h", "gpu:0", "numa:0", host)) == doctest::Approx(expected));
    CHECK(extra_us(*sim, single_call("launch_to_end", gap_of({})), single_call("launch_to_end", {})) ==
          doctest::Approx(expected));
    CHECK(extra_us(*sim, single_call("launch", gap_of({})), single_call("launch", {})) ==
          doctest::Approx(0));  // the call does not wait for the GPU
  }
}

TEST_CASE("after a gate the GPU and the link that the gate's word crossed are awake; a bridge is not") {
  const auto sim = make_sim(toy_with_wake_times(), 1);
  for (const std::string after : {"kernel", "wait"}) {
    const Params busy{{"after", after}}, idle{{"after", after}, {"idle_gap_s", "0.01"}};
    CHECK(extra_us(*sim, single_copy("h2d", "numa:0", "gpu:0", idle), single_copy("h2d", "numa:0", "gpu:0", busy)) ==
          doctest::Approx(0));
    CHECK(extra_us(*sim, single_copy("d2d", "gpu:0", "gpu:1", idle), single_copy("d2d", "gpu:0", "gpu:1", busy)) ==
          doctest::Approx(8 * sleep_depth(10000, 10000)));
  }
}

TEST_CASE("a machine file without wake times causes no delay") {
  const auto sim = make_sim(toy(), 1);
  const Params host{{"clock", "host"}}, idle{{"clock", "host"}, {"idle_gap_s", "0.1"}};
  CHECK(extra_us(*sim, single_copy("h2d", "numa:0", "gpu:0", idle), single_copy("h2d", "numa:0", "gpu:0", host)) ==
        doctest::Approx(0));
}

TEST_CASE("an idle gap is allowed only before a single operation") {
  CHECK_THROWS_WITH_AS(single_copy("h2d", "numa:0", "gpu:0", {{"mode", "batched"}, {"idle_gap_s", "0.01"}}),
                       doctest::Contains("idle_gap_s needs mode=single"), Error);
  CHECK_THROWS_WITH_AS(single_copy("h2d", "numa:0", "gpu:0", {{"idle_gap_s", "5"}}),
                       doctest::Contains("idle_gap_s is 0, 0.0001, 0.001, 0.01, 0.1, not '5'"), Error);
  const auto sim = make_sim(toy(), 1);
  const auto program = single_copy("h2d", "numa:0", "gpu:0", {{"idle_gap_s", "0.01"}});
  const auto session = sim->prepare(program, "key#0");
  CHECK_THROWS_WITH_AS(sim->run(*session, {1, {{2}}, false}), doctest::Contains("allows at most 1 per sample"), Error);
  auto wrong = program;
  wrong.idle = Seconds{2};
  CHECK_THROWS_WITH_AS(validate(wrong), doctest::Contains("an idle gap lies between 0 s and 1.0"), Error);
  wrong = program;
  wrong.most_iterations = 0;
  CHECK_THROWS_WITH_AS(validate(wrong), doctest::Contains("only a single iteration can follow an idle gap"), Error);
  CHECK_THROWS_WITH_AS(together({program, single_copy("h2d", "numa:0", "gpu:0", {})}),
                       doctest::Contains("other idle gaps"), Error);
}

TEST_CASE("a machine file with wake_us but without a valid wake_after_us is refused") {
  auto made = toy();
  made["gpu"][0]["wake_us"] = 20;
  CHECK_THROWS_WITH_AS((void)make_sim(made, 1), doctest::Contains("lacks 'wake_after_us'"), Error);
  made["gpu"][0]["wake_after_us"] = 0;
  CHECK_THROWS_WITH_AS((void)make_sim(made, 1), doctest::Contains("it must be more than 0"), Error);
}
