#include "platform/cuda/cuda_platform.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "platform/cuda/caller.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/managed.hpp"
#include "platform/cuda/moves.hpp"
#include "platform/cuda/steps.hpp"
#include "platform/host/dirty.hpp"
#include "platform/host/flush.hpp"
#include "platform/host/topology.hpp"
#include "program/allocation.hpp"
#include "program/chain.hpp"
#include "program/managed.hpp"

namespace linkscope {
namespace {

/// Why the host would wait for every call, so that nothing can be queued behind a gate; "" if nothing is known to.
std::string why_no_gate() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value && std::string{value} != "0";
  };
  if (set("CUDA_LAUNCH_BLOCKING")) return "CUDA_LAUNCH_BLOCKING is set";
  for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NV_COMPUTE_PROFILER_PERFWORKS_DIR"})
    if (set(name)) return std::string{"a profiler is attached ("} + name + " is set)";
  return "";
}

std::vector<PeerFacts> read_peers(const Driver& driver, const std::vector<DeviceFacts>& gpus) {
  std::vector<PeerFacts> peers;
  if (!driver.why_no("cuDeviceCanAccessPeer").empty()) return peers;
  for (u32 from = 0; from < gpus.size(); ++from)
    for (u32 to = 0; to < gpus.size(); ++to) {
      if (from == to) continue;
      PeerFacts peer{from, to};
      int access = 0, atomics = 0;
      LINKSCOPE_CU(driver, cuDeviceCanAccessPeer, &access, gpus[from].handle, gpus[to].handle);
      if (driver.cuDeviceGetP2PAttribute) {
        driver.cuDeviceGetP2PAttribute(&peer.performance_rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, gpus[from].handle, gpus[to].handle);
        driver.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, gpus[from].handle, gpus[to].handle);
      }
      peer.access = access != 0;
      peer.native_atomics = atomics != 0;
      peers.push_back(peer);
    }
  return peers;
}

class CudaPlatformImpl final : public CudaPlatform {
 public:
  CudaPlatformImpl() : no_gate_{why_no_gate()}, buffers_{driver_} {
    facts_.present = driver_.usable();
    facts_.version = driver_.version();
    facts_.why_not = driver_.why_not();
    facts_.gpus = list_devices(driver_);
    facts_.peers = read_peers(driver_, facts_.gpus);
    facts_.missing = driver_.missing();
    devices_.resize(facts_.gpus.size());
  }

  [[nodiscard]] const DriverFacts& facts() const override { return facts_; }
  [[nodiscard]] Support supports(const Program&) const override;
  [[nodiscard]] std::unique_ptr<Session> prepare(const Program&, const std::string& key) override;
  [[nodiscard]] Trace run(Session&, const Order&) override;

 private:
  [[nodiscard]] std::string why_no_place(const Place&) const;
  [[nodiscard]] std::string why_no_region(const Region&) const;
  [[nodiscard]] std::string why_no_actor(const Program&, const Actor&) const;
  [[nodiscard]] std::string why_no_calls(const Program&, const Actor&) const;
  [[nodiscard]] std::string why_no_kernel(const Program&, const Actor&, const Kernel&) const;
  [[nodiscard]] std::string why_no_threads(const Program&, const Actor&, const Move&) const;
  [[nodiscard]] std::string why_no_peer(const Program&) const;
  [[nodiscard]] std::string why_too_much_managed(const Program&) const;
  [[nodiscard]] static std::set<u32> gpus_of(const Program&);
  /// Pairs of GPUs between which the program's flows go.
  [[nodiscard]] static std::set<std::pair<u32, u32>> peer_pairs(const Program&);
  [[nodiscard]] bool can_access(u32 from, u32 to) const;
  [[nodiscard]] bool native_atomics(u32 from, u32 to) const;
  Device& device(u32 index) const;
  Device* any_device();
  Device* device_for(const Program&, u32 region);
  void set_peers(const Program&);
  void make_buffers(CudaSession&);
  void make_actors(CudaSession&);
  void choose_timing(CudaSession&);
  void warm_up(CudaSession&);
  bool rehearse(CudaSession&, const std::vector<u32>& batch, Stamp* stamps);
  bool gated(CudaSession&, const std::vector<u32>& batch, Stamp* stamps);
  bool take_samples(CudaSession&, const Order&, Timing, Trace&);
  Timing timing_of(CudaSession&, const Order&);

