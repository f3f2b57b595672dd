#include "host/dirty.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "host/topology.hpp"

namespace linkscope {
namespace {

constexpr u64 line = 64;  // of the processors here; with longer lines, some are written twice

/// A CPU of the node whose caches are separate from those of the CPU `here`.
std::optional<int> other_cpu(u32 node, int here) {
  const auto siblings = cpus_of_core(here);
  const auto& cpus = host_nodes().at(node).cpus;
  const auto found = std::find_if(cpus.rbegin(), cpus.rend(), [&](int cpu) {
    return std::find(siblings.begin(), siblings.end(), cpu) == siblings.end();
  });
  return found == cpus.rend() ? std::nullopt : std::optional{*found};
}

}  // namespace

void write_again(std::byte* start, u64 bytes) {
  for (u64 at = 0; at < bytes; at += line) {
    auto* word = reinterpret_cast<volatile std::byte*>(start + at);
    *word = *word;
  }
}

std::string why_no_other_core(u32 node) {
  if (other_cpu(node, sched_getcpu())) return "";
  return "numa:" + std::to_string(node) +
         " has no second core on which this process may run, and cache=dirty needs one";
}

void dirty_in_another_core(std::byte* start, u64 bytes, u32 node) {
  const auto cpu = other_cpu(node, sched_getcpu());
  if (!cpu) throw Error{ErrorKind::failed, why_no_other_core(node)};
  std::exception_ptr failure;
  std::jthread{[&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(*cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
      failure =
          std::make_exception_ptr(Error{ErrorKind::failed, "a thread could not be bound to CPU " +
                                                               std::to_string(*cpu) + ": " + std::strerror(errno)});
    else write_again(start, bytes);
  }}.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace linkscope
