#include "program/program.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr std::array engine_names{"ce",    "sm",   "tma", "batch", "graph", "cpu", "prefetch",
                                  "fault", "file", "nic", "mpi",   "nccl",  "ucx"};
constexpr std::array actor_names{"stream", "cpu_thread", "gpu_block", "nic"};
constexpr u32 most_block_threads = 1024;
constexpr std::array clock_names{"event", "host", "kernel"};
constexpr std::array held_by_names{"a kernel", "a wait", "nothing"};
constexpr std::array content_names{"pattern",          "poison",           "chain", "zero", "numbers",
                                   "changing numbers", "numbers of 8 bits"};

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

std::string span_text(const Span& span) {
  std::ostringstream out;
  out << "r" << span.region << "[" << span.offset << " +" << span.bytes << "]";
  if (span.rows.bytes) out << " in rows of " << span.rows.bytes << " by " << span.rows.pitch;
  if (span.rows.in_plane) out << ", " << span.rows.in_plane << " a plane by " << span.rows.plane_pitch;
  if (span.slices > 1) out << " x" << span.slices << " by " << span.stride;
  return out.str();
}

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
                   out << (m.sends ? "send" : "receive") << (m.span ? " " + span_text(*m.span) : " no bytes")
                       << (m.sends ? " to" : " from") << " process " << m.peer;
                   if (m.window) out << ", " << m.window << " at a time";
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

[[noreturn]] void wrong(const std::string& where, const std::string& what) {
  throw Error{ErrorKind::usage, "program: " + where + ": " + what};
}

/// Rows in order that do not overlap, of whole words, as a pitched copy can express them.
void check_rows(const Span& span, const std::string& where) {
  const auto& rows = span.rows;
  const auto refuse = [&](const std::string& what) { wrong(where, span_text(span) + ": " + what); };
  for (const u64 length : {rows.bytes, rows.pitch, rows.plane_pitch, span.offset, span.stride})
    if (length % 8) refuse("row lengths and pitches must be multiples of 8 B");
  if (span.bytes % rows.bytes) refuse("its bytes are not whole rows");
  if (rows.pitch < rows.bytes) refuse("rows overlap");
  if (rows.in_plane == 0) return;
  if ((span.bytes / rows.bytes) % rows.in_plane) refuse("its rows are not whole planes");
  if (rows.plane_pitch % rows.pitch || rows.plane_pitch < rows.in_plane * rows.pitch)
    refuse("planes are as many pitches apart as they have rows, or more");
}

void check_span(const Program& program, const Span& span, const std::string& where) {
  if (span.region >= program.regions.size()) wrong(where, "region " + std::to_string(span.region) + " does not exist");
  if (span.bytes == 0) wrong(where, "a span of no bytes");
  if (span.slices == 0) wrong(where, "a span of no slices");
  if (span.rows.bytes) check_rows(span, where);
  const u64 end = span.offset + (span.slices - 1) * span.stride + span.extent();
  if (end > program.regions[span.region].bytes)
    wrong(where, span_text(span) + " ends at byte " + std::to_string(end) + " of a region of " +
                     std::to_string(program.regions[span.region].bytes));
}

/// A descriptor has a pair of 16 B for each thing that it asks for. That of a card's registers has words of 8 B.
void check_job(const Program& program, const Span& word, const Job& job, const std::string& where) {
  const u64 asked = u64{job.to.has_value()} + u64{job.signal.has_value()};
  const u64 unit = program.regions[word.region].at.kind == PlaceKind::nic ? 8 : 16;
  if (job.bytes % unit || job.bytes > 128 || job.bytes < unit * asked || word.bytes != job.bytes ||
      word.stride % job.bytes || word.stride == 0 || asked == 0 || (word.offset - job.ring) % job.bytes)
    wrong(where, span_text(word) + " is no slot of a ring of descriptors of " + std::to_string(job.bytes) + " B");
  if (job.from.has_value() != job.to.has_value() || (job.to && job.from->bytes != job.to->bytes))
    wrong(where, "a descriptor asks for a put of unequal lengths");
  for (const auto* span : {&job.from, &job.to, &job.signal})
    if (*span) check_span(program, **span, where);
}

