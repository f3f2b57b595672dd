#include "platform/cuda/steps.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>

#include "base/error.hpp"
#include "platform/cuda/caller.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/cuda/device_work.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/managed.hpp"
#include "platform/cuda/moves.hpp"
#include "platform/host/contents.hpp"
#include "program/chain.hpp"

namespace linkscope {
namespace {

/// Seed of the pattern that a kernel writes.
constexpr u64 written_seed = 0x7772697474656E21ull;

/// Whether its accesses differ from the usual ones of 16 neighbouring bytes.
bool by_lines(const Kernel& kernel) {
  return (kernel.id == KernelId::read || kernel.id == KernelId::write) && kernel.traffic.front().stride > 0;
}

CUfunction code_of(Device& device, const Step& step) {
  if (std::holds_alternative<Prefetch>(step) || std::holds_alternative<Call>(step)) return nullptr;
  if (std::holds_alternative<Set>(step) || std::holds_alternative<Wait>(step)) return flag_code(device);
  if (const auto* move = std::get_if<Move>(&step)) return copy_code(device, *move);
  const auto& kernel = std::get<Kernel>(step);
  if (touches_pages(kernel)) return touch_code(device, kernel);
  const char* form = by_lines(kernel) ? "_lines" : kernel.sm ? "_on" : "";
  const auto& traits = traits_of(kernel.id);
  return device.function(traits.module, std::string{"linkscope_"} + traits.name + form);
}

const std::byte* chase_on_cpu(const std::byte* at, u64 steps) {
  for (u64 i = 0; i < steps; ++i) at = *reinterpret_cast<const std::byte* const volatile*>(at);
  return at;
}

/// The place where an SM counts its launches of a chase.
CUdeviceptr turns_of(const ActorState& state) { return state.result + sizeof(u64); }

bool adds_to_one(const Kernel& kernel) { return kernel.traffic.front().pattern == Access::Pattern::same; }
unsigned system_wide(const Kernel& kernel) { return kernel.scope == Scope::system; }

void queue_kernel(const CudaSession& session, ActorState& state, const Kernel& kernel, u64 steps) {
  const Span& span = kernel.traffic.front().span;
  const Buffer& buffer = *session.buffers[span.region];
  const u64 offset = span.offset_at(state.iteration);
  if (!state.stream) {
    const auto* from = state.position ? static_cast<const std::byte*>(state.position) : buffer.host() + offset;
    state.position = chase_on_cpu(from, steps);
    return;
  }
  const CUdeviceptr start = session.address(span.region, *state.device) + offset;
  const auto launch = [&](const Shape& shape, auto... arguments) {
    void* pointers[] = {&arguments...};
    const unsigned shared_bytes = kernel.sm ? state.device->all_shared_bytes() : 0;
    state.device->launch(code_of(*state.device, kernel), state.device->blocks_of(shape), shape.threads,
                         state.stream->get(), pointers, shared_bytes);
  };
  if (kernel.id == KernelId::exchange) {
    const auto at = [&](std::size_t side) {
      const Span& of = kernel.traffic[side].span;
      return session.address(of.region, *state.device) + of.offset_at(state.iteration);
    };
    launch(kernel.shape, at(1), at(0), at(3), at(2), span.bytes);
  } else if (by_lines(kernel)) {
    const Access& access = kernel.traffic.front();
    const u64 count = access_count(access);
    const u32 random = access.pattern == Access::Pattern::random;
    if (kernel.id == KernelId::read)
      launch(kernel.shape, start, count, access.stride, access.width, random, state.result);
    else launch(kernel.shape, start, count, access.stride, access.width, random, written_seed, offset);
  } else if (kernel.id == KernelId::read) launch(kernel.shape, start, span.bytes, state.result);
  else if (kernel.id == KernelId::write) launch(kernel.shape, start, span.bytes, written_seed, offset / 8);
  else if (kernel.id == KernelId::add)
    launch(kernel.shape, start, span.bytes / sizeof(u64), adds_to_one(kernel) ? u64{0} : ~u64{0}, system_wide(kernel));
  else if (kernel.id == KernelId::add_chain) launch(kernel.shape, start, steps, system_wide(kernel));
  else if (kernel.sm) launch(kernel.shape, state.result, steps, *kernel.sm, turns_of(state), state.turns++);
  else launch(kernel.shape, state.result, steps);
}

}  // namespace

bool is_atomic(const Kernel& kernel) { return kernel.id == KernelId::add || kernel.id == KernelId::add_chain; }

std::string why_no_step(const Kernel& kernel, ActorKind kind) {
  const bool by_gpu = kernel.id == KernelId::read || kernel.id == KernelId::write || kernel.id == KernelId::exchange ||
                      is_atomic(kernel);
  const bool known = kernel.id == KernelId::chase || touches_pages(kernel) || (kind == ActorKind::stream && by_gpu);
  return known ? ""
               : std::string{"a "} + to_string(kind) + " cannot run the kernel '" + to_string(kernel.id) + "' here";
}

void load_code(const CudaSession& session) {
  for (const auto& state : session.actors) {
    if (!state.device) continue;
    (void)state.device->function("gate", "linkscope_gate");
    for (const auto& step : state.actor->loop) {
      const auto* move = std::get_if<Move>(&step);
      const CUfunction code =
          code_of(move && move->by ? *state.helpers.at(move->by->index).device : *state.device, step);
      if (const auto* kernel = std::get_if<Kernel>(&step); kernel && kernel->sm) state.device->allow_all_shared(code);
    }
  }
}

void act(CudaSession& session, ActorState& state, u32 count) {
  const auto& loop = state.actor->loop;
  if (exchanges_flags(*state.actor)) return exchange_flags(session, state, count);
  if (state.caller) {
    state.caller->make(state.iteration, count);
    state.iteration += count;
    return;
  }
  const auto* kernel = std::get_if<Kernel>(&loop.front());
  if (kernel && kernel->dependent_steps > 0) {  // one launch is the whole batch (supports() refused longer loops)
    const u64 steps = u64{count} * kernel->dependent_steps;
    if (count > 0 && touches_pages(*kernel)) touch(session, state, *kernel, steps);
    else if (count > 0) queue_kernel(session, state, *kernel, steps);
    state.iteration += count;
    return;
  }
  if (const Move* move = made_together(*state.actor)) {
    if (count > 0) queue_together(session, state, *move, count);
    return;
  }
  for (u32 i = 0; i < count; ++i) {
    for (const auto& step : loop) {
      if (const auto* move = std::get_if<Move>(&step)) queue_move(session, state, *move);
      else if (const auto* prefetch = std::get_if<Prefetch>(&step)) queue_prefetch(session, state, *prefetch);
      else if (const auto* call = std::get_if<Call>(&step)) do_phase(session, state, *call);
      else if (const auto& one = std::get<Kernel>(step); touches_pages(one)) touch(session, state, one, 1);
      else queue_kernel(session, state, one, 1);
    }
    ++state.iteration;
  }
}

namespace {

bool follows_chain(const Kernel& kernel) { return kernel.id == KernelId::chase || kernel.id == KernelId::touch_chain; }

bool leaves_result(const Kernel& kernel) {
  return kernel.id == KernelId::read || follows_chain(kernel) ||
         (kernel.id == KernelId::touch && kernel.traffic.front().dir == Access::Dir::read);
}

}  // namespace

void start_results(const CudaSession& session, ActorState& state) {
  for (const auto& step : state.actor->loop) {
    const auto* kernel = std::get_if<Kernel>(&step);
    const bool waits = std::holds_alternative<Wait>(step);
    if (!state.device || !(waits || (kernel && leaves_result(*kernel)))) continue;
    if (!state.result) state.result = state.device->result(static_cast<std::size_t>(&state - session.actors.data()));
    const Span span = touches(step).front().span;
    const u64 start = !waits && follows_chain(*kernel) ? session.buffers[span.region]->address() + span.offset : 0;
    const std::array<u64, 2> words{start, 0};
    const auto& stream = state.device->stream(0);
    state.device->use();
    LINKSCOPE_CU(session.driver, cuMemcpyHtoDAsync, state.result, words.data(), sizeof words, stream.get());
    stream.synchronize();
    state.turns = 0;
  }
}

void check_turns(const CudaSession& session) {
  for (const auto& state : session.actors) {
    const auto* kernel = state.stream ? std::get_if<Kernel>(&state.actor->loop.front()) : nullptr;
    if (!kernel || !kernel->sm) continue;
    u64 taken = 0;
    state.device->use();
    LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &taken, turns_of(state), sizeof taken);
    if (taken == state.turns) continue;
    const auto place = to_string(state.actor->place);
    throw Error{ErrorKind::failed, "none of " + std::to_string(state.device->blocks_of(kernel->shape)) +
                                       " blocks came to SM " + std::to_string(*kernel->sm) + " of " + place +
                                       ", so that nobody followed the chain there: something else may hold that SM, or "
                                       "this process may not use it"};
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

void check_range(const CudaSession& session, const Span& to, u64 bytes, u64 seed, u64 pattern_offset,
                 Verdict& verdict) {
  const auto found = compare(session.driver, *session.buffers[to.region], to.offset, bytes, seed, pattern_offset);
  verdict.checked_bytes += bytes;
  add_wrong(verdict, found.wrong_words * 8, byte_of(session, to, to.offset + found.first_word * 8));
}

linkscope_row_layout layout_of(const Rows& rows, u64 count) {
  if (rows.in_plane) return {rows.pitch, rows.in_plane, rows.plane_pitch};
  return {rows.pitch, count, ~u64{0}};
}

/// Compares slices of `to`, and that the memory between and behind their rows still is poison.
void check_slices(const CudaSession& session, const Span& from, const Span& to, u64 seed, u64 slices,
                  Verdict& verdict) {
  const Buffer& buffer = *session.buffers[to.region];
  const u64 slice_bytes = std::max(to.stride, to.extent());
  const auto rows = in_rows(Move{from, to});
  const linkscope_row_copy copy{slice_bytes,
                                rows.bytes,
                                rows.count,
                                layout_of(rows.to, rows.count),
                                layout_of(rows.from, rows.count),
                                from.offset,
                                from.stride,
                                from.slices,
                                seed,
                                poison_word};
  const auto found = compare_rows(session.driver, buffer, to.offset, slices * slice_bytes, copy);
  verdict.checked_bytes += slices * to.bytes;
  add_wrong(verdict, found.wrong_words * 8, byte_of(session, to, to.offset + found.first_word * 8));
}

/// The result of `iterations` in `to`: the pattern `seed` as it stands in `from`.
void check_written(const CudaSession& session, const Span& from, const Span& to, u64 seed, u64 iterations,
                   Verdict& verdict) {
  const u64 slices = std::min<u64>(iterations, to.slices);
  if (slices == 0) return;
  const bool gapless = to.stride == to.bytes && from.stride == from.bytes && in_rows(Move{from, to}).count == 1;
  if (gapless) check_range(session, to, slices * to.bytes, seed, from.offset, verdict);
  else check_slices(session, from, to, seed, slices, verdict);
}

/// Contiguous accesses leave no gaps: every byte is written.
bool leaves_gaps(const Kernel& kernel) { return kernel.traffic.front().stride > kernel.traffic.front().width; }

u64 word_at(const CudaSession& session, const ActorState& state) {
  u64 word = 0;
  state.device->use();
  LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &word, state.result, sizeof word);
  return word;
}

/// For written lines and the memory between them.
void check_lines(const CudaSession& session, const Access& access, u64 iterations, Verdict& verdict) {
  const Span& span = access.span;
  for (u64 slice = 0; slice < std::min<u64>(span.slices, iterations); ++slice) {
    const u64 offset = span.offset_at(slice);
    const auto found = compare_lines(session.driver, *session.buffers[span.region], offset, access, written_seed);
    verdict.checked_bytes += span.bytes;
    add_wrong(verdict, found.wrong_words * 8, byte_of(session, span, offset + found.first_word * 8));
  }
}

/// Compares the sum of all that was read with the sum of the memory, computed on the GPU that read.
void check_read(const CudaSession& session, const ActorState& state, const Kernel& kernel, Verdict& verdict) {
  if (state.iteration == 0) return;
  const Access& access = kernel.traffic.front();
  const Span& span = access.span;
  auto& device = *state.device;
  device.use();
  CUdeviceptr sum = device.scratch();
  const auto& stream = device.stream(0);
  LINKSCOPE_CU(session.driver, cuMemsetD8Async, sum, 0, sizeof(u64), stream.get());
  for (u64 slice = 0; slice < std::min<u64>(span.slices, state.iteration); ++slice) {
    u64 words = span.bytes / 8, seed = session.buffers[span.region]->seed(), first = span.offset_at(slice) / 8;
    u64 times = state.iteration / span.slices + (slice < state.iteration % span.slices ? 1 : 0);
    if (by_lines(kernel)) {
      u64 count = access_count(access), stride = access.stride, width = access.width,
          first_byte = span.offset_at(slice);
      void* arguments[] = {&count, &stride, &width, &seed, &first_byte, &times, &sum};
      device.launch(device.function("access", "linkscope_sum_lines"), 256, 256, stream.get(), arguments);
    } else {
      void* arguments[] = {&words, &seed, &first, &times, &sum};
      device.launch(device.function("access", "linkscope_sum_pattern"), 256, 256, stream.get(), arguments);
    }
  }
  stream.synchronize();
  u64 expected = 0;
  LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &expected, sum, sizeof expected);
  verdict.checked_bytes += state.iteration * asked_bytes(access);
  if (word_at(session, state) != expected)
    add_wrong(verdict, asked_bytes(access),
              byte_of(session, span, span.offset) + " or later, by the sum of all words read");
}

