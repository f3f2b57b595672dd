#include "platform/cuda/stamps.hpp"

#include <algorithm>

#include "base/actor_ops.hpp"
#include "platform/cuda/flags.hpp"

namespace linkscope {
namespace {

bool has_kernel(const ActorState& state) { return state.stream && performs_ops(*state.actor) && !state.leader; }

}  // namespace

void add_latencies(const BlockStamps& stamps, u64 iterations, Latencies& latencies) {
  const auto clocks = static_cast<double>(stamps.ended_clock - stamps.begun_clock);
  // The rate of the SM's clock in this kernel: no attribute of the GPU tells it while it changes with power.
  const double each_s = static_cast<double>(stamps.ended_ns - stamps.begun_ns) * 1e-9 / clocks;
  for (u64 i = 1; i < std::min<u64>(iterations, most_stamps); ++i)
    latencies.add(static_cast<double>(stamps.clocks[i] - stamps.clocks[i - 1]) * each_s);  // modulo 2^32, as the clock
}

Stamping::Stamping(CudaSession& session, std::vector<Latencies>& latencies)
    : session_{session}, latencies_{latencies}, noted_(session.actors.size()) {
  latencies_.assign(session.actors.size(), {});
  for (std::size_t a = 0; a < session.actors.size(); ++a) {
    auto& state = session.actors[a];
    if (state.leader) continue;
    state.latencies = &latencies_[a];
    if (!has_kernel(state)) continue;
    state.device->use();
    noted_[a] = {session.driver, sizeof(BlockStamps)};
    state.stamps = noted_[a].address();
    (void)stamped_block_code(*state.device, state.grid.tma);  // before a gate would keep it from being loaded
  }
}

Stamping::~Stamping() {
  for (std::size_t a = 0; a < session_.actors.size(); ++a) {
    auto& state = session_.actors[a];
    state.latencies = nullptr;
    state.stamps = 0;
    // If the driver is shutting down or a GPU is lost, nothing can be freed.
    if (noted_[a].address() && session_.driver.cuCtxSetCurrent(state.device->context()) == CUDA_SUCCESS) noted_[a] = {};
  }
}

void Stamping::collect(const std::vector<u32>& batch) {
  BlockStamps noted{};
  for (std::size_t a = 0; a < session_.actors.size(); ++a) {
    const auto& state = session_.actors[a];
    if (!state.stamps || batch[a] == 0) continue;
    state.device->use();
    LINKSCOPE_CU(session_.driver, cuMemcpyDtoH, &noted, state.stamps, sizeof noted);
    add_latencies(noted, batch[a], latencies_[a]);
  }
}

}  // namespace linkscope
