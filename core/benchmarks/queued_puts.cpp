// Klenk, Oden, Froning (KL-2, KL-4): puts that a GPU posts as descriptors to a ring, which others carry out: a kernel that
// stands for a network card, or a thread of the host. The ring is that of the library (base/ring.hpp).
#include <algorithm>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr u64 pair = 16;
constexpr u32 ring_slots = 16;
constexpr bool measured = true;

/// The GPU that posts. Puts between host memories have the first one.
Place poster_of(const Case& c) {
  return c.src.kind == PlaceKind::gpu ? c.src : Place{PlaceKind::gpu, 0, c.src.host, {}};
}

Place node_of(const Case& c) {
  if (c.dst.kind == PlaceKind::numa) return c.dst;
  return c.src.kind == PlaceKind::numa ? c.src : Place{PlaceKind::numa, 0, c.src.host, {}};
}

/// One side of a connection: what it puts into the other side, and the ring that it posts to. `signals`: the words that say
/// to the other side that a put has come, `credits` those that say to this side what the ring's server has done.
struct Ends {
  Place src, dst, poster, node;
  MemKind src_memory = MemKind::device, dst_memory = MemKind::device;
  u32 given = 0, received = 0, slots = 0, signals = 0, credits = 0;
};

class Queue {
 public:
  Queue(Program& program, const Case& c, Ends ends, u32 messages)
      : program_{program}, case_{c}, ends_{std::move(ends)}, messages_{messages} {
    const u64 stride = slice_stride(c.bytes);
    const bool by_host = c.engine != Engine::sm;
    ends_.given = add({ends_.src, ends_.src_memory, messages * stride, Content::pattern});
    ends_.received = add({ends_.dst, ends_.dst_memory, messages * stride, Content::poison});
    const auto where = c.param("queue", "host");
    const Place& ring = by_host || where == "host" ? ends_.node : where == "own" ? ends_.poster : ends_.dst;
    ends_.slots = add_words(ring, ring_slots * slot_pitch());
    ends_.signals = add_words(by_host ? ends_.node : ends_.dst, line_bytes);
    ends_.credits = add_words(by_host ? ends_.node : ends_.poster, line_bytes);
  }

  /// A word of the side that this queue's puts go to, which answers them.
  [[nodiscard]] Wait arrived() const { return {word(ends_.signals), 1, 1}; }

  /// Adds the steps of a post, behind those that wait for a free slot.
  void post(std::vector<Step>& loop) const {
    loop.emplace_back(Wait{word(ends_.credits), u64{1} - ring_slots, 1});
    for (const auto& job : jobs()) {
      Set set{slot(job), 1, 1};
      set.job = job;
      loop.emplace_back(set);
    }
  }

  /// Adds the steps that serve the ring to the loop of an actor, and the flow that they make.
  void serve(u32 actor, std::vector<Step>& loop) const {
    program_.flows.push_back({actor, ends_.src, ends_.dst, ends_.src_memory, ends_.dst_memory, case_.bytes, measured});
    for (const auto& job : jobs()) {
      Wait take{slot(job), 1, 1};
      take.job = job;
      loop.emplace_back(take);
      if (job.to) loop.emplace_back(Move{*job.from, *job.to, case_.engine});
      if (job.signal) loop.emplace_back(Set{*job.signal, 1, 1});
    }
    loop.emplace_back(Set{word(ends_.credits), 1, 1});
  }

  /// An actor that serves rings: a block of the poster's GPU, or a thread of the host.
  [[nodiscard]] Actor server() const {
    Actor actor;
    actor.kind = case_.engine == Engine::sm   ? ActorKind::gpu_block
                 : case_.engine == Engine::ce ? ActorKind::stream
                                              : ActorKind::cpu_thread;
    actor.place = actor.kind == ActorKind::cpu_thread ? ends_.node : ends_.poster;
    if (case_.engine != Engine::sm) actor.clock = Clock::host;
    if (actor.kind == ActorKind::stream) actor.cpu = ends_.node;
    actor.threads = actor.kind == ActorKind::gpu_block ? case_.number("threads", "256") : 1;
    return actor;
  }

 private:
  [[nodiscard]] u64 descriptor() const { return case_.number("descriptor", "32"); }
  /// Bytes of the descriptors of a message: one of 16 B holds the put or the word, and others hold both.
  [[nodiscard]] u64 slot_pitch() const { return std::max(2 * pair, descriptor()); }
  [[nodiscard]] Span word(u32 region) const { return {region, 0, word_bytes, 0, 1}; }
  [[nodiscard]] std::vector<Job> jobs() const {
    const u64 stride = slice_stride(case_.bytes);
    Job put{0, descriptor(), Span{ends_.given, 0, case_.bytes, stride, messages_},
            Span{ends_.received, 0, case_.bytes, stride, messages_}};
    Job both = put, end{0, descriptor()};
    both.signal = end.signal = word(ends_.signals);
    return descriptor() == pair ? std::vector{put, end} : std::vector{both};
  }
  [[nodiscard]] Span slot(const Job& job) const {
    return {ends_.slots, job.to ? 0 : pair, job.bytes, slot_pitch(), ring_slots};
  }
  u32 add_words(const Place& at, u64 bytes) {
    return add({at, at.kind == PlaceKind::gpu ? MemKind::device : MemKind::pinned, bytes, Content::zero});
  }
  u32 add(const Region& region) {
    program_.regions.push_back(region);
    return static_cast<u32>(program_.regions.size() - 1);
  }