/// Whether a network card of the program sets the word.
bool is_set_by_card(const Program& program, const Span& word) {
  const auto sets = [&](const Step& step) {
    const auto* set = std::get_if<Set>(&step);
    return set && set->word.region == word.region && set->word.offset == word.offset;
  };
  return std::ranges::any_of(program.actors, [&](const Actor& actor) {
    return actor.kind == ActorKind::nic && std::ranges::any_of(actor.loop, sets);
  });
}

void check_word(const Program& program, const Step& step, const std::string& where) {
  const Span &word = *word_of(step), *payload = payload_of(step);
  check_span(program, word, where);
  if (const Job* job = job_of(step)) return check_job(program, word, *job, where);
  if (const Span* pointer = pointer_of(step)) {
    check_span(program, *pointer, where);
    if (pointer->bytes != sizeof(u64)) wrong(where, span_text(*pointer) + " is no read pointer of 8 B");
    if (!is_set_by_card(program, word))
      wrong(where, span_text(word) + " is no notification: no network card of the program sets it");
  }
  if (!payload) {
    if (word.bytes != sizeof(u64)) wrong(where, span_text(word) + " is not a word of 8 B");
    return;
  }
  check_span(program, *payload, where);
  if (payload->bytes == 0 || payload->bytes % sizeof(u64) || word.bytes != 2 * payload->bytes)
    wrong(where, span_text(word) + " does not have 16 B for each 8 B of " + span_text(*payload));
}

void check_access(const Program& program, const Access& access, const std::string& where) {
  check_span(program, access.span, where);
  if (access.span.rows.bytes) wrong(where, "rows in what a kernel accesses: only moves have them");
  if (access.stride == 0) return;
  if (access.stride < access.width)
    wrong(where,
          "accesses of " + std::to_string(access.width) + " B every " + std::to_string(access.stride) + " B overlap");
  if (access.span.bytes < access.width)
    wrong(where, span_text(access.span) + " holds no access of " + std::to_string(access.width) + " B");
}

void check_rank_message(const Program& program, const RankMessage& message, const std::string& where) {
  if (message.span.has_value() != message.theirs.has_value())
    wrong(where, "a message has bytes on both sides, or on none");
  if (!message.span) return;
  for (const auto* span : {&*message.span, &*message.theirs}) {
    check_span(program, *span, where);
    if (span->rows.bytes) wrong(where, "rows in a message between ranks");
  }
  if (message.span->bytes != message.theirs->bytes) wrong(where, "a message of unequal lengths");
}

void check_step(const Program& program, const Step& step, const std::string& where) {
  std::visit(Overloaded{
                 [&](const Move& m) {
                   check_span(program, m.from, where);
                   check_span(program, m.to, where);
                   if (m.from.bytes != m.to.bytes) wrong(where, "a move of unequal lengths");
                   const Rows &from = m.from.rows, &to = m.to.rows;
                   if (from.bytes && to.bytes && from.bytes != to.bytes)
                     wrong(where, "a move between rows of " + std::to_string(from.bytes) + " B and of " +
                                      std::to_string(to.bytes) + " B");
                   if (from.in_plane && to.in_plane && from.in_plane != to.in_plane)
                     wrong(where, "a move between planes of unequal height");
                 },
                 [&](const Kernel& k) {
                   if (const auto why = why_no_traffic(k); !why.empty()) wrong(where, why);
                   for (const auto& a : k.traffic) check_access(program, a, where);
                   if (!k.sm) return;
                   if (!traits_of(k.id).on_chosen_sm || k.dependent_steps == 0)
                     wrong(where, "only a chase is on one SM");
                   if (k.shape.blocks != 0) wrong(where, "a kernel that is bound to an SM has one block on each");
                 },
                 [&](const Opaque& o) {
                   for (const auto& a : o.traffic) check_access(program, a, where);
                 },
                 [&](const Set&) { check_word(program, step, where); },
                 [&](const Wait&) { check_word(program, step, where); },
                 [&](const Fence&) {},
                 [&](const Call& c) {
                   for (const auto* span : {&c.span, &c.to})
                     if (*span) check_span(program, **span, where);
                   if (c.to && (!c.span || c.span->bytes != c.to->bytes)) wrong(where, "a copy of unequal lengths");
                 },
                 [&](const Prefetch& p) {
                   check_span(program, p.span, where);
                   if (!pages_move(program.regions[p.span.region].kind))
                     wrong(where, "a prefetch of memory whose pages do not move");
                   if (p.discard == Prefetch::Discard::with && p.ranges == 0)
                     wrong(where, "pages are discarded and prefetched at once as a batch of ranges");
                 },
                 [&](const Message& m) {
                   if (m.bytes == 0 || m.bytes % 8) wrong(where, "a message has a multiple of 8 B, and not 0 B");
                 },
                 [&](const RankMessage& m) { check_rank_message(program, m, where); },
                 [&](const Collective& c) {
                   check_span(program, c.in, where);
                   check_span(program, c.out, where);
                   for (const auto& input : c.inputs) check_span(program, input, where);
                 },
             },
             step);
}

