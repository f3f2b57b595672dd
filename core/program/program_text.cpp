#include "program/program_text.hpp"

#include <array>
#include <sstream>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr std::array engine_names{"ce",    "sm",   "tma", "batch", "graph", "cpu", "prefetch",
                                  "fault", "file", "nic", "mpi",   "nccl",  "ucx", "nixl"};
constexpr std::array actor_names{"stream", "cpu_thread", "gpu_block", "nic"};
constexpr std::array clock_names{"event", "host", "kernel"};
constexpr std::array held_by_names{"a kernel", "a wait", "nothing"};
constexpr std::array content_names{"pattern",          "poison",           "chain", "zero", "numbers",
                                   "changing numbers", "numbers of 8 bits"};

}  // namespace

std::string span_text(const Span& span) {
  std::ostringstream out;
  out << "r" << span.region << "[" << span.offset << " +" << span.bytes << "]";
  if (span.rows.bytes) out << " in rows of " << span.rows.bytes << " by " << span.rows.pitch;
  if (span.rows.in_plane) out << ", " << span.rows.in_plane << " a plane by " << span.rows.plane_pitch;
  if (span.slices > 1) out << " x" << span.slices << " by " << span.stride;
  return out.str();
}

void wrong_program(const std::string& where, const std::string& what) {
  throw Error{ErrorKind::usage, "program: " + where + ": " + what};
}

namespace {

std::string shape_text(const Shape& shape) {
  if (shape.threads == 0) return "";
  std::ostringstream out;
  out << " <" << (shape.blocks ? std::to_string(shape.blocks) : "sms") << ", "
      << (shape.threads == all_cpus ? "all" : std::to_string(shape.threads)) << ">";
  return out.str();
}

std::string access_text(const Access& access) {
  std::ostringstream out;
  out << (access.dir == Access::Dir::read ? " read " : " write ") << span_text(access.span) << " width "
      << access.width;
  if (access.stride)
    out << (access.pattern == Access::Pattern::random ? " at random" : " strided") << " by " << access.stride
        << " moves " << moved_bytes(access) << " B";
  return out.str();
}

std::string advice_text(const Advice& advice) {
  switch (advice.kind) {
    case Advice::Kind::read_mostly:
      return " mostly read";
    case Advice::Kind::preferred:
      return " best at " + to_string(advice.place);
    case Advice::Kind::accessed_by:
      return " accessed by " + to_string(advice.place);
  }
  return "";
}

const char* to_string(CacheState state) {
  switch (state) {
    case CacheState::cold:
      return "cold";
    case CacheState::hot:
      return "hot";
    case CacheState::written:
      return "written";
    case CacheState::dirty:
      return "dirty";
    case CacheState::cleaned:
      return "cleaned";
    case CacheState::fresh:
      return "fresh";
  }
  return "";
}

std::string job_text(const Job& job) {
  auto text = " as a descriptor of " + std::to_string(job.bytes) + " B";
  if (job.to) text += " for " + span_text(*job.from) + " -> " + span_text(*job.to);
  return job.signal ? text + " and " + span_text(*job.signal) : text;
}

std::string step_text(const Step& step) {
  std::ostringstream out;
  std::visit(Overloaded{
                 [&](const Move& m) {
                   out << "move " << to_string(m.engine) << " " << span_text(m.from) << " -> " << span_text(m.to)
                       << (m.peer_call ? " by peer call" : "") << (m.row_by_row ? " row by row" : "")
                       << shape_text(m.shape);
                   if (m.by) out << " on " << to_string(*m.by);
                 },
                 [&](const Kernel& k) {
                   out << "kernel " << to_string(k.id) << shape_text(k.shape);
                   if (k.sm) out << " on SM " << *k.sm;
                   if (k.scope == Scope::system) out << " system";
                   if (k.dependent_steps) out << " dependent " << k.dependent_steps;
                   for (const auto& a : k.traffic) out << access_text(a);
                 },
                 [&](const Opaque& o) {
                   out << "library " << o.library_call << " " << o.element;
                   for (const u64 length : o.shape) out << " " << length;
                   if (o.times > 1) out << " traffic x" << o.times;
                   for (const auto& a : o.traffic) out << access_text(a);
                 },
                 [&](const Set& s) {
                   out << "set " << span_text(s.word) << " = " << s.value << " + " << s.step << " i";
                   if (s.payload) out << " with " << span_text(*s.payload);
                   if (s.adds) out << " by adding";
                   if (s.job) out << job_text(*s.job);
                 },
                 [&](const Wait& w) {
                   out << "wait " << span_text(w.word) << " >= " << w.value << " + " << w.step << " i";
                   if (w.payload) out << " with " << span_text(*w.payload);
                   if (w.job) out << job_text(*w.job);
                   if (w.pointer) out << " and take it by " << span_text(*w.pointer);
                 },
                 [&](const Fence&) { out << "fence"; },
                 [&](const Call& c) {
                   out << "call " << (c.until ? "until " : "") << c.api;
                   if (c.amount) out << " of " << c.amount;
                   if (c.on) out << " on " << to_string(*c.on);
                   if (c.span) out << " " << span_text(*c.span);
                   if (c.to) out << " -> " << span_text(*c.to);
                 },
                 [&](const Prefetch& p) {
                   out << "prefetch " << span_text(p.span) << " to " << to_string(p.to);
                   if (p.ranges) out << " as " << p.ranges << " ranges by one call";
                   if (p.discard != Prefetch::Discard::no)
                     out << (p.discard == Prefetch::Discard::before ? ", discarded before" : ", discarded with it");
                 },
                 [&](const Message& m) { out << to_text(m); },
                 [&](const RankMessage& m) {
                   out << (m.sends ? "send " : "receive ") << (m.span ? span_text(*m.span) : "no bytes")
                       << (m.sends ? " to" : " from") << " process " << m.peer;
                   if (m.window) out << ", " << m.window << " at a time";
                   if (m.ahead) out << ", up to " << m.ahead << " before it under way";
                   if (m.by != Engine::mpi) out << " by " << to_string(m.by);
                 },
                 [&](const Collective& c) {
                   out << to_string(c.kind) << " " << to_string(c.type) << " rank " << c.rank << " of " << c.ranks()
                       << " " << span_text(c.in) << " -> " << span_text(c.out);
                 },
             },
             step);
  return out.str();
}

}  // namespace

