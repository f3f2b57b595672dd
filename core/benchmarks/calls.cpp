// microbench 3 (MB-2), Comm|Scope 5: the cost of calls for the calling CPU thread. Only calls that wait by themselves
// include the work; queued work ends outside the timing.
#include <algorithm>
#include <string>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

constexpr u32 queue = 512;  // half of what a stream's queue holds; a thread that fills the queue waits for the GPU
constexpr u32 kept = 64;    // graphs that exist at the same time

const std::vector<std::pair<MemKind, MemKind>> no_memory{{MemKind::pageable, MemKind::device}};

/// Several threads of the case's NUMA node, each with its own stream, run `loop` concurrently.
Program on_cpu_threads(const Case& c, u32 threads, const std::vector<Step>& loop, u32 most = 0) {
  const Place& at = c.src.kind == PlaceKind::numa ? c.src : c.dst;
  Program program;
  program.cache = CacheState::hot;  // no memory is accessed, so no cache can be cold
  program.most_iterations = most;
  for (u32 thread = 0; thread < threads; ++thread) {
    program.actors.push_back({at, ActorKind::cpu_thread, Clock::host, {}, 0, {}, loop});
    program.flows.push_back({thread, c.src, c.dst, c.src_memory, c.dst_memory, 0});
  }
  return program;
}

u64 count(const Case& c, const char* param, const char* otherwise) { return std::stoul(c.param(param, otherwise)); }

Call call(const Case& c, std::string api, u64 amount = 0) { return {std::move(api), {}, {}, c.dst, amount}; }

Program launch(const Case& c) {
  return on_cpu_threads(c, static_cast<u32>(count(c, "threads", "1")), {call(c, "launch", count(c, "arguments", "0"))},
                        queue);
}

Program launch_to_end(const Case& c) {
  return on_cpu_threads(c, 1, {call(c, "launch"), call(c, "synchronize_stream")});
}

Program synchronize(const Case& c) {
  return on_cpu_threads(c, 1, {call(c, "synchronize_" + c.param("what", "stream"))});
}

Program event(const Case& c) {
  const auto what = c.param("what", "record");
  return on_cpu_threads(c, 1, {call(c, what + "_event")}, what == "record" ? queue : 0);
}

Program stream(const Case& c) { return on_cpu_threads(c, 1, {call(c, "create_stream"), call(c, "destroy_stream")}); }

Program graph(const Case& c) {
  const auto what = c.param("what", "launch");
  const u64 nodes = count(c, "nodes", "10");
  constexpr u64 most_nodes = u64{8} * queue, least = 8;
  const u64 launches = std::min<u64>(queue, std::max(least, most_nodes / nodes));
  return on_cpu_threads(c, 1, {call(c, what + "_graph", nodes)}, static_cast<u32>(what == "launch" ? launches : kept));
}

Program copy_call(const Case& c) {
  const u64 bytes = c.param("size", "4KiB") == "8B" ? 8 : u64{4} << 10;
  Call made = call(c, "copy");
  made.on = c.src.kind == PlaceKind::gpu ? c.src : c.dst;
  made.span = Span{0, 0, bytes, slice_stride(bytes), queue};
  made.to = Span{1, 0, bytes, slice_stride(bytes), queue};
  Program program = on_cpu_threads(c, 1, {made}, queue);
  const u64 all = slice_stride(bytes) * queue;
  program.regions = {{c.src, c.src_memory, all, Content::pattern}, {c.dst, c.dst_memory, all, Content::poison}};
  return program;
}

Param what(std::vector<std::string_view> values, const char* help) { return {"what", std::move(values), help}; }

}  // namespace

std::vector<Benchmark> calls() {
  using enum PlaceKind;
  using enum MemKind;
  const auto row = [](const char* name, const char* summary, std::vector<Param> params, Program (*build)(const Case&)) {
    constexpr bool sized = false;
    return Benchmark{name,          summary,   "microbench 3 (MB-2)", Engine::cpu, numa, gpu,
                     Relation::any, no_memory, std::move(params),     build,       sized};
  };
  const auto copy = [](const char* summary, PlaceKind src, PlaceKind dst, std::pair<MemKind, MemKind> memory) {
    constexpr bool sized = false;
    return Benchmark{"copy_call",
                     summary,
                     "microbench 3 (MB-2)",
                     Engine::cpu,
                     src,
                     dst,
                     Relation::any,
                     {memory},
                     {{"size", {"4KiB", "8B"}, "bytes of the copy; the smallest copies travel in the command itself"}},
                     copy_call,
                     sized};
  };
  Param one_alone = mode_param();
  one_alone.default_in_id = false;
  return of_role(Role::call,
                 {
                     row("launch", "a CPU thread launches empty kernels; times the call only",
                         {{"arguments", {"0", "8", "256", "1024", "4096"}, "bytes of the kernel's arguments"},
                          {"threads",
                           {"1", "2", "4", "8"},
                           "number of CPU threads that launch concurrently, each on its own stream"},
                          one_alone,
                          idle_param()},
                         launch),
                     row("launch_to_end", "a CPU thread launches an empty kernel and waits until it ends",
                         {one_alone, idle_param()}, launch_to_end),
                     row("synchronize", "a CPU thread synchronizes with work that has already ended",
                         {what({"stream", "device", "event"}, "what the thread synchronizes with")}, synchronize),
                     row("event", "a CPU thread records an event, or queries one that has completed",
                         {what({"record", "query"}, "record an event, or query a completed one")}, event),
                     row("stream", "a CPU thread creates a stream and destroys it", {}, stream),
                     row("graph", "a CPU thread launches a graph of empty kernels in sequence, or instantiates it",
                         {what({"launch", "instantiate", "upload"}, "the call"),
                          {"nodes", {"10", "1", "100", "1000"}, "number of kernels in the graph"}},
                         graph),
                     copy("a CPU thread queues copies from host memory to a GPU; times the call only", numa, gpu,
                          {pinned, device}),
                     copy("a CPU thread queues copies from a GPU to host memory; times the call only", gpu, numa,
                          {device, pinned}),
                 });
}

}  // namespace linkscope
