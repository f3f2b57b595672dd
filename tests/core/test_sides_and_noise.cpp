// The initiator of copies, the attributes of flows, the independence of noise, and the memory limit of a place.
#include <doctest.h>

#include <cmath>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

TEST_CASE("each direction is initiated by the place and the CPU that the case names") {
  auto c = default_case(device_to_device);
  c.params["bidirectional"] = "true";
  for (const bool by_source : {true, false}) {
    c.params["initiator"] = by_source ? "src" : "dst";
    const auto program = build_program(c);
    REQUIRE(program.actors.size() == 2);
    CHECK(program.actors[0].place == (by_source ? c.src : c.dst));
    CHECK(program.actors[1].place == (by_source ? c.dst : c.src));
  }
  c.params["peer"] = "off";
  CHECK_FALSE(build_program(c).peer);

  c = default_case(host_to_host);
  c.dst.index = 1;
  CHECK(build_program(c).actors[0].place == c.src);
  c.params["initiator"] = "dst";
  CHECK(build_program(c).actors[0].place == c.dst);

  c = default_case(host_to_device);
  c.src.index = 1;
  c.params["bidirectional"] = "true";
  for (const auto& actor : build_program(c).actors) CHECK(actor.cpu == c.src);
  c = default_case(device_to_host);
  c.dst.index = 1;
  CHECK(build_program(c).actors[0].cpu == c.dst);
}

TEST_CASE("every flow is measured, has the bytes of its case, and has the source and destination of its copy") {
  auto c = default_case(host_to_device);
  c.params["bidirectional"] = "true";
  const auto program = build_program(c);
  for (const auto& flow : program.flows) {
    const auto& move = std::get<Move>(program.actors[flow.actor].loop[0]);
    CHECK(flow.measured);
    CHECK(flow.bytes == c.bytes);
    CHECK(move.from.bytes == c.bytes);
    CHECK(program.regions[move.from.region].at == flow.src);
    CHECK(program.regions[move.to.region].at == flow.dst);
    CHECK(program.regions[move.from.region].kind == flow.src_memory);
    CHECK(program.regions[move.to.region].kind == flow.dst_memory);
    CHECK(program.regions[move.to.region].content == Content::poison);
  }
}

TEST_CASE("concurrent flows have independent noise, and CPU threads have the noise of the host") {
  auto machine = toy();
  machine["costs"]["event_us"] = 0;
  const auto bidirectional =
      build_program(copy_case("h2d", "numa:0", "pinned", "gpu:0", "device", 1_MiB, {{"bidirectional", "true"}}));
  const auto h2h = build_program(copy_case("h2h", "numa:0", "pageable", "numa:0", "pinned", 1_MiB));
  for (const char* level : {"round", "sample"}) {
    machine["noise"] = {{level, {{"rate", 0.05}}}};
    const auto sim = make_sim(machine, 1);
    const auto session = sim->prepare(bidirectional, "k#0");
    auto plain = machine;
    plain.erase("noise");
    const auto quiet = make_sim(plain, 1);
    const auto exact = quiet->run(*quiet->prepare(bidirectional, "k#0"), {1, {{2, 2}}, false});
    const auto trace = sim->run(*session, {1, {{2, 2}}, false});
    const auto factor = [&](u32 a) {
      return (trace.at(0, 0, a).exit_s - trace.at(0, 0, a).enter_s) /
             (exact.at(0, 0, a).exit_s - exact.at(0, 0, a).enter_s);
    };
    CAPTURE(level);
    CHECK(std::abs(factor(0) - factor(1)) > 0.003);
    CHECK(time_of(*sim, h2h, 1) == time_of(*make_sim(toy(), 1), h2h, 1));  // a host copy crosses no link
  }
  machine["noise"] = {{"round", {{"host", 0.05}}}};
  CHECK(time_of(*make_sim(machine, 1), h2h, 1) != time_of(*make_sim(toy(), 1), h2h, 1));
  const auto pageable = build_program(copy_case("h2d", "numa:0", "pageable", "gpu:0", "device", 1_MiB));
  machine["noise"] = {{"machine", {{"host", 0.05}}}};
  CHECK(time_of(*make_sim(machine, 1), pageable, 1) != time_of(*make_sim(toy(), 1), pageable, 1));
  machine["noise"] = {{"machine", {{"rate", 0.05}}}};
  CHECK(time_of(*make_sim(machine, 1), bidirectional, 1) != time_of(*make_sim(toy(), 1), bidirectional, 1));
}

TEST_CASE("all regions at one place together must fit its memory") {
  const auto why =
      make_sim(toy(), 1)->supports(build_program(copy_case("local", "gpu:0", "device", "gpu:0", "device", 5_GiB / 2)));
  CHECK(why.why_not.find("the program wants 20 GiB there") !=
        std::string::npos);  // two buffers of four slices; one buffer fits
}