const char* to_string(Engine engine) { return engine_names[static_cast<std::size_t>(engine)]; }
const char* to_string(ActorKind kind) { return actor_names[static_cast<std::size_t>(kind)]; }
const char* to_string(Clock clock) { return clock_names[static_cast<std::size_t>(clock)]; }
const char* to_string(HeldBy held_by) { return held_by_names[static_cast<std::size_t>(held_by)]; }

Engine parse_engine(std::string_view text) {
  std::string known;
  for (std::size_t i = 0; i < engine_names.size(); ++i) {
    if (text == engine_names[i]) return static_cast<Engine>(i);
    known += std::string{i ? ", " : ""} + engine_names[i];
  }
  throw Error{ErrorKind::usage, "'" + std::string{text} + "' is not an engine; there are " + known};
}

std::string to_text(const Program& program) {
  std::ostringstream out;
  for (std::size_t i = 0; i < program.regions.size(); ++i) {
    const auto& r = program.regions[i];
    out << "region r" << i << " " << to_string(r.at) << "." << to_string(r.kind) << " " << r.bytes << " B"
        << " " << content_names[static_cast<std::size_t>(r.content)];
    if (r.page_bytes) out << (r.transparent ? " transparent" : "") << " pages of " << bytes_text(r.page_bytes);
    if (r.process) out << " process " << r.process;
    if (r.advice) out << advice_text(*r.advice);
    if (!r.bound) out << " on any node";
    out << "\n";
  }
  for (std::size_t i = 0; i < program.actors.size(); ++i) {
    const auto& a = program.actors[i];
    out << "actor a" << i << " " << to_string(a.kind) << " " << to_string(a.place) << " clock " << to_string(a.clock);
    if (a.kind == ActorKind::gpu_block) out << " of " << a.threads << " threads";
    if (a.urgent) out << " urgent";
    if (a.grid) out << " in grid " << *a.grid;
    if (!a.bound) out << " driven from any node";
    else if (a.cpu) out << " driven from " << to_string(*a.cpu);
    if (a.process) out << " process " << a.process;
    if (a.tenths < all_tenths) out << " working " << a.tenths << " tenths of the time";
    out << "\n";
    for (const auto& step : a.once) out << "  once " << step_text(step) << "\n";
    for (std::size_t s = 0; s < a.loop.size(); ++s)
      out << (a.first_steps && s >= a.first_steps ? "  then " : "  loop ") << step_text(a.loop[s]) << "\n";
  }
  for (const auto& f : program.flows)
    out << "flow a" << f.actor << " " << to_string(f.src) << "." << to_string(f.src_memory) << " -> "
        << to_string(f.dst) << "." << to_string(f.dst_memory) << " " << f.bytes << " B"
        << (f.measured ? "" : " background") << "\n";
  out << "peer " << (program.peer ? "on" : "off") << ", cache " << to_string(program.cache) << ", held by "
      << to_string(program.held_by);
  if (program.most_iterations) out << ", at most " << program.most_iterations << " iterations a sample";
  if (program.idle > Seconds{0}) out << ", after " << program.idle.count() << " s of idling";
  out << "\n";
  return out.str();
}

}  // namespace linkscope
