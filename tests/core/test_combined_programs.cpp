// Programs of several benchmarks at once: combined ones, and copies on several paths.
#include "base/error.hpp"
#include "benchmarks/copies.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::testing;

TEST_CASE("combined programs keep their regions, actors and flows separate") {
  auto h2d = default_case(host_to_device), d2h = default_case(device_to_host);
  const auto one = build_program(h2d), other = build_program(d2h);
  const auto all = together({one, other});
  REQUIRE(all.actors.size() == 2);
  CHECK(all.regions.size() == one.regions.size() + other.regions.size());
  CHECK(all.flows[1].actor == 1);
  CHECK(std::get<Move>(all.actors[1].loop[0]).from.region == one.regions.size());
  CHECK_NOTHROW(validate(all));
  d2h.params["after"] = "wait";
  CHECK_THROWS_AS((void)together({one, build_program(d2h)}), Error);
}

TEST_CASE("combined programs must agree on peer access") {
  auto on = default_case(device_to_device), off = default_case(device_to_device);
  off.params["peer"] = "off";
  CHECK_THROWS_AS((void)together({build_program(on), build_program(off)}), Error);
  CHECK(together({build_program(default_case(host_to_device)), build_program(on)}).peer);
  CHECK_FALSE(together({build_program(off), build_program(default_case(host_to_device))}).peer);
}

TEST_CASE("concurrent copies have one flow and one stream per path, between pinned and device memory") {
  auto c =
      copy_case("concurrent", "numa:0", "pinned", "gpu:0", "device", 4096, {{"with", "numa:0->gpu:1,gpu:2->numa:1"}});
  auto program = build_program(c);
  REQUIRE(program.flows.size() == 3);
  REQUIRE(program.actors.size() == 3);
  CHECK((program.flows[0].src == numa(0) && program.flows[0].dst == gpu(0)));
  CHECK((program.flows[1].src == numa(0) && program.flows[1].dst == gpu(1)));
  CHECK((program.flows[2].src == gpu(2) && program.flows[2].dst == numa(1)));
  CHECK((program.flows[2].src_memory == MemKind::device && program.flows[2].dst_memory == MemKind::pinned));
  CHECK((program.actors[1].place == gpu(1) && program.actors[2].place == gpu(2)));
  CHECK(program.actors[2].cpu == numa(1));
  CHECK_FALSE(program.peer);
  c.params["with"] = "gpu:2->gpu:3";
  CHECK(build_program(c).peer);
  c.params["with"] = "none";
  CHECK(build_program(c).flows.size() == 1);
  for (const auto& [with, problem] :
       {std::pair{"numa:0->gpu:0", "the path numa:0->gpu:0 is named twice"},
        std::pair{"gpu:1->numa:0,gpu:1->numa:0", "the path gpu:1->numa:0 is named twice"},
        std::pair{"gpu:1->gpu:1", "with=gpu:1->gpu:1 is not a valid path; name a GPU and a NUMA node"},
        std::pair{"numa:0->numa:1", "is not a valid path"}, std::pair{"numa:0->gpu:all", "is not a valid path"},
        std::pair{"nic:0->gpu:1", "is not a valid path"},
        std::pair{"gpu:1", "'gpu:1' is not a path; write numa:0->gpu:1"}}) {
    CAPTURE(with);
    c.params["with"] = with;
    CHECK_THROWS_WITH_AS((void)build_program(c), doctest::Contains(problem), Error);
  }
}
