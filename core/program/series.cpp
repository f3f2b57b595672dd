#include "program/series.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace linkscope {

Marks::Marks(const Duration& duration, Series& series, double start_s)
    : gap_{duration.interval.count() / most_marks}, series_{series} {
  series_.marks = {{start_s, 0}};
}

void Marks::add(double at_s, u64 iterations) {
  if (at_s - series_.marks.back().at_s >= gap_) series_.marks.push_back({at_s, iterations});
}

void Marks::end(double at_s, u64 iterations) {
  if (series_.marks.back().iterations == iterations && series_.marks.size() > 1) series_.marks.back().at_s = at_s;
  else series_.marks.push_back({at_s, iterations});
}

double iterations_by(const Series& series, double at_s) {
  const auto& marks = series.marks;
  const auto after = std::lower_bound(marks.begin(), marks.end(), at_s,
                                      [](const Mark& mark, double time) { return mark.at_s < time; });
  if (after == marks.end()) return static_cast<double>(marks.back().iterations);
  if (after == marks.begin()) return static_cast<double>(marks.front().iterations);
  const Mark &left = *(after - 1), &right = *after;
  const double part = (at_s - left.at_s) / (right.at_s - left.at_s);
  return static_cast<double>(left.iterations) + part * static_cast<double>(right.iterations - left.iterations);
}

u64 bytes_per_iteration(const Program& program, u32 actor) {
  u64 bytes = 0;
  for (const auto& flow : program.flows)
    if (flow.actor == actor) bytes += flow.bytes;
  return bytes;
}

Window common_time(const Window& one, const Window& other) {
  return {std::max(one.start_s, other.start_s), std::min(one.end_s, other.end_s)};
}

Window common_time(std::span<const Series> actors) {
  const auto all_of = [](const Series& series) { return Window{series.marks.front().at_s, series.marks.back().at_s}; };
  Window window{std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};
  for (const auto& series : actors) window = common_time(window, all_of(series));
  return window;
}

void add_intervals(const Program& program, const Duration& duration, std::span<Series> actors, Window& window) {
  const double interval = duration.interval.count();
  constexpr double rounding = 1e-9;  // of an interval, so that ten intervals of 10 ms fit into 100 ms
  const auto count = static_cast<u64>(std::max(0.0, (window.end_s - window.start_s) / interval + rounding));
  window.end_s = window.start_s + static_cast<double>(count) * interval;
  for (u32 actor = 0; actor < actors.size(); ++actor) {
    const auto each = static_cast<double>(bytes_per_iteration(program, actor));
    // Whole bytes of the sum so far, so that no interval's rounding is lost.
    const auto ended_by = [&](u64 edge) {
      return iterations_by(actors[actor], window.start_s + static_cast<double>(edge) * interval);
    };
    for (u64 edge = 0; edge < count; ++edge) {
      const double before = ended_by(edge), after = ended_by(edge + 1);
      actors[actor].interval_iterations.push_back(after - before);
      actors[actor].interval_bytes.push_back(
          static_cast<u64>(std::llround(each * after) - std::llround(each * before)));
    }
  }
}

}  // namespace linkscope
