// The programs that the model cannot run, with reasons.
#include <algorithm>
#include <map>

#include "platform/sim/lanes.hpp"

namespace linkscope::sim {
namespace {

constexpr const char* different_hosts =
    "the two ends are on different hosts: network cards move data between hosts (benchmarks network, network_staged)";

/// Whether a block waits for words on a GPU that another process uses in turns with it: a turn of the model ends with a
/// kernel's work, and that kernel would wait for ever.
bool waits_in_turns(const Program& program) {
  return !program.mps && std::any_of(program.actors.begin(), program.actors.end(), [&](const Actor& one) {
    return one.kind == ActorKind::gpu_block && waits_for_words(one) &&
           std::any_of(program.actors.begin(), program.actors.end(), [&](const Actor& other) {
             return on_gpu(other.kind) && other.place == one.place && other.process != one.process;
           });
  });
}

/// Whether a GPU copies the program's files from the page cache.
bool maps_files(const Program& program) {
  const auto maps = [&](const Step& step) {
    const auto* move = std::get_if<Move>(&step);
    return move && move->engine == Engine::file && is_gpu_memory(program.regions[move->to.region].kind);
  };
  return std::any_of(program.actors.begin(), program.actors.end(),
                     [&](const Actor& actor) { return std::any_of(actor.loop.begin(), actor.loop.end(), maps); });
}

}  // namespace

Support Compiler::supports(const Program& program) const {
  if (waits_in_turns(program))
    return Support::no(
        "the model's processes take turns on a GPU by whole kernels, which may not wait for each other: way=mps");
  std::map<Place, u64> wanted;
  for (const auto& region : program.regions) {
    const auto at = machine_.find(region.at);
    const auto place = to_string(region.at);
    if (!at) return Support::no("the machine " + machine_.name + " has no " + place);
    if (region.at.kind == PlaceKind::disk) {
      if (region.kind != MemKind::file)
        return Support::no(place + " holds files, and no " + to_string(region.kind) + " memory");
      if (program.cache != CacheState::cold && !maps_files(program))
        return Support::no("the model's hosts have no page cache: files are cold, or mapped (file_mapped)");
      continue;  // the model's disks are never full
    }
    if (region.kind == MemKind::system)
      return Support::no("the model " + machine_.name +
                         " does not say whether its GPUs reach pageable memory, by HMM or ATS");
    if (auto support = supports_kind(region); !support) return support;
    if (machine_.nic(*at)) continue;
    const u64 memory = machine_.is_gpu(*at) ? machine_.gpu(*at).memory_bytes : machine_.numa[*at].memory_bytes;
    wanted[region.at] += region.bytes;
    if (wanted[region.at] > memory)
      return Support::no(place + " has " + bytes_text(memory) + " of memory; the program wants " +
                         bytes_text(wanted[region.at]) + " there");
  }
  if (auto support = supports_managed(program); !support) return support;
  for (const auto& actor : program.actors) {
    for (const auto& place : {actor.place, actor.cpu.value_or(actor.place)})
      if (!machine_.find(place)) return Support::no("the machine " + machine_.name + " has no " + to_string(place));
    if (actor.clock == Clock::kernel) return Support::no("the model has no kernel clock yet");
    const auto at = actor.kind == ActorKind::nic ? PlaceKind::nic
                    : on_gpu(actor.kind)         ? PlaceKind::gpu
                                                 : PlaceKind::numa;
    if (actor.place.kind != at)
      return Support::no(std::string{"a "} + to_string(actor.kind) + " does not run on " + to_string(actor.place));
    if (actor.core && *actor.core >= machine_.numa[host_of(actor)].cpus)
      return Support::no(
          why_no_cpu(machine_.numa[host_of(actor)].place, *actor.core, machine_.numa[host_of(actor)].cpus));
    if (actor.cpu && actor.cpu->kind != PlaceKind::numa)
      return Support::no("no host thread runs on " + to_string(*actor.cpu));
    for (const auto* steps : {&actor.once, &actor.loop})
      for (const auto& step : *steps)
        if (auto support = supports(program, actor, step); !support) return support;
  }
  return supports_processes(program);
}

/// For a program whose steps are all supported.
Support Compiler::supports_processes(const Program& program) const {
  for (const auto& actor : program.actors)
    for (const auto* steps : {&actor.once, &actor.loop})
      for (const auto& step : *steps)
        for (const auto& touch : touches(step)) {
          const auto& region = program.regions[touch.span.region];
          if (region.process != actor.process && !is_shared(region.kind))
            return Support::no("region r" + std::to_string(touch.span.region) + " is of process " +
                               std::to_string(region.process) + ", and process " + std::to_string(actor.process) +
                               " uses it: " + to_string(region.kind) + " memory is not shared");
        }
  if (machine_.slices || program.mps ||
      std::all_of(program.actors.begin(), program.actors.end(), [](const Actor& actor) { return actor.process == 0; }))
    return {};
  const auto shared = compile(program).shared_gpus();
  if (shared.empty()) return {};
  return Support::no("several processes use " + to_string(machine_.gpus[shared.front()].place) + ", and the model " +
                     machine_.name + " does not say how they share it: context_switch_us and time_slice_us of [costs]");
}

Support Compiler::supports(const Program& program, const Actor& actor, const Step& step) const {
  if (const auto* kernel = std::get_if<Kernel>(&step)) return supports(program, actor, *kernel);
  if (const auto* prefetch = std::get_if<Prefetch>(&step)) return supports(program, actor, *prefetch);
  if (const auto* set = std::get_if<Set>(&step))
    if (const Nic* card = card_of(program, actor, *set))
      if (auto support = supports_post(actor, program.regions[set->word.region], *set->job, *card); !support)
        return support;
  if (const Span* word = word_of(step); word && is_card_word(program, actor, *word))
    return supports_card_word(program, actor, step);
  if (const auto* set = std::get_if<Set>(&step)) {
    if (goes_to_other_host(program, actor, set->word)) return supports_far_word(program, actor, set->word);
    if (set->payload && machine_.is_gpu(at_words(actor)) && !machine_.kernel)
      return Support::no("the model " + machine_.name +
                         " does not say how long a load takes: its file has no [kernel]");
    return supports_flag(program, actor, set->word);
  }
  if (const auto* wait = std::get_if<Wait>(&step)) {
    if (auto support = supports_flag(program, actor, wait->word); !support || !wait->pointer) return support;
    return supports_notification(program, actor, wait->word);
  }
  if (const auto* message = std::get_if<RankMessage>(&step)) return supports(program, actor, *message);
  if (const auto* collective = std::get_if<Collective>(&step)) return supports(program, actor, *collective);
  if (std::holds_alternative<Fence>(step)) return {};
  if (const auto* library = std::get_if<Opaque>(&step)) return supports(program, actor, *library);
  if (const auto* message = std::get_if<Message>(&step)) return supports(program, actor, *message);
  if (const auto* call = std::get_if<Call>(&step)) return supports(program, actor, *call);

  const auto& move = std::get<Move>(step);
  const auto& source = program.regions[move.from.region];
  const auto& target = program.regions[move.to.region];
  for (const auto* region : {&source, &target})
    if (region->kind == MemKind::managed)
      return Support::no("the model's managed memory is touched and prefetched, not copied yet");
  if (move.by && !machine_.find(*move.by))
    return Support::no("the machine " + machine_.name + " has no " + to_string(*move.by));
  const Node from = node(source.at), to = node(target.at), by = node(move.by.value_or(actor.place));
  const auto pair = to_string(source.at) + " and " + to_string(target.at);
  if (!routes_.between(from, to))
    return Support::no("no route leads from " + to_string(source.at) + " to " + to_string(target.at));
  const bool between_hosts = !machine_.is_gpu(from) && !machine_.is_gpu(to);
  if (move.engine == Engine::nic) return supports_send(program, actor, move);
  if (source.at.host != target.at.host || source.at.host != actor.place.host) return Support::no(different_hosts);
  const bool by_thread = move.engine == Engine::cpu ||
                         (by_copy_engine(move.engine) && (is_pageable(source.kind) || is_pageable(target.kind)));
  if (program.cache == CacheState::fresh && !machine_.memory)
    return Support::no("the model " + machine_.name +
                       " does not say what the first touch of a page costs: its file has no [memory]");
  if (program.cache != CacheState::cold && program.cache != CacheState::fresh && by_copy_engine(move.engine) &&
      !by_thread)
    return Support::no("in the model, CPU caches do not affect copy engines: CPU threads copy only pageable memory");
  const bool in_caches = program.cache != CacheState::cold && program.cache != CacheState::fresh;
  if (in_caches && program.cache != CacheState::dirty && by_thread && machine_.numa[host_of(actor)].llc == 0)
    return Support::no("the model " + machine_.name + " does not say how fast copies in the CPU's cache are: llc_gbps");
  if (program.cache == CacheState::dirty && by_thread && machine_.numa[host_of(actor)].dirty == 0)
    return Support::no("the model " + machine_.name +
                       " does not say how fast copies of data that another core has written are: dirty_gbps");

  if (auto support = supports_pieces(program, actor, move); !support) return support;
  if (move.engine == Engine::file) return supports_file(program, actor, move);
  for (const auto* region : {&source, &target})
    if (region->at.kind == PlaceKind::disk) return Support::no("files are read and written by engine file");
  if (move.engine == Engine::cpu) {
    if (actor.kind != ActorKind::cpu_thread)
      return Support::no(std::string{"a "} + to_string(actor.kind) + " does not copy with the CPU");
    if (!between_hosts) return Support::no("the model's CPU threads copy between host memories only yet");
    if ((source.kind == MemKind::wc || target.kind == MemKind::wc) && !machine_.memory)
      return Support::no("the model " + machine_.name +
                         " does not say how fast a CPU copies write-combined memory: its file has no [memory]");
    if (!routes_.between(from, by) || !routes_.between(by, to))
      return Support::no("no route leads from " + to_string(actor.place) + " to " + pair);
    if (const u32 cpus = machine_.numa[by].cpus; move.shape.threads > std::max(1u, cpus))
      return Support::no(why_no_cpus(actor.place, move.shape.threads, cpus));
    return {};
  }
  constexpr double tma_capability = 9.0;
  const double capability = machine_.is_gpu(by) ? machine_.gpu(by).compute_capability : 0;
  if (move.engine == Engine::tma && capability > 0 && capability < tma_capability)
    return Support::no(to_string(actor.place) + " has no TMA: it needs compute capability 9.0");
  if (move.engine == Engine::sm || move.engine == Engine::tma)
    return supports_accesses(
        program, move.by ? Actor{*move.by, actor.kind, actor.clock, actor.cpu, actor.process, {}, {}} : actor,
        kernel_of(move));
  if (!by_copy_engine(move.engine))
    return Support::no(std::string{"the model cannot copy by "} + to_string(move.engine) + " yet");
  if (actor.kind != ActorKind::stream) return Support::no("copy engines are driven from streams");
  if (between_hosts) return Support::no("copy engines do not copy between host memories");
  if (from != by && to != by)
    return Support::no("the model's streams copy from or to their own GPU; " +
                       to_string(machine_.is_gpu(by) ? machine_.gpu(by).place : actor.place) + " is neither of " +
                       pair);
  if (machine_.is_gpu(from) && machine_.is_gpu(to) && from != to && program.peer && !machine_.peer(from, to))
    return Support::no("there is no peer access between " + pair +
                       " on this machine; with peer=off, copies go through the host");
  return {};
}

/// A CPU thread reads a file into memory, or writes it.
Support Compiler::supports_file(const Program& program, const Actor& actor, const Move& move) const {
  if (actor.kind != ActorKind::cpu_thread) return Support::no("files are read and written by CPU threads");
  const auto in_file = [&](const Span& span) { return program.regions[span.region].at.kind == PlaceKind::disk; };
  if (in_file(move.from) == in_file(move.to))
    return Support::no("one end of a file's copy is a file, and one is memory");
  if (in_rows(move).count > 1) return Support::no("the model's files are read and written in one piece");
  if (program.cache == CacheState::cold) return {};
  if (!machine_.memory)
    return Support::no("the model " + machine_.name +
                       " does not say what mapping and pinning a page costs: its file has no [memory]");
  if (move.shape.threads > 1)
    return Support::no("the model does not say how several threads share the pinning of pages");
  return {};
}

Support Compiler::supports(const Program& program, const Actor& actor, const Kernel& kernel) const {
  if (auto why = why_no_traffic(kernel); !why.empty()) return Support::no(why);
  for (const auto& access : kernel.traffic)
    if (program.regions[access.span.region].kind == MemKind::managed) return supports_touch(program, actor, kernel);
  return supports_accesses(program, actor, kernel);
}

Support Compiler::supports(const Program& program, const Actor& actor, const Opaque& library) const {
  if (library.traffic.empty())
    return Support::no("the library call '" + library.library_call +
                       "' states no traffic, and a model runs nothing but traffic: list the spans that it reads and "
                       "writes");
  if (actor.kind != ActorKind::stream) return Support::no("library calls are queued on streams");
  for (const auto& access : library.traffic)
    if (pages_move(program.regions[access.span.region].kind))
      return Support::no("the model's library calls use no managed memory");
  if (computes(library) && !machine_.gpu(node(actor.place)).operations.contains(library.element))
    return Support::no("the model " + machine_.name + " does not say how fast " + to_string(actor.place) +
                       " computes with " + library.element + ": " + library.element + "_tflops");
  const bool within = std::all_of(library.traffic.begin(), library.traffic.end(), [&](const Access& access) {
    return program.regions[access.span.region].at == actor.place;
  });
  if (within && !machine_.kernel) return {};
  return supports_accesses(program, actor, as_kernel(library));
}

Support Compiler::supports_accesses(const Program& program, const Actor& actor, const Kernel& kernel) const {
  const Node by = node(actor.place);
  if (on_gpu(actor.kind) && !machine_.kernel)
    return Support::no("the model " + machine_.name +
                       " does not say how its GPUs' threads access memory: its file has no [kernel]");
  if (kernel.sm && *kernel.sm >= machine_.gpu(by).sms)  // the existing ones are all equal
    return Support::no(why_no_sm(actor.place, *kernel.sm, machine_.gpu(by).sms));
  for (const auto& access : kernel.traffic)
    if (auto support = supports_access(program, actor, kernel, program.regions[access.span.region]); !support)
      return support;
  return {};
}

Support Compiler::supports_access(const Program& program, const Actor& actor, const Kernel& kernel,
                                  const Region& region) const {
  const bool atomic = traits_of(kernel.id).atomic;
  if (region.at.kind == PlaceKind::disk) return Support::no("nobody accesses a file by loads and stores yet");
  const Node by = node(actor.place);
  const Node at = node(region.at);
  if (region.at.host != actor.place.host) return Support::no(different_hosts);
  if (actor.kind == ActorKind::cpu_thread) {
    if (machine_.is_gpu(at))
      return Support::no("a CPU has no loads from the memory of " + to_string(region.at) +
                         ": it is not mapped for the host");
    if (kernel.dependent_steps == 0 && !atomic)
      return Support::no("the model's CPU threads copy, chase and add to words only");
    if (atomic && machine_.atomic && machine_.atomic->cpu == 0)
      return Support::no("the model " + machine_.name +
                         " does not say how long an addition by a CPU takes: cpu_us of [atomic]");
    if (machine_.numa[at].load == 0)
      return Support::no("the model " + machine_.name + " does not say how long a load from " + to_string(region.at) +
                         " takes: load_us");
  } else {
    if (is_pageable(region.kind)) return Support::no("a GPU's threads do not reach pageable memory");
    if (machine_.is_gpu(at) && at != by && !machine_.peer(at, by))
      return Support::no("there is no peer access between " + to_string(region.at) + " and " + to_string(actor.place) +
                         " on this machine");
  }
  if (on_gpu(actor.kind) && kernel.dependent_steps > 0 && !atomic && !machine_.is_gpu(at) &&
      machine_.numa[at].load == 0)
    return Support::no("the model " + machine_.name + " does not say how long a load from " + to_string(region.at) +
                       " takes: load_us");
  if (atomic && !machine_.atomic)
    return Support::no("the model " + machine_.name +
                       " does not say what atomic operations take: its file has no [atomic]");
  if (atomic) return {};
  if (program.cache == CacheState::hot && kernel.dependent_steps > 0)
    return Support::no("the model has no caches for single loads yet");
  if (program.cache != CacheState::cold && (!machine_.is_gpu(at) || once_only(program.cache)))
    return Support::no("the model's GPUs keep no host memory in their L2");
  if (program.cache == CacheState::hot && machine_.gpu(at).l2 == 0)
    return Support::no("the model " + machine_.name + " does not say how fast the L2 of " + to_string(region.at) +
                       " is: l2_gbps");
  if (!routes_.between(at, by) || !routes_.between(by, at))
    return Support::no("no route leads from " + to_string(region.at) + " to " + to_string(actor.place));
  return {};
}

}  // namespace linkscope::sim
