// nvbandwidth all_to_host, host_to_all, all_to_one and one_to_all: concurrent copies between one place and every GPU,
// one flow per GPU, by copy engine or by SM. In ids the GPUs are "gpu:all": all except the one at the other end.
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

bool is_all(const Place& place) { return place.index == all_places; }

Program build_joint_copies(const Case& c) {
  if (c.others.empty()) throw Error{ErrorKind::usage, c.benchmark + ": the GPUs of gpu:all are not given"};
  Program program;
  program.peer = c.src.kind == PlaceKind::gpu && c.dst.kind == PlaceKind::gpu;
  const auto add = [&](const Place& src, const Place& dst, MemKind src_memory, MemKind dst_memory) {
    Case one = c;
    std::tie(one.src, one.dst) = std::pair{src, dst};
    add_copy(program, one, {src, dst, src_memory, dst_memory}, stream_of(one));
  };
  const auto ends = [&](const Place& other) {
    return std::pair{is_all(c.src) ? other : c.src, is_all(c.dst) ? other : c.dst};
  };
  for (u64 task = 0; task < std::stoul(c.param("tasks", "1")); ++task)
    for (const auto& other : c.others) add(ends(other).first, ends(other).second, c.src_memory, c.dst_memory);
  if (c.param("bidirectional", "false") == "true")
    for (const auto& other : c.others) add(ends(other).second, ends(other).first, c.dst_memory, c.src_memory);
  return program;
}

/// Spafford 5.2 (SP-10): several tasks copy to each GPU.
Param tasks_param() {
  constexpr bool default_in_id = false;
  return {"tasks",
          {"1", "2", "3", "4", "6", "8", "12", "16"},
          "unidirectional copies of each GPU at once, each with its own stream and memory",
          default_in_id};
}

}  // namespace

std::vector<Benchmark> joint_copies() {
  using enum PlaceKind;
  using enum MemKind;
  std::vector<Benchmark> rows;
  for (const Engine engine : {Engine::ce, Engine::sm}) {
    const auto add = [&](const char* name, const char* summary, const char* source, PlaceKind src, PlaceKind dst,
                         Relation relation, MemKind src_memory, MemKind dst_memory, std::vector<Param> params) {
      if (engine == Engine::sm) params.insert(params.begin(), {blocks_param(), threads_param()});
      rows.push_back({name,
                      summary,
                      source,
                      engine,
                      src,
                      dst,
                      relation,
                      {{src_memory, dst_memory}},
                      std::move(params),
                      build_joint_copies});
    };
    add("host_to_all", "copies from one NUMA node to all GPUs at once",
        "nvbandwidth host_to_all_memcpy and host_to_all_bidirectional_memcpy", numa, gpu, Relation::to_all, pinned,
        device, {bidirectional_param(), cpu_param(), tasks_param(), again_param()});
    add("all_to_host", "copies from all GPUs at once to one NUMA node",
        "nvbandwidth all_to_host_memcpy (bidirectional: host_to_all)", gpu, numa, Relation::from_all, device, pinned,
        {cpu_param(), tasks_param(), again_param()});
    add("one_to_all", "copies from one GPU to all others at once", "nvbandwidth one_to_all_write and one_to_all_read",
        gpu, gpu, Relation::to_all, device, device, {initiator_param()});
    add("all_to_one", "copies from all other GPUs at once to one", "nvbandwidth all_to_one_write and all_to_one_read",
        gpu, gpu, Relation::from_all, device, device, {initiator_param()});
  }
  return rows;
}

}  // namespace linkscope
