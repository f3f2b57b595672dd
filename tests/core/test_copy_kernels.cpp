// Device code as in test_kernels.cpp: copies in one direction and both, by words, vectors, rows and TMA.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/copies.hpp"
#include "kernel_testing.hpp"

namespace emulated {

#include "copy.inc"

// The kernels of access.inc, which test_kernels.cpp defines.
extern "C" void linkscope_read(const char* from, u64 bytes, u64* sum);
extern "C" void linkscope_write(char* to, u64 bytes, u64 seed, u64 first_index);

}  // namespace emulated

using namespace emulated;

namespace {

/// Checks one direction of a copy: all of `from` was read once and is unchanged, all of `to` was written once.
void check_copied(const Memory& from, const Memory& to, u64 seed) {
  CHECK(from.holds_pattern(seed));
  CHECK(to.holds_pattern(seed));
  CHECK(from.vectors_read_once());
  CHECK(to.vectors_written_once());
  CHECK((from.guards_intact() && to.guards_intact()));
}

/// The memory of an exchange that ran, and whose copies are checked in both directions.
struct Exchanged {
  Exchanged(const Launch& shape, u64 bytes) : from{bytes}, to{bytes}, back_from{bytes}, back_to{bytes} {
    from.fill_with_pattern(bytes);
    back_from.fill_with_pattern(bytes + 1);
    run(shape, [&] { linkscope_exchange(to.data(), from.data(), back_to.data(), back_from.data(), bytes); });
    check_copied(from, to, bytes);
    check_copied(back_from, back_to, bytes + 1);
  }
  Memory from, to, back_from, back_to;
};

}  // namespace

TEST_CASE("the copy kernel copies every byte once and touches nothing outside") {
  for_all([](const Launch& shape, u64 bytes) {
    const Memory from{bytes}, to{bytes};
    from.fill_with_pattern(bytes);
    run(shape, [&] { linkscope_copy(to.data(), from.data(), bytes); });
    check_copied(from, to, bytes);
  });
}

TEST_CASE("the row-copy kernel copies every row once and touches nothing between rows") {
  struct Shape {
    u64 row, rows, to_pitch, from_pitch, in_plane, to_plane, from_plane;
  };
  const std::array<Shape, 6> copies{{{16, 100, 32, 64, 100, 0, 0},     // by vectors
                                     {8, 1000, 16, 8, 1000, 0, 0},     // by words, from contiguous memory
                                     {24, 50, 24, 40, 50, 0, 0},       // to contiguous memory
                                     {64, 48, 128, 64, 8, 2048, 640},  // in planes
                                     {4096, 3, 4352, 4352, 3, 0, 0},   // pieces
                                     {8, 64, 8, 32, 4, 32, 256}}};
  for (const auto& [blocks, threads] : shapes)
    for (const auto& s : copies) {
      CAPTURE(blocks);
      CAPTURE(threads);
      CAPTURE(s.row);
      const auto offset = [&](u64 row, u64 pitch, u64 plane) {
        return row / s.in_plane * plane + row % s.in_plane * pitch;
      };
      const Memory from{offset(s.rows - 1, s.from_pitch, s.from_plane) + s.row},
          to{offset(s.rows - 1, s.to_pitch, s.to_plane) + s.row};
      from.fill_with_pattern(s.row);
      std::vector<char> expected(to.data(), to.data() + to.bytes());
      for (u64 row = 0; row < s.rows; ++row)
        std::memcpy(expected.data() + offset(row, s.to_pitch, s.to_plane),
                    from.data() + offset(row, s.from_pitch, s.from_plane), s.row);
      run({blocks, threads}, [&] {
        linkscope_copy_rows(to.data(), from.data(), s.row, s.rows, s.to_pitch, s.from_pitch, s.in_plane, s.to_plane,
                            s.from_plane);
      });
      CHECK(std::equal(expected.begin(), expected.end(), to.data()));
      CHECK((from.holds_pattern(s.row) && from.guards_intact() && to.guards_intact()));
      const u64 piece = (s.row | s.to_pitch | s.from_pitch | s.to_plane | s.from_plane) % 16 ? 8 : 16;
      CHECK(accesses.size() == 2 * s.rows * s.row / piece);
    }
}

