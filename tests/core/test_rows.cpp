// Moves of rows in programs: validation, text, and the origin of their bytes.
#include <doctest.h>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

/// Packs eight rows of 64 B, in two planes of four, into contiguous memory.
Program packing() {
  Program p;
  p.regions = {{gpu(0), MemKind::device, 4_KiB, Content::pattern}, {gpu(0), MemKind::device, 512, Content::poison}};
  const Span from{0, 0, 512, 4_KiB, 1, {64, 128, 4, 1024}}, to{1, 0, 512, 512, 1};
  p.actors = {{gpu(0), ActorKind::stream, Clock::event, {}, 0, {}, {Move{from, to, Engine::ce}}}};
  p.flows = {{0, gpu(0), gpu(0), MemKind::device, MemKind::device, 512}};
  return p;
}

Move& move_of(Program& p) { return std::get<Move>(p.actors[0].loop[0]); }

}  // namespace

TEST_CASE("a contiguous span extends over its bytes; a span of rows extends to the end of its last row") {
  CHECK(Span{0, 0, 512, 512, 1}.extent() == 512);
  const Span rows{0, 0, 512, 4_KiB, 1, {64, 128, 0, 0}}, planes{0, 0, 512, 4_KiB, 1, {64, 128, 4, 1024}};
  CHECK(rows.extent() == 7 * 128 + 64);
  CHECK(planes.extent() == 1024 + 3 * 128 + 64);
  CHECK(planes.rows.offset_of(5) == 1024 + 128);
}

TEST_CASE("a contiguous side of a move gets rows without gaps") {
  auto p = packing();
  CHECK_NOTHROW(validate(p));
  const auto rows = in_rows(move_of(p));
  CHECK(rows.bytes == 64);
  CHECK(rows.count == 8);
  for (u64 row = 0; row < 8; ++row) CHECK(rows.to.offset_of(row) == row * 64);
  CHECK(rows.from.offset_of(4) == 1024);
  CHECK(in_rows(Move{{0, 0, 24, 24, 1}, {1, 0, 24, 24, 1}}).count == 1);
}

TEST_CASE("invalid rows are refused with the step and the reason") {
  const auto refused = [](auto change, const char* words) {
    auto p = packing();
    change(move_of(p));
    CHECK_THROWS_WITH_AS(validate(p), doctest::Contains(words), Error);
  };
  refused([](Move& m) { m.from.rows.pitch = 56; }, "actor a0 loop: r0[0 +512] in rows of 64 by 56");
  refused([](Move& m) { m.from.rows.pitch = 56; }, "rows overlap");
  refused([](Move& m) { m.from.rows.pitch = 100; }, "multiples of 8 B");
  refused([](Move& m) { m.from.rows.bytes = 72, m.from.rows.pitch = 144; }, "not whole rows");
  refused([](Move& m) { m.from.rows.in_plane = 3; }, "not whole planes");
  refused([](Move& m) { m.from.rows.plane_pitch = 256; }, "planes are as many pitches apart");
  refused([](Move& m) { m.from.rows.plane_pitch = 1000; }, "planes are as many pitches apart");
  refused([](Move& m) { m.from.rows.plane_pitch = 4096; }, "ends at byte 4544 of a region of 4096");
  refused([](Move& m) { m.to.rows = {128, 128, 0, 0}; }, "a move between rows of 64 B and of 128 B");
  refused([](Move& m) { m.to.rows = {64, 64, 2, 128}; }, "a move between planes of unequal height");
  auto p = packing();
  p.actors[0].loop = {Kernel{KernelId::read, {1, 32}, 0, {{{0, 0, 512, 4_KiB, 1, {64, 128, 0, 0}}}}}};
  CHECK_THROWS_WITH_AS(validate(p), doctest::Contains("only moves have them"), Error);
}

TEST_CASE("the text of a program shows rows") {
  auto p = packing();
  CHECK(to_text(p).find("move ce r0[0 +512] in rows of 64 by 128, 4 a plane by 1024 -> r1[0 +512]") !=
        std::string::npos);
  move_of(p).row_by_row = true;
  move_of(p).by = gpu(1);
  CHECK(to_text(p).find("row by row on gpu:1") != std::string::npos);
}

TEST_CASE("the origin of unpacked rows is the region that was packed") {
  auto c = default_case(rows_of({"halo"}).front());
  c.params["way"] = "packed";
  c.params["face"] = "x";
  c.dst = gpu(1);
  const auto program = build_program(c);
  REQUIRE(program.actors[0].loop.size() == 3);
  const auto move = [&](std::size_t step) -> const Move& { return std::get<Move>(program.actors[0].loop[step]); };
  for (const std::size_t step : {0, 1, 2}) CHECK(origin(program.actors[0], move(step)).region == 0);
  CHECK(origin(program.actors[0], move(2)).rows.pitch == move(0).from.rows.pitch);
  CHECK(move(0).engine == Engine::sm);
  CHECK(move(1).engine == Engine::ce);
  CHECK((move(2).by && *move(2).by == gpu(1)));
  CHECK(program.peer);
}

TEST_CASE("a face of 4 KiB belongs to a cube of 16 cells a side, and each direction has its own stride") {
  const auto face = [](const std::string& direction, u64 bytes) {
    auto c = default_case(rows_of({"halo"}).front());
    c.bytes = bytes;
    c.params["face"] = direction;
    return std::get<Move>(build_program(c).actors[0].loop[0]).from;
  };
  CHECK(face("z", 4_KiB).rows.bytes == 0);
  CHECK(face("z", 4_KiB).stride == 64_KiB);
  CHECK(face("y", 4_KiB).rows.bytes == 256);
  CHECK(face("y", 4_KiB).rows.pitch == 4_KiB);
  CHECK(face("x", 4_KiB).rows.bytes == 16);
  CHECK(face("x", 4_KiB).rows.pitch == 256);
  CHECK(face("x", 2_KiB).rows.bytes == 8);  // 16 x 16 cells of 8 B
  CHECK_THROWS_WITH_AS(face("x", 8_MiB), doctest::Contains("no cube has a face of 8388608 B"), Error);
  CHECK_THROWS_WITH_AS(face("x", 24), doctest::Contains("powers of two from 32 B"), Error);
}

TEST_CASE("a size that is not a whole number of pieces or planes is refused, and the message gives a valid size") {
  auto c = default_case(rows_of({"pieces"}).front());
  c.bytes = 4104;
  CHECK_THROWS_WITH_AS(build_program(c), doctest::Contains("1000 of them are 4096000 B"), Error);
  c.bytes = 4096;
  CHECK_THROWS_WITH_AS(build_program(c), doctest::Contains("is not a whole number (2 or more) of pieces"), Error);
  c = default_case(rows_of({"strided"}).front());
  c.bytes = 1000;
  CHECK_THROWS_WITH_AS(build_program(c), doctest::Contains("sizes are multiples of 4096 B"), Error);
}