  Program& program_;
  const Case& case_;
  Ends ends_;
  u32 messages_;
};

/// The kernels of a GPU whose blocks are one of each connection.
enum Grid : u32 { servers_grid, posters_grid, receivers_grid };

/// A block of one thread, or a CPU thread, that exchanges words. Its flow is only for the report of its time.
void add_user(Program& program, const Case& c, const Place& at, std::vector<Step> loop, std::optional<u32> grid = {}) {
  program.flows.push_back({static_cast<u32>(program.actors.size()), c.src, c.dst, c.src_memory, c.dst_memory, 0});
  program.flows.back().measured = false;
  Actor actor;
  actor.place = at;
  actor.kind = at.kind == PlaceKind::numa ? ActorKind::cpu_thread : ActorKind::gpu_block;
  if (at.kind == PlaceKind::numa) actor.clock = Clock::host;
  else actor.grid = grid;
  actor.loop = std::move(loop);
  program.actors.push_back(std::move(actor));
}

Program empty(const Case& c) {
  Program program;
  program.peer = c.src.kind == PlaceKind::gpu && c.dst.kind == PlaceKind::gpu && c.src != c.dst;
  if (c.engine == Engine::ce) program.held_by = HeldBy::nothing;  // host threads exchange the words of both
  return program;
}

Program measured_first(Program program) {
  std::ranges::stable_partition(program.flows, &Flow::measured);
  return program;
}

Ends ends_of(const Case& c) { return {c.src, c.dst, poster_of(c), node_of(c), c.src_memory, c.dst_memory}; }

Set answer(const Span& word) { return {word, 1, 1}; }

/// An actor that serves one ring.
void add_server(Program& program, const Queue& queue) {
  Actor actor = queue.server();
  queue.serve(static_cast<u32>(program.actors.size()), actor.loop);
  program.actors.push_back(std::move(actor));
}

/// The receiver answers each message with a word, by which the poster knows that the memory of a message is free. A thread
/// of the host serves its rings in turn, and so does a CPU thread that receives.
Program messages(const Case& c) {
  Program program = empty(c);
  const u32 connections = c.number("connections", "1");
  const bool own = c.param("proxies", "own") == "own";
  const u32 servers = own ? connections : std::min(connections, c.number("proxies", "1"));
  std::vector<std::vector<Step>> served(servers), posts, received;
  for (u32 ring = 0; ring < connections; ++ring) {
    Queue queue{program, c, ends_of(c), ring_slots};
    const bool on_host = c.engine != Engine::sm || c.dst.kind == PlaceKind::numa;
    program.regions.push_back(
        {on_host ? node_of(c) : poster_of(c), on_host ? MemKind::pinned : MemKind::device, line_bytes, Content::zero});
    const Span room{static_cast<u32>(program.regions.size() - 1), 0, word_bytes, 0, 1};
    if (ring < servers) program.actors.push_back(queue.server());
    queue.serve(ring % servers, served[ring % servers]);
    posts.emplace_back(std::vector<Step>{Wait{room, u64{1} - ring_slots, 1}});
    queue.post(posts.back());
    if (ring < servers || c.dst.kind == PlaceKind::gpu) received.emplace_back();
    auto& receives = received[c.dst.kind == PlaceKind::gpu ? ring : ring % servers];
    receives.insert(receives.end(), {Step{queue.arrived()}, Step{answer(room)}});
  }
  for (u32 server = 0; server < servers; ++server) {
    auto& actor = program.actors[server];
    actor.loop = std::move(served[server]);
    if (actor.kind == ActorKind::gpu_block) actor.grid = grid_of(c, servers_grid);
  }
  for (auto& loop : posts) add_user(program, c, poster_of(c), std::move(loop), grid_of(c, posters_grid));
  for (auto& loop : received) add_user(program, c, c.dst, std::move(loop), grid_of(c, receivers_grid));
  return measured_first(std::move(program));
}

/// A GPU answers through a ring of its own, and a CPU thread with a word.
Program round_trip(const Case& c) {
  Program program = empty(c);
  Queue there{program, c, ends_of(c), 1};
  std::vector<Step> first, second{there.arrived()};
  there.post(first);
  add_server(program, there);
  if (c.dst.kind == PlaceKind::gpu) {
    Queue back{program, c, {c.dst, c.src, c.dst, node_of(c), c.dst_memory, c.src_memory}, 1};
    back.post(second);
    add_server(program, back);
    first.emplace_back(back.arrived());
  } else {
    program.regions.push_back({node_of(c), MemKind::pinned, line_bytes, Content::zero});
    const Span word{static_cast<u32>(program.regions.size() - 1), 0, word_bytes, 0, 1};
    second.emplace_back(answer(word));
    first.emplace_back(Wait{word, 1, 1});
  }
  add_user(program, c, poster_of(c), std::move(first));
  add_user(program, c, c.dst, std::move(second));
  return measured_first(std::move(program));
}

