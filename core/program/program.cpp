#include "program/program.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr std::array mem_kind_names{"pageable", "pinned", "registered", "wc",  "mapped",   "managed",
                                    "device",   "vmm",    "pool",       "hugepage", "file",   "registered_hugepage"};
constexpr std::array engine_names{"ce", "sm", "tma", "batch", "graph", "cpu", "prefetch", "fault", "file"};
constexpr std::array actor_names{"stream", "cpu_thread"};
constexpr std::array clock_names{"event", "host", "kernel"};

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

std::string span_text(const Span& span) {
  std::ostringstream out;
  out << "r" << span.region << "[" << span.offset << " +" << span.bytes << "]";
  if (span.slices > 1) out << " x" << span.slices << " by " << span.stride;
  return out.str();
}

template <class Enum, class Names>
Enum parse(std::string_view text, const Names& names, const char* what) {
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) return static_cast<Enum>(i);
    known += std::string{i ? ", " : ""} + names[i];
  }
  throw Error{ErrorKind::usage, "'" + std::string{text} + "' is not " + what + "; there are " + known};
}

std::string shape_text(const Shape& shape) {
  if (shape.threads == 0) return "";
  std::ostringstream out;
  out << " <" << (shape.blocks ? std::to_string(shape.blocks) : "sms") << ", " << shape.threads << ">";
  return out.str();
}

std::string step_text(const Step& step) {
  std::ostringstream out;
  std::visit(Overloaded{
                 [&](const Move& m) { out << "move " << to_string(m.engine) << " " << span_text(m.from) << " -> " << span_text(m.to) << (m.peer_call ? " by peer call" : "") << shape_text(m.shape); },
                 [&](const Kernel& k) {
                   out << "kernel " << k.name << shape_text(k.shape);
                   if (k.dependent_steps) out << " dependent " << k.dependent_steps;
                   for (const auto& a : k.traffic)
                     out << (a.dir == Access::Dir::read ? " read " : " write ") << span_text(a.span) << " width " << a.width;
                 },
                 [&](const Set& s) { out << "set " << span_text(s.word) << " = " << s.value << " + " << s.step << " i"; },
                 [&](const Wait& w) { out << "wait " << span_text(w.word) << " >= " << w.value << " + " << w.step << " i"; },
                 [&](const Call& c) {
                   out << "call " << (c.until ? "until " : "") << c.api;
                   if (c.span) out << " " << span_text(*c.span);
                 },
                 [&](const Prefetch& p) { out << "prefetch " << span_text(p.span) << " to " << to_string(p.to); },
             },
             step);
  return out.str();
}

[[noreturn]] void wrong(const std::string& where, const std::string& what) {
  throw Error{ErrorKind::usage, "program: " + where + ": " + what};
}

void check_span(const Program& program, const Span& span, const std::string& where) {
  if (span.region >= program.regions.size()) wrong(where, "region " + std::to_string(span.region) + " does not exist");
  if (span.bytes == 0) wrong(where, "a span of no bytes");
  if (span.slices == 0) wrong(where, "a span of no slices");
  const u64 end = span.offset + (span.slices - 1) * span.stride + span.bytes;
  if (end > program.regions[span.region].bytes)
    wrong(where, span_text(span) + " ends at byte " + std::to_string(end) + " of a region of " +
                     std::to_string(program.regions[span.region].bytes));
}

void check_step(const Program& program, const Step& step, const std::string& where) {
  std::visit(Overloaded{
                 [&](const Move& m) {
                   check_span(program, m.from, where);
                   check_span(program, m.to, where);
                   if (m.from.bytes != m.to.bytes) wrong(where, "a move of unequal lengths");
                 },
                 [&](const Kernel& k) {
                   for (const auto& a : k.traffic) check_span(program, a.span, where);
                 },
                 [&](const Set& s) { check_span(program, s.word, where); },
                 [&](const Wait& w) { check_span(program, w.word, where); },
                 [&](const Call& c) {
                   if (c.span) check_span(program, *c.span, where);
                 },
                 [&](const Prefetch& p) {
                   check_span(program, p.span, where);
                   if (program.regions[p.span.region].kind != MemKind::managed) wrong(where, "a prefetch of memory that is not managed");
                 },
             },
             step);
}

void shift_regions(Step& step, u32 by) {
  std::visit(Overloaded{
                 [&](Move& m) {
                   m.from.region += by;
                   m.to.region += by;
                 },
                 [&](Kernel& k) {
                   for (auto& access : k.traffic) access.span.region += by;
                 },
                 [&](Set& s) { s.word.region += by; },
                 [&](Wait& w) { w.word.region += by; },
                 [&](Call& c) {
                   if (c.span) c.span->region += by;
                 },
                 [&](Prefetch& p) { p.span.region += by; },
             },
             step);
}

}  // namespace

std::vector<Touch> touches(const Step& step) {
  std::vector<Touch> all;
  std::visit(Overloaded{
                 [&](const Move& m) { all = {{m.from, false}, {m.to, true}}; },
                 [&](const Kernel& k) {
                   for (const auto& access : k.traffic) all.push_back({access.span, access.dir == Access::Dir::write});
                 },
                 [&](const Set& s) { all = {{s.word, true}}; },
                 [&](const Wait& w) { all = {{w.word, false}}; },
                 [&](const Call&) {},  // is about memory, and moves nobody's data
                 [&](const Prefetch& p) { all = {{p.span, false}}; },
             },
             step);
  return all;
}