void shift_regions(Job& job, u32 by) {
  for (auto* span : {&job.from, &job.to, &job.signal})
    if (*span) (*span)->region += by;
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
                 [&](Opaque& o) {
                   for (auto& access : o.traffic) access.span.region += by;
                 },
                 [&](Set& s) {
                   s.word.region += by;
                   if (s.payload) s.payload->region += by;
                   if (s.job) shift_regions(*s.job, by);
                 },
                 [&](Wait& w) {
                   w.word.region += by;
                   if (w.payload) w.payload->region += by;
                   if (w.job) shift_regions(*w.job, by);
                   if (w.pointer) w.pointer->region += by;
                 },
                 [&](Fence&) {},
                 [&](Call& c) {
                   for (auto* span : {&c.span, &c.to})
                     if (*span) (*span)->region += by;
                 },
                 [&](Prefetch& p) { p.span.region += by; },
                 [&](Message&) {},
                 [&](RankMessage& m) {
                   if (m.span) m.span->region += by, m.theirs->region += by;
                 },
                 [&](Collective& c) {
                   c.in.region += by;
                   c.out.region += by;
                   for (auto& input : c.inputs) input.region += by;
                 },
             },
             step);
}

}  // namespace

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

const Span& origin(const Actor& actor, const Move& move) {
  const auto same = [](const Span& a, const Span& b) {
    return a.region == b.region && a.offset == b.offset && a.bytes == b.bytes && a.stride == b.stride &&
           a.slices == b.slices;
  };
  const Span* from = &move.from;
  for (std::size_t step = actor.loop.size(); step-- > 0;)
    if (const auto* earlier = std::get_if<Move>(&actor.loop[step]); earlier && same(earlier->to, *from))
      from = &earlier->from;
  return *from;
}

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
    if (a.grid) out << " in grid " << *a.grid;
    if (!a.bound) out << " driven from any node";
    else if (a.cpu) out << " driven from " << to_string(*a.cpu);
    if (a.process) out << " process " << a.process;
    if (a.tenths < all_tenths) out << " working " << a.tenths << " tenths of the time";
    out << "\n";
    for (const auto& step : a.once) out << "  once " << step_text(step) << "\n";
    for (const auto& step : a.loop) out << "  loop " << step_text(step) << "\n";
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

bool is_bound(const Program& program) {
  return std::all_of(program.regions.begin(), program.regions.end(), [](const Region& r) { return r.bound; }) &&
         std::all_of(program.actors.begin(), program.actors.end(), [](const Actor& a) { return a.bound; });
}

