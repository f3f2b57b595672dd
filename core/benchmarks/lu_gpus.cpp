// A blocked LU with look-ahead over one to four GPUs in the spirit of HPL (SP-7). Panels of columns are dealt to the GPUs
// in turn. The matrix and its factors lie in the memory of a NUMA node. Each GPU loads its panels, and stores each when it
// is factored. The other GPUs take a factored panel from its owner's memory, or from the stored one.
#include <algorithm>
#include <array>
#include <string>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr Seconds panel_timeout{10.0};

/// Words of a rank. They count panels, of all iterations: a panel is updated (it can be factored), factored, stored in the
/// node's memory, or taken from its owner. `finished`: all updates of the iteration are done.
enum Word : u64 { updated, factored, stored, taken, finished, words };

struct Layout {
  u64 n, width;              // rows; columns of a panel
  std::vector<u32> gpus;     // by rank
  Place node;                // of the matrix
  std::optional<Place> cpu;  // of the threads; none: near each GPU
  bool by_peer, look_ahead, urgent;

  [[nodiscard]] u64 ranks() const { return gpus.size(); }
  [[nodiscard]] u64 panels() const { return n / width; }
  [[nodiscard]] u64 panel_bytes() const { return n * width * sizeof(double); }
  [[nodiscard]] u64 owner(u64 panel) const { return panel % ranks(); }
  /// The last panel of a rank, whose update is its last.
  [[nodiscard]] u64 last_of(u64 rank) const {
    const u64 last = panels() - 1;
    return last - (last + ranks() - rank) % ranks();
  }
  /// Whether a rank takes a panel of another: those before its own last one update it.
  [[nodiscard]] bool takes(u64 rank, u64 panel) const { return owner(panel) != rank && panel < last_of(rank); }
  [[nodiscard]] Place gpu(u64 rank) const { return {PlaceKind::gpu, gpus[rank], node.host, {}}; }
  [[nodiscard]] Span whole(u32 region, u64 panel, u64 count = 1) const {
    return {region, panel * panel_bytes(), count * panel_bytes(), count * panel_bytes()};
  }
  [[nodiscard]] Span matrix(u64 panel) const { return whole(0, panel); }
  [[nodiscard]] Span factors(u64 panel) const { return whole(1, panel); }
  /// Panels of a rank, which follow each other in its memory.
  [[nodiscard]] Span own(u64 panel, u64 count = 1) const {
    return whole(3 + 2 * static_cast<u32>(owner(panel)), panel / ranks(), count);
  }
  [[nodiscard]] Span taken_by(u64 rank, u64 panel) const { return whole(4 + 2 * static_cast<u32>(rank), panel); }

  [[nodiscard]] static Span word(u64 rank, Word word) { return {2, (rank * words + word) * line_bytes, word_bytes}; }
  /// That a word has counted so many panels of this iteration, or all before it.
  [[nodiscard]] Wait wait(u64 rank, Word of, u64 count) const {
    return {word(rank, of), count, panels(), panel_timeout};
  }
  [[nodiscard]] Wait wait_for_last_iteration(u64 rank, Word of, u64 count) const {
    return wait(rank, of, count - panels());
  }
  [[nodiscard]] Set set(u64 rank, Word of, u64 count) const { return {word(rank, of), count, panels()}; }
};

Opaque factor(const Layout& at, u64 panel) {
  const auto rows = static_cast<double>(at.n - panel * at.width), wide = static_cast<double>(at.width);
  return {"lu_panel",
          "f64",
          {at.n, at.width, panel * at.width},
          {{at.own(panel), Access::Dir::write}},
          wide * wide * (rows - wide / 3)};
}

/// Updates `count` panels of a rank, from panel `first` on, by a panel that it has.
Opaque update(const Layout& at, u64 rank, u64 panel, u64 first, u64 count) {
  const u64 columns = count * at.width;
  const auto rows = static_cast<double>(at.n - (panel + 1) * at.width), deep = static_cast<double>(at.width);
  return {"lu_columns",
          "f64",
          {at.n, at.width, panel * at.width, columns},
          {{at.owner(panel) == rank ? at.own(panel) : at.taken_by(rank, panel), Access::Dir::read},
           {at.own(first, count), Access::Dir::write}},
          static_cast<double>(columns) * deep * (deep + 2 * rows)};
}

