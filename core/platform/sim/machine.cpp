#include "platform/sim/machine.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "platform/sim/machine_table.hpp"

namespace linkscope::sim {
namespace {

class Parser {
 public:
  explicit Parser(const nlohmann::json& file) : file_{&file, "file"} {}

  Machine parse() {
    machine_.name = file_["machine"].text("name");
    numa_nodes();
    gpus();
    nics();
    passed("switch");
    disks();
    links();
    for (const auto& share : file_.list("share"))
      machine_.shares.push_back({share.rate("gbps"), matching_links(share)});
    for (const auto& route : file_.list("route")) machine_.overrides.push_back(explicit_route(route));
    peers();
    costs();
    copies();
    if (file_.has("memory")) machine_.memory = memory_costs(file_["memory"]);
    noise();
    faults();
    return std::move(machine_);
  }

 private:
  Table file_;
  Machine machine_;
  std::map<std::string, Node> nodes_;

  void add_node(const std::string& text) {
    const auto id = static_cast<Node>(nodes_.size());
    if (!nodes_.emplace(text, id).second) wrong(text, "it is defined twice");
  }

  Node node(const std::string& text, const std::string& where) const {
    const auto found = nodes_.find(text);
    if (found == nodes_.end()) wrong(where, "there is no " + text);
    return found->second;
  }

  void numa_nodes() {
    for (const auto& table : file_.list("numa"))
      for (const auto& place : table.list("places")) {
        const auto text = place.value->get<std::string>();
        add_node(text);
        const double near = table.rate("memcpy_gbps");
        const double far = table.has("memcpy_remote_gbps") ? table.rate("memcpy_remote_gbps") : near;
        const double streamed = table.has("memcpy_stream_gbps") ? table.rate("memcpy_stream_gbps") : near;
        machine_.numa.push_back(
            {parse_place(text), static_cast<u64>(table.number("memory_gib") * gib), table.rate("dram_gbps"), near, far,
             streamed, table.number("load_us", 0) * micro, static_cast<u64>(table.number("llc_mib", 0) * kib * kib),
             table.has("llc_gbps") ? table.rate("llc_gbps") : 0, table.has("dirty_gbps") ? table.rate("dirty_gbps") : 0,
             static_cast<u64>(table.number("huge_2mib_pages", 0)), static_cast<u64>(table.number("huge_1gib_pages", 0)),
             table.has("cpus") ? static_cast<u32>(table.count("cpus")) : 1});
      }
    if (machine_.numa.empty()) wrong("numa", "there must be at least one NUMA node");
  }

  void gpus() {
    for (const auto& table : file_.list("gpu"))
      for (const auto& [numa_text, places] : table["at"].value->items())
        for (const auto& place : places) {
          const auto text = place.get<std::string>();
          add_node(text);
          machine_.gpus.push_back({parse_place(text), node(numa_text, table.name + ".at"),
                                   static_cast<u64>(table.number("memory_gib") * gib), table.count("copy_engines"),
                                   table.count("sms"), table.rate("memory_gbps"), table.rate("local_copy_gbps"),
                                   static_cast<u64>(table.number("l2_mib", 0) * kib * kib),
                                   table.has("l2_gbps") ? table.rate("l2_gbps") : 0, wake_up(table),
                                   table.number("compute_capability", 0), operations(table),
                                   table.number("reached_share", 1)});
        }
  }

  /// Operations a second, by element.
  static std::map<std::string, double> operations(const Table& table) {
    constexpr std::pair<const char*, const char*> keys[] = {{"f64", "f64_tflops"},   {"f32", "f32_tflops"},
                                                            {"bf16", "bf16_tflops"}, {"f16", "f16_tflops"},
                                                            {"tf32", "tf32_tflops"}, {"fp8", "fp8_tflops"}};
    std::map<std::string, double> known;
    for (const auto& [element, key] : keys)
      if (table.has(key)) known[element] = table.number(key) * 1e12;
    return known;
  }

  static WakeUp wake_up(const Table& table) {
    if (!table.has("wake_us") && !table.has("wake_after_us")) return {};
    const WakeUp read{table.number("wake_us") * micro, table.number("wake_after_us") * micro};
    if (read.constant == 0) wrong(table.name + ".wake_after_us", "it must be more than 0");
    return read;
  }

