#include "platform/cuda/cuda_platform.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "gpu/devices.hpp"
#include "host/flush.hpp"
#include "host/topology.hpp"
#include "platform/cuda/caller.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/cuda/device_code.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/managed.hpp"
#include "platform/cuda/sampling.hpp"
#include "platform/cuda/steps.hpp"
#include "platform/cuda/supports.hpp"
#include "program/allocation.hpp"
#include "program/managed.hpp"

namespace linkscope {
namespace {

class CudaPlatformImpl final : public CudaPlatform {
 public:
  explicit CudaPlatformImpl(const std::vector<Wanted>& most)
      : offer_{driver_, facts_, [this](u32 gpu) { return device(gpu).free_bytes(); },
               [this](const Region& region, std::optional<u32> by) { return why_not_shared(region, by); }},
        buffers_{driver_, owner_, most} {
    facts_.present = driver_.usable();
    facts_.version = driver_.version();
    facts_.why_not = driver_.why_not();
    facts_.gpus = devices_.facts();
    facts_.peers = list_peers(driver_, facts_.gpus);
    facts_.missing = driver_.missing();
  }

  [[nodiscard]] const DriverFacts& facts() const override { return facts_; }
  [[nodiscard]] std::vector<ContextsMade> make_contexts(const std::vector<u32>& gpus, const Floors&) override;
  [[nodiscard]] Support supports(const Program& program) const override { return offer_.supports(program); }
  [[nodiscard]] std::unique_ptr<Session> prepare(const Program&, const std::string& key) override;
  [[nodiscard]] Trace run(Session& session, const Order& order) override {
    return sampling_.run(static_cast<CudaSession&>(session), order);
  }

 private:
  Device& device(u32 index) { return devices_.at(index); }
  std::optional<Seconds> context_anew(u32 gpu);
  std::string why_not_shared(const Region&, std::optional<u32> by);
  Device* device_for(const Program&, u32 region);
  void set_peers(const Program&);
  void make_buffers(CudaSession&);
  void make_actors(CudaSession&);

  Driver driver_;
  DriverFacts facts_;
  Offer offer_;
  Devices devices_{driver_, embedded_code()};
  Sampling sampling_{driver_};
  Owner owner_;
  std::map<std::tuple<MemKind, Place, u32, std::optional<u32>>, std::string>
      not_shared_;   // the reason why not, or ""; determined at first use
  Buffers buffers_;  // declared after the devices, so that the buffers are freed first
  std::set<std::pair<u32, u32>> peers_on_;
};

// --- prepare ------------------------------------------------------------------------------------------------------

/// The cost of an operation in a new context. Nothing on failure: the points of that GPU report the cause, and other
/// GPUs are measured.
std::optional<Seconds> CudaPlatformImpl::context_anew(u32 gpu) {
  devices_.close(gpu);
  try {
    return operation_cost(driver_, device(gpu));
  } catch (const Error&) {
    devices_.close(gpu);
    return {};
  }
}

std::vector<ContextsMade> CudaPlatformImpl::make_contexts(const std::vector<u32>& gpus, const Floors& floors) {
  if (!sampling_.why_no_gate().empty()) return {};
  std::vector<ContextsMade> made;
  std::vector<ContextMaker> makers;
  for (const u32 gpu : gpus) {
    if (gpu >= facts_.gpus.size()) throw Error{ErrorKind::usage, "there is no gpu:" + std::to_string(gpu)};
    if (facts_.gpus[gpu].attribute("COMPUTE_MODE", CU_COMPUTEMODE_DEFAULT) != CU_COMPUTEMODE_DEFAULT) continue;
    made.push_back({gpu, {}});
    makers.push_back({facts_.gpus[gpu].name, [this, gpu] { return context_anew(gpu); }});
  }
  auto costs = make_contexts_alike(makers, floors);
  for (std::size_t i = 0; i < made.size(); ++i) made[i].costs = std::move(costs[i]);
  std::erase_if(made, [](const ContextsMade& of) { return of.costs.empty(); });
  return made;
}

/// Only a trial shows whether memory can be shared: containers, sandboxes and modes of GPUs forbid sharing with
/// different errors.
std::string CudaPlatformImpl::why_not_shared(const Region& region, std::optional<u32> by) {
  const std::tuple what{region.kind, region.at, region.process, by};
  if (const auto known = not_shared_.find(what); known != not_shared_.end()) return known->second;
  std::string why;
  try {
    Device* const opens = region.at.kind == PlaceKind::gpu ? &device(region.at.index) : devices_.any();
    Allocation tried{driver_, owner_, opens, region, u64{2} << 20};
    tried.make();
    if (by && region.process == 0) (void)tried.opened_there(device(*by));
    else if (by) (void)tried.opened_by(device(*by));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::failed && error.kind() != ErrorKind::lost) throw;
    owner_.check_alive();  // drivers also report forbidden calls as 'unknown error'; the loss of a GPU shows again
    const auto where = to_string(region.at), whose = region.process
                                                         ? "of another process cannot be opened on " + where
                                                         : "on " + where + " cannot be opened by another process";
    why = std::string{to_string(region.kind)} + " memory " + whose + (by ? " by gpu:" + std::to_string(*by) : "") +
          ": " + error.what() +
          "; in a container, let the processes share IPC and PID namespaces (--ipc=host --pid=host)";
  }
  return not_shared_[what] = why;
}

/// The GPU that holds a region, or for host memory one whose context pins it: the first that uses it, or any.
Device* CudaPlatformImpl::device_for(const Program& program, u32 region) {
  const auto& [place, kind] = std::tie(program.regions[region].at, program.regions[region].kind);
  if (place.kind == PlaceKind::gpu) return &device(place.index);
  if (is_pageable(kind) || facts_.gpus.empty()) return nullptr;
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop) {
      const auto* call = std::get_if<Call>(&step);
      if (call && call->span && call->span->region == region && actor.place.kind == PlaceKind::gpu)
        return &device(actor.place.index);
      for (const auto& touch : touches(step))
        if (touch.span.region == region) {
          const Place& by = call && call->on ? *call->on : actor.place;
          if (by.kind == PlaceKind::gpu) return &device(by.index);
        }
    }
  return devices_.any();
}