  Driver driver_;
  DriverFacts facts_;
  std::string no_gate_;
  mutable std::vector<std::unique_ptr<Device>> devices_;  // opened when first used
  std::unique_ptr<Gate> gate_;
  Buffers buffers_;  // after the devices: given back before them
  std::set<std::pair<u32, u32>> peers_on_;
};

// --- what it can run ----------------------------------------------------------------------------------------------

std::string CudaPlatformImpl::why_no_place(const Place& place) const {
  const auto here = [&](const char* what, std::size_t count) {
    return place.index < count ? "" : to_string(place) + " is not here; this machine has " + std::to_string(count) + " " + what;
  };
  if (place.host != one_host) return to_string(place) + " is another host";
  switch (place.kind) {
    case PlaceKind::numa: return here("NUMA nodes", host_nodes().size());
    case PlaceKind::gpu: return facts_.present ? here("GPUs", facts_.gpus.size()) : to_string(place) + " is not here: " + facts_.why_not;
    default: return to_string(place) + ": memory at such a place cannot be measured here";
  }
}

std::string CudaPlatformImpl::why_no_region(const Region& region) const {
  if (auto why = why_no_place(region.at); !why.empty()) return why;
  switch (region.kind) {
    case MemKind::device:
    case MemKind::pool:
    case MemKind::vmm: {
      const auto& gpu = facts_.gpus[region.at.index];
      for (const char* symbol : symbols_of(region.kind))
        if (auto why = driver_.why_no(symbol); !why.empty()) return why;
      if (region.kind == MemKind::pool && gpu.attribute("MEMORY_POOLS_SUPPORTED", 0) == 0)
        return to_string(region.at) + " has no stream-ordered pools (MEMORY_POOLS_SUPPORTED is 0)";
      if (region.kind == MemKind::vmm && gpu.attribute("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", 0) == 0)
        return to_string(region.at) + " has no virtual memory management (VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED is 0)";
      if (region.bytes > gpu.memory_bytes)
        return bytes_text(region.bytes) + " do not fit " + to_string(region.at) + ", which has " + bytes_text(gpu.memory_bytes);
      constexpr int prohibited = CU_COMPUTEMODE_PROHIBITED;
      if (gpu.attribute("COMPUTE_MODE", 0) == prohibited)
        return to_string(region.at) + " is in compute mode 'prohibited': nobody may use it until its administrator changes that";
      return "";
    }
    case MemKind::managed:
    case MemKind::system: return why_no_moving_pages(driver_, facts_.gpus, region);
    case MemKind::pageable:
    case MemKind::pinned: return "";
    case MemKind::wc:
    case MemKind::mapped: return facts_.present ? "" : std::string{to_string(region.kind)} + " memory is the driver's to give: " + facts_.why_not;
    case MemKind::hugepage: return why_no_pages(region.at.index, region.bytes, {region.page_bytes, region.transparent});
    case MemKind::registered:
    case MemKind::registered_hugepage:
      for (const char* symbol : symbols_of(region.kind))
        if (auto why = driver_.why_no(symbol); !why.empty()) return why;
      return region.kind == MemKind::registered ? "" : why_no_pages(region.at.index, region.bytes, {region.page_bytes, region.transparent});
    default: return std::string{to_string(region.kind)} + " memory cannot be measured here yet";
  }
}

