#include "platform/cuda/steps.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>

#include "base/error.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/cuda/device_work.hpp"
#include "platform/cuda/managed.hpp"
#include "platform/host/contents.hpp"
#include "program/chain.hpp"

namespace linkscope {
namespace {

/// Of the pattern that a kernel writes.
constexpr u64 written_seed = 0x7772697474656E21ull;

unsigned blocks_of(const Device& device, const Shape& shape) {
  return shape.blocks ? shape.blocks : static_cast<unsigned>(device.facts().attribute("MULTIPROCESSOR_COUNT", 1));
}

CUfunction code_of(Device& device, const Step& step) {
  if (std::holds_alternative<Prefetch>(step) || std::holds_alternative<Call>(step)) return nullptr;
  if (const auto* move = std::get_if<Move>(&step)) {
    if (move->engine == Engine::ce) return nullptr;
    return device.function("copy", move->engine == Engine::tma ? "linkscope_copy_tma" : "linkscope_copy");
  }
  const auto& kernel = std::get<Kernel>(step);
  if (touches_pages(kernel)) return touch_code(device, kernel);
  const auto& name = kernel.name;
  return device.function(name == "exchange" ? "copy" : "access", "linkscope_" + name);
}

void copy_by_kernel(Device& device, const Move& move, CUdeviceptr to, CUdeviceptr from, CUstream stream) {
  u64 bytes = move.from.bytes;
  void* arguments[] = {&to, &from, &bytes};
  device.launch(code_of(device, move), blocks_of(device, move.shape), move.shape.threads, stream, arguments);
}

void queue_move(const CudaSession& session, const ActorState& state, const Move& move) {
  const Buffer &from = *session.buffers[move.from.region], &to = *session.buffers[move.to.region];
  const u64 from_offset = move.from.offset_at(state.iteration), to_offset = move.to.offset_at(state.iteration), bytes = move.from.bytes;
  if (!state.stream) {
    std::memcpy(to.host() + to_offset, from.host() + from_offset, bytes);
    return;
  }
  const auto& driver = session.driver;
  const CUstream stream = state.stream->get();
  if (move.engine != Engine::ce)
    copy_by_kernel(*state.device, move, to.address() + to_offset, from.address() + from_offset, stream);
  else if (from.host())
    LINKSCOPE_CU(driver, cuMemcpyHtoDAsync, to.address() + to_offset, from.host() + from_offset, bytes, stream);
  else if (to.host())
    LINKSCOPE_CU(driver, cuMemcpyDtoHAsync, to.host() + to_offset, from.address() + from_offset, bytes, stream);
  else if (!move.peer_call)
    LINKSCOPE_CU(driver, cuMemcpyDtoDAsync, to.address() + to_offset, from.address() + from_offset, bytes, stream);
  else
    LINKSCOPE_CU(driver, cuMemcpyPeerAsync, to.address() + to_offset, to.device()->context(), from.address() + from_offset,
                 from.device()->context(), bytes, stream);
}

const std::byte* chase_on_cpu(const std::byte* at, u64 steps) {
  for (u64 i = 0; i < steps; ++i) at = *reinterpret_cast<const std::byte* const volatile*>(at);
  return at;
}

void queue_kernel(const CudaSession& session, ActorState& state, const Kernel& kernel, u64 steps) {
  const Span& span = kernel.traffic.front().span;
  const Buffer& buffer = *session.buffers[span.region];
  const u64 offset = span.offset_at(state.iteration);
  if (!state.stream) {
    const auto* from = state.position ? static_cast<const std::byte*>(state.position) : buffer.host() + offset;
    state.position = chase_on_cpu(from, steps);
    return;
  }
  const auto launch = [&](const Shape& shape, auto... arguments) {
    void* pointers[] = {&arguments...};
    state.device->launch(code_of(*state.device, kernel), blocks_of(*state.device, shape), shape.threads, state.stream->get(), pointers);
  };
  if (kernel.name == "exchange") {
    const auto at = [&](std::size_t side) {
      const Span& of = kernel.traffic[side].span;
      return session.buffers[of.region]->address() + of.offset_at(state.iteration);
    };
    launch(kernel.shape, at(1), at(0), at(3), at(2), span.bytes);
  } else if (kernel.name == "read") launch(kernel.shape, buffer.address() + offset, span.bytes, state.result);
  else if (kernel.name == "write") launch(kernel.shape, buffer.address() + offset, span.bytes, written_seed, offset / 8);
  else launch(kernel.shape, state.result, steps);
}

}  // namespace

std::string why_no_step(const Kernel& kernel, ActorKind kind) {
  const bool known = kernel.name == "chase" || touches_pages(kernel) || (kind == ActorKind::stream && (kernel.name == "read" || kernel.name == "write" || kernel.name == "exchange"));
  return known ? "" : std::string{"a "} + to_string(kind) + " cannot run the kernel '" + kernel.name + "' here";
}

void load_code(const CudaSession& session) {
  for (const auto& state : session.actors) {
    if (!state.device) continue;
    (void)state.device->function("gate", "linkscope_gate");
    for (const auto& step : state.actor->loop) (void)code_of(*state.device, step);
  }
}

void act(CudaSession& session, ActorState& state, u32 count) {
  const auto& loop = state.actor->loop;
  const auto* kernel = std::get_if<Kernel>(&loop.front());
  if (kernel && kernel->dependent_steps > 0) {  // one launch is the whole batch (supports() refused loops of more)
    const u64 steps = u64{count} * kernel->dependent_steps;
    if (count > 0 && touches_pages(*kernel)) touch(session, state, *kernel, steps);
    else if (count > 0) queue_kernel(session, state, *kernel, steps);
    state.iteration += count;
    return;
  }
  for (u32 i = 0; i < count; ++i) {
    for (const auto& step : loop) {
      if (const auto* move = std::get_if<Move>(&step)) queue_move(session, state, *move);
      else if (const auto* prefetch = std::get_if<Prefetch>(&step)) queue_prefetch(session, state, *prefetch);
      else if (const auto* call = std::get_if<Call>(&step)) make_call(session, state, *call);
      else if (const auto& one = std::get<Kernel>(step); touches_pages(one)) touch(session, state, one, 1);
      else queue_kernel(session, state, one, 1);
    }
    ++state.iteration;
  }
}

namespace {

bool leaves_result(const Kernel& kernel) {
  return kernel.name == "read" || kernel.dependent_steps > 0 || (kernel.name == "touch" && kernel.traffic.front().dir == Access::Dir::read);
}

}  // namespace

void start_results(const CudaSession& session, ActorState& state) {
  for (const auto& step : state.actor->loop) {
    const auto* kernel = std::get_if<Kernel>(&step);
    if (!kernel || !state.device || !leaves_result(*kernel)) continue;
    if (!state.result) state.result = state.device->result(static_cast<std::size_t>(&state - session.actors.data()));
    const Span& span = kernel->traffic.front().span;
    const u64 start = kernel->dependent_steps > 0 ? session.buffers[span.region]->address() + span.offset : 0;
    const auto& stream = state.device->stream(0);
    state.device->use();
    LINKSCOPE_CU(session.driver, cuMemcpyHtoDAsync, state.result, &start, sizeof start, stream.get());
    stream.synchronize();
  }
}

// --- verification -------------------------------------------------------------------------------------------------

namespace {

void add_wrong(Verdict& verdict, u64 bytes, const std::string& where) {
  if (bytes == 0) return;
  if (verdict.ok) verdict.first_wrong = where;
  verdict.ok = false;
  verdict.wrong_bytes += bytes;
}

std::string byte_of(const CudaSession& session, const Span& span, u64 offset) {
  const auto& region = session.program.regions[span.region];
  return to_string(region.at) + "." + to_string(region.kind) + " at byte " + std::to_string(offset);
}

void check_range(const CudaSession& session, const Span& to, u64 bytes, u64 seed, u64 pattern_offset, Verdict& verdict) {
  const auto found = compare(session.driver, *session.buffers[to.region], to.offset, bytes, seed, pattern_offset);
  verdict.checked_bytes += bytes;
  add_wrong(verdict, found.wrong_words * 8, byte_of(session, to, to.offset + found.first_word * 8));
}

/// Slices with gaps between them are small: the host looks at each of them, and that the gaps still hold poison.
void check_slices(const CudaSession& session, const Span& from, const Span& to, u64 seed, u64 slices, Verdict& verdict) {
  const Buffer& buffer = *session.buffers[to.region];
  const u64 bytes = slices * to.stride;
  std::vector<std::byte> copy(buffer.host() ? 0 : bytes);
  const std::byte* at = buffer.host() ? buffer.host() + to.offset : copy.data();
  if (!buffer.host()) {
    buffer.device()->use();
    LINKSCOPE_CU(session.driver, cuMemcpyDtoH, copy.data(), buffer.address() + to.offset, bytes);
  }
  for (u64 i = 0; i < slices; ++i, at += to.stride) {
    const auto found = check_pattern(at, to.bytes, seed, from.offset_at(i));
    verdict.checked_bytes += to.bytes;
    add_wrong(verdict, found.wrong_words * 8 + count_unpoisoned(at + to.bytes, to.stride - to.bytes),
              byte_of(session, to, to.offset_at(i) + (found.wrong_words ? found.first_word * 8 : to.bytes)));
  }
}

/// What `iterations` left in `to`: the pattern `seed` as it stands in `from`.
void check_written(const CudaSession& session, const Span& from, const Span& to, u64 seed, u64 iterations, Verdict& verdict) {
  const u64 slices = std::min<u64>(iterations, to.slices);
  if (slices == 0) return;
  if (to.stride == to.bytes && from.stride == from.bytes) check_range(session, to, slices * to.bytes, seed, from.offset, verdict);
  else check_slices(session, from, to, seed, slices, verdict);
}

u64 word_at(const CudaSession& session, const ActorState& state) {
  u64 word = 0;
  state.device->use();
  LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &word, state.result, sizeof word);
  return word;
}

/// The sum of all that was read, against the sum of what lies there, computed on the GPU that read.
void check_read(const CudaSession& session, const ActorState& state, const Span& span, Verdict& verdict) {
  if (state.iteration == 0) return;
  auto& device = *state.device;
  device.use();
  CUdeviceptr sum = device.scratch();
  const auto& stream = device.stream(0);
  LINKSCOPE_CU(session.driver, cuMemsetD8Async, sum, 0, sizeof(u64), stream.get());
  for (u64 slice = 0; slice < std::min<u64>(span.slices, state.iteration); ++slice) {
    u64 words = span.bytes / 8, seed = session.buffers[span.region]->seed(), first = span.offset_at(slice) / 8;
    u64 times = state.iteration / span.slices + (slice < state.iteration % span.slices ? 1 : 0);
    void* arguments[] = {&words, &seed, &first, &times, &sum};
    device.launch(device.function("access", "linkscope_sum_pattern"), 256, 256, stream.get(), arguments);
  }
  stream.synchronize();
  u64 expected = 0;
  LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &expected, sum, sizeof expected);
  verdict.checked_bytes += state.iteration * span.bytes;
  if (word_at(session, state) != expected) add_wrong(verdict, span.bytes, byte_of(session, span, span.offset) + " or later, by the sum of all words read");
}