void CudaPlatformImpl::set_peers(const Program& program) {
  if (peer_pairs(program).empty()) return;  // nothing moves between GPUs, so the setting costs nothing
  const auto gpus = gpus_of(program);
  for (const u32 from : gpus)
    for (const u32 to : gpus) {
      if (from == to || peers_on_.contains({from, to}) == program.peer || !can_access(facts_, from, to)) continue;
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
  buffers_.begin_program();
  for (u32 r = 0; r < session.program.regions.size(); ++r) {
    const auto& region = session.program.regions[r];
    if (pages_move(region.kind)) {
      session.managed.push_back(with_room(buffers_, [&] {
        return make_managed(driver_, owner_, device_for(session.program, r), region, session.managed.size());
      }));
      session.buffers.push_back(session.managed.back().get());
      continue;
    }
    if (allocated_by_calls(session.program, r)) {
      prepare_phases(session, r, device_for(session.program, r));
      session.buffers.push_back(nullptr);
      continue;
    }
    auto& buffer =
        buffers_.get(region, count[{region.at, region.kind, region.page_bytes, region.transparent, region.content}]++,
                     device_for(session.program, r));
    session.buffers.push_back(&buffer);
    if (session.program.peer && traits_of(region.kind).granted_to_peers)
      for (const u32 index : gpus_of(session.program)) buffer.memory().grant(device(index));
    if (!buffer.host()) continue;
    if (const auto size = buffer.memory().page_size(); !size.empty())
      session.notes.emplace_back("page size " + to_string(region.at) + "." + to_string(region.kind), size);
    const auto found = page_nodes(buffer.host(), region.bytes);
    session.notes.emplace_back("pages " + to_string(region.at) + "." + to_string(region.kind), found);
    if (found != "hidden" && found != to_string(region.at))
      throw Error{ErrorKind::failed, "pages asked for on " + to_string(region.at) + " are on " + found};
  }
  for (const auto& [region, gpu, there] : opens(session.program)) {
    auto& memory = session.buffers[region]->memory();
    if (there) session.opened_there[region] = memory.opened_there(device(gpu));
    else session.opened[{region, &device(gpu)}] = memory.opened_by(device(gpu));
  }
  for (std::size_t i = 0; i < session.buffers.size(); ++i)
    if (session.program.regions[i].content == Content::zero)
      session.buffers[i]->fill_with(std::byte{0}, session.program.regions[i].bytes);
  for (std::size_t i = 0; i < session.buffers.size(); ++i)
    if (session.program.regions[i].content == Content::chain && !pages_move(session.program.regions[i].kind))
      session.buffers[i]->fill_with_chain(session.program.regions[i].bytes);
}

void CudaPlatformImpl::make_actors(CudaSession& session) {
  std::map<u32, std::size_t> streams;
  for (const auto& actor : session.program.actors) {
    ActorState state;
    state.actor = &actor;
    if (on_gpu(actor.kind)) {
      state.device = &device(actor.place.index);
      const int nearest = node_of_pci_device(state.device->facts().pci);
      state.node = actor.cpu ? actor.cpu->index : nearest < 0 ? 0 : static_cast<u32>(nearest);
      if (!acts_elsewhere(actor)) {
        state.stream = &state.device->stream(1 + streams[actor.place.index]++);  // stream 0 is for untimed work
        state.device->use();
        state.enter = std::make_unique<Event>(driver_);
        state.exit = std::make_unique<Event>(driver_);
      }
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
        state.caller =
            std::make_shared<Caller>(session, actor, device(index), device(index).stream(1 + streams[index]++));
      }
    }
    session.actors.push_back(std::move(state));
  }
  choose_executors(session);
  for (auto& state : session.actors) start_results(session, state);
  prepare_managed(session);
}

std::unique_ptr<Session> CudaPlatformImpl::prepare(const Program& program, const std::string&) {
  if (const auto support = supports(program); !support) throw Error{ErrorKind::usage, support.why_not};
  auto session = std::make_unique<CudaSession>(driver_, owner_, program);
  set_peers(session->program);
  if (managed_bytes(program) > 0)
    for (const u32 index : gpus_of(program)) session->gpus.emplace_back(index, &device(index));
  {
    const Clocked clocked{session->spent.memory};
    make_buffers(*session);
    make_actors(*session);
  }
  bind_thread_to_node(session->actors.front().node);
  sampling_.choose_timing(*session);
  sampling_.warm_up(*session);
  if (!session->why_timing.empty()) session->notes.emplace_back("timing", session->why_timing);
  if (session->program.cache == CacheState::cold)
    session->notes.emplace_back("cpu_cache_flush", cache_flush_instruction());
  return session;
}

}  // namespace

std::unique_ptr<CudaPlatform> make_cuda(const std::vector<Wanted>& most) {
  return std::make_unique<CudaPlatformImpl>(most);
}

}  // namespace linkscope
