#include "platform/cuda/kernel_executors.hpp"

#include <algorithm>
#include <array>
#include <atomic>

#include "platform/cuda/managed.hpp"
#include "platform/cuda/moves.hpp"

namespace linkscope {

CUdeviceptr Launch::address(std::size_t access) const {
  const Span& span = kernel.traffic[access].span;
  return session.address(span.region, *state.device) + span.offset_at(state.iteration);
}

void Launch::queue(void** arguments) const {
  const unsigned shared_bytes = kernel.sm ? state.device->all_shared_bytes() : 0;
  state.device->launch(code, blocks_of(*state.device, kernel.shape), kernel.shape.threads, state.stream->get(),
                       arguments, shared_bytes);
}

namespace {

// --- forms ----------------------------------------------------------------------------------------------------------

/// Accesses other than the usual ones of 16 neighbouring bytes.
bool by_lines(const Kernel& kernel) { return kernel.traffic.front().stride > 0; }
bool on_chosen_sm(const Kernel& kernel) { return kernel.sm.has_value(); }

// --- arguments ------------------------------------------------------------------------------------------------------

void queue_read(const Launch& launch) { launch.with(launch.address(), launch.bytes(), launch.state.result); }

void queue_read_lines(const Launch& launch) {
  const Access& access = launch.access();
  const u32 random = access.pattern == Access::Pattern::random;
  launch.with(launch.address(), access_count(access), access.stride, access.width, random, launch.state.result);
}

void queue_write(const Launch& launch) {
  launch.with(launch.address(), launch.bytes(), written_seed, launch.offset() / sizeof(u64));
}

void queue_write_lines(const Launch& launch) {
  const Access& access = launch.access();
  const u32 random = access.pattern == Access::Pattern::random;
  launch.with(launch.address(), access_count(access), access.stride, access.width, random, written_seed,
              launch.offset());
}

void queue_exchange(const Launch& launch) {
  launch.with(launch.address(1), launch.address(0), launch.address(3), launch.address(2), launch.bytes());
}

unsigned system_wide(const Launch& launch) { return launch.kernel.scope == Scope::system; }

void queue_add(const Launch& launch) {
  const bool to_one = launch.access().pattern == Access::Pattern::same;
  launch.with(launch.address(), launch.bytes() / sizeof(u64), to_one ? u64{0} : ~u64{0}, system_wide(launch));
}

void queue_add_chain(const Launch& launch) { launch.with(launch.address(), launch.steps, system_wide(launch)); }

void queue_chase(const Launch& launch) { launch.with(launch.state.result, launch.steps); }

void queue_chase_on_sm(const Launch& launch) {
  auto& state = launch.state;
  launch.with(state.result, launch.steps, *launch.kernel.sm, turns_of(state), state.turns++);
}

unsigned at_random(const Launch& launch) { return launch.access().pattern == Access::Pattern::random; }

void queue_touch_read(const Launch& launch) {
  launch.with(launch.address(), launch.bytes(), touch_spacing(launch.kernel), at_random(launch), launch.state.result);
}

void queue_touch_write(const Launch& launch) {
  launch.with(launch.address(), launch.bytes(), touch_spacing(launch.kernel), at_random(launch));
}

// --- CPU threads ----------------------------------------------------------------------------------------------------

void follow(ActorState& state, const std::byte* start, u64 steps) {
  const auto* at = state.position ? static_cast<const std::byte*>(state.position) : start;
  for (u64 i = 0; i < steps; ++i) at = *reinterpret_cast<const std::byte* const volatile*>(at);
  state.position = at;
}

void add_on_cpu(const CudaSession& session, ActorState& state, const Kernel& kernel, u64) {
  const Access& access = kernel.traffic.front();
  auto* words =
      reinterpret_cast<u64*>(session.buffers[access.span.region]->host() + access.span.offset_at(state.iteration));
  const u64 additions = access.span.bytes / sizeof(u64), mask = access.pattern == Access::Pattern::same ? 0 : ~u64{0};
  for (u64 i = 0; i < additions; ++i) std::atomic_ref<u64>{words[i & mask]}.fetch_add(1, std::memory_order_relaxed);
}

void chase_on_cpu(const CudaSession& session, ActorState& state, const Kernel& kernel, u64 steps) {
  const Span& span = kernel.traffic.front().span;
  follow(state, session.buffers[span.region]->host() + span.offset_at(state.iteration), steps);
}

void touch_chain_on_cpu(const CudaSession& session, ActorState& state, const Kernel& kernel, u64 steps) {
  const Span& span = kernel.traffic.front().span;
  follow(state, host_view(*session.buffers[span.region]) + span.offset_at(state.iteration), steps);
}

// --- table ----------------------------------------------------------------------------------------------------------

constexpr auto executor_table = std::to_array<KernelExecutor>({
    {KernelId::read, by_lines, "linkscope_read_lines", queue_read_lines, nullptr, check_read},
    {KernelId::read, nullptr, "linkscope_read", queue_read, nullptr, check_read},
    {KernelId::write, by_lines, "linkscope_write_lines", queue_write_lines, nullptr, check_write},
    {KernelId::write, nullptr, "linkscope_write", queue_write, nullptr, check_write},
    {KernelId::exchange, nullptr, "linkscope_exchange", queue_exchange, nullptr, check_pairs},
    {KernelId::add, nullptr, "linkscope_add", queue_add, add_on_cpu, check_additions},
    {KernelId::add_chain, nullptr, "linkscope_add_chain", queue_add_chain, nullptr, check_additions},
    {KernelId::chase, on_chosen_sm, "linkscope_chase_on", queue_chase_on_sm, nullptr, check_chase},
    {KernelId::chase, nullptr, "linkscope_chase", queue_chase, chase_on_cpu, check_chase},
    {KernelId::touch, writes, "linkscope_touch_write", queue_touch_write, touch_on_cpu, check_touch},
    {KernelId::touch, nullptr, "linkscope_touch_read", queue_touch_read, touch_on_cpu, check_touch},
    {KernelId::touch_chain, nullptr, "linkscope_chase", queue_chase, touch_chain_on_cpu, check_touch_chain},
});

}  // namespace

std::span<const KernelExecutor> kernel_executors() { return executor_table; }

const KernelExecutor& executor_of(const Kernel& kernel) {
  return *std::find_if(executor_table.begin(), executor_table.end(), [&](const KernelExecutor& row) {
    return row.id == kernel.id && (!row.fits || row.fits(kernel));
  });
}

}  // namespace linkscope