  void passed(const char* kind) {
    for (const auto& table : file_.list(kind))
      for (const auto& name : table.list("places")) {
        add_node(name.value->get<std::string>());
        ++machine_.passed;
      }
  }

  void nics() {
    for (const auto& table : file_.list("nic")) {
      const Nic read = nic_of(table);
      for (const auto& name : table.list("places")) {
        machine_.nics.push_back(read);
        machine_.nics.back().node = static_cast<Node>(nodes_.size());
        machine_.nics.back().place = parse_place(name.value->get<std::string>());
        add_node(name.value->get<std::string>());
        ++machine_.passed;
      }
    }
  }

  void disks() {
    for (const auto& table : file_.list("disk"))
      for (const auto& name : table.list("places")) {
        add_node(name.value->get<std::string>());
        machine_.disks.push_back(parse_place(name.value->get<std::string>()));
      }
  }

  void links() {
    for (const auto& table : file_.list("link")) {
      const double efficiency = table.number("efficiency");
      const double there = table.rate("gbps") * efficiency;
      const double back = table.has("back_gbps") ? table.rate("back_gbps") * efficiency : there;
      const double latency = table.number("latency_us") * micro;
      const bool nvlink = table.has("kind") && table.text("kind") == "nvlink";
      for (const auto& pair : table.list("between")) {
        const auto a = pair.value->at(0).get<std::string>(), b = pair.value->at(1).get<std::string>();
        const Node from = node(a, pair.name), to = node(b, pair.name);
        const auto first = static_cast<u32>(machine_.links.size());
        const double kernels = table.number("kernel_efficiency", efficiency);
        const double kernels_back = table.number("kernel_back_efficiency", kernels);
        machine_.links.push_back({table.text("name") + " " + a + "->" + b, from, to, there, latency,
                                  kernels / efficiency, wake_up(table), nvlink});
        machine_.links.push_back({table.text("name") + " " + b + "->" + a, to, from, back, latency,
                                  kernels_back / efficiency, wake_up(table), nvlink});
        if (table.has("both_ways_gbps")) machine_.shares.push_back({table.rate("both_ways_gbps"), {first, first + 1}});
      }
    }
  }

  std::vector<u32> matching_links(const Table& share) const {
    std::vector<u32> members;
    for (const auto& glob : share.list("links"))
      for (u32 link = 0; link < machine_.links.size(); ++link)
        if (fnmatch(glob.value->get<std::string>().c_str(), machine_.links[link].name.c_str(), 0) == 0)
          members.push_back(link);
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
    if (members.empty()) wrong(share.name + ".links", "no link matches");
    return members;
  }

  Route explicit_route(const Table& table) const {
    Route route{node(table.text("from"), table.name + ".from"), node(table.text("to"), table.name + ".to"), {}};
    std::vector<Node> stops{route.from};
    for (const auto& via : table.list("via")) stops.push_back(node(via.value->get<std::string>(), via.name));
    stops.push_back(route.to);
    for (std::size_t i = 1; i < stops.size(); ++i) {
      std::optional<u32> widest;
      for (u32 link = 0; link < machine_.links.size(); ++link)
        if (machine_.links[link].from == stops[i - 1] && machine_.links[link].to == stops[i] &&
            (!widest || machine_.links[link].rate > machine_.links[*widest].rate))
          widest = link;
      if (!widest) wrong(table.name, "no link joins two of its stops");
      route.links.push_back(*widest);
    }
    return route;
  }

  void peers() {
    const auto count = machine_.gpus.size();
    machine_.peers.assign(count * count, 0);
    if (!file_.has("peer")) return;
    const Table peer = file_["peer"];
    for (const auto& group : peer.list("groups"))
      for (const auto& one : *group.value)
        for (const auto& other : *group.value) {
          const Node from = node(one.get<std::string>(), group.name), to = node(other.get<std::string>(), group.name);
          if (!machine_.is_gpu(from) || !machine_.is_gpu(to)) wrong(group.name, "peers must be GPUs");
          if (from != to) machine_.peers[(from - machine_.first_gpu()) * count + (to - machine_.first_gpu())] = 1;
        }
  }

