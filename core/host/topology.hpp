// NUMA nodes of this host, numbered from 0 without gaps over the nodes that have memory, and their CPUs.
#pragma once
#include <string>
#include <vector>

#include "base/units.hpp"

namespace linkscope {

struct HostNode {
  int os_index = 0;       // the kernel's number, which may have gaps
  std::vector<int> cpus;  // CPUs of this node that this process may use
};

/// The nodes of this host; one node with all CPUs if the kernel shows none.
[[nodiscard]] const std::vector<HostNode>& host_nodes();

/// The dense NUMA node of a PCI device ("0000:0a:00.0"), or -1 if the kernel hides it.
[[nodiscard]] int node_of_pci_device(const std::string& bus_id);

/// Binds the calling thread to the CPUs of a node (dense number).
void bind_thread_to_node(u32 node);
/// Lets the calling thread run on every CPU of this process again.
void release_thread();

/// Binds the calling thread to these CPUs, by the system's numbers. Throws Error{failed}.
void bind_thread_to_cpus(const std::vector<int>& cpus);

/// The CPUs of a node for thread `number` of `threads` that poll for each other: no two of them get CPUs of one core, so
/// that none waits until another one gives up its CPU. All CPUs of the node if it has fewer cores than threads.
[[nodiscard]] std::vector<int> dealt_cpus(u32 node, u32 number, u32 threads);

/// The CPUs that share a core with this one, including itself; only itself if the kernel hides it.
[[nodiscard]] std::vector<int> cpus_of_core(int cpu);

/// Bytes of the largest CPU cache, or 0 if hidden.
[[nodiscard]] u64 last_level_cache_bytes();

}  // namespace linkscope