void check_chase(const CudaSession& session, const ActorState& state, const Span& span, Verdict& verdict) {
  const Buffer& buffer = *session.buffers[span.region];
  const u64 lines = span.bytes / linkscope_chain_line;
  const u64 expected = linkscope_chain_after(state.iteration, lines) * linkscope_chain_line;
  u64 found = expected;
  if (state.result) found = word_at(session, state) - buffer.address() - span.offset;
  else if (state.position) found = static_cast<u64>(static_cast<const std::byte*>(state.position) - buffer.host()) - span.offset;
  verdict.checked_bytes += state.iteration * sizeof(u64);
  if (found != expected) add_wrong(verdict, sizeof(u64), byte_of(session, span, span.offset + expected) + ", where the chase should stand");
}

}  // namespace

Verdict both(Verdict first, const Verdict& second) {
  if (first.ok) first.first_wrong = second.first_wrong;
  first.ok = first.ok && second.ok;
  first.checked_bytes += second.checked_bytes;
  first.wrong_bytes += second.wrong_bytes;
  return first;
}

Verdict verify(const CudaSession& session) {
  std::vector<DeviceWork> work;
  std::deque<Verdict> verdicts;
  const auto check = [&](Device* device, auto&& how) {
    work.push_back({device, [&into = verdicts.emplace_back(), how] { how(into); }});
  };
  const auto written = [&](const Span& from, const Span& to, u64 seed, u64 iterations) {
    check(session.buffers[to.region]->device(), [&session, &from, &to, seed, iterations](Verdict& into) { check_written(session, from, to, seed, iterations, into); });
  };
  for (const auto& state : session.actors)
    for (const auto& step : state.actor->loop) {
      if (const auto* move = std::get_if<Move>(&step)) {
        written(move->from, move->to, session.buffers[move->from.region]->seed(), state.iteration);
        continue;
      }
      if (const auto* call = std::get_if<Call>(&step)) {
        check(state.device, [&session, call](Verdict& into) { check_call(session, *call, into); });
        continue;
      }
      const auto* of_pages = std::get_if<Kernel>(&step);
      if (!of_pages || touches_pages(*of_pages)) {
        check(session.buffers[touches(step).front().span.region]->device(), [&](Verdict& into) { check_managed(session, state, step, into); });
        continue;
      }
      const auto& kernel = std::get<Kernel>(step);
      const Span& span = kernel.traffic.front().span;
      if (kernel.name == "exchange")
        for (const std::size_t side : {0, 2}) {
          const Span& from = kernel.traffic[side].span;
          written(from, kernel.traffic[side + 1].span, session.buffers[from.region]->seed(), state.iteration);
        }
      else if (kernel.name == "write") written(span, span, written_seed, state.iteration);
      else if (kernel.name == "read") check(state.device, [&](Verdict& into) { check_read(session, state, span, into); });
      else check(state.device, [&](Verdict& into) { check_chase(session, state, span, into); });
    }
  side_by_side(work);
  return std::accumulate(verdicts.begin(), verdicts.end(), Verdict{}, both);
}

}  // namespace linkscope
