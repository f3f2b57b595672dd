#include "platform/cuda/cuda_platform.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "gpu/devices.hpp"
#include "host/flush.hpp"
#include "host/patience.hpp"
#include "host/topology.hpp"
#include "platform/cuda/caller.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/cuda/collectives.hpp"
#include "platform/cuda/device_code.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/managed.hpp"
#include "platform/cuda/ranks.hpp"
#include "platform/cuda/regions.hpp"
#include "platform/cuda/sampling.hpp"
#include "platform/cuda/steps.hpp"
#include "platform/cuda/supports.hpp"
#include "program/allocation.hpp"
#include "program/managed.hpp"
#include "program/processes.hpp"

namespace linkscope {
namespace {

/// The CPUs of its node that the host thread of an actor may use; none: all.
std::vector<int> cpus_of_thread(const Program& whole, const Actor& actor, u32 node) {
  const auto* message = message_of(actor);
  if (const auto cpu = message ? message->cpu : actor.core) return {host_nodes()[node].cpus[*cpu]};
  return cpus_of_messages(whole, actor);
}

class CudaPlatformImpl final : public CudaPlatform {
 public:
  CudaPlatformImpl(const std::vector<Wanted>& most, const MpiWorld* mpi, const std::vector<NcclSource>& nccl,
                   const std::vector<UcxSource>& ucx, const std::vector<NixlSource>& nixl)
      : mpi_{mpi},
        offer_{
            driver_,
            facts_,
            [this](const Program& program, const Actor& actor) {
              return why_no_ranks(mpi_, ucx_, nixl_, program, actor, peers_ ? peers_->process() : 0);
            },
            [this](const Program& program, const Actor& actor) { return collectives_.why_not(mpi_, program, actor); },
            [this](u32 gpu) { return device(gpu).free_bytes(); },
            [this](const Program& program) { return why_not_shared(program); }},
        collectives_{nccl},
        ucx_{ucx, [this](u32 gpu) -> Device& { return device(gpu); }},
        nixl_{nixl},
        buffers_{driver_, most} {
    facts_.present = driver_.usable();
    facts_.version = driver_.version();
    facts_.why_not = driver_.why_not();
    facts_.gpus = devices_.facts();
    facts_.peers = list_peers(driver_, facts_.gpus);
    facts_.missing = driver_.missing();
  }

  ~CudaPlatformImpl() override { close_memory_of_ucx(); }

  [[nodiscard]] const DriverFacts& facts() const override { return facts_; }
  [[nodiscard]] std::vector<ContextsMade> make_contexts(const std::vector<u32>& gpus, const Floors&,
                                                        const std::map<u32, Seconds>& own) override;
  void join(u32 process, u32 processes, const std::string& meeting, FarPeers far) override;
  [[nodiscard]] Support supports(const Program& program) const override { return offer_.supports(program); }
  [[nodiscard]] std::unique_ptr<Session> prepare(const Program&, const std::string& key) override;
  [[nodiscard]] Trace run(Session&, const Order&) override;

 private:
  Device& device(u32 index) { return devices_.at(index); }
  std::optional<Seconds> context_anew(u32 gpu);
  [[nodiscard]] std::string why_not_shared(const Program&) const;
  void set_peers(const Program&);
  void forget_peers_of_nccl();
  void prepare_part(CudaSession&);
  [[nodiscard]] Stream& green_stream(CudaSession&, Device&, const Actor&) const;
  void give_stream(CudaSession&, ActorState&, std::map<u32, std::size_t>& streams);
  void make_actors(CudaSession&);

  void close_memory_of_ucx() noexcept;