Program together(const std::vector<Program>& programs) {
  Program all;
  const auto between_gpus = [](const Program& p) {
    return std::any_of(p.flows.begin(), p.flows.end(), [](const Flow& f) {
      return f.src.kind == PlaceKind::gpu && f.dst.kind == PlaceKind::gpu && f.src != f.dst;
    });
  };
  std::optional<bool> peer;
  for (const auto& program : programs) {
    if (program.cache != programs.front().cache || program.held_by != programs.front().held_by ||
        program.idle != programs.front().idle || program.passes != programs.front().passes)
      wrong("together",
            "the programs ask for different caches, for streams held in different ways, for other idle gaps, or for "
            "other numbers of passes");
    if (between_gpus(program)) {
      if (peer && *peer != program.peer) wrong("together", "one wants peer access between GPUs and one wants none");
      peer = program.peer;
    }
    const auto first_region = static_cast<u32>(all.regions.size()), first_actor = static_cast<u32>(all.actors.size());
    all.regions.insert(all.regions.end(), program.regions.begin(), program.regions.end());
    u32 first_grid = 0;
    for (const auto& actor : all.actors) first_grid = std::max(first_grid, actor.grid ? *actor.grid + 1 : 0);
    for (auto actor : program.actors) {
      for (auto* steps : {&actor.once, &actor.loop})
        for (auto& step : *steps) shift_regions(step, first_region);
      if (actor.thread_of) *actor.thread_of += first_actor;
      if (actor.grid) *actor.grid += first_grid;
      all.actors.push_back(std::move(actor));
    }
    for (auto flow : program.flows) {
      flow.actor += first_actor;
      all.flows.push_back(std::move(flow));
    }
    if (program.most_iterations && (all.most_iterations == 0 || program.most_iterations < all.most_iterations))
      all.most_iterations = program.most_iterations;
  }
  all.peer = peer.value_or(false);
  all.mps = std::any_of(programs.begin(), programs.end(), [](const Program& program) { return program.mps; });
  all.cache = programs.empty() ? CacheState::cold : programs.front().cache;
  all.held_by = programs.empty() ? HeldBy::kernel : programs.front().held_by;
  all.idle = programs.empty() ? Seconds{0} : programs.front().idle;
  all.passes = programs.empty() ? 1 : programs.front().passes;
  return all;
}

void validate(const Program& program) {
  if (program.actors.empty()) wrong("actors", "the program has no actor");
  if (program.idle < Seconds{0} || program.idle > longest_idle)
    wrong("idle", std::to_string(program.idle.count()) + " s: an idle gap lies between 0 s and " +
                      std::to_string(longest_idle.count()) + " s");
  if (program.passes == 0 || (program.passes > 1 && !in_step(program)))
    wrong("passes", std::to_string(program.passes) + " passes an iteration need actors that all wait for each other");
  if (program.idle > Seconds{0} && program.most_iterations != 1)
    wrong("idle", "only a single iteration can follow an idle gap");
  for (std::size_t i = 0; i < program.actors.size(); ++i) {
    const auto where = "actor a" + std::to_string(i);
    for (const auto& step : program.actors[i].once) check_step(program, step, where + " once");
    for (const auto& step : program.actors[i].loop) check_step(program, step, where + " loop");
    if (program.actors[i].loop.empty()) wrong(where, "its loop is empty");
    if (const u32 tenths = program.actors[i].tenths; tenths == 0 || tenths > all_tenths)
      wrong(where, "it works 1 to 10 tenths of the time, and not " + std::to_string(tenths));
    if (program.actors[i].tenths < all_tenths && exchanges_words(program.actors[i]))
      wrong(where, "others wait for its words, so it cannot rest");
    if (const auto why = why_no_messages(program, program.actors[i]); !why.empty()) wrong(where, why);
    if (const auto why = why_no_rank_messages(program.actors[i]); !why.empty()) wrong(where, why);
    if (const auto why = why_no_collective(program, program.actors[i]); !why.empty()) wrong(where, why);
    if (const auto why = why_no_grid(program, program.actors[i]); !why.empty()) wrong(where, why);
    if (const u32 threads = program.actors[i].threads; threads == 0 || threads > most_block_threads)
      wrong(where,
            "a block has 1 to " + std::to_string(most_block_threads) + " threads, and not " + std::to_string(threads));
    const bool is_card = program.actors[i].kind == ActorKind::nic;
    if (is_card != (program.actors[i].place.kind == PlaceKind::nic))
      wrong(where,
            std::string{"a "} + to_string(program.actors[i].kind) + " is not at " + to_string(program.actors[i].place));
    if (program.actors[i].kind == ActorKind::gpu_block || is_card)
      for (const auto& step : program.actors[i].loop)
        if (const auto why = why_no_op(program.actors[i], step); !why.empty()) wrong(where, why);
    for (const auto& step : program.actors[i].loop)
      if (const auto* kernel = std::get_if<Kernel>(&step);
          kernel && kernel->sm && program.actors[i].kind != ActorKind::stream)
        wrong(where, "a CPU has no SMs");
  }
  for (const auto& flow : program.flows)
    if (flow.actor >= program.actors.size()) wrong("flows", "actor a" + std::to_string(flow.actor) + " does not exist");
}

}  // namespace linkscope