  void costs() {
    const Table costs = file_["costs"];
    machine_.costs = {costs.number("call_us") * micro,      costs.number("launch_us") * micro,
                      costs.number("sync_us") * micro,      costs.number("event_us") * micro,
                      costs.number("event_tick_ns") * nano, costs.number("host_stamp_us") * micro,
                      costs.number("cpu_copy_us") * micro,  {}};
    if (costs.has("stream_wait_us")) machine_.costs.stream_wait = costs.number("stream_wait_us") * micro;
    if (costs.has("context_switch_us") || costs.has("time_slice_us"))
      machine_.slices = TimeSlices{costs.number("context_switch_us") * micro, costs.number("time_slice_us") * micro};
    auto* latency = machine_.messages.latency.data();
    for (const char* key : {"message_shm_us", "message_local_us", "message_tcp_us"}) {
      if (costs.has(key)) *latency = costs.number(key) * micro;
      ++latency;
    }
  }

  void copies() {
    if (machine_.gpus.empty()) return;
    const Table copy = file_["copy"];
    machine_.copy.setup = {copy.number("to_device_us") * micro, copy.number("from_device_us") * micro,
                           copy.number("peer_us") * micro, copy.number("local_us") * micro};
    machine_.copy.in_command = {static_cast<u64>(copy.number("inline_kib") * kib), copy.number("inline_us") * micro,
                                copy.rate("inline_gbps")};
    machine_.copy.channel = copy.number("channel_us") * micro;
    if (copy.has("small_peer_us")) machine_.copy.small_peer = copy.number("small_peer_us") * micro;
    if (copy.has("row_us")) machine_.copy.row = copy.number("row_us") * micro;
    machine_.copy.opposite = copy.number("both_ways_us", 0) * micro;
    machine_.copy.arrive = copy.number("arrive_us", 0) * micro;
    machine_.copy.late[from_device] = copy.number("from_device_late_us", 0) * micro;
    machine_.copy.late[within_device] = copy.number("local_late_us", 0) * micro;
    machine_.copy.by_stream = copy.has("turns") && copy.text("turns") == "stream";
    if (file_.has("batch")) {
      const Table batch = file_["batch"];
      machine_.batch = BatchCosts{batch.number("issue_us") * micro, batch.number("host_us") * micro};
    }
    if (file_.has("graph")) {
      const Table graph = file_["graph"];
      machine_.graph = GraphCosts{graph.number("launch_us") * micro, graph.number("node_us") * micro};
    }
    if (file_.has("pull")) {
      const Table pull = file_["pull"];
      machine_.pull = {pull.number("extra_us") * micro, pull.number("overlap"), pull.number("least_us") * micro};
    }
    kernels();
    managed();
    calls();
    atomics();
    const Table pageable = file_["pageable"];
    machine_.pageable = ring(pageable);
    machine_.pageable_rate[to_device] = pageable.rate("to_device_gbps");
    machine_.pageable_rate[from_device] = pageable.rate("from_device_gbps");
    const auto call = [&](const char* key) {
      return pageable.has(key) ? pageable.number(key) * micro : machine_.costs.call;
    };
    machine_.pageable_call[to_device] = call("to_device_us");
    machine_.pageable_call[from_device] = call("from_device_us");
    machine_.small_pageable_rate =
        pageable.has("small_gbps") ? pageable.rate("small_gbps") : machine_.pageable_rate[to_device];
    if (pageable.has("small_us")) machine_.small_pageable_setup = pageable.number("small_us") * micro;
    machine_.pageable_end = pageable.number("end_us", 0) * micro;
    machine_.pageable_by_caller = pageable.has("copied_by") && pageable.text("copied_by") == "caller";
    if (!two_gpus_on_a_host()) return;
    const Table staged = file_["staged_peer"];
    machine_.staged_peer = ring(staged);
    machine_.staged_peer_chunk = staged.number("chunk_us") * micro;
  }

  [[nodiscard]] bool two_gpus_on_a_host() const {
    const auto& gpus = machine_.gpus;
    return std::any_of(gpus.begin(), gpus.end(), [&](const GpuNode& one) {
      return std::count_if(gpus.begin(), gpus.end(),
                           [&](const GpuNode& other) { return other.place.host == one.place.host; }) > 1;
    });
  }