  const MpiWorld* mpi_;
  Driver driver_;
  NoContextAtEnd no_context_{driver_};  // declared before the devices, so that it ends after their contexts
  DriverFacts facts_;
  Offer offer_;
  Devices devices_{driver_, embedded_code()};
  Sampling sampling_{driver_};
  Collectives collectives_;
  UcxOfProcess ucx_;
  NixlOfProcess nixl_;
  std::unique_ptr<Peers> peers_;                   // the other processes; null before join()
  std::map<std::string, std::string> not_shared_;  // by openings: the reason why they failed
  Buffers buffers_;                                // declared after the devices, so that the buffers are freed first
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

std::vector<ContextsMade> CudaPlatformImpl::make_contexts(const std::vector<u32>& gpus, const Floors& floors,
                                                          const std::map<u32, Seconds>& own) {
  if (!sampling_.why_no_gate().empty()) return {};
  std::vector<ContextsMade> made;
  std::vector<ContextMaker> makers;
  for (const u32 gpu : gpus) {
    if (gpu >= facts_.gpus.size()) throw Error{ErrorKind::usage, "there is no gpu:" + std::to_string(gpu)};
    if (facts_.gpus[gpu].attribute("COMPUTE_MODE", CU_COMPUTEMODE_DEFAULT) != CU_COMPUTEMODE_DEFAULT) continue;
    made.push_back({gpu, {}});
    const auto floor = own.find(gpu);
    makers.push_back({facts_.gpus[gpu].name, [this, gpu] { return context_anew(gpu); },
                      floor == own.end() ? std::nullopt : std::optional{floor->second}});
  }
  auto costs = make_contexts_alike(makers, floors);
  for (std::size_t i = 0; i < made.size(); ++i) made[i].costs = std::move(costs[i]);
  std::erase_if(made, [](const ContextsMade& of) { return of.costs.empty(); });
  return made;
}

void CudaPlatformImpl::join(u32 process, u32 processes, const std::string& meeting, FarPeers far) {
  peers_.reset();
  collectives_.drop_groups_of_processes();
  ucx_.forget_others();
  nixl_.forget_others();
  peers_ = std::make_unique<Peers>(process, processes, meeting, std::move(far));
}

/// UCX maps GPU memory of other processes until it ends. The driver must not free memory that another process has mapped,
/// so UCX ends in all processes before the buffers of any.
void CudaPlatformImpl::close_memory_of_ucx() noexcept {
  try {
    const bool shared = ucx_.shares_gpus() && peers_ && !peers_->ended();
    ucx_.forget_others();
    if (shared) peers_->meet("it to close memory of GPUs", patient(Seconds{6.0}));
  } catch (...) {  // a process that has ended keeps nothing open
  }
}

std::string CudaPlatformImpl::why_not_shared(const Program& program) const {
  const auto found = not_shared_.find(openings_text(program));
  return found == not_shared_.end() ? "" : found->second;
}

void CudaPlatformImpl::set_peers(const Program& program) {
  if (peer_pairs(program).empty()) return;  // nothing moves between GPUs, so the setting costs nothing
  const auto gpus = gpus_of(program);
  if (!program.peer && collectives_.drop_groups()) forget_peers_of_nccl();
  for (const u32 from : gpus)
    for (const u32 to : gpus) {
      if (from == to || peers_on_.contains({from, to}) == program.peer || !can_access(facts_, from, to)) continue;
      auto& target = device(to);
      device(from).use();
      if (program.peer) {
        const auto status = driver_.cuCtxEnablePeerAccess(target.context(), 0);
        if (status != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)  // NCCL enables it too
          driver_.check(status, "cuCtxEnablePeerAccess");
        peers_on_.insert({from, to});
      } else {
        LINKSCOPE_CU(driver_, cuCtxDisablePeerAccess, target.context());
        peers_on_.erase({from, to});
      }
    }
}

/// Ends the peer access that NCCL's ranks have enabled.
void CudaPlatformImpl::forget_peers_of_nccl() {
  for (const auto& peer : facts_.peers) {
    if (!peer.access) continue;
    auto& target = device(peer.to);
    device(peer.from).use();
    (void)driver_.cuCtxDisablePeerAccess(target.context());  // most pairs have none
  }
  peers_on_.clear();
}

Stream& CudaPlatformImpl::green_stream(CudaSession& session, Device& device, const Actor& actor) const {
  auto& contexts = session.green[{actor.place.index, actor.sms->parts}];
  if (!contexts) {
    contexts = std::make_unique<GreenContexts>(driver_, device, actor.sms->parts);
    session.notes.emplace_back("green_sms", std::to_string(contexts->sms_of_part()));
  }
  return contexts->stream(actor.sms->part);
}

/// Gives a GPU's actor a stream of its own, or that of the actor which launches its kernel. `streams`: those in use by
/// GPU, where stream 0 is for untimed work.
void CudaPlatformImpl::give_stream(CudaSession& session, ActorState& state, std::map<u32, std::size_t>& streams) {
  const Actor& actor = *state.actor;
  const auto number = static_cast<u32>(session.actors.size());
  if (const u32 leader = leader_of(session.program, number); leader != number) {
    state.leader = leader;
    state.stream = session.actors[leader].stream;
    return;
  }
  const auto priority = actor.urgent ? Priority::urgent : Priority::usual;
  state.stream = actor.sms ? &green_stream(session, *state.device, actor)
                           : &state.device->stream(1 + streams[actor.place.index]++, priority);
  state.device->use();
  state.enter = std::make_unique<Event>(driver_);
  state.exit = std::make_unique<Event>(driver_);
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
      give_stream(session, state, streams);
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
    state.cpus = cpus_of_thread(session.whole, actor, state.node);
    session.actors.push_back(std::move(state));
  }
  for (const auto& state : session.actors)  // the thread of a stream that also exchanges messages
    if (state.actor->thread_of) session.actors[*state.actor->thread_of].cpus = state.cpus;
  choose_executors(session);
  for (auto& state : session.actors) start_results(session, state);
  prepare_grids(session);
  prepare_managed(session);
}

std::unique_ptr<Session> CudaPlatformImpl::prepare(const Program& program, const std::string&) {
  const bool alone = processes_of(program) == 1;
  if (!alone && (!peers_ || peers_->ended() || peers_->processes() != processes_of(program)))
    throw Error{ErrorKind::usage, "the processes of the program have not joined each other"};
  auto session = std::make_unique<CudaSession>(driver_, alone ? nullptr : peers_.get(), mpi_, program);
  try {
    if (const auto support = supports(program); !support) throw Error{ErrorKind::unsupported, support.why_not};
    prepare_part(*session);
  } catch (const Error& error) {
    if (!alone) peers_->fail(error);
    if (error.kind() == ErrorKind::unsupported && !openings(program).empty())
      not_shared_[openings_text(program)] = error.what();
    throw;
  }
  return session;
}

void CudaPlatformImpl::prepare_part(CudaSession& session) {
  if (session.acts) set_peers(session.program);
  if (managed_bytes(session.program) > 0)
    for (const u32 index : gpus_of(session.program)) session.gpus.emplace_back(index, &device(index));
  {
    const Clocked clocked{session.spent.memory};
    if (!is_bound(session.program)) release_thread();  // its pages lie where this thread runs
    make_buffers(session, buffers_, devices_);
    if (!session.acts) return;
    make_actors(session);
    collectives_.prepare(session, devices_);
    ucx_.prepare(session);
    nixl_.prepare(session);
  }
  if (!session.actors.empty()) place_thread(session.actors.front());
  sampling_.choose_timing(session);
  sampling_.warm_up(session);
  if (!session.why_timing.empty()) session.notes.emplace_back("timing", session.why_timing);
  if (session.program.cache == CacheState::cold)
    session.notes.emplace_back("cpu_cache_flush", cache_flush_instruction());
}

Trace CudaPlatformImpl::run(Session& base, const Order& order) {
  auto& session = static_cast<CudaSession&>(base);
  check_order(session.whole, order);
  try {
    auto trace = sampling_.run(session, part_of(session.whole, order, session.process));
    if (session.peers) session.peers->check_alive();  // otherwise memory without an owner would be measured
    return among_all(session.whole, std::move(trace), session.process);
  } catch (const Error& error) {
    if (session.peers) session.peers->fail(error);
    throw;
  }
}

}  // namespace

std::unique_ptr<CudaPlatform> make_cuda(const std::vector<Wanted>& most, const MpiWorld* mpi,
                                        const std::vector<NcclSource>& nccl, const std::vector<UcxSource>& ucx,
                                        const std::vector<NixlSource>& nixl) {
  return std::make_unique<CudaPlatformImpl>(most, mpi, nccl, ucx, nixl);
}

}  // namespace linkscope