std::string CudaPlatformImpl::why_no_actor(const Program& program, const Actor& actor) const {
  if (auto why = why_no_place(actor.place); !why.empty()) return why;
  if (actor.cpu)
    if (auto why = why_no_place(*actor.cpu); !why.empty()) return why;
  for (const auto& step : actor.once) {
    const auto* call = std::get_if<Call>(&step);
    if (!std::holds_alternative<Prefetch>(step) && !(call && call->until)) return "steps before the loop other than prefetches, and calls that prepare others, cannot be run here yet";
  }
  if (actor.process != 0) return "several processes cannot be run here yet";
  if (exchanges_flags(actor)) return why_no_flags(program, actor);
  if (makes_calls(actor)) return why_no_calls(program, actor);
  for (const auto& step : actor.loop) {
    if (auto why = why_no_managed_step(driver_, program, actor, step); !why.empty()) return why;
    if (std::holds_alternative<Prefetch>(step)) continue;
    if (const auto* call = std::get_if<Call>(&step)) {
      if (auto why = why_no_phase(program, actor, *call); !why.empty()) return why;
      continue;
    }
    if (const auto* kernel = std::get_if<Kernel>(&step)) {
      if (auto why = why_no_kernel(program, actor, *kernel); !why.empty()) return why;
      continue;
    }
    const auto* move = std::get_if<Move>(&step);
    if (!move) return "a loop here is copies and kernels, or calls, or one word that is set and one that is waited for";
    const bool by_gpu = by_copy_engine(move->engine) || move->engine == Engine::sm || move->engine == Engine::tma;
    if (actor.kind == ActorKind::stream ? !by_gpu : move->engine != Engine::cpu)
      return std::string{to_string(move->engine)} + " copies cannot be run here yet";
    if (auto why = why_no_threads(program, actor, *move); !why.empty()) return why;
    if (move->by)
      if (auto why = why_no_place(*move->by); !why.empty()) return why;
    if (auto why = why_no_call(driver_, program, *move); !why.empty()) return why;
    const bool together = move->engine == Engine::batch || move->engine == Engine::graph;
    if (together && (actor.loop.size() > 1 || move->by)) return "copies that are made together can only be the whole loop here";
  }
  return "";
}

std::string CudaPlatformImpl::why_no_calls(const Program& program, const Actor& actor) const {
  if (actor.kind != ActorKind::cpu_thread) return "calls are made by CPU threads";
  const auto& on = std::get<Call>(actor.loop.front()).on;
  for (const auto& step : actor.loop) {
    const auto* call = std::get_if<Call>(&step);
    if (!call || call->on != on) return "a loop of calls is calls for one GPU only here";
    if (auto why = why_no_call(driver_, *call); !why.empty()) return why;
    if (auto why = why_no_place(*call->on); !why.empty()) return why;
    for (const auto& touch : touches(step))
      if (is_pageable(program.regions[touch.span.region].kind)) return "a call that copies pageable memory waits for the copy here: it is no call alone";
  }
  return "";
}

std::string CudaPlatformImpl::why_no_kernel(const Program& program, const Actor& actor, const Kernel& kernel) const {
  if (auto why = why_no_step(kernel, actor.kind); !why.empty()) return why;
  if (kernel.dependent_steps > 0 && actor.loop.size() > 1) return "a chase can only be the whole loop here";
  for (const auto& [span, writes] : touches(kernel)) {
    const auto& region = program.regions[span.region];
    if (actor.kind == ActorKind::cpu_thread && region.at.kind == PlaceKind::gpu && !pages_move(region.kind))
      return "a CPU has no loads from the memory of " + to_string(region.at) + ": it is not mapped for the host (a coherent link such as NVLink-C2C would)";
    if (actor.kind == ActorKind::stream && is_pageable(region.kind))
      return "a GPU's threads do not reach pageable memory by its CPU address here";
    if (is_atomic(kernel) && region.at.kind == PlaceKind::gpu && region.at != actor.place && !native_atomics(actor.place.index, region.at.index))
      return to_string(actor.place) + " has no atomic operations on the memory of " + to_string(region.at) + ": the link between them does not carry them";
  }
  return "";
}

bool CudaPlatformImpl::native_atomics(u32 from, u32 to) const {
  return std::any_of(facts_.peers.begin(), facts_.peers.end(), [&](const PeerFacts& p) { return p.from == from && p.to == to && p.native_atomics; });
}

std::string CudaPlatformImpl::why_no_threads(const Program& program, const Actor& actor, const Move& move) const {
  if (move.engine != Engine::sm && move.engine != Engine::tma) return "";
  const auto& gpu = facts_.gpus[actor.place.index];
  if (move.engine == Engine::tma && gpu.attribute("COMPUTE_CAPABILITY_MAJOR", 0) < 9)
    return to_string(actor.place) + " has no bulk copies: they came with compute capability 9.0";
  for (const u32 region : {move.from.region, move.to.region})
    if (is_pageable(program.regions[region].kind)) return "a GPU's threads do not reach pageable memory by its CPU address here";
  return "";
}

std::set<std::pair<u32, u32>> CudaPlatformImpl::peer_pairs(const Program& program) {
  std::set<std::pair<u32, u32>> pairs;
  for (const auto& flow : program.flows)
    if (flow.src.kind == PlaceKind::gpu && flow.dst.kind == PlaceKind::gpu && flow.src != flow.dst) pairs.emplace(flow.src.index, flow.dst.index);
  return pairs;
}