Actor actor_of(const Layout& at, u64 rank) {
  Actor actor;
  actor.place = at.gpu(rank);
  actor.cpu = at.cpu;
  actor.clock = Clock::host;  // host threads exchange the words
  return actor;
}

/// Loads the panels of a rank and updates them. The next panel is updated first, so that it is factored meanwhile.
Actor updates(const Layout& at, u64 rank) {
  Actor actor = actor_of(at, rank);
  auto& loop = actor.loop;
  const u64 last = at.last_of(rank), ranks = at.ranks();
  loop.emplace_back(at.wait_for_last_iteration(rank, stored, last + 1));
  for (u64 other = 0; other < ranks; ++other) {
    u64 after = at.last_of(other);  // the last panel that the other takes of this rank, and one more
    while (after > 0 && at.owner(after - 1) != rank) --after;
    if (other != rank && after > 0) loop.emplace_back(at.wait_for_last_iteration(other, taken, after));
  }
  for (u64 panel = rank; panel < at.panels(); panel += ranks) {
    loop.emplace_back(Move{at.matrix(panel), at.own(panel)});
    if (panel == 0) loop.emplace_back(at.set(rank, updated, 1));
  }
  for (u64 panel = 0; panel < last; ++panel) {
    loop.emplace_back(at.wait(rank, at.owner(panel) == rank ? factored : taken, panel + 1));
    u64 first = panel + 1;
    while (at.owner(first) != rank) ++first;
    const u64 count = (last - first) / ranks + 1;
    const bool has_next = first == panel + 1, apart = has_next && at.look_ahead && count > 1;
    if (apart) loop.emplace_back(update(at, rank, panel, first, 1));
    else loop.emplace_back(update(at, rank, panel, first, count));
    if (has_next) loop.emplace_back(at.set(rank, updated, first + 1));
    if (apart) loop.emplace_back(update(at, rank, panel, first + ranks, count - 1));
  }
  loop.emplace_back(at.set(rank, finished, at.panels()));
  return actor;
}

/// Factors the panels of a rank, and takes those of the others.
Actor panels(const Layout& at, u64 rank) {
  Actor actor = actor_of(at, rank);
  actor.urgent = at.urgent;
  auto& loop = actor.loop;
  if (at.ranks() > 1) loop.emplace_back(at.wait_for_last_iteration(rank, finished, at.panels()));
  for (u64 panel = 0; panel < at.panels(); ++panel) {
    const u64 owner = at.owner(panel);
    if (owner == rank) {
      loop.emplace_back(at.wait(rank, updated, panel + 1));
      loop.emplace_back(factor(at, panel));
      loop.emplace_back(at.set(rank, factored, panel + 1));
    } else if (at.takes(rank, panel)) {
      loop.emplace_back(at.wait(owner, at.by_peer ? factored : stored, panel + 1));
      loop.emplace_back(Move{at.by_peer ? at.own(panel) : at.factors(panel), at.taken_by(rank, panel)});
      loop.emplace_back(at.set(rank, taken, panel + 1));
    }
  }
  return actor;
}

Actor stores(const Layout& at, u64 rank) {
  Actor actor = actor_of(at, rank);
  for (u64 panel = rank; panel < at.panels(); panel += at.ranks()) {
    actor.loop.emplace_back(at.wait(rank, factored, panel + 1));
    actor.loop.emplace_back(Move{at.own(panel), at.factors(panel)});
    actor.loop.emplace_back(at.set(rank, stored, panel + 1));
  }
  return actor;
}

