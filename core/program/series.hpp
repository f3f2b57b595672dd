// Rates within samples of a duration: what an actor moved in each interval, by the marks of its iterations.
#pragma once
#include <span>

#include "program/platform.hpp"

namespace linkscope {

/// Marks of one actor, thinned: at most `most_marks` in an interval, and its start and end.
inline constexpr u32 most_marks = 16;
class Marks {
 public:
  Marks(const Duration&, Series&, double start_s);
  /// `iterations` have ended by `at_s`. Times grow.
  void add(double at_s, u64 iterations);
  /// The last iteration has ended.
  void end(double at_s, u64 iterations);

 private:
  double gap_;
  Series& series_;
};

/// Iterations that an actor has ended by a time; those under way count by their part of the time between two marks.
[[nodiscard]] double iterations_by(const Series&, double at_s);
/// Bytes that the flows of an actor move in an iteration.
[[nodiscard]] u64 bytes_per_iteration(const Program&, u32 actor);
/// The time in which all of these actors ran, from the last start to the first end.
[[nodiscard]] Window common_time(std::span<const Series> actors);
/// The time that is in both.
[[nodiscard]] Window common_time(const Window&, const Window&);
/// Shortens a window to whole intervals, and counts each actor's bytes and iterations in them.
void add_intervals(const Program&, const Duration&, std::span<Series> actors, Window&);

}  // namespace linkscope