TEST_CASE("the exchange kernel copies every byte once per direction: even warps in one, odd warps in the other") {
  for_all(
      [](const Launch& shape, u64 bytes) {
        const Exchanged memory{shape, bytes};
        const auto within = [&](const Memory& part, const char* at) {
          return at >= part.data() && at < part.data() + bytes;
        };
        bool separate = true;
        for (const auto& access : accesses)
          separate = separate && (access.thread / 32 % 2 == 1) ==
                                     (within(memory.back_from, access.at) || within(memory.back_to, access.at));
        CHECK(separate);
      },
      64);
}

TEST_CASE("with a block per piece, each thread of the exchange kernel copies one vector of 16 bytes") {
  for (const unsigned threads : {64u, 256u, 1024u})
    for (const u64 bytes : {u64{8}, u64{16}, u64{24}, u64{8192}, u64{8200}, u64{100008}}) {
      const u64 each = u64{threads} / 2 * 16;
      const Launch shape{static_cast<unsigned>((bytes + each - 1) / each), threads};
      const Exchanged checked{shape, bytes};
      std::map<unsigned, unsigned> by_thread;
      for (const auto& access : accesses) ++by_thread[access.block * threads + access.thread];
      for (const auto& [thread, count] : by_thread)
        if (thread > 0) CHECK(count == 2);  // a load and a store; thread 0 also copies the remainder
    }
}

TEST_CASE("the exchange kernel is launched with equal numbers of even and odd warps") {
  unsigned launches = 0;
  for (const auto& row : linkscope::testing::rows_of({"exchange", "exchange_all"}))
    for (const auto& param : row.params)
      for (const auto value : param.values) {
        auto c = linkscope::testing::default_case(row);
        c.params[std::string{param.name}] = value;
        for (const auto& actor : linkscope::build_program(c).actors) {
          const auto& kernel = std::get<linkscope::Kernel>(actor.loop.front());
          CHECK(kernel.shape.threads % 64 == 0);
          CHECK((kernel.shape.threads >= 64 && kernel.shape.threads <= 1024));
          ++launches;
        }
      }
  CHECK(launches > 10);
}

TEST_CASE("TMA copies move every byte once, and no stage is refilled while a store still reads it") {
  constexpr u64 piece = 16384 - 128;  // one block, and all blocks, copy more pieces than there are stages
  for (const unsigned blocks : {1u, 2u, 3u, 7u, 132u})
    for (const u64 bytes : {u64{8}, u64{16}, u64{24}, u64{1000}, piece, piece + 8, piece + 16, 2 * piece, 3 * piece,
                            4 * piece - 16, 21 * piece + 24, u64{1'000'024}}) {
      CAPTURE(blocks);
      CAPTURE(bytes);
      const Memory from{bytes}, to{bytes};
      from.fill_with_pattern(bytes + blocks);
      run({blocks, 32}, [&] { linkscope_copy_tma(to.data(), from.data(), bytes); });
      check_copied(from, to, bytes + blocks);
    }
}

TEST_CASE("neighbouring threads touch neighbouring vectors of 16 bytes in the same step") {
  constexpr u64 bytes = 64 << 10;
  const Memory from{bytes}, to{bytes}, back_from{bytes}, back_to{bytes};
  from.fill_with_pattern(1);
  u64 sum = 0;
  const std::vector<std::function<void()>> kernels{
      [&] { linkscope_copy(to.data(), from.data(), bytes); }, [&] { linkscope_read(from.data(), bytes, &sum); },
      [&] { linkscope_write(to.data(), bytes, 1, 0); },
      [&] { linkscope_exchange(to.data(), from.data(), back_to.data(), back_from.data(), bytes); }};
  for (const auto& kernel : kernels) {
    run({3, 128}, kernel, Lanes::lockstep);
    std::map<std::pair<unsigned, unsigned>, std::vector<const char*>> by_thread;
    for (const auto& access : accesses) by_thread[{access.block, access.thread}].push_back(access.at);
    bool together = true;
    for (const auto& [who, touched] : by_thread) {
      if (who.second % 32 == 0) continue;
      const auto& neighbour = by_thread[{who.first, who.second - 1}];
      together = together && neighbour.size() == touched.size();
      for (std::size_t i = 0; together && i < touched.size(); ++i) together = touched[i] == neighbour[i] + 16;
    }
    CHECK(together);
  }
}
