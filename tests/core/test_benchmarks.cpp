#include <doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

TEST_CASE("every row builds a valid program for every value of every parameter") {
  for (const auto& row : benchmarks())
    for (const auto& memories : row.memories)
      for (const auto& param : row.params)
        for (const auto value : param.values) {
          auto c = default_case(row);
          std::tie(c.src_memory, c.dst_memory) = memories;
          c.params[std::string{param.name}] = value;
          CAPTURE(row.name);
          CAPTURE(value);
          const auto program = build_program(c);
          for (u32 actor = 0; actor < program.actors.size(); ++actor)
            CHECK(std::any_of(program.flows.begin(), program.flows.end(), [&](const Flow& flow) { return flow.actor == actor; }));
          const auto end = [&](const Place& place) { return place.index == all_places ? c.others.front() : place; };
          CHECK(program.flows[0].src == end(c.src));
          CHECK(program.flows[0].dst == end(c.dst));
          CHECK(program.flows[0].bytes == c.bytes);
        }
}

TEST_CASE("rows are one of their name, engine and kinds of places and memory, and each has a source and values to choose from") {
  std::set<std::tuple<std::string_view, Engine, PlaceKind, PlaceKind, MemKind, MemKind>> names;
  for (const auto& row : benchmarks()) {
    for (const auto& [src, dst] : row.memories) CHECK(names.insert({row.name, row.engine, row.src, row.dst, src, dst}).second);
    CHECK_FALSE(row.source.empty());
    for (const auto& param : row.params) CHECK(param.values.size() >= 2);
  }
}

TEST_CASE("both directions of a bidirectional copy are real transfers, opposite to each other") {
  auto c = default_case(host_to_device);
  c.params["bidirectional"] = "true";
  const auto program = build_program(c);
  REQUIRE(program.flows.size() == 2);
  CHECK(program.flows[1].src == program.flows[0].dst);
  CHECK(program.flows[1].dst == program.flows[0].src);
  const auto& there = std::get<Move>(program.actors[0].loop[0]);
  const auto& back = std::get<Move>(program.actors[1].loop[0]);
  CHECK(program.regions[there.from.region].at == program.regions[back.to.region].at);
  CHECK(there.from.region != back.to.region);
}

TEST_CASE("flows between one place and all GPUs: one a GPU, all at once, and with the opposite ones both ways") {
  for (const auto& row : benchmarks()) {
    if (row.relation != Relation::to_all && row.relation != Relation::from_all) continue;
    CAPTURE(row.name);
    auto c = default_case(row);
    const auto program = build_program(c);
    const bool both = row.name == "exchange_all";
    REQUIRE(program.flows.size() == (both ? 2 : 1) * c.others.size());
    for (std::size_t i = 0; i < c.others.size(); ++i) {
      const auto& flow = program.flows[both ? 2 * i : i];
      CHECK((row.relation == Relation::to_all ? flow.dst : flow.src) == c.others[i]);
    }
    c.others.clear();
    CHECK_THROWS_AS((void)build_program(c), Error);
    c = default_case(row);
    (row.relation == Relation::to_all ? c.dst : c.src).index = 1;
    CHECK_THROWS_AS((void)build_program(c), Error);
  }
  auto c = default_case(host_to_device);
  c.dst.index = all_places;
  CHECK_THROWS_AS((void)build_program(c), Error);
}

TEST_CASE("operations without bytes have none, and the others some") {
  for (const auto& row : benchmarks()) {
    auto c = default_case(row);
    c.bytes = row.sized ? 0 : 8;
    CAPTURE(row.name);
    CHECK_THROWS_AS((void)build_program(c), Error);
  }
}

TEST_CASE("the initiator decides whose stream a copy between GPUs is queued on") {
  auto c = default_case(device_to_device);
  CHECK(build_program(c).actors[0].place == c.src);
  c.params["initiator"] = "dst";
  CHECK(build_program(c).actors[0].place == c.dst);
}

