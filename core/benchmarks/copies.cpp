#include "benchmarks/copies.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace linkscope {

void misfit(const Case& c, const std::string& what) { throw Error{ErrorKind::usage, c.benchmark + ": " + what}; }

u64 slice_stride(u64 bytes) {
  // No two slices share a cache line or a GPU sector.
  return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

u32 slice_count(u64 bytes, u64 footprint_bytes, Engine engine) {
  // The number of single calls that a stream's queue holds. A batch of that size uses each slice once. A CPU thread has
  // no queue.
  const u64 most = engine == Engine::cpu ? 32768 : 512;
  return static_cast<u32>(std::clamp<u64>((footprint_bytes + bytes - 1) / bytes, 1, most));
}

Param mode_param() {
  return {
      "mode", {"batched", "single"}, "batched: cost of one copy among many queued copies; single: latency of one copy"};
}

Param launch_param() {
  constexpr bool not_in_id = false;
  return {"launch",
          {"one", "each"},
          "blocks of a GPU that do the same: one kernel on one stream, or each a kernel on a stream of its own",
          not_in_id};
}

std::optional<u32> grid_of(const Case& c, u32 number) {
  return c.param("launch", "one") == "one" ? std::optional{number} : std::nullopt;
}

Param two_processes_param() {
  return {"way", {"mps", "processes"}, "the GPU runs kernels of both processes under MPS, or the processes take turns"};
}

Param after_param() {
  return {"after",
          {"kernel", "wait"},
          "what precedes the copy on the stream: a kernel (compute, then copy), or an idle stream"};
}

Param clock_param() {
  constexpr bool default_in_id = false;
  return {
      "clock",
      {"event", "host"},
      "event: time on the GPUs, by events, of work that was queued before; host: from the first call until all work is "
      "done, the calls included",
      default_in_id};
}

Param idle_param() {
  constexpr bool default_in_id = false;
  return {"idle_gap_s",
          {"0", "0.0001", "0.001", "0.01", "0.1"},
          "idle time before a single operation (mode=single)",
          default_in_id};
}

void let_idle(Program& program, const Case& c) {
  program.idle = Seconds{std::stod(c.param("idle_gap_s", "0"))};
  if (program.idle == Seconds{0}) return;
  if (c.param("mode", "batched") != "single")
    throw Error{ErrorKind::usage,
                c.benchmark + ": idle_gap_s needs mode=single: it is the idle time before a single operation"};
  program.most_iterations = 1;
}

void set_clock(Program& program, const Case& c) {
  if (c.param("clock", "event") != "host") return;
  for (auto& actor : program.actors) actor.clock = Clock::host;
  program.held_by = HeldBy::nothing;  // the time includes the host's calls
}

Param cache_param() {
  constexpr bool default_in_id = false;
  return {
      "cache",
      {"cold", "hot", "written", "dirty", "cleaned"},
      "cold: copies use memory that no CPU cache holds; hot: all copies use the same bytes, which caches "
      "hold if they fit; written: the calling core has just written the bytes; dirty: another core has; cleaned: the "
      "calling core has written them, and back to memory by clwb",
      default_in_id};
}

Param depth_param() {
  constexpr bool default_in_id = false;
  return {"depth",
          {"1", "4", "16", "32"},
          "requests of io_uring in flight that share one read or write of the file; 1: one call of the thread",
          default_in_id};
}

Shape file_shape(const Case& c) {
  const auto depth = c.number("depth", "1");
  return depth > 1 ? Shape{depth, 0} : Shape{};
}

Param file_cache_param() {
  constexpr bool default_in_id = false;
  return {"cache",
          {"cold", "hot"},
          "cold: the file has left the page cache, and is read and written past it (O_DIRECT); hot: through the page "
          "cache, which holds it",
          default_in_id};
}

Param l2_param() {
  constexpr bool default_in_id = false;
  return {"cache",
          {"cold", "hot"},
          "cold: threads use memory that no L2 holds; hot: all threads use the same bytes, which L2 caches hold if "
          "they fit",
          default_in_id};
}

Param cpu_param() {
  constexpr bool default_in_id = false;
  return {
      "cpu",
      {"memory", "numa:0", "numa:1", "numa:2", "numa:3", "numa:4", "numa:5", "numa:6", "numa:7"},
      "NUMA node of the host thread that queues the copies (and that copies pageable memory, if the driver uses the "
      "calling thread); memory: the node of the memory",
      default_in_id};
}

Param binding_param() {
  constexpr bool default_in_id = false;
  return {"binding",
          {"numa", "none"},
          "numa: memory and host thread are bound to the NUMA node; none: to no node, and the kernel chooses",
          default_in_id};
}

void bind(Program& program, const Case& c) {
  if (c.param("binding", "numa") == "numa") return;
  if (c.param("cpu", "memory") != "memory")
    throw Error{ErrorKind::usage,
                c.benchmark + ": a thread on " + c.param("cpu", "") + " is bound: leave out cpu, or binding=none"};
  for (auto& region : program.regions) region.bound = region.at.kind != PlaceKind::numa;
  for (auto& actor : program.actors) actor.bound = false;
}

Place bound(const Case& c, const Place& memory) {
  const auto cpu = c.param("cpu", "memory");
  if (cpu == "memory") return memory;
  Place place = parse_place(cpu);
  place.host = memory.host;
  return place;
}

Param blocks_param() {
  return {"blocks",
          {"sms", "1", "2", "4", "8", "16", "32", "64", "128"},
          "thread blocks; sms: one on each SM, so that several kernels fit at once"};
}

Param threads_param() { return {"threads", {"512", "256", "1024"}, "threads in a block"}; }

Param initiator_param() {
  return {"initiator",
          {"src", "dst"},
          "the GPU whose stream or threads copy: the source writes (push) or the destination reads (pull)"};
}

Param bidirectional_param() { return {"bidirectional", {"false", "true"}, "the opposite copy runs concurrently"}; }

Param again_param() {
  constexpr bool default_in_id = false;
  return {"again", {"false", "true"}, "alone once more, after the work at once: shows a drift", default_in_id};
}

Param pages_param() {
  return {"pages",
          {"2MiB", "1GiB", "transparent"},
          "reserved huge pages of that size; transparent: 2 MiB pages that the kernel provides"};
}

Region completed(const Case& c, Region region) {
  region.process = is_shared(region.kind) ? 1 : 0;
  if (region.kind != MemKind::hugepage && region.kind != MemKind::registered_hugepage) return region;
  const auto pages = c.param("pages", "2MiB");
  region.page_bytes = pages == "1GiB" ? u64{1} << 30 : u64{2} << 20;
  region.transparent = pages == "transparent";
  return region;
}

Shape kernel_shape(const Case& c) {
  if (c.engine != Engine::sm && c.engine != Engine::tma) return {};
  const auto blocks = c.param("blocks", "sms");
  constexpr u32 one_warp = 32;  // one thread issues a TMA copy
  return {blocks == "sms" ? 0 : static_cast<u32>(std::stoul(blocks)),
          c.engine == Engine::tma ? one_warp : c.number("threads", "512")};
}

Program empty_program(const Case& c) {
  Program program;
  program.held_by = c.param("after", "kernel") == "kernel" ? HeldBy::kernel : HeldBy::wait;
  const auto cache = c.param("cache", "cold");
  program.cache = cache == "cold"      ? CacheState::cold
                  : cache == "hot"     ? CacheState::hot
                  : cache == "written" ? CacheState::written
                  : cache == "dirty"   ? CacheState::dirty
                  : cache == "fresh"   ? CacheState::fresh
                                       : CacheState::cleaned;
  return program;
}

void add_copy(Program& program, const Case& c, const Copy& copy, Actor actor) {
  const auto region = static_cast<u32>(program.regions.size());
  Span from{region, 0, c.bytes, 0, 1, copy.src_rows}, to{region + 1, 0, c.bytes, 0, 1, copy.dst_rows};
  from.slices = to.slices = slice_count(std::max(from.extent(), to.extent()), c.footprint_bytes, c.engine);
  const auto stride = [](const Span& span) {
    return slice_stride(span.extent() + span.rows.pitch - span.rows.bytes);
  };  // behind the last row as between rows
  from.stride = stride(from);
  to.stride = stride(to);
  program.regions.push_back(completed(c, {copy.src, copy.src_memory, from.stride * from.slices, Content::pattern}));
  program.regions.push_back(completed(c, {copy.dst, copy.dst_memory, to.stride * to.slices, Content::poison}));
  Move move{from, to, c.engine};
  move.peer_call = c.param("call", "memcpy") == "peer";
  move.shape = c.engine == Engine::file ? file_shape(c) : kernel_shape(c);
  move.row_by_row = copy.row_by_row;
  actor.loop.emplace_back(std::move(move));
  program.flows.push_back(
      {static_cast<u32>(program.actors.size()), copy.src, copy.dst, copy.src_memory, copy.dst_memory, c.bytes});
  // Data that a core has written stay in its cache until they are copied for the first time.
  if (once_only(program.cache)) program.most_iterations = from.slices;
  program.actors.push_back(std::move(actor));
}

Actor stream_at(const Place& gpu, const Place& cpu, std::vector<Step> loop) {
  return {gpu, ActorKind::stream, Clock::host, cpu, 0, {}, std::move(loop)};
}

Actor stream_of(const Case& c) {
  Actor stream;
  if (c.src.kind == PlaceKind::gpu && c.dst.kind == PlaceKind::gpu) {
    stream.place = c.param("initiator", "src") == "src" ? c.src : c.dst;
  } else {
    stream.place = c.src.kind == PlaceKind::gpu ? c.src : c.dst;
    stream.cpu = bound(c, c.src.kind == PlaceKind::numa ? c.src : c.dst);
  }
  return stream;
}

Program one_copy(const Case& c, const Copy& copy) {
  Program program = empty_program(c);
  program.peer = c.src.kind == PlaceKind::gpu && c.dst.kind == PlaceKind::gpu && c.src != c.dst;
  add_copy(program, c, copy, stream_of(c));
  return program;
}

Program one_sided(const Case& c, const Region& region, const Place& by, Kernel kernel) {
  Program program;
  program.peer = c.src.kind == PlaceKind::gpu && c.dst.kind == PlaceKind::gpu && c.src != c.dst;
  program.regions.push_back(completed(c, region));
  Actor actor;
  actor.place = by;
  if (by.kind == PlaceKind::numa) {
    actor.kind = ActorKind::cpu_thread;
    actor.clock = Clock::host;
  } else if (region.at.kind == PlaceKind::numa) {
    actor.cpu = region.at;
  }
  actor.loop.emplace_back(std::move(kernel));
  program.actors.push_back(std::move(actor));
  program.flows.push_back({0, c.src, c.dst, c.src_memory, c.dst_memory, c.bytes});
  return program;
}

std::vector<Benchmark> of_role(Role role, std::vector<Benchmark> rows) {
  for (auto& row : rows) row.role = role;
  return rows;
}

}  // namespace linkscope