/// As many additions as there were: the sum of all words of the region, computed on the GPU that added.
void check_added(const CudaSession& session, const ActorState& state, const Kernel& kernel, Verdict& verdict) {
  const Span& span = kernel.traffic.front().span;
  auto& device = *state.device;
  device.use();
  CUdeviceptr sum = device.scratch();
  const auto& stream = device.stream(0);
  LINKSCOPE_CU(session.driver, cuMemsetD8Async, sum, 0, sizeof(u64), stream.get());
  CUdeviceptr start = session.address(span.region, device);
  u64 bytes = session.program.regions[span.region].bytes;
  void* arguments[] = {&start, &bytes, &sum};
  device.launch(device.function("access", "linkscope_read"), 256, 256, stream.get(), arguments);
  stream.synchronize();
  u64 found = 0;
  LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &found, sum, sizeof found);
  const u64 additions = state.iteration * (span.bytes / sizeof(u64));
  verdict.checked_bytes += additions * sizeof(u64);
  if (found != additions)
    add_wrong(verdict, sizeof(u64),
              byte_of(session, span, span.offset) + " or later, by the sum of all words that were added to");
}

void check_chase(const CudaSession& session, const ActorState& state, const Span& span, Verdict& verdict) {
  const Buffer& buffer = *session.buffers[span.region];
  const u64 lines = span.bytes / linkscope_chain_line;
  const u64 expected = linkscope_chain_after(state.iteration, lines) * linkscope_chain_line;
  u64 found = expected;
  if (state.result) found = word_at(session, state) - buffer.address() - span.offset;
  else if (state.position)
    found = static_cast<u64>(static_cast<const std::byte*>(state.position) - buffer.host()) - span.offset;
  verdict.checked_bytes += state.iteration * sizeof(u64);
  if (found != expected)
    add_wrong(verdict, sizeof(u64), byte_of(session, span, span.offset + expected) + ", where the chase should stand");
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
    check(session.buffers[to.region]->device(), [&session, &from, &to, seed, iterations](Verdict& into) {
      check_written(session, from, to, seed, iterations, into);
    });
  };
  for (const auto& state : session.actors)
    for (const auto& step : state.actor->loop) {
      if (const auto* move = std::get_if<Move>(&step)) {
        const Span& from = origin(*state.actor, *move);
        written(from, move->to, session.buffers[from.region]->seed(), state.iteration);
        continue;
      }
      if (const auto* call = std::get_if<Call>(&step)) {
        if (!call->on) check(state.device, [&session, call](Verdict& into) { check_phase(session, *call, into); });
        else if (call->to)
          written(*call->span, *call->to, session.buffers[call->span->region]->seed(), state.iteration);
        continue;
      }
      if (std::holds_alternative<Wait>(step)) continue;
      if (const auto* set = std::get_if<Set>(&step)) {
        check(session.buffers[set->word.region]->device(), [&](Verdict& into) { check_flags(session, state, into); });
        continue;
      }
      const auto* of_pages = std::get_if<Kernel>(&step);
      if (!of_pages || touches_pages(*of_pages)) {
        check(session.buffers[touches(step).front().span.region]->device(),
              [&](Verdict& into) { check_managed(session, state, step, into); });
        continue;
      }
      const auto& kernel = std::get<Kernel>(step);
      const Span& span = kernel.traffic.front().span;
      if (kernel.id == KernelId::exchange)
        for (const std::size_t side : {0, 2}) {
          const Span& from = kernel.traffic[side].span;
          written(from, kernel.traffic[side + 1].span, session.buffers[from.region]->seed(), state.iteration);
        }
      else if (is_atomic(kernel))
        check(state.device, [&](Verdict& into) { check_added(session, state, kernel, into); });
      else if (kernel.id == KernelId::write && !leaves_gaps(kernel)) written(span, span, written_seed, state.iteration);
      else if (kernel.id == KernelId::write)
        check(session.buffers[span.region]->device(),
              [&](Verdict& into) { check_lines(session, kernel.traffic.front(), state.iteration, into); });
      else if (kernel.id == KernelId::read)
        check(state.device, [&](Verdict& into) { check_read(session, state, kernel, into); });
      else check(state.device, [&](Verdict& into) { check_chase(session, state, span, into); });
    }
  side_by_side(work);
  return std::accumulate(verdicts.begin(), verdicts.end(), Verdict{}, both);
}

}  // namespace linkscope
