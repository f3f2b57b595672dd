#include "host/topology.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/error.hpp"

namespace linkscope {
namespace {

std::string first_line(const std::filesystem::path& file) {
  std::ifstream in{file};
  std::string line;
  std::getline(in, line);
  return line;
}

/// "0-3,8" -> 0 1 2 3 8
std::vector<int> parse_list(const std::string& text) {
  std::vector<int> values;
  std::istringstream parts{text};
  for (std::string part; std::getline(parts, part, ',');) {
    const auto dash = part.find('-');
    const int first = std::stoi(part), last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
    for (int value = first; value <= last; ++value) values.push_back(value);
  }
  return values;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

std::vector<HostNode> read_nodes() {
  const auto allowed = allowed_cpus();
  std::vector<HostNode> nodes;
  const std::filesystem::path root{"/sys/devices/system/node"};
  const auto listed = first_line(root / "has_memory");
  for (const int index : parse_list(listed)) {
    HostNode node{index, {}};
    for (const int cpu : parse_list(first_line(root / ("node" + std::to_string(index)) / "cpulist")))
      if (std::find(allowed.begin(), allowed.end(), cpu) != allowed.end()) node.cpus.push_back(cpu);
    nodes.push_back(std::move(node));
  }
  if (nodes.empty()) nodes.push_back({0, allowed});
  return nodes;
}

void bind_thread(const std::vector<int>& cpus, const std::string& where) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    throw Error{ErrorKind::failed, "the thread could not be bound to " + where + ": " + std::strerror(errno)};
}

using Cores = std::vector<std::vector<int>>;  // the CPUs of each that this process may use

/// By node.
std::vector<Cores> read_cores() {
  std::vector<Cores> found;
  for (const auto& node : host_nodes()) {
    std::map<int, std::vector<int>> by_first;
    for (const int cpu : node.cpus) by_first[cpus_of_core(cpu).front()].push_back(cpu);
    auto& cores = found.emplace_back();
    for (auto& [first, cpus] : by_first) cores.push_back(std::move(cpus));
  }
  return found;
}

}  // namespace

const std::vector<HostNode>& host_nodes() {
  // Read before any thread is bound, so that "allowed" means the CPUs that the user allows.
  static const std::vector<HostNode> nodes = read_nodes();
  return nodes;
}

int node_of_pci_device(const std::string& bus_id) {
  std::string lower = bus_id;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto text = first_line("/sys/bus/pci/devices/" + lower + "/numa_node");
  const int os_index = text.empty() ? -1 : std::stoi(text);
  const auto& nodes = host_nodes();
  for (std::size_t dense = 0; dense < nodes.size(); ++dense)
    if (nodes[dense].os_index == os_index) return static_cast<int>(dense);
  return -1;
}

void bind_thread_to_node(u32 node) {
  const auto& nodes = host_nodes();
  if (node >= nodes.size())
    throw Error{ErrorKind::usage, "numa:" + std::to_string(node) + " does not exist; this host has " +
                                      std::to_string(nodes.size()) + " NUMA nodes"};
  if (nodes[node].cpus.empty()) return;  // a node without CPUs: any CPU will do
  bind_thread(nodes[node].cpus, "numa:" + std::to_string(node));
}

void release_thread() {
  std::vector<int> cpus;
  for (const auto& node : host_nodes()) cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  if (!cpus.empty()) bind_thread(cpus, "all CPUs of this process");
}

void bind_thread_to_cpus(const std::vector<int>& cpus) { bind_thread(cpus, "its CPUs"); }

std::vector<int> dealt_cpus(u32 node, u32 number, u32 threads) {
  static const auto cores_of_nodes = read_cores();
  const auto& cores = cores_of_nodes.at(node);
  if (cores.size() < threads) return host_nodes()[node].cpus;
  std::vector<int> cpus;
  for (std::size_t core = number; core < cores.size(); core += threads)
    cpus.insert(cpus.end(), cores[core].begin(), cores[core].end());
  return cpus;
}

std::vector<int> cpus_of_core(int cpu) {
  const auto cpus =
      parse_list(first_line("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list"));
  return cpus.empty() ? std::vector{cpu} : cpus;
}

u64 last_level_cache_bytes() {
  u64 largest = 0;
  for (int index = 0; index < 8; ++index) {
    const auto text = first_line("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    if (text.empty()) continue;
    const u64 unit = text.back() == 'K' ? 1024 : text.back() == 'M' ? 1024 * 1024 : 1;
    largest = std::max<u64>(largest, std::stoull(text) * unit);
  }
  return largest;
}

}  // namespace linkscope
