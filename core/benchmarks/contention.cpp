// One kind of work beside another at the same GPU and NUMA node. Actors run for a duration, so the rate of the measured
// kind beside the other shows who slows whom.
#include <algorithm>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "benchmarks/messages.hpp"

namespace linkscope {
namespace {

using namespace literals;
using enum MemKind;

constexpr u64 copied = 16_MiB, in_flight = 4;  // bytes of a transfer; distinct slices of each
constexpr u32 cpu_threads = 4;                 // of memory traffic by CPUs

/// Where work runs: a GPU, another one, a NUMA node, and the disk if a work reads files.
struct Site {
  Place gpu, other_gpu, node, disk;
};

struct Kind {
  std::string_view name, summary;
  Engine engine;
  PlaceKind src, dst;
  Relation relation;
  std::pair<MemKind, MemKind> memories;
  u64 bytes;  // of one operation; 0: it is no transfer
  std::vector<Program> (*programs)(const Kind&, const Site&);
};

Case case_of(const Kind& kind, const char* benchmark, const Place& src, const Place& dst) {
  const auto [src_memory, dst_memory] = kind.memories;
  return {benchmark, kind.engine, src, dst, src_memory, dst_memory, kind.bytes, in_flight * kind.bytes, {}};
}

std::vector<Program> to_gpu(const Kind& kind, const Site& at) {
  return {build_program(case_of(kind, "h2d", at.node, at.gpu))};
}
std::vector<Program> from_gpu(const Kind& kind, const Site& at) {
  return {build_program(case_of(kind, "d2h", at.gpu, at.node))};
}
std::vector<Program> bidirectional(const Kind& kind, const Site& at) {
  Case back = case_of(kind, "d2h", at.gpu, at.node);
  std::swap(back.src_memory, back.dst_memory);
  return {build_program(case_of(kind, "h2d", at.node, at.gpu)), build_program(back)};
}
std::vector<Program> within_gpu(const Kind& kind, const Site& at) {
  return {build_program(case_of(kind, "local", at.gpu, at.gpu))};
}
std::vector<Program> to_peer(const Kind& kind, const Site& at) {
  return {build_program(case_of(kind, "d2d", at.gpu, at.other_gpu))};
}
std::vector<Program> zero_copy(const Kind& kind, const Site& at) {
  return {build_program(case_of(kind, "read", at.node, at.gpu))};
}
std::vector<Program> product(const Kind& kind, const Site& at) {
  return {build_program(case_of(kind, "gemm", at.gpu, at.gpu))};
}
std::vector<Program> triad(const Kind& kind, const Site& at) {
  return {build_program(case_of(kind, "compute_triad", at.gpu, at.gpu))};
}
/// Kernels of one block that read one line, so that their launches take the time.
std::vector<Program> launches(const Kind& kind, const Site& at) {
  Case tiny = case_of(kind, "read", at.gpu, at.gpu);
  tiny.bytes = 256;
  tiny.params = {{"blocks", "1"}, {"threads", "256"}};
  auto program = build_program(tiny);
  program.flows[0].bytes = 0;
  return {std::move(program)};
}
std::vector<Program> round_trips(const Kind& kind, const Site& at) {
  return {build_program(case_of(kind, "ping_pong", at.node, at.gpu))};
}
/// Small messages have a latency; those by TCP, a rate.
std::vector<Program> small_messages(const Kind& kind, const Site& at) {
  auto program = message_program(case_of(kind, "message", at.node, at.node), kind.bytes, {}, {});
  program.flows[0].bytes = 0;
  return {std::move(program)};
}
std::vector<Program> by_tcp(const Kind& kind, const Site& at) {
  Case one = case_of(kind, "message", at.node, at.node);
  one.params = {{"channel", "tcp"}};
  return {message_program(one, kind.bytes, {}, {})};
}
std::vector<Program> host_traffic(const Kind& kind, const Site& at) {
  return std::vector<Program>(cpu_threads, build_program(case_of(kind, "h2h", at.node, at.node)));
}

std::vector<Program> file_reads(const Kind& kind, const Site& at) {
  return {build_program(case_of(kind, "read_file", at.disk, at.node))};
}

/// The row of a kind of work beside other work; `text` is its name and its summary, and outlives the row.
Benchmark row_of(const Kind& kind, const std::pair<std::string, std::string>& text, std::vector<Param> params,
                 Program (*build)(const Case&)) {
  constexpr bool sized = false;
  return {text.first,      text.second,       "linkscope", kind.engine, kind.src,       kind.dst,        kind.relation,
          {kind.memories}, std::move(params), build,       sized,       Taken::by_name, Role::contention};
}

const std::vector<Kind>& kinds() {
  using enum PlaceKind;
  static const std::vector<Kind> all{
      {"h2d", "copies to a GPU", Engine::ce, numa, gpu, Relation::any, {pinned, device}, copied, to_gpu},
      {"d2h", "copies from a GPU", Engine::ce, gpu, numa, Relation::any, {device, pinned}, copied, from_gpu},
      {"both",
       "copies to and from a GPU",
       Engine::ce,
       numa,
       gpu,
       Relation::any,
       {pinned, device},
       copied,
       bidirectional},
      {"local", "copies within a GPU", Engine::ce, gpu, gpu, Relation::same, {device, device}, 64_MiB, within_gpu},
      {"peer", "copies to another GPU", Engine::ce, gpu, gpu, Relation::different, {device, device}, copied, to_peer},
      {"zero_copy",
       "a GPU reads host memory",
       Engine::sm,
       numa,
       gpu,
       Relation::any,
       {pinned, device},
       copied,
       zero_copy},
      {"memory",
       "a kernel bound by memory",
       Engine::sm,
       gpu,
       gpu,
       Relation::same,
       {device, device},
       64_MiB,
       within_gpu},
      {"triad", "a = b + s c", Engine::sm, gpu, gpu, Relation::same, {device, device}, 0, triad},
      {"gemm", "products of matrices", Engine::sm, gpu, gpu, Relation::same, {device, device}, 0, product},
      {"launch", "launches of small kernels", Engine::sm, gpu, gpu, Relation::same, {device, device}, 0, launches},
      {"ping_pong",
       "round trips of a word between CPU and GPU",
       Engine::cpu,
       numa,
       gpu,
       Relation::any,
       {pinned, pinned},
       0,
       round_trips},
      {"host",
       "memory traffic of four CPU threads",
       Engine::cpu,
       numa,
       numa,
       Relation::same,
       {pageable, pinned},
       copied,
       host_traffic},
      {"message",
       "round trips of 8 B between two processes by shared memory",
       Engine::cpu,
       numa,
       numa,
       Relation::same,
       {pageable, pageable},
       8,
       small_messages},
      {"socket",
       "round trips of 64 KiB between two processes by TCP",
       Engine::cpu,
       numa,
       numa,
       Relation::same,
       {pageable, pageable},
       64_KiB,
       by_tcp},
      {"disk",
       "one CPU thread reads a file",
       Engine::file,
       disk,
       numa,
       Relation::any,
       {file, pinned},
       copied,
       file_reads},
  };
  return all;
}

const Kind& kind_named(std::string_view name) {
  return *std::find_if(kinds().begin(), kinds().end(), [&](const Kind& kind) { return kind.name == name; });
}

bool reads_disk(const Kind& kind) { return kind.src == PlaceKind::disk; }

/// The row of a kind beside reads of files. A disk has a name, not a number, so the source of the row's paths is that
/// disk; the work itself runs at the GPU or node of the destination.
Kind beside_disk(Kind kind) {
  const bool at_gpu = kind.src == PlaceKind::gpu || kind.dst == PlaceKind::gpu;
  kind.src = PlaceKind::disk;
  kind.dst = at_gpu ? PlaceKind::gpu : PlaceKind::numa;
  kind.relation = Relation::any;
  kind.memories = {file, at_gpu ? device : pinned};
  return kind;
}

/// The place of the other work: at the case's GPU and node, otherwise at gpu:0 and numa:0 of the same host.
Site site_of(const Case& c) {
  const auto number = [&](PlaceKind kind, u32 index) { return Place{kind, index, c.src.host, {}}; };
  const auto end = [&](PlaceKind kind) {
    return c.src.kind == kind ? c.src : c.dst.kind == kind ? c.dst : number(kind, 0);
  };
  Site site{end(PlaceKind::gpu), {}, end(PlaceKind::numa), c.src};
  site.other_gpu =
      c.dst.kind == PlaceKind::gpu && c.dst != site.gpu ? c.dst : number(PlaceKind::gpu, site.gpu.index == 0);
  return site;
}

constexpr std::string_view prefix = "contended_";

Program build(const Case& c) {
  const Site site = site_of(c);
  std::vector<Program> programs;
  const auto add = [&](const Kind& kind, bool measured) {
    for (auto& program : kind.programs(kind, site)) {
      program.cache = CacheState::cold;
      program.held_by = HeldBy::kernel;
      for (auto& flow : program.flows) flow.measured = flow.measured && measured;
      programs.push_back(std::move(program));
    }
  };
  add(kind_named(std::string_view{c.benchmark}.substr(prefix.size())), true);
  if (const auto beside = c.param("beside", "none"); beside != "none") add(kind_named(beside), false);
  return together(programs);
}

constexpr std::string_view loaded_prefix = "loaded_";
constexpr u64 small = 4_KiB;

/// Small work whose time shows the load of links, memories and queues.
struct Probe {
  std::string_view kind, summary;  // name of the kind that it is a small form of
};
constexpr Probe probes[] = {
    {"h2d", "a copy of 4 KiB to a GPU"},
    {"d2h", "a copy of 4 KiB from a GPU"},
    {"zero_copy", "one block reads 4 KiB of host memory"},
    {"launch", "a launch of a small kernel"},
    {"ping_pong", "a round trip of a word between CPU and GPU"},
};

Program build_probe(const Kind& kind, const Site& site) {
  Kind tiny = kind;
  if (tiny.bytes != 0) tiny.bytes = small;
  if (kind.name != "zero_copy") return together(tiny.programs(tiny, site));
  Case one_block = case_of(tiny, "read", site.node, site.gpu);
  one_block.params = {{"blocks", "1"}, {"threads", "256"}};
  return build_program(one_block);
}

Program build_loaded(const Case& c) {
  const Site site = site_of(c);
  const u32 load = c.number("load", "0");
  std::vector<Program> programs{
      build_probe(kind_named(std::string_view{c.benchmark}.substr(loaded_prefix.size())), site)};
  const Kind& beside = kind_named(c.param("beside", "h2d"));
  if (load > 0)
    for (auto& program : beside.programs(beside, site)) {
      for (auto& actor : program.actors) actor.tenths = load;
      for (auto& flow : program.flows) flow.measured = false;
      programs.push_back(std::move(program));
    }
  for (auto& program : programs) {
    program.cache = CacheState::cold;
    program.held_by = HeldBy::kernel;
  }
  return together(programs);
}

std::vector<Benchmark> loaded() {
  static const std::vector<std::pair<std::string, std::string>> texts = [] {
    std::vector<std::pair<std::string, std::string>> made;
    for (const auto& probe : probes)
      made.emplace_back(std::string{loaded_prefix} + std::string{probe.kind},
                        std::string{probe.summary} + ", against background traffic");
    return made;
  }();
  std::vector<std::string_view> others;
  for (const auto& kind : kinds())
    if (kind.name != "ping_pong" && kind.name != "launch" && !reads_disk(kind)) others.push_back(kind.name);
  const Param beside{"beside", others, "the background traffic, at the same GPU and NUMA node"};
  const Param load{"load",
                   {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"},
                   "tenths of the time in which the background works"};
  std::vector<Benchmark> rows;
  for (std::size_t i = 0; i < std::size(probes); ++i) {
    const Kind& kind = kind_named(probes[i].kind);
    rows.push_back(row_of(kind, texts[i], {beside, load}, build_loaded));
  }
  return rows;
}

}  // namespace

std::vector<Benchmark> contention() {
  static const std::vector<std::pair<std::string, std::string>> texts = [] {
    std::vector<std::pair<std::string, std::string>> made;
    for (const auto& kind : kinds())
      made.emplace_back(std::string{prefix} + std::string{kind.name}, std::string{kind.summary} + " beside other work");
    return made;
  }();
  std::vector<std::string_view> all{"none"}, without_disk;
  for (const auto& kind : kinds()) all.push_back(kind.name);
  std::copy_if(all.begin(), all.end(), std::back_inserter(without_disk), [](auto name) { return name != "disk"; });
  const auto beside = [](const std::vector<std::string_view>& values) {
    return Param{"beside", values, "the other work, at the same GPU and NUMA node; none: the work alone"};
  };
  std::vector<Benchmark> rows;
  for (std::size_t i = 0; i < kinds().size(); ++i) {
    const Kind& kind = kinds()[i];
    rows.push_back(row_of(kind, texts[i], {beside(reads_disk(kind) ? all : without_disk), again_param()}, build));
    if (!reads_disk(kind)) rows.push_back(row_of(beside_disk(kind), texts[i], {beside({"disk"})}, build));
  }
  for (auto& row : loaded()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace linkscope
