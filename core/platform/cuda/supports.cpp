#include "platform/cuda/supports.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/error.hpp"
#include "gpu/green.hpp"
#include "host/dirty.hpp"
#include "host/flush.hpp"
#include "host/scratch_file.hpp"
#include "host/topology.hpp"
#include "platform/cuda/allocation.hpp"
#include "platform/cuda/caller.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/cuda/driven.hpp"
#include "platform/cuda/files.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/library_calls.hpp"
#include "platform/cuda/managed.hpp"
#include "platform/cuda/messages.hpp"
#include "platform/cuda/moves.hpp"
#include "platform/cuda/residency.hpp"
#include "platform/cuda/steps.hpp"
#include "program/allocation.hpp"
#include "program/managed.hpp"

namespace linkscope {

std::set<u32> gpus_of(const Program& program) {
  std::set<u32> gpus;
  for (const auto& region : program.regions)
    if (region.at.kind == PlaceKind::gpu) gpus.insert(region.at.index);
  for (const auto& actor : program.actors) {
    if (actor.place.kind == PlaceKind::gpu) gpus.insert(actor.place.index);
    for (const auto& step : actor.loop) {
      if (const auto* move = std::get_if<Move>(&step); move && move->by) gpus.insert(move->by->index);
      if (const auto* call = std::get_if<Call>(&step); call && call->on) gpus.insert(call->on->index);
    }
  }
  return gpus;
}

std::set<std::pair<u32, u32>> peer_pairs(const Program& program) {
  std::set<std::pair<u32, u32>> pairs;
  for (const auto& flow : program.flows)
    if (flow.src.kind == PlaceKind::gpu && flow.dst.kind == PlaceKind::gpu && flow.src != flow.dst)
      pairs.emplace(flow.src.index, flow.dst.index);
  return pairs;
}

bool can_access(const DriverFacts& facts, u32 from, u32 to) {
  return std::any_of(facts.peers.begin(), facts.peers.end(),
                     [&](const PeerFacts& p) { return p.from == from && p.to == to && p.access; });
}

std::string why_too_many_waiting(const Program& program, u64 cpus) {
  constexpr u64 always = 12;
  const auto waiting = static_cast<u64>(std::ranges::count_if(
      program.actors, [](const Actor& actor) { return actor.kind != ActorKind::gpu_block && exchanges_words(actor); }));
  if (waiting <= always || waiting < cpus) return "";
  return std::to_string(waiting) +
         " CPU threads that wait for each other need as many CPUs and one more, and this process may use " +
         std::to_string(cpus);
}

namespace {

bool native_atomics(const DriverFacts& facts, u32 from, u32 to) {
  return std::any_of(facts.peers.begin(), facts.peers.end(),
                     [&](const PeerFacts& p) { return p.from == from && p.to == to && p.native_atomics; });
}

}  // namespace

std::string Offer::why_no_place(const Place& place) const {
  const auto here = [&](const char* what, std::size_t count) {
    return place.index < count
               ? ""
               : to_string(place) + " is not here; this machine has " + std::to_string(count) + " " + what;
  };
  if (place.host != one_host) return to_string(place) + " is another host";
  switch (place.kind) {
    case PlaceKind::numa:
      return here("NUMA nodes", host_nodes().size());
    case PlaceKind::gpu:
      return facts_.present ? here("GPUs", facts_.gpus.size()) : to_string(place) + " is not here: " + facts_.why_not;
    case PlaceKind::disk:
      return "";  // why_no_region()
    default:
      return to_string(place) + ": memory at such a place cannot be measured here";
  }
}

std::string Offer::why_no_region(const Region& region) const {
  if (auto why = why_no_place(region.at); !why.empty()) return why;
  const auto& traits = traits_of(region.kind);
  if ((region.at.kind == PlaceKind::disk) != (traits.holder == Holder::disk))
    return to_string(region.at) + " holds no " + to_string(region.kind) +
           " memory; a disk holds files, and no others do";
  switch (traits.holder) {
    case Holder::gpu:
      return why_no_gpu_memory(region);
    case Holder::either:
      return why_no_moving_pages(driver_, facts_.gpus, region);
    case Holder::host:
      return why_no_host_memory(region);
    case Holder::disk:
      return why_no_scratch_file(region.at.path, region.bytes);
  }
  return "";
}

std::string Offer::why_no_host_memory(const Region& region) const {
  const auto& traits = traits_of(region.kind);
  if (!traits.shared || !facts_.gpus.empty())
    for (const char* symbol : symbols_of(region.kind))
      if (auto why = driver_.why_no(symbol); !why.empty()) return why;
  if (traits.shared) return "";
  if (traits.huge_pages) return why_no_pages(region.at.index, region.bytes, {region.page_bytes, region.transparent});
  // Without a driver the operating system locks pinned memory, which is equivalent for CPU threads.
  if (traits.by_driver && region.kind != MemKind::pinned && !facts_.present)
    return std::string{to_string(region.kind)} + " memory is the driver's to give: " + facts_.why_not;
  return "";
}

std::string Offer::why_no_gpu_memory(const Region& region) const {
  if (region.at.kind != PlaceKind::gpu)
    return std::string{to_string(region.kind)} + " memory is a GPU's, and " + to_string(region.at) + " is none";
  const auto& gpu = facts_.gpus[region.at.index];
  const auto& traits = traits_of(region.kind);
  for (const char* symbol : symbols_of(region.kind))
    if (auto why = driver_.why_no(symbol); !why.empty()) return why;
  const auto lacks = [&](bool needs, const char* attribute, const char* what) {
    return needs && gpu.attribute(attribute, 0) == 0
               ? to_string(region.at) + " has no " + what + " (" + attribute + " is 0)"
               : "";
  };
  if (auto why = lacks(region.kind == MemKind::pool, "MEMORY_POOLS_SUPPORTED", "stream-ordered pools"); !why.empty())
    return why;
  if (auto why = lacks(traits.by_vmm, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", "virtual memory management"); !why.empty())
    return why;
  if (auto why = lacks(traits.by_vmm && traits.shared, "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
                       "memory that is shared by POSIX file descriptors");
      !why.empty())
    return why;
  if (region.bytes > gpu.memory_bytes)
    return bytes_text(region.bytes) + " do not fit " + to_string(region.at) + ", which has " +
           bytes_text(gpu.memory_bytes);
  constexpr int prohibited = CU_COMPUTEMODE_PROHIBITED;
  if (gpu.attribute("COMPUTE_MODE", 0) == prohibited)
    return to_string(region.at) +
           " is in compute mode 'prohibited': no process may use it until an administrator changes the mode";
  if (!traits.shared) return "";
  if (gpu.attribute("COMPUTE_MODE", 0) == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
    return to_string(region.at) + " is in compute mode 'exclusive process': no second process can own memory there";
  return "";
}

/// Actors use memory of their own process, and memory of others that is shared.
std::string Offer::why_no_other_process(const Program& program, const Actor& actor) {
  for (const auto& step : actor.loop)
    for (const auto& touch : touches(step)) {
      const auto& region = program.regions[touch.span.region];
      if (region.process != actor.process && !is_shared(region.kind))
        return std::string{to_string(region.kind)} + " memory of process " + std::to_string(region.process) +
               " cannot be opened by process " + std::to_string(actor.process);
    }
  return "";
}

std::string Offer::why_no_actor(const Program& program, const Actor& actor) const {
  if (auto why = why_no_place(actor.place); !why.empty()) return why;
  if (actor.cpu)
    if (auto why = why_no_place(*actor.cpu); !why.empty()) return why;
  if (actor.core && actor.cpu)
    if (const u64 cpus = host_nodes()[actor.cpu->index].cpus.size(); *actor.core >= cpus)
      return why_no_cpu(*actor.cpu, *actor.core, cpus);
  if (actor.sms)
    if (auto why = why_no_green_context(driver_); !why.empty()) return why;
  if (actor.urgent)
    if (auto why = why_no_urgent_stream(driver_); !why.empty()) return why;
  for (const auto& step : actor.once) {
    const auto* call = std::get_if<Call>(&step);
    if (!std::holds_alternative<Prefetch>(step) && !(call && call->until))
      return "steps before the loop other than prefetches, and calls that prepare others, cannot be run here yet";
  }
  if (auto why = why_no_other_process(program, actor); !why.empty()) return why;
  if (collective_of(actor)) return why_no_collective_(program, actor);
  if (talks_to_ranks(actor))
    if (auto why = why_no_messages_(program, actor); !why.empty() || !performs_ops(actor)) return why;
  if (performs_ops(actor)) {
    auto why = why_no_ops(program, actor);
    return why.empty() && on_gpu(actor.kind) ? why_no_block(program, actor) : why;
  }
  if (makes_calls(actor)) return why_no_calls(program, actor);
  if (is_driven(actor))
    if (auto why = why_not_driven(program, actor); !why.empty()) return why;
  for (const auto& step : actor.loop) {
    const bool word = std::holds_alternative<Set>(step) || std::holds_alternative<Wait>(step);
    if (word && is_driven(actor)) continue;
    const auto* kernel = std::get_if<Kernel>(&step);
    if (auto why = kernel ? why_no_traffic(*kernel) : ""; !why.empty()) return why;
    if (auto why = why_no_managed_step(driver_, program, actor, step); !why.empty()) return why;
    if (std::holds_alternative<Prefetch>(step)) continue;
    if (const auto* message = std::get_if<Message>(&step)) return why_no_message(actor, *message);
    if (const auto* library = std::get_if<Opaque>(&step)) {
      if (auto why = why_no_library_call(program, actor, facts_.gpus, *library); !why.empty()) return why;
      continue;
    }
    if (const auto* call = std::get_if<Call>(&step)) {
      if (auto why = why_no_phase(program, actor, *call); !why.empty()) return why;
      continue;
    }
    if (kernel) {
      if (auto why = why_no_kernel(program, actor, *kernel); !why.empty()) return why;
      continue;
    }
    const auto* move = std::get_if<Move>(&step);
    if (!move) return "a stream orders its own work: fences are of GPU blocks and CPU threads";
    const bool by_gpu = by_copy_engine(move->engine) || move->engine == Engine::sm || move->engine == Engine::tma;
    const bool of_file = actor.kind == ActorKind::cpu_thread && move->engine == Engine::file;
    if (auto why = of_file ? why_no_file_copy(program, actor, *move) : ""; !why.empty()) return why;
    if (on_gpu(actor.kind) ? !by_gpu : move->engine != Engine::cpu && !of_file)
      return std::string{to_string(move->engine)} + " copies cannot be run here yet";
    if (auto why = why_no_threads(program, actor, *move); !why.empty()) return why;
    if (move->by)
      if (auto why = why_no_place(*move->by); !why.empty()) return why;
    if (auto why = why_no_call(driver_, program, *move); !why.empty()) return why;
    const bool together = move->engine == Engine::batch || move->engine == Engine::graph;
    if (together && (actor.loop.size() > 1 || move->by))
      return "copies that are issued together must be the whole loop";
  }
  return "";
}

std::string Offer::why_no_calls(const Program& program, const Actor& actor) const {
  if (actor.kind != ActorKind::cpu_thread) return "calls are made by CPU threads";
  const auto& on = std::get<Call>(actor.loop.front()).on;
  for (const auto& step : actor.loop) {
    const auto* call = std::get_if<Call>(&step);
    if (!call || call->on != on) return "a loop of calls is calls for one GPU only here";
    if (auto why = why_no_call(driver_, *call); !why.empty()) return why;
    if (auto why = why_no_place(*call->on); !why.empty()) return why;
    for (const auto& touch : touches(step))
      if (is_pageable(program.regions[touch.span.region].kind))
        return "a call that copies pageable memory waits for the copy, so the call cannot be timed by itself";
  }
  return "";
}

namespace {

/// Whether a CPU thread adds to words of this span by atomic operations.
bool a_cpu_adds_to(const Program& program, const Span& span) {
  const auto meets = [&](const Span& other) {
    return other.region == span.region && other.offset < span.offset + span.bytes &&
           span.offset < other.offset + other.bytes;
  };
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop) {
      const auto* kernel = std::get_if<Kernel>(&step);
      if (!kernel || !traits_of(kernel->id).atomic || on_gpu(actor.kind)) continue;
      for (const auto& touch : touches(step))
        if (meets(touch.span)) return true;
    }
  return false;
}

}  // namespace

std::string Offer::why_no_kernel(const Program& program, const Actor& actor, const Kernel& kernel) const {
  if (auto why = why_no_step(kernel, actor.kind); !why.empty()) return why;
  if (kernel.dependent_steps > 0 && actor.loop.size() > 1) return "a pointer chase must be the whole loop";
  if (kernel.sm && on_gpu(actor.kind)) {
    const auto sms = static_cast<u32>(facts_.gpus[actor.place.index].attribute("MULTIPROCESSOR_COUNT", 0));
    if (*kernel.sm >= sms) return why_no_sm(actor.place, *kernel.sm, sms);
    if (auto why = driver_.why_no("cuFuncSetAttribute"); !why.empty()) return why;
  }
  for (const auto& [span, writes] : touches(kernel)) {
    const auto& region = program.regions[span.region];
    if (actor.kind == ActorKind::cpu_thread && region.at.kind == PlaceKind::gpu && !pages_move(region.kind))
      return "a CPU has no loads from the memory of " + to_string(region.at) +
             ": it is not mapped for the host (a coherent link such as NVLink-C2C would)";
    if (on_gpu(actor.kind) && is_pageable(region.kind))
      return "a GPU's threads do not reach pageable memory by its CPU address here";
    if (traits_of(kernel.id).atomic && on_gpu(actor.kind) && region.at.kind == PlaceKind::numa &&
        !pages_move(region.kind) && a_cpu_adds_to(program, span) &&
        facts_.gpus[actor.place.index].attribute("HOST_NATIVE_ATOMIC_SUPPORTED", 0) == 0)
      return "additions of " + to_string(actor.place) + " to words of host memory to which a CPU also adds are not " +
             "atomic: its link does not carry them (HOST_NATIVE_ATOMIC_SUPPORTED is 0)";
    if (traits_of(kernel.id).atomic && region.at.kind == PlaceKind::gpu && region.at != actor.place &&
        !native_atomics(facts_, actor.place.index, region.at.index))
      return to_string(actor.place) + " has no atomic operations on the memory of " + to_string(region.at) +
             ": the link between them does not carry them";
  }
  return "";
}

std::string Offer::why_no_threads(const Program& program, const Actor& actor, const Move& move) const {
  if (move.engine != Engine::sm && move.engine != Engine::tma) return "";
  const auto& gpu = facts_.gpus[actor.place.index];
  if (move.engine == Engine::tma && gpu.attribute("COMPUTE_CAPABILITY_MAJOR", 0) < 9)
    return to_string(actor.place) + " has no TMA: it needs compute capability 9.0";
  for (const u32 region : {move.from.region, move.to.region})
    if (is_pageable(program.regions[region].kind))
      return "a GPU's threads do not reach pageable memory by its CPU address here";
  return "";
}

std::string Offer::why_no_block(const Program& program, const Actor& actor) const {
  for (const auto& step : actor.loop) {
    if (const auto* move = std::get_if<Move>(&step))
      if (auto why = why_no_threads(program, actor, *move); !why.empty()) return why;
    const auto* set = std::get_if<Set>(&step);
    if (!set || !set->adds) continue;
    const Place& at = program.regions[set->word.region].at;
    if (at.kind == PlaceKind::gpu && at != actor.place && !native_atomics(facts_, actor.place.index, at.index))
      return to_string(actor.place) + " has no atomic operations on the memory of " + to_string(at) +
             ": the link between them does not carry them";
  }
  return "";
}

std::string Offer::why_no_peer(const Program& program) const {
  if (!program.peer) return "";
  for (const char* symbol : {"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"})
    if (auto why = driver_.why_no(symbol); !why.empty()) return why;
  const auto pairs = peer_pairs(program);
  for (const auto& peer : facts_.peers)
    if ((pairs.contains({peer.from, peer.to}) || pairs.contains({peer.to, peer.from})) && !peer.access)
      return "gpu:" + std::to_string(peer.from) + " cannot access the memory of gpu:" + std::to_string(peer.to);
  return "";
}

std::string Offer::why_too_much_managed(const Program& program) const {
  if (managed_bytes(program) == 0) return "";
  for (const u32 index : gpus_of(program)) {
    if (auto why = why_no_managed(program, gpu(index), free_bytes_(index)); !why.empty()) return why;
  }
  return "";
}

/// Whether processes may use GPUs at the same time, or through MPS.
std::string Offer::why_no_processes(const Program& program) const {
  if (program.mps && !std::getenv("CUDA_MPS_PIPE_DIRECTORY"))
    return "processes under MPS need its daemon: CUDA_MPS_PIPE_DIRECTORY is not set";
  if (program.mps) return "";
  std::map<u32, u32> first;  // process by GPU
  for (const auto& actor : program.actors) {
    if (actor.place.kind != PlaceKind::gpu) continue;
    const u32 gpu = actor.place.index;
    if (first.try_emplace(gpu, actor.process).first->second == actor.process) continue;
    if (facts_.gpus[gpu].attribute("COMPUTE_MODE", 0) == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
      return to_string(actor.place) + " is in compute mode 'exclusive process': one process uses it at a time";
  }
  return "";
}

Support Offer::supports(const Program& program) const {
  for (const auto& region : program.regions)
    if (auto why = why_no_region(region); !why.empty()) return Support::no(why);
  for (const auto& actor : program.actors)
    if (auto why = why_no_actor(program, actor); !why.empty()) return Support::no(why);
  u64 cpus = 0;
  for (const auto& node : host_nodes()) cpus += node.cpus.size();
  if (auto why = why_too_many_waiting(program, cpus); !why.empty()) return Support::no(why);
  if (auto why = why_not_resident(program, facts_.gpus); !why.empty()) return Support::no(why);
  if (auto why = why_no_processes(program); !why.empty()) return Support::no(why);
  if (program.held_by == HeldBy::wait)
    if (auto why = driver_.why_no("cuStreamWaitValue32"); !why.empty()) return Support::no(why);
  if (auto why = why_no_peer(program); !why.empty()) return Support::no(why);
  if (auto why = why_not_shared_(program); !why.empty()) return Support::no(why);
  if (program.cache == CacheState::cleaned)
    if (auto why = why_no_write_back(); !why.empty()) return Support::no(why);
  if (program.cache == CacheState::dirty)
    for (const auto& region : program.regions)
      if (region.at.kind == PlaceKind::numa)
        if (auto why = why_no_other_core(region.at.index); !why.empty()) return Support::no(why);
  return {why_too_much_managed(program)};
}

}  // namespace linkscope
