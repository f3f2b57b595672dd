#include "program/steps.hpp"

#include <algorithm>

#include "program/program_text.hpp"

namespace linkscope {

u64 access_count(const Access& access) {
  const u64 bytes = access.span.bytes;
  if (access.stride == 0) return (bytes + access.width - 1) / access.width;
  return bytes < access.width ? 0 : (bytes - access.width) / access.stride + 1;
}

u64 asked_bytes(const Access& access) {
  return access.stride == 0 ? access.span.bytes : access_count(access) * access.width;
}

u64 moved_bytes(const Access& access) {
  if (access.stride < sector_bytes) return access.span.bytes;
  const u64 width = access.width, unit = access.unit;
  return access_count(access) * ((width + unit - 1) / unit * unit);
}

u64 traffic_bytes(const Opaque& computation) {
  u64 bytes = 0;
  for (const auto& access : computation.traffic) bytes += moved_bytes(access);
  return bytes * computation.times;
}

std::string why_no_traffic(const Kernel& kernel) {
  const auto& row = traits_of(kernel.id);
  if (kernel.traffic.size() == row.accesses) return "";
  const auto named = std::string{"the kernel '"} + row.name + "' states ";
  if (kernel.traffic.empty()) return named + "no traffic: list the spans that it reads and writes";
  return named + std::to_string(kernel.traffic.size()) + " accesses, and it has " + std::to_string(row.accesses);
}

std::vector<Range> ranges_of(const Prefetch& prefetch) {
  constexpr u64 page = 4096;
  const u64 bytes = prefetch.span.bytes, count = std::max(1u, prefetch.ranges),
            length = ((bytes + count - 1) / count + page - 1) / page * page;
  std::vector<Range> ranges;
  for (u64 at = 0; at < bytes; at += length) ranges.push_back({at, std::min(length, bytes - at)});
  return ranges;
}

namespace {

std::vector<Touch> touches(const std::vector<Access>& traffic) {
  std::vector<Touch> all;
  for (const auto& access : traffic) all.push_back({access.span, access.dir == Access::Dir::write});
  return all;
}

}  // namespace

std::vector<Touch> touches(const Step& step) {
  std::vector<Touch> all;
  std::visit(Overloaded{
                 [&](const Move& m) { all = {{m.from, false}, {m.to, true}}; },
                 [&](const Kernel& k) { all = touches(k.traffic); },
                 [&](const Opaque& o) { all = touches(o.traffic); },
                 [&](const Set& s) {
                   all = {{s.word, true}};
                   if (s.payload) all.push_back({*s.payload, false});
                 },
                 [&](const Wait& w) {
                   all = {{w.word, false}};
                   if (w.payload) all.push_back({*w.payload, true});
                   if (w.pointer) all.insert(all.end(), {{w.word, true}, {*w.pointer, true}});
                 },
                 [&](const Fence&) {},
                 [&](const Call& c) {
                   if (!c.on) return;  // concerns memory and moves no data
                   if (c.span) all.push_back({*c.span, false});
                   if (c.to) all.push_back({*c.to, true});
                 },
                 [&](const Prefetch& p) { all = {{p.span, false}}; },
                 [&](const Message&) {},
                 [&](const RankMessage& m) {
                   if (m.span) all = {{*m.span, !m.sends}};
                 },
                 [&](const Collective& c) { all = {{c.in, false}, {c.out, true}}; },
             },
             step);
  return all;
}

RowCopy in_rows(const Move& move) {
  RowCopy copy;
  copy.bytes = move.from.rows.bytes ? move.from.rows.bytes : move.to.rows.bytes ? move.to.rows.bytes : move.from.bytes;
  copy.count = move.from.bytes / copy.bytes;
  const u64 in_plane = move.from.rows.in_plane ? move.from.rows.in_plane : move.to.rows.in_plane;
  const auto side = [&](const Span& span) {
    Rows rows = span.rows.bytes ? span.rows : Rows{copy.bytes, copy.bytes};
    if (in_plane && !rows.in_plane) rows.in_plane = in_plane, rows.plane_pitch = in_plane * rows.pitch;
    return rows;
  };
  copy.from = side(move.from);
  copy.to = side(move.to);
  return copy;
}

const Span* word_of(const Step& step) {
  if (const auto* set = std::get_if<Set>(&step)) return &set->word;
  const auto* wait = std::get_if<Wait>(&step);
  return wait ? &wait->word : nullptr;
}

const Span* payload_of(const Step& step) {
  const auto* set = std::get_if<Set>(&step);
  const auto* wait = std::get_if<Wait>(&step);
  const auto* found = set ? &set->payload : wait ? &wait->payload : nullptr;
  return found && *found ? &**found : nullptr;
}

const Job* job_of(const Step& step) {
  const auto* set = std::get_if<Set>(&step);
  const auto* wait = std::get_if<Wait>(&step);
  const auto* found = set ? &set->job : wait ? &wait->job : nullptr;
  return found && *found ? &**found : nullptr;
}

const Span* pointer_of(const Step& step) {
  const auto* wait = std::get_if<Wait>(&step);
  return wait && wait->pointer ? &*wait->pointer : nullptr;
}

}  // namespace linkscope