TEST_CASE("slices never share a line and cover the footprint up to 512 of them") {
  CHECK(slice_stride(8) == 256);
  CHECK(slice_stride(256) == 256);
  CHECK(slice_stride(264) == 512);
  CHECK(slice_count(1_MiB, 180_MiB) == 180);
  CHECK(slice_count(1_MiB, 180_MiB + 1) == 181);
  CHECK(slice_count(8, 180_MiB) == 512);
  CHECK(slice_count(1_GiB, 180_MiB) == 1);
  CHECK(slice_count(8, 0) == 1);
}

TEST_CASE("a case that does not fit its row is refused with what would") {
  const auto refused = [](auto change, const char* words) {
    auto c = default_case(device_to_device);
    change(c);
    CHECK_THROWS_WITH_AS(build_program(c), doctest::Contains(words), Error);
  };
  refused([](Case& c) { c.benchmark = "d3d"; }, "there is no benchmark 'd3d'; there are h2h by cpu, h2d by ce");
  refused([](Case& c) { c.engine = Engine::cpu; }, "d2d is not there by cpu");
  refused([](Case& c) { c.dst = c.src; }, "source and destination are different places");
  refused([](Case& c) { c.src = numa(0); }, "it goes from gpu to gpu");
  refused([](Case& c) { c.bytes = 12; }, "sizes are multiples of 8 B");
  refused([](Case& c) { c.bytes = 0; }, "sizes are multiples of 8 B");
  refused([](Case& c) { c.src_memory = MemKind::managed; }, "it does not go from managed to device memory");
  refused([](Case& c) { c.params["colour"] = "red"; }, "it has no parameter 'colour'; it has mode");
  refused([](Case& c) { c.params["peer"] = "perhaps"; }, "peer is on, off, not 'perhaps'");
}

TEST_CASE("copies by kernel run on the GPU that reads or writes, with the shape that the case asks for") {
  for (const auto& row : kernel_copies()) {
    auto c = default_case(row);
    c.params["blocks"] = "16";
    CAPTURE(row.name);
    const auto program = build_program(c);
    const auto& move = std::get<Move>(program.actors[0].loop[0]);
    CHECK(move.engine == row.engine);
    CHECK(move.shape.blocks == 16);
    CHECK(move.shape.threads == (row.engine == Engine::sm ? 512 : 32));
    CHECK(program.actors[0].place == (c.src.kind == PlaceKind::gpu ? c.src : c.dst));
    CHECK(program.peer == (row.name == "d2d"));
    if (row.name != "d2d") continue;
    c.params["initiator"] = "dst";
    CHECK(build_program(c).actors[0].place == c.dst);
  }
}

TEST_CASE("bytes are told in the largest unit that they fill") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1536) == "1.5 KiB");
  CHECK(bytes_text(32_MiB) == "32 MiB");
  CHECK(bytes_text(150'323'855'360) == "140 GiB");
}

TEST_CASE("programs at once keep their regions, actors and flows apart") {
  auto there = default_case(host_to_device), back = default_case(device_to_host);
  const auto one = build_program(there), other = build_program(back);
  const auto all = together({one, other});
  REQUIRE(all.actors.size() == 2);
  CHECK(all.regions.size() == one.regions.size() + other.regions.size());
  CHECK(all.flows[1].actor == 1);
  CHECK(std::get<Move>(all.actors[1].loop[0]).from.region == one.regions.size());
  CHECK_NOTHROW(validate(all));
  back.params["after"] = "wait";
  CHECK_THROWS_AS((void)together({one, build_program(back)}), Error);
}

TEST_CASE("peer access is one setting for all programs at once") {
  auto on = default_case(device_to_device), off = default_case(device_to_device);
  off.params["peer"] = "off";
  CHECK_THROWS_AS((void)together({build_program(on), build_program(off)}), Error);
  CHECK(together({build_program(default_case(host_to_device)), build_program(on)}).peer);
  CHECK_FALSE(together({build_program(off), build_program(default_case(host_to_device))}).peer);
}