  void kernels() {
    if (!file_.has("kernel")) return;
    const Table kernel = file_["kernel"];
    machine_.kernel =
        KernelCosts{kernel.number("launch_us") * micro,      kernel.number("load_us") * micro,
                    kernel.number("read_tile_us") * micro,   kernel.number("write_tile_us") * micro,
                    kernel.number("memory_efficiency"),      kernel.number("host_reach_mib", 0) * kib * kib,
                    kernel.number("host_page_kib", 0) * kib, kernel.number("host_walk_us", 0) * micro,
                    kernel.number("packet_bytes", 0)};
  }

  void managed() {
    if (!file_.has("managed")) return;
    const Table table = file_["managed"];
    const u64 page = table.bytes("page_kib");
    const double to = table.rate("to_device_gbps");
    const u64 cpu_fault_pages = table.count("cpu_fault_pages");
    machine_.managed = ManagedCosts{
        .page_bytes = page,
        .launch = table.number("launch_us") * micro,
        .peer_launch = table.number(table.has("peer_launch_us") ? "peer_launch_us" : "launch_us") * micro,
        .gpu_batch_bytes = table.count("gpu_batch_pages") * page,
        .cpu_fault_bytes = cpu_fault_pages * page,
        .cpu_block_bytes = (table.has("cpu_block_pages") ? table.count("cpu_block_pages") : cpu_fault_pages) * page,
        .gpu_batch = table.number("gpu_batch_us") * micro,
        .gpu_page = table.number("gpu_page_us") * micro,
        .gpu_region = table.number("gpu_region_us", 0) * micro,
        .gpu_block = table.number("gpu_block_us", 0) * micro,
        .cpu_fault = table.number("cpu_fault_us") * micro,
        .cpu_page = table.number("cpu_page_us", 0) * micro,
        .to_device = to,
        .from_device = table.rate("from_device_gbps"),
        .peer = table.has("peer_gbps") ? table.rate("peer_gbps") : to,
        .cpu_reach = table.has("cpu_reach_gbps") ? table.rate("cpu_reach_gbps") : 0,
        .modified_bytes = static_cast<u64>(table.number("modified_mib", 0) * kib * kib),
        .modified_far = table.has("modified_far_gbps") ? table.rate("modified_far_gbps") : 0,
        .prefetch = table.number("prefetch_us") * micro,
        .piece_bytes = table.bytes("piece_kib"),
        .to_device_piece = table.number("to_device_piece_us") * micro,
        .from_device_piece = table.number("from_device_piece_us") * micro};
  }

  void calls() {
    if (!file_.has("calls")) return;
    const Table table = file_["calls"];
    const auto us = [&](const char* key) { return table.number(key) * micro; };
    machine_.calls = CallCosts{.launch = machine_.costs.launch,
                               .locked = us("locked_us"),
                               .argument = us("argument_kib_us") / kib,
                               .end = us("end_us"),
                               .synchronize = us("synchronize_us"),
                               .record = us("record_us"),
                               .query = us("query_us"),
                               .create_stream = us("create_stream_us"),
                               .destroy_stream = us("destroy_stream_us")};
    if (table.has("graph_us")) {
      auto& calls = *machine_.calls;
      calls.graphs = true;
      calls.instantiate = us("instantiate_us");
      calls.instantiate_node = us("instantiate_node_us");
      calls.upload = us("upload_us");
      calls.upload_node = us("upload_node_us");
      calls.graph = us("graph_us");
      calls.graph_node = us("graph_node_us");
    }
    if (machine_.calls->locked > machine_.calls->launch)
      wrong(table.name + ".locked_us", "it is a part of launch_us of [costs]");
  }

  void atomics() {
    if (!file_.has("atomic")) return;
    const Table table = file_["atomic"];
    const double same = table.rate("same_gops");
    machine_.atomic = AtomicCosts{.gpu = table.number("gpu_us") * micro,
                                  .host = table.number("host_us") * micro,
                                  .cpu = table.has("cpu_us") ? table.number("cpu_us") * micro : 0,
                                  .gpu_rate = table.rate("gpu_gops"),
                                  .host_rate = table.rate("host_gops"),
                                  .same_rate = same,
                                  .same_peer_rate = table.has("same_peer_gops") ? table.rate("same_peer_gops") : same,
                                  .link_bytes = table.number("link_bytes")};
  }

