#include "sim_testing.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

namespace linkscope::testing {

using namespace linkscope::literals;

nlohmann::json bundled(const std::string& name) {
  const auto file = std::filesystem::path{__FILE__}.parent_path() / "../../machines" / (name + ".toml");
  const std::string script = "import json, sys, tomllib; json.dump(tomllib.load(sys.stdin.buffer), sys.stdout)";
  const auto command = "python3 -c '" + script + "' < '" + file.string() + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe{popen(command.c_str(), "r"), pclose};
  std::string text;
  std::array<char, 4096> buffer{};
  while (const auto got = fread(buffer.data(), 1, buffer.size(), pipe.get())) text.append(buffer.data(), got);
  if (text.empty()) throw std::runtime_error{"cannot read " + file.string()};
  return nlohmann::json::parse(text);
}

nlohmann::json exact(nlohmann::json machine) {
  machine.erase("noise");
  machine["costs"]["event_tick_ns"] = 0;
  return machine;
}

nlohmann::json toy() {
  return nlohmann::json::parse(R"({
    "machine": {"name": "toy"},
    "numa": [{"places": ["numa:0", "numa:1"], "memory_gib": 64, "dram_gbps": 100, "memcpy_gbps": 5, "memcpy_remote_gbps": 4, "load_us": 0.1}],
    "gpu": [{"at": {"numa:0": ["gpu:0"], "numa:1": ["gpu:1"]}, "memory_gib": 16, "sms": 10, "copy_engines": 3,
             "memory_gbps": 1000, "local_copy_gbps": 400}],
    "link": [
      {"name": "bus", "between": [["numa:0", "gpu:0"], ["numa:1", "gpu:1"]], "gbps": 12.5, "efficiency": 0.8, "kernel_efficiency": 0.4, "latency_us": 0.5},
      {"name": "smp", "between": [["numa:0", "numa:1"]], "gbps": 20, "efficiency": 1, "latency_us": 0.25},
      {"name": "bridge", "between": [["gpu:0", "gpu:1"]], "gbps": 40, "efficiency": 1, "latency_us": 0.25}],
    "peer": {"groups": [["gpu:0", "gpu:1"]]},
    "costs": {"call_us": 2, "launch_us": 3, "sync_us": 4, "event_us": 1, "event_tick_ns": 0,
              "host_stamp_us": 0, "cpu_copy_us": 0.1},
    "copy": {"to_device_us": 2, "from_device_us": 3, "peer_us": 2.75, "local_us": 1,
             "inline_kib": 1, "inline_us": 1, "inline_gbps": 1, "channel_us": 6},
    "kernel": {"launch_us": 2, "load_us": 0.5, "read_tile_us": 0.2, "write_tile_us": 0.1, "memory_efficiency": 0.5},
    "managed": {"page_kib": 64, "launch_us": 2, "gpu_batch_pages": 4, "gpu_batch_us": 20, "gpu_page_us": 3, "cpu_fault_pages": 2,
                "cpu_fault_us": 15, "to_device_gbps": 8, "from_device_gbps": 4, "peer_gbps": 16, "prefetch_us": 30,
                "piece_kib": 128, "to_device_piece_us": 5, "from_device_piece_us": 7},
    "calls": {"locked_us": 1, "argument_kib_us": 2, "end_us": 7, "synchronize_us": 0.5, "record_us": 0.75, "query_us": 0.25,
              "create_stream_us": 5, "destroy_stream_us": 6, "instantiate_us": 10, "instantiate_node_us": 2, "upload_us": 8,
              "upload_node_us": 0.5, "graph_us": 4, "graph_node_us": 0.125},
    "atomic": {"gpu_us": 0.3, "host_us": 0.2, "gpu_gops": 4, "same_gops": 0.5, "host_gops": 0.25, "link_bytes": 32},
    "pageable": {"chunk_kib": 100, "slots": 3, "to_device_gbps": 4, "from_device_gbps": 5},
    "staged_peer": {"chunk_kib": 100, "slots": 3, "chunk_us": 5}})");
}

