// Rates within samples of a duration: marks, windows and intervals.
#include <doctest.h>

#include "program/series.hpp"

using namespace linkscope;

namespace {

constexpr Duration second{Seconds{1.0}, Seconds{0.25}};

/// One actor for each entry, whose iterations move that many bytes.
Program moving(const std::vector<u64>& bytes) {
  Program program;
  for (u32 actor = 0; actor < bytes.size(); ++actor) {
    program.actors.emplace_back();
    program.flows.push_back({actor, numa(0), gpu(0), MemKind::pinned, MemKind::device, bytes[actor]});
  }
  return program;
}

}  // namespace

TEST_CASE("marks keep the start, the end and at most sixteen iterations in an interval") {
  Series series;
  Marks marks{second, series, 5.0};
  for (u64 i = 1; i <= 1000; ++i) marks.add(5.0 + static_cast<double>(i) * 1e-3, i);
  marks.end(6.0005, 1000);
  CHECK(series.marks.front().at_s == 5.0);
  CHECK(series.marks.front().iterations == 0);
  CHECK(series.marks.back().at_s == 6.0005);
  CHECK(series.marks.back().iterations == 1000);
  CHECK(series.marks.size() <= 4 * most_marks + 2);
  CHECK(series.marks.size() >= 3 * most_marks);
}

TEST_CASE("an actor without iterations has a start and an end") {
  Series series;
  Marks{second, series, 1.0}.end(2.0, 0);
  REQUIRE(series.marks.size() == 2);
  CHECK(iterations_by(series, 1.5) == 0);
}

TEST_CASE("an iteration under way counts by the part of its time that has passed") {
  const Series series{{{1.0, 0}, {2.0, 4}, {3.0, 5}}, {}, {}, {}};
  CHECK(iterations_by(series, 0.5) == 0);
  CHECK(iterations_by(series, 1.25) == doctest::Approx(1));
  CHECK(iterations_by(series, 2.0) == doctest::Approx(4));
  CHECK(iterations_by(series, 2.5) == doctest::Approx(4.5));
  CHECK(iterations_by(series, 9.0) == 5);
}

TEST_CASE("intervals lie between the last start and the first end, and their bytes add up") {
  // The first actor runs from 0 to 1.1 s, the second from 0.1 to 1.3 s: four intervals of 0.25 s fit.
  std::vector<Series> actors{{{{0.0, 0}, {1.1, 11}}, {}, {}, {}}, {{{0.1, 0}, {0.6, 1}, {1.3, 3}}, {}, {}, {}}};
  Window window = common_time(actors);
  add_intervals(moving({1000, 700}), second, actors, window);
  CHECK(window.start_s == doctest::Approx(0.1));
  CHECK(window.end_s == doctest::Approx(1.1));
  CHECK(actors[0].interval_bytes == std::vector<u64>{2500, 2500, 2500, 2500});
  CHECK(actors[1].interval_bytes == std::vector<u64>{350, 350, 500, 500});
  for (const double iterations : actors[0].interval_iterations) CHECK(iterations == doctest::Approx(2.5));
  CHECK(actors[1].interval_iterations[0] == doctest::Approx(0.5));
  CHECK(actors[1].interval_iterations[3] == doctest::Approx(0.25 * 2 / 0.7));
}

TEST_CASE("rounding to whole bytes loses none of them") {
  std::vector<Series> actors{{{{0.0, 0}, {1.0, 1}}, {}, {}, {}}};
  Window window = common_time(actors);
  add_intervals(moving({10}), second, actors, window);
  u64 sum = 0;
  for (const u64 bytes : actors[0].interval_bytes) sum += bytes;
  CHECK(actors[0].interval_bytes.size() == 4);
  CHECK(sum == 10);
}

TEST_CASE("actors that never run together have no interval") {
  std::vector<Series> actors{{{{0.0, 0}, {1.0, 1}}, {}, {}, {}}, {{{2.0, 0}, {3.0, 1}}, {}, {}, {}}};
  Window window = common_time(actors);
  add_intervals(moving({8, 8}), second, actors, window);
  CHECK(actors[0].interval_bytes.empty());
  CHECK(window.start_s == window.end_s);
}

TEST_CASE("durations that cannot be run are refused with a reason") {
  Program program = moving({8});
  const auto refused = [&](Seconds length, Seconds interval, const char* words) {
    CHECK_THROWS_WITH_AS(check_order(program, {1, {}, false, Duration{length, interval}}), doctest::Contains(words),
                         Error);
  };
  CHECK_NOTHROW(check_order(program, {1, {}, false, second}));
  refused(Seconds{0}, Seconds{0.01}, "lasts more than 0 s");
  refused(Seconds{601}, Seconds{0.01}, "at most 600");
  refused(Seconds{1}, Seconds{0}, "an interval of 0");
  refused(Seconds{1}, Seconds{2}, "does not fit");
  program.most_iterations = 4;
  refused(Seconds{1}, Seconds{0.1}, "at most 4 iterations per sample");
}