Layout layout_of(const Case& c) {
  const auto node = [&](const std::string& number) {
    return Place{PlaceKind::numa, static_cast<u32>(std::stoul(number)), c.src.host, {}};
  };
  Layout at{};
  at.n = std::stoul(c.param("n", "8192"));
  at.width = at.n < 4096 ? 64 : 512;
  for (const char digit : c.param("gpus", "0")) at.gpus.push_back(static_cast<u32>(digit - '0'));
  at.node = node(c.param("node", "0"));
  if (const auto cpu = c.param("threads_on", "near"); cpu != "near") at.cpu = node(cpu);
  at.by_peer = c.param("by", "peer") == "peer";
  at.look_ahead = c.param("ahead", "1") == "1";
  at.urgent = c.param("panels", "usual") == "urgent";
  return at;
}

Program build_lu_gpus(const Case& c) {
  using enum MemKind;
  const Layout at = layout_of(c);
  const u64 bytes = at.panels() * at.panel_bytes();
  Program program;
  program.held_by = HeldBy::nothing;
  program.peer = at.by_peer && at.ranks() > 1;
  program.regions = {{at.node, pinned, bytes, Content::numbers},
                     {at.node, pinned, bytes, Content::poison},
                     {at.node, pinned, at.ranks() * words * line_bytes, Content::zero}};
  for (u64 rank = 0; rank < at.ranks(); ++rank) {
    const u64 count = (at.last_of(rank) - rank) / at.ranks() + 1;
    program.regions.push_back({at.gpu(rank), device, count * at.panel_bytes(), Content::poison});
    program.regions.push_back({at.gpu(rank), device, at.ranks() > 1 ? bytes : line_bytes, Content::poison});
    for (auto* actor : {updates, panels, stores}) program.actors.push_back(actor(at, rank));
  }
  const auto order = static_cast<double>(at.n);
  const u64 last = at.owner(at.panels() - 1);  // stores the last panel
  program.flows = {
      {static_cast<u32>(3 * last + 2), c.src, c.dst, device, device, 0, true, 2.0 / 3 * order * order * order}};
  for (u64 rank = 0; rank < at.ranks(); ++rank) {
    const Place gpu = at.gpu(rank);
    const auto first = static_cast<u32>(3 * rank);  // of its actors
    const auto beside = [&](u32 actor, const Place& src, MemKind src_memory, const Place& dst, MemKind dst_memory) {
      program.flows.push_back({actor, src, dst, src_memory, dst_memory, 0, false});
    };
    beside(first, at.node, pinned, gpu, device);
    beside(first + 1, gpu, device, gpu, device);
    for (u64 from = 0; program.peer && from < at.ranks(); ++from)
      if (from != rank) beside(first + 1, at.gpu(from), device, gpu, device);
    if (rank != last) beside(first + 2, gpu, device, at.node, pinned);
  }
  return program;
}

constexpr std::array<std::string_view, 15> sets_of_gpus{"0",  "1",  "2",   "3",   "01",  "02",  "03",  "12",
                                                        "13", "23", "012", "013", "023", "123", "0123"};

}  // namespace

std::vector<Benchmark> lu_over_gpus() {
  constexpr bool sized = false, in_id = false;
  return {{"lu_gpus",
           "blocked LU with look-ahead over one to four GPUs, of an f64 matrix in host memory, without pivots",
           "HPL, Spafford 4.2",
           Engine::sm,
           PlaceKind::gpu,
           PlaceKind::gpu,
           Relation::same,
           {{MemKind::device, MemKind::device}},
           {{"gpus",
             {sets_of_gpus.begin(), sets_of_gpus.end()},
             "the GPUs, by digits",
             true,
             false,
             {"0", "01", "0123", "and all others of up to four GPUs"}},
            {"node", {"0", "1"}, "the NUMA node of the matrix"},
            {"threads_on", {"near", "0", "1"}, "the NUMA node of the host threads; near: that of each GPU"},
            {"by", {"peer", "host"}, "how GPUs take panels: by peer copies, or from the node's memory"},
            {"ahead", {"1", "0"}, "whether the next panel is updated first"},
            {"panels",
             {"usual", "urgent"},
             "the priority of the stream that factors: that of the updates, or the highest",
             in_id},
            {"n", {"8192", "256", "16384"}, "rows and columns"}},
           build_lu_gpus,
           sized,
           Taken::by_name,
           Role::computation}};
}

}  // namespace linkscope