bool is_pageable(MemKind kind) { return kind == MemKind::pageable || kind == MemKind::hugepage; }

const char* to_string(MemKind kind) { return mem_kind_names[static_cast<std::size_t>(kind)]; }
const char* to_string(Engine engine) { return engine_names[static_cast<std::size_t>(engine)]; }
const char* to_string(ActorKind kind) { return actor_names[static_cast<std::size_t>(kind)]; }
const char* to_string(Clock clock) { return clock_names[static_cast<std::size_t>(clock)]; }

MemKind parse_mem_kind(std::string_view text) { return parse<MemKind>(text, mem_kind_names, "a memory kind"); }
Engine parse_engine(std::string_view text) { return parse<Engine>(text, engine_names, "an engine"); }

std::string to_text(const Program& program) {
  std::ostringstream out;
  for (std::size_t i = 0; i < program.regions.size(); ++i) {
    const auto& r = program.regions[i];
    out << "region r" << i << " " << to_string(r.at) << "." << to_string(r.kind) << " " << r.bytes << " B"
        << (r.content == Content::pattern ? " pattern" : r.content == Content::chain ? " chain" : " poison");
    if (r.page_bytes) out << (r.transparent ? " transparent" : "") << " pages of " << bytes_text(r.page_bytes);
    if (r.process) out << " process " << r.process;
    out << "\n";
  }
  for (std::size_t i = 0; i < program.actors.size(); ++i) {
    const auto& a = program.actors[i];
    out << "actor a" << i << " " << to_string(a.kind) << " " << to_string(a.place) << " clock " << to_string(a.clock);
    if (a.cpu) out << " driven from " << to_string(*a.cpu);
    if (a.process) out << " process " << a.process;
    out << "\n";
    for (const auto& step : a.once) out << "  once " << step_text(step) << "\n";
    for (const auto& step : a.loop) out << "  loop " << step_text(step) << "\n";
  }
  for (const auto& f : program.flows)
    out << "flow a" << f.actor << " " << to_string(f.src) << "." << to_string(f.src_memory) << " -> " << to_string(f.dst) << "."
        << to_string(f.dst_memory) << " " << f.bytes << " B" << (f.measured ? "" : " background") << "\n";
  out << "peer " << (program.peer ? "on" : "off") << ", cache " << (program.cache == CacheState::cold ? "cold" : "hot")
      << ", held by a " << (program.held_by == HeldBy::kernel ? "kernel" : "wait");
  if (program.most_iterations) out << ", at most " << program.most_iterations << " iterations a sample";
  out << "\n";
  return out.str();
}

Program together(const std::vector<Program>& programs) {
  Program all;
  const auto between_gpus = [](const Program& p) {
    return std::any_of(p.flows.begin(), p.flows.end(), [](const Flow& f) { return f.src.kind == PlaceKind::gpu && f.dst.kind == PlaceKind::gpu && f.src != f.dst; });
  };
  std::optional<bool> peer;
  for (const auto& program : programs) {
    if (program.cache != programs.front().cache || program.held_by != programs.front().held_by)
      wrong("together", "the programs ask for different caches, or for streams held in different ways");
    if (between_gpus(program)) {
      if (peer && *peer != program.peer) wrong("together", "one wants peer access between GPUs and one wants none");
      peer = program.peer;
    }
    const auto first_region = static_cast<u32>(all.regions.size()), first_actor = static_cast<u32>(all.actors.size());
    all.regions.insert(all.regions.end(), program.regions.begin(), program.regions.end());
    for (auto actor : program.actors) {
      for (auto* steps : {&actor.once, &actor.loop})
        for (auto& step : *steps) shift_regions(step, first_region);
      all.actors.push_back(std::move(actor));
    }
    for (auto flow : program.flows) {
      flow.actor += first_actor;
      all.flows.push_back(std::move(flow));
    }
    if (program.most_iterations && (all.most_iterations == 0 || program.most_iterations < all.most_iterations)) all.most_iterations = program.most_iterations;
  }
  all.peer = peer.value_or(false);
  all.cache = programs.empty() ? CacheState::cold : programs.front().cache;
  all.held_by = programs.empty() ? HeldBy::kernel : programs.front().held_by;
  return all;
}

void validate(const Program& program) {
  if (program.actors.empty()) wrong("actors", "nobody acts");
  for (std::size_t i = 0; i < program.actors.size(); ++i) {
    const auto where = "actor a" + std::to_string(i);
    for (const auto& step : program.actors[i].once) check_step(program, step, where + " once");
    for (const auto& step : program.actors[i].loop) check_step(program, step, where + " loop");
    if (program.actors[i].loop.empty()) wrong(where, "its loop is empty");
  }
  for (const auto& flow : program.flows)
    if (flow.actor >= program.actors.size()) wrong("flows", "actor a" + std::to_string(flow.actor) + " does not exist");
}

}  // namespace linkscope