  static Ring ring(const Table& table) {
    const Ring ring{static_cast<u64>(table.number("chunk_kib") * kib), table.count("slots")};
    if (ring.chunk_bytes == 0) wrong(table.name + ".chunk_kib", "a chunk must be more than 0");
    return ring;
  }

  void noise() {
    if (!file_.has("noise")) return;
    const Table noise = file_["noise"];
    const auto level = [&](const char* name) {
      if (!noise.has(name)) return Spread{};
      const Table spread = noise[name];
      const auto shape = spread.has("shape") ? spread.text("shape") : "lognormal";
      Spread read{spread.number("compute", 0), spread.number("engine", 0), spread.number("channel", 0),
                  spread.number("rate", 0), spread.number("host", 0)};
      if (shape == "autocorrelated") read.correlation = part(spread, "correlation");
      else if (shape == "bimodal") read.second = positive(spread, "second"), read.share = part(spread, "share");
      else if (shape != "lognormal")
        wrong(spread.name + ".shape", "noise must be lognormal, autocorrelated or bimodal, not '" + shape + "'");
      return read;
    };
    machine_.machine_noise = level("machine");
    machine_.round_noise = level("round");
    machine_.sample_noise = level("sample");
  }

  void faults() {
    for (const auto& table : file_.list("fault")) {
      const auto kind = table.text("kind");
      const auto found = std::find(fault_names.begin(), fault_names.end(), kind);
      if (found == fault_names.end()) wrong(table.name + ".kind", "there is no fault '" + kind + "'");
      Fault fault;
      fault.kind = static_cast<Fault::Kind>(found - fault_names.begin());
      fault.match = table.has("match") ? table.text("match") : "*";
      fault.after_samples = static_cast<u64>(table.number("after_samples", 0));
      using Kind = Fault::Kind;
      const bool timed = fault.kind == Kind::ramp || fault.kind == Kind::throttle;
      const bool of_links = fault.kind == Kind::slow || fault.kind == Kind::flaky;
      if (timed || fault.kind == Kind::lie) fault.samples = static_cast<u64>(table.number("samples", 0));
      if (timed && fault.samples == 0) wrong(table.name + ".samples", "there must be at least one");
      if (timed || of_links) fault.factor = positive(table, "factor");
      if (fault.kind == Kind::flaky) fault.share = part(table, "share");
      if (of_links) fault.links = matching_links(table);
      machine_.faults.push_back(std::move(fault));
    }
  }

  static constexpr std::array<std::string_view, 8> fault_names{"corrupt",  "hang", "die",   "ramp",
                                                               "throttle", "slow", "flaky", "lie"};

  static double positive(const Table& table, const char* key) {
    const double number = table.number(key);
    if (number == 0) wrong(table.name + "." + key, "it must be more than 0");
    return number;
  }

  static double part(const Table& table, const char* key) {
    const double number = table.number(key);
    if (number > 1) wrong(table.name + "." + key, "it must be at most 1");
    return number;
  }
};

}  // namespace

double WakeUp::after(double idle) const { return most == 0 || idle == 0 ? 0 : most * (1 - std::exp(-idle / constant)); }

std::optional<Node> Machine::find(const Place& place) const {
  for (Node i = 0; i < numa.size(); ++i)
    if (numa[i].place == place) return i;
  for (Node i = 0; i < gpus.size(); ++i)
    if (gpus[i].place == place) return first_gpu() + i;
  for (const auto& card : nics)
    if (card.place == place) return card.node;
  for (Node i = 0; i < disks.size(); ++i)
    if (disks[i] == place) return first_disk() + i;
  return std::nullopt;
}

const Nic* Machine::nic(Node node) const {
  const auto found = std::find_if(nics.begin(), nics.end(), [&](const Nic& one) { return one.node == node; });
  return found == nics.end() ? nullptr : &*found;
}

Machine parse_machine(const nlohmann::json& file) {
  try {
    return Parser{file}.parse();
  } catch (const nlohmann::json::exception& problem) {
    throw Error{ErrorKind::usage, std::string{"machine: the file does not have the expected form: "} + problem.what()};
  }
}

}  // namespace linkscope::sim