Case copy_case(const std::string& benchmark, const std::string& src, const std::string& src_memory,
               const std::string& dst, const std::string& dst_memory, u64 bytes,
               std::map<std::string, std::string> params) {
  return {benchmark,
          benchmark == "h2h" ? Engine::cpu : Engine::ce,
          parse_place(src),
          parse_place(dst),
          parse_mem_kind(src_memory),
          parse_mem_kind(dst_memory),
          bytes,
          4 * bytes,
          std::move(params)};
}

Program valid_program(const std::string& benchmark, Engine engine, const std::string& src, const std::string& dst,
                      std::map<std::string, std::string> params, u64 bytes) {
  const auto memory = [](const std::string& at) { return at.starts_with("gpu") ? "device" : "pinned"; };
  auto c = copy_case(benchmark, src, memory(src), dst, memory(dst), bytes, std::move(params));
  c.engine = engine;
  auto program = build_program(c);
  validate(program);
  return program;
}

std::vector<Benchmark> rows_of(const std::vector<std::string_view>& names) {
  std::vector<Benchmark> found;
  for (const auto& row : benchmarks())
    if (std::find(names.begin(), names.end(), row.name) != names.end()) found.push_back(row);
  return found;
}

Case default_case(const Benchmark& row) {
  Case c;
  c.benchmark = row.name;
  c.engine = row.engine;
  c.src = {row.src, row.relation == Relation::from_all ? all_places : 0u, one_host, {}};
  c.dst = {row.dst,
           row.relation == Relation::different ? 1u
           : row.relation == Relation::to_all  ? all_places
                                               : 0u,
           one_host,
           {}};
  if (row.relation == Relation::other_host) c.src.host = 0, c.dst.host = 1;
  for (const u32 other : {0u, 1u, 2u})
    if (gpu(other) != c.src && gpu(other) != c.dst && (c.src.index == all_places || c.dst.index == all_places))
      c.others.push_back(gpu(other));
  for (auto* end : {&c.src, &c.dst})
    if (end->kind == PlaceKind::disk) end->path = "0";
  constexpr u32 most_ranks = 16;
  if (row.src == PlaceKind::rank)
    for (u32 rank = 0; rank < most_ranks; ++rank) c.ranks.push_back({numa(0), gpu(rank)});
  std::tie(c.src_memory, c.dst_memory) = row.memories.front();
  const bool in_parts = row.name == "pieces" || row.name == "strided";  // the largest part is 64 KiB
  const bool in_huge_pages = row.name.starts_with("fresh");
  c.bytes = !row.sized ? 0 : in_huge_pages ? 2_MiB : in_parts ? 128_KiB : 4_KiB;
  c.footprint_bytes = row.sized ? 1_MiB : 0;
  for (const auto& param : row.params) c.params[std::string{param.name}] = param.values.front();
  return c;
}

Case with_value(Case c, std::string_view param, std::string_view value) {
  if (param == "ranks") c.bytes = 1024 * std::stoul(std::string{value});  // a block for each
  c.params[std::string{param}] = value;
  if (param == "idle_gap_s") c.params["mode"] = "single";
  return c;
}

std::string refusal(const nlohmann::json& machine, const Program& program) {
  return make_sim(machine, 1)->supports(program).why_not;
}

double time_of(Platform& platform, const Program& program, u32 n, const std::string& key) {
  const auto session = platform.prepare(program, key);
  const auto trace = platform.run(*session, {1, {std::vector<u32>(program.actors.size(), n)}, false});
  double first = trace.stamps[0].enter_s, last = trace.stamps[0].exit_s;
  for (const auto& stamp : trace.stamps) {
    first = std::min(first, stamp.enter_s);
    last = std::max(last, stamp.exit_s);
  }
  return last - first;
}

double slope(Platform& platform, const Program& program, u32 n, const std::string& key) {
  return (time_of(platform, program, 2 * n, key) - time_of(platform, program, n, key)) / n;
}

double single(Platform& platform, const Program& program, const std::string& key) {
  return time_of(platform, program, 1, key) - time_of(platform, program, 0, key);
}

void check_us(double seconds, double us) { CHECK(seconds * 1e6 == doctest::Approx(us).epsilon(1e-9)); }

}  // namespace linkscope::testing