std::string CudaPlatformImpl::why_no_peer(const Program& program) const {
  if (!program.peer) return "";
  for (const char* symbol : {"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"})
    if (auto why = driver_.why_no(symbol); !why.empty()) return why;
  const auto pairs = peer_pairs(program);
  for (const auto& peer : facts_.peers)
    if ((pairs.contains({peer.from, peer.to}) || pairs.contains({peer.to, peer.from})) && !peer.access)
      return "gpu:" + std::to_string(peer.from) + " cannot access the memory of gpu:" + std::to_string(peer.to);
  return "";
}

std::string CudaPlatformImpl::why_too_much_managed(const Program& program) const {
  if (managed_bytes(program) == 0) return "";
  for (const u32 index : gpus_of(program)) {
    std::size_t free = 0, total = 0;
    device(index).use();
    LINKSCOPE_CU(driver_, cuMemGetInfo, &free, &total);
    if (auto why = why_no_managed(program, gpu(index), free); !why.empty()) return why;
  }
  return "";
}

Support CudaPlatformImpl::supports(const Program& program) const {
  for (const auto& region : program.regions)
    if (auto why = why_no_region(region); !why.empty()) return Support::no(why);
  for (const auto& actor : program.actors)
    if (auto why = why_no_actor(program, actor); !why.empty()) return Support::no(why);
  if (program.held_by == HeldBy::wait)
    if (auto why = driver_.why_no("cuStreamWaitValue32"); !why.empty()) return Support::no(why);
  if (auto why = why_no_peer(program); !why.empty()) return Support::no(why);
  if (program.cache == CacheState::dirty)
    for (const auto& region : program.regions)
      if (region.at.kind == PlaceKind::numa)
        if (auto why = why_no_other_core(region.at.index); !why.empty()) return Support::no(why);
  return {why_too_much_managed(program)};
}

// --- prepare ------------------------------------------------------------------------------------------------------

std::set<u32> CudaPlatformImpl::gpus_of(const Program& program) {
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

Device& CudaPlatformImpl::device(u32 index) const {
  auto& device = devices_.at(index);
  if (!device) {
    const auto& facts = facts_.gpus[index];
    try {
      device = std::make_unique<Device>(driver_, facts);
    } catch (const Error& error) {
      constexpr int exclusive = CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
      if (facts.attribute("COMPUTE_MODE", 0) == exclusive)
        throw Error{ErrorKind::failed, "gpu:" + std::to_string(index) + " is in compute mode 'exclusive process' and another process holds it (" + error.what() + ")"};
      throw;
    }
  }
  return *device;
}

/// The first GPU that lets this process in, or null: host memory alone needs none in particular.
Device* CudaPlatformImpl::any_device() {
  constexpr int shared = CU_COMPUTEMODE_DEFAULT, prohibited = CU_COMPUTEMODE_PROHIBITED;
  for (u32 index = 0; index < devices_.size(); ++index) {
    const int mode = facts_.gpus[index].attribute("COMPUTE_MODE", shared);
    if (mode == shared) return &device(index);
    if (mode == prohibited) continue;
    try {
      return &device(index);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::failed) throw;  // failed: another process holds it
    }
  }
  return nullptr;
}

/// The GPU that holds a region, or for host memory one whose context pins it: the first that uses it, else any.
Device* CudaPlatformImpl::device_for(const Program& program, u32 region) {
  const auto& [place, kind] = std::tie(program.regions[region].at, program.regions[region].kind);
  if (place.kind == PlaceKind::gpu) return &device(place.index);
  if (is_pageable(kind) || devices_.empty()) return nullptr;
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop) {
      const auto* call = std::get_if<Call>(&step);
      if (call && call->span && call->span->region == region && actor.place.kind == PlaceKind::gpu) return &device(actor.place.index);
      for (const auto& touch : touches(step))
        if (touch.span.region == region) {
          const Place& by = call && call->on ? *call->on : actor.place;
          if (by.kind == PlaceKind::gpu) return &device(by.index);
        }
    }
  return any_device();
}

bool CudaPlatformImpl::can_access(u32 from, u32 to) const {
  return std::any_of(facts_.peers.begin(), facts_.peers.end(), [&](const PeerFacts& p) { return p.from == from && p.to == to && p.access; });
}