/// Nobody serves the ring: a post alone.
Program posts(const Case& c) {
  Program program;
  program.peer = c.dst.kind == PlaceKind::gpu && c.src != c.dst;
  const MemKind memory = c.dst.kind == PlaceKind::gpu ? MemKind::device : MemKind::pinned;
  const u64 bytes = c.number("descriptor", "32");
  program.regions = {{c.src, MemKind::device, line_bytes, Content::pattern},
                     {c.src, MemKind::device, line_bytes, Content::poison},
                     {c.src, MemKind::device, line_bytes, Content::zero},
                     {c.dst, memory, ring_slots * std::max(2 * pair, bytes), Content::zero}};
  const Span from{0, 0, line_bytes, 0, 1}, to{1, 0, line_bytes, 0, 1}, signal{2, 0, word_bytes, 0, 1};
  Job put{0, bytes, from, to}, end{0, bytes};
  (bytes == pair ? end : put).signal = signal;
  std::vector<Step> loop;
  for (const Job* job : {&put, &end}) {
    if (!job->to && !job->signal) continue;
    Set set{{3, job->to ? 0 : pair, bytes, std::max(2 * pair, bytes), ring_slots}, 1, 1};
    set.job = *job;
    loop.emplace_back(set);
  }
  add_user(program, c, c.src, std::move(loop));
  program.flows.front().measured = true;
  return program;
}

}  // namespace

std::vector<Benchmark> queued_puts() {
  using enum PlaceKind;
  const Param descriptor{"descriptor",
                         {"32", "16", "64", "128"},
                         "bytes of a descriptor: one of 16 holds a put or its word, others hold both"};
  const Param on_own{"queue", {"host", "own"}, "the memory of the ring: the host's, or that of the GPU that posts"};
  const Param anywhere{
      "queue",
      {"host", "own", "peer"},
      "the memory of the ring: the host's, that of the GPU that posts, or that of the GPU that receives"};
  const Param threads{"threads", {"256", "32", "1024"}, "threads of the block that serves the ring"};
  const Param connections{
      "connections", {"1", "2", "4", "8", "16", "32", "64"}, "rings, each with a poster of its own"};
  constexpr bool not_in_id = false;
  const Param proxies{"proxies",
                      {"own", "1", "2", "4", "8"},
                      "threads of the host, each of which serves several rings in turn; own: one for each ring",
                      not_in_id};
  std::vector<Benchmark> rows;
  const auto add = [&](std::string_view name, std::string_view summary, Engine engine, PlaceKind src, PlaceKind dst,
                       Relation relation) {
    const bool is_stream = name == "queued_put";
    std::vector<Param> params{descriptor};
    if (engine == Engine::sm) params.push_back(dst == gpu ? anywhere : on_own);
    if (engine == Engine::sm) params.push_back(threads);
    if (is_stream) params.insert(params.end(), {connections, launch_param()});
    if (is_stream && engine != Engine::sm) params.push_back(proxies);
    const auto memory = [](PlaceKind at) { return at == gpu ? MemKind::device : MemKind::pinned; };
    rows.push_back({name,
                    summary,
                    "Klenk 4 (KL-2, KL-4)",
                    engine,
                    src,
                    dst,
                    relation,
                    {{memory(src), memory(dst)}},
                    std::move(params),
                    is_stream ? messages : round_trip});
  };
  constexpr std::string_view by_kernel = "puts that a GPU posts as descriptors, and a kernel on it carries out",
                             by_engine =
                                 "puts that a GPU posts as descriptors, and a CPU thread asks the copy engine for",
                             by_cpu = "puts between host memories that a GPU posts as descriptors to a CPU thread";
  for (const char* name : {"queued_put", "queued_put_ping_pong"}) {
    add(name, by_kernel, Engine::sm, gpu, gpu, Relation::any);
    add(name, by_kernel, Engine::sm, gpu, numa, Relation::any);
    add(name, by_engine, Engine::ce, gpu, gpu, Relation::different);
    add(name, by_engine, Engine::ce, gpu, numa, Relation::any);
    add(name, by_cpu, Engine::cpu, numa, numa, Relation::any);
  }
  for (const auto dst : {gpu, numa})
    rows.push_back({"post",
                    "descriptors that a GPU posts to a ring in that memory, which nobody serves",
                    "Klenk 4 (KL-4)",
                    Engine::sm,
                    gpu,
                    dst,
                    Relation::any,
                    {{MemKind::device, dst == gpu ? MemKind::device : MemKind::pinned}},
                    {descriptor},
                    posts,
                    false,
                    Taken::by_name,
                    Role::latency});
  return rows;
}

}  // namespace linkscope