void CudaPlatformImpl::set_peers(const Program& program) {
  if (peer_pairs(program).empty()) return;  // nothing goes between GPUs: what is set costs nothing
  const auto gpus = gpus_of(program);
  for (const u32 from : gpus)
    for (const u32 to : gpus) {
      if (from == to || peers_on_.contains({from, to}) == program.peer || !can_access(from, to)) continue;
      auto& target = device(to);
      device(from).use();
      if (program.peer) {
        LINKSCOPE_CU(driver_, cuCtxEnablePeerAccess, target.context(), 0);
        peers_on_.insert({from, to});
      } else {
        LINKSCOPE_CU(driver_, cuCtxDisablePeerAccess, target.context());
        peers_on_.erase({from, to});
      }
    }
}

void CudaPlatformImpl::make_buffers(CudaSession& session) {
  std::map<std::tuple<Place, MemKind, u64, bool, Content>, u32> count;
  for (u32 r = 0; r < session.program.regions.size(); ++r) {
    const auto& region = session.program.regions[r];
    if (pages_move(region.kind)) {
      session.managed.push_back(make_managed(driver_, device_for(session.program, r), region, session.managed.size()));
      session.buffers.push_back(session.managed.back().get());
      continue;
    }
    if (allocated_by_calls(session.program, r)) {
      prepare_phases(session, r, device_for(session.program, r));
      session.buffers.push_back(nullptr);
      continue;
    }
    auto& buffer = buffers_.get(region, count[{region.at, region.kind, region.page_bytes, region.transparent, region.content}]++, device_for(session.program, r));
    session.buffers.push_back(&buffer);
    if (session.program.peer)
      for (const u32 index : gpus_of(session.program)) buffer.memory().grant(device(index));
    if (!buffer.host()) continue;
    if (const auto size = buffer.memory().page_size(); !size.empty()) session.notes.emplace_back("page size " + to_string(region.at) + "." + to_string(region.kind), size);
    const auto found = page_nodes(buffer.host(), region.bytes);
    session.notes.emplace_back("pages " + to_string(region.at) + "." + to_string(region.kind), found);
    if (found != "hidden" && found != to_string(region.at))
      throw Error{ErrorKind::failed, "pages asked for on " + to_string(region.at) + " are on " + found};
  }
  for (std::size_t i = 0; i < session.buffers.size(); ++i)
    if (session.program.regions[i].content == Content::zero) session.buffers[i]->fill_with(std::byte{0}, session.program.regions[i].bytes);
  for (std::size_t i = 0; i < session.buffers.size(); ++i)
    if (session.program.regions[i].content == Content::chain && !pages_move(session.program.regions[i].kind)) session.buffers[i]->fill_with_chain(session.program.regions[i].bytes);
}

void CudaPlatformImpl::make_actors(CudaSession& session) {
  std::map<u32, std::size_t> streams;
  for (const auto& actor : session.program.actors) {
    ActorState state;
    state.actor = &actor;
    if (actor.kind == ActorKind::stream) {
      state.device = &device(actor.place.index);
      state.stream = &state.device->stream(1 + streams[actor.place.index]++);  // stream 0 is for untimed work
      state.device->use();
      state.enter = std::make_unique<Event>(driver_);
      state.exit = std::make_unique<Event>(driver_);
      const int nearest = node_of_pci_device(state.device->facts().pci);
      state.node = actor.cpu ? actor.cpu->index : nearest < 0 ? 0 : static_cast<u32>(nearest);
      for (const auto& step : actor.loop) {
        const auto* move = std::get_if<Move>(&step);
        if (!move || !move->by || state.helpers.contains(move->by->index)) continue;
        Helper& helper = state.helpers[move->by->index];
        helper.device = &device(move->by->index);
        helper.stream = &helper.device->stream(1 + streams[move->by->index]++);
        state.device->use();
        helper.before = std::make_unique<Event>(driver_, CU_EVENT_DISABLE_TIMING);
        helper.device->use();
        helper.after = std::make_unique<Event>(driver_, CU_EVENT_DISABLE_TIMING);
      }
    } else {
      state.node = actor.place.index;
      if (makes_calls(actor)) {
        const u32 index = std::get<Call>(actor.loop.front()).on->index;
        state.caller = std::make_shared<Caller>(session, actor, device(index), device(index).stream(1 + streams[index]++));
      }
    }
    session.actors.push_back(std::move(state));
  }
  for (auto& state : session.actors) start_results(session, state);
  prepare_managed(session);
}

/// How many iterations touch all that an actor touches.
u32 whole_footprint(const Actor& actor) {
  u64 most = 1;
  for (const auto& step : actor.loop) {
    const auto* kernel = std::get_if<Kernel>(&step);
    for (const auto& touch : touches(step))
      most = std::max<u64>(most, kernel && kernel->name == "chase" ? touch.span.bytes / linkscope_chain_line : touch.span.slices);
  }
  return static_cast<u32>(most);
}

constexpr Seconds rehearsal{0.02};  // how long queueing may take where nothing is known of it

bool within(const std::vector<u32>& small, const std::vector<u32>& large) {
  return std::equal(small.begin(), small.end(), large.begin(), large.end(), std::less_equal<>{});
}

std::vector<u32> halved(std::vector<u32> batch) {
  for (u32& count : batch) count = (count + 1) / 2;
  return batch;
}

bool rehearsed(const CudaSession& session, const std::vector<u32>& batch) {
  return std::any_of(session.rehearsed.begin(), session.rehearsed.end(), [&](const auto& other) { return within(batch, other); });
}

/// Runs everybody's loop once, and where caches are to be hot over all memory: code is loaded, staging memory made, and
/// the time of an iteration known. Behind a gate where one will be used: large copies are too dear for a rehearsal more.
void CudaPlatformImpl::warm_up(CudaSession& session) {
  std::vector<u32> once;
  for (const auto& actor : session.program.actors) once.push_back(session.program.cache == CacheState::hot ? whole_footprint(actor) : 1);
  std::vector<Stamp> stamps(session.actors.size());
  load_code(session);
  if (session.timing == Timing::gate) {
    if (!rehearse(session, once, stamps.data())) sample_host(session, once, stamps.data());
  } else {
    sample_host(session, once, stamps.data());
  }
  for (std::size_t a = 0; a < stamps.size(); ++a)
    session.expected_loop = std::max(session.expected_loop, Seconds{stamps[a].exit_s - stamps[a].enter_s} / once[a]);
}

/// Whether queueing this batch behind a closed gate goes through without holding the host up.
bool CudaPlatformImpl::rehearse(CudaSession& session, const std::vector<u32>& batch, Stamp* stamps) {
  // Once may be the host's own hiccup or staging memory being made; what blocks for good does so again.
  const bool through = sample_gated(session, *gate_, batch, rehearsal, stamps) || sample_gated(session, *gate_, batch, rehearsal, stamps);
  (through ? session.rehearsed : session.blocking).push_back(batch);
  return through;
}

void CudaPlatformImpl::choose_timing(CudaSession& session) {
  const auto host = [&](std::string why) {
    session.timing = Timing::host;
    session.why_timing = std::move(why);
  };
  const bool held = session.program.held_by != HeldBy::nothing;
  for (const auto& actor : session.program.actors) {
    if (actor.clock == Clock::host) return host("its actors are CPU threads, or what they do is calls");
    if (!held) continue;
    for (const auto& step : actor.loop) {
      for (const auto& touch : touches(step))
        if (is_pageable(session.program.regions[touch.span.region].kind))
          return host("the driver copies pageable memory on the host, before a gate would open");
    }
  }
  if (!held) {
    session.timing = Timing::events;
    session.why_timing = "nothing holds the streams: the time that queueing takes is in it";
    return;
  }
  if (!no_gate_.empty()) {
    // Without a gate one stream's copies may be done before the next one's are queued: several start at a barrier.
    session.timing = session.actors.size() > 1 ? Timing::host : Timing::events;
    session.why_timing = "no gate: " + no_gate_;
    return;
  }
  if (!gate_) gate_ = std::make_unique<Gate>(driver_, *session.actors.front().device);
}

/// How to time this order: by the host's clock where queueing one of its batches behind a closed gate holds the host up.
/// Staged copies without peer access do so from some number of bytes in flight on a stream on. Found out by doing it
/// once, which is a rehearsal as well.
Timing CudaPlatformImpl::timing_of(CudaSession& session, const Order& order) {
  if (session.timing != Timing::gate) return session.timing;
  const auto total = [](const std::vector<u32>& batch) { return std::accumulate(batch.begin(), batch.end(), u32{0}); };
  std::vector<Stamp> unused(session.actors.size());
  auto batches = order.batches;  // the largest first: what it shows holds of smaller ones
  std::sort(batches.begin(), batches.end(), [&](const auto& a, const auto& b) { return total(a) > total(b); });
  for (const auto& batch : batches) {
    const bool hopeless = std::any_of(session.blocking.begin(), session.blocking.end(), [&](const auto& other) { return within(other, batch); });
    if (hopeless) return Timing::host;  // another way of timing is another quantity
    if (total(batch) == 0) continue;
    if (rehearsed(session, halved(batch))) continue;  // so little more is found out by the sample itself
    if (!rehearse(session, batch, unused.data())) return Timing::host;
  }
  return Timing::gate;
}

std::unique_ptr<Session> CudaPlatformImpl::prepare(const Program& program, const std::string&) {
  if (const auto support = supports(program); !support) throw Error{ErrorKind::usage, support.why_not};
  auto session = std::make_unique<CudaSession>(driver_, program);
  set_peers(session->program);
  if (managed_bytes(program) > 0)
    for (const u32 index : gpus_of(program)) session->gpus.emplace_back(index, &device(index));
  make_buffers(*session);
  make_actors(*session);
  bind_thread_to_node(session->actors.front().node);
  choose_timing(*session);
  warm_up(*session);
  if (!session->why_timing.empty()) session->notes.emplace_back("timing", session->why_timing);
  if (session->program.cache == CacheState::cold) session->notes.emplace_back("cpu_cache_flush", cache_flush_instruction());
  return session;
}

// --- run ----------------------------------------------------------------------------------------------------------

/// One sample behind the gate; false where the host was held up by a batch that had not been rehearsed: now it has.
bool CudaPlatformImpl::gated(CudaSession& session, const std::vector<u32>& batch, Stamp* stamps) {
  const bool known = rehearsed(session, batch);
  const Seconds patience = known ? gate_timeout(session, batch) : rehearsal;
  if (sample_gated(session, *gate_, batch, patience, stamps)) {
    if (!known) session.rehearsed.push_back(batch);
    return true;
  }
  if (known)
    throw Error{ErrorKind::timeout, "the host did not finish queueing before the gate's time-out of " + std::to_string(patience.count()) + " s"};
  rehearse(session, batch, stamps);
  return false;
}

/// Takes the order's samples; false where they must be taken again, for a batch was rehearsed on the way.
bool CudaPlatformImpl::take_samples(CudaSession& session, const Order& order, Timing timing, Trace& trace) {
  for (u32 sample = 0; sample < order.samples; ++sample)
    for (u32 b = 0; b < trace.batches; ++b) {
      const auto& batch = order.batches[b];
      session.settle_caches(batch);
      Stamp* stamps = &trace.at(sample, b, 0);
      if (timing == Timing::events) sample_events(session, batch, stamps);
      else if (timing == Timing::host) sample_host(session, batch, stamps);
      else if (!gated(session, batch, stamps)) return false;
    }
  return true;
}

Trace CudaPlatformImpl::run(Session& base, const Order& order) {
  auto& session = static_cast<CudaSession&>(base);
  check_iterations(session.program, order);
  Trace trace;
  trace.samples = order.samples;
  trace.batches = static_cast<u32>(order.batches.size());
  trace.actors = static_cast<u32>(session.actors.size());
  trace.stamps.resize(std::size_t{trace.samples} * trace.batches * trace.actors);
  Verdict before;
  if (order.verify && session.sampled) before = verify(session);
  Timing timing;
  do {
    timing = timing_of(session, order);
    // Into fresh poison: what warm-up, rehearsals and earlier samples delivered does not prove that these do.
    if (order.verify || !session.sampled) session.start_afresh();
  } while (!take_samples(session, order, timing, trace));
  session.sampled = true;
  trace.timing = timing == Timing::gate ? "gate" : timing == Timing::events ? "events" : "host";
  if (order.verify) trace.verdict = both(before, verify(session));
  trace.notes = session.notes;
  if (timing != session.timing)
    trace.notes.emplace_back("timing", "queueing so many copies waits for the gate");
  return trace;
}

}  // namespace

std::unique_ptr<CudaPlatform> make_cuda() { return std::make_unique<CudaPlatformImpl>(); }

}  // namespace linkscope
