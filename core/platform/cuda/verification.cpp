#include "platform/cuda/verification.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "platform/cuda/contents.hpp"
#include "program/chain.hpp"

namespace linkscope {

// --- checks ---------------------------------------------------------------------------------------------------------

void Checks::add(Device* device, Check check) {
  work_.push_back({device, [&into = verdicts_.emplace_back(), check = std::move(check)] { check(into); }});
}

Verdict Checks::run() const {
  side_by_side(work_);
  return std::accumulate(verdicts_.begin(), verdicts_.end(), Verdict{}, both);
}

Verdict both(Verdict first, const Verdict& second) {
  if (first.ok) first.first_wrong = second.first_wrong;
  first.ok = first.ok && second.ok;
  first.checked_bytes += second.checked_bytes;
  first.wrong_bytes += second.wrong_bytes;
  return first;
}

void add_wrong(Verdict& verdict, u64 bytes, const CudaSession& session, const Span& span, u64 offset,
               const char* what) {
  if (bytes == 0) return;
  const auto& region = session.program.regions[span.region];
  if (verdict.ok)
    verdict.first_wrong =
        to_string(region.at) + "." + to_string(region.kind) + " at byte " + std::to_string(offset) + what;
  verdict.ok = false;
  verdict.wrong_bytes += bytes;
}

u64 result_of(const CudaSession& session, const ActorState& state) {
  u64 word = 0;
  state.device->use();
  LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &word, state.result, sizeof word);
  return word;
}

u64 seed_of(const CudaSession& session, u32 region) {
  if (const Buffer* buffer = session.buffers[region]) return buffer->seed();
  return common_seed(region) | seed_bits(session.whole.regions[region].content);
}

// --- contents -------------------------------------------------------------------------------------------------------

namespace {

void check_range(const CudaSession& session, const Span& to, u64 bytes, u64 seed, u64 pattern_offset,
                 Verdict& verdict) {
  const auto found = compare(session.driver, *session.buffers[to.region], to.offset, bytes, seed, pattern_offset);
  verdict.checked_bytes += bytes;
  add_wrong(verdict, found.wrong * 8, session, to, to.offset + found.first * 8);
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
  add_wrong(verdict, found.wrong * 8, session, to, to.offset + found.first * 8);
}

/// The result of the last iteration that wrote each slice of `to`, where the two spans begin anew at different times.
void check_last_writes(const CudaSession& session, const Span& from, const Span& to, u64 seed, u64 iterations,
                       Verdict& verdict) {
  const auto at = [](Span span, u64 iteration) {
    span.offset = span.offset_at(iteration);
    span.stride = 0;
    span.slices = 1;
    return span;
  };
  for (u64 iteration = iterations - std::min<u64>(iterations, to.slices); iteration < iterations; ++iteration)
    check_slices(session, at(from, iteration), at(to, iteration), seed, 1, verdict);
}

/// The result of `iterations` in `to`: the pattern `seed` as it stands in `from`.
void check_written(const CudaSession& session, const Span& from, const Span& to, u64 seed, u64 iterations,
                   Verdict& verdict) {
  const u64 slices = std::min<u64>(iterations, to.slices);
  if (slices == 0) return;
  if (from.slices != to.slices && iterations > std::min(from.slices, to.slices))
    return check_last_writes(session, from, to, seed, iterations, verdict);
  const bool gapless = to.stride == to.bytes && from.stride == from.bytes && in_rows(Move{from, to}).count == 1;
  if (gapless) check_range(session, to, slices * to.bytes, seed, from.offset, verdict);
  else check_slices(session, from, to, seed, slices, verdict);
}

/// For written lines and the memory between them.
void compare_lines_of(const CudaSession& session, const Access& access, u64 iterations, Verdict& verdict) {
  const Span& span = access.span;
  for (u64 slice = 0; slice < std::min<u64>(span.slices, iterations); ++slice) {
    const u64 offset = span.offset_at(slice);
    const auto found = compare_lines(session.driver, *session.buffers[span.region], offset, access, written_seed);
    verdict.checked_bytes += span.bytes;
    add_wrong(verdict, found.wrong * 8, session, span, offset + found.first * 8);
  }
}

}  // namespace

void check_copied(const CudaSession& session, const ActorState& state, const Span& from, const Span& to,
                  Checks& checks) {
  const u64 seed = seed_of(session, from.region), iterations = state.iteration;
  checks.add(session.buffers[to.region]->device(), [&session, &from, &to, seed, iterations](Verdict& into) {
    check_written(session, from, to, seed, iterations, into);
  });
}

void check_pairs(const CudaSession& session, const ActorState& state, const Kernel& kernel, Checks& checks) {
  for (std::size_t side = 0; side < kernel.traffic.size(); side += 2)
    check_copied(session, state, kernel.traffic[side].span, kernel.traffic[side + 1].span, checks);
}

void check_write(const CudaSession& session, const ActorState& state, const Kernel& kernel, Checks& checks) {
  const Access& access = kernel.traffic.front();
  // Contiguous accesses leave no gaps: every byte is written.
  const bool gaps = access.stride > access.width;
  checks.add(session.buffers[access.span.region]->device(),
             [&session, &access, gaps, iterations = state.iteration](Verdict& into) {
               if (gaps) compare_lines_of(session, access, iterations, into);
               else check_written(session, access.span, access.span, written_seed, iterations, into);
             });
}

// --- sums and positions ---------------------------------------------------------------------------------------------

namespace {

/// How often an actor's iterations read a slice of a span.
u64 times_read(const ActorState& state, const Span& span, u64 slice) {
  return state.iteration / span.slices + (slice < state.iteration % span.slices ? 1 : 0);
}

/// The sum of all words that a CPU thread's iterations read.
u64 sum_for_cpu(const CudaSession& session, const ActorState& state, const Span& span) {
  u64 sum = 0;
  for (u64 slice = 0; slice < std::min<u64>(span.slices, state.iteration); ++slice)
    for (u64 word = 0; word < span.bytes / sizeof(u64); ++word)
      sum += times_read(state, span, slice) *
             linkscope_pattern_word(session.buffers[span.region]->seed(), span.offset_at(slice) / sizeof(u64) + word);
  return sum;
}

/// The sum of all words that a GPU's iterations read, computed there.
u64 sum_for_gpu(const CudaSession& session, const ActorState& state, const Access& access) {
  const Span& span = access.span;
  auto& device = *state.device;
  device.use();
  CUdeviceptr sum = device.result(comparison_result);
  const auto& stream = device.stream(0);
  LINKSCOPE_CU(session.driver, cuMemsetD8Async, sum, 0, sizeof(u64), stream.get());
  for (u64 slice = 0; slice < std::min<u64>(span.slices, state.iteration); ++slice) {
    u64 words = span.bytes / 8, seed = session.buffers[span.region]->seed(), first = span.offset_at(slice) / 8;
    u64 times = times_read(state, span, slice);
    if (access.stride > 0) {
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
  return expected;
}

/// Compares the sum of all that was read with the sum of the memory.
void compare_read(const CudaSession& session, const ActorState& state, const Access& access, Verdict& verdict) {
  if (state.iteration == 0) return;
  const Span& span = access.span;
  const u64 expected = state.device ? sum_for_gpu(session, state, access) : sum_for_cpu(session, state, span);
  const u64 found = state.device ? result_of(session, state) : state.sum;
  verdict.checked_bytes += state.iteration * asked_bytes(access);
  if (found != expected)
    add_wrong(verdict, asked_bytes(access), session, span, span.offset, " or later, by the sum of all words read");
}

/// The additions of all actors to words of a region.
u64 additions_to(const CudaSession& session, u32 region) {
  u64 additions = 0;
  for (const auto& state : session.actors)
    for (const auto& step : state.actor->loop) {
      const auto* kernel = std::get_if<Kernel>(&step);
      if (!kernel || !traits_of(kernel->id).atomic) continue;
      const Span& span = kernel->traffic.front().span;
      if (span.region == region) additions += state.iteration * (span.bytes / sizeof(u64));
    }
  return additions;
}

/// The sum of all words of a region, computed on the GPU that added.
u64 sum_on_gpu(const CudaSession& session, Device& device, u32 region) {
  device.use();
  CUdeviceptr sum = device.result(comparison_result);
  const auto& stream = device.stream(0);
  LINKSCOPE_CU(session.driver, cuMemsetD8Async, sum, 0, sizeof(u64), stream.get());
  CUdeviceptr start = session.address(region, device);
  u64 bytes = session.program.regions[region].bytes;
  void* arguments[] = {&start, &bytes, &sum};
  device.launch(device.function("access", "linkscope_read"), 256, 256, stream.get(), arguments);
  stream.synchronize();
  u64 found = 0;
  LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &found, sum, sizeof found);
  return found;
}

/// As many additions as there were: the sum of all words of the region.
void compare_sum(const CudaSession& session, const ActorState& state, const Span& span, Verdict& verdict) {
  u64 found = 0;
  if (state.device) {
    found = sum_on_gpu(session, *state.device, span.region);
  } else {
    const std::span words{reinterpret_cast<const u64*>(session.buffers[span.region]->host()),
                          session.program.regions[span.region].bytes / sizeof(u64)};
    found = std::accumulate(words.begin(), words.end(), u64{0});
  }
  const u64 additions = additions_to(session, span.region);
  verdict.checked_bytes += state.iteration * span.bytes;
  if (found != additions)
    add_wrong(verdict, sizeof(u64), session, span, span.offset,
              " or later, by the sum of all words that were added to");
}

void compare_position(const CudaSession& session, const ActorState& state, const Span& span, Verdict& verdict) {
  const Buffer& buffer = *session.buffers[span.region];
  const u64 lines = span.bytes / linkscope_chain_line;
  const u64 expected = linkscope_chain_after(state.iteration, lines) * linkscope_chain_line;
  u64 found = expected;
  if (state.result) found = result_of(session, state) - buffer.address() - span.offset;
  else if (state.position)
    found = static_cast<u64>(static_cast<const std::byte*>(state.position) - buffer.host()) - span.offset;
  verdict.checked_bytes += state.iteration * sizeof(u64);
  if (found != expected)
    add_wrong(verdict, sizeof(u64), session, span, span.offset + expected, ", where the chase should stand");
}

}  // namespace

void check_read(const CudaSession& session, const ActorState& state, const Kernel& kernel, Checks& checks) {
  checks.add(state.device, [&](Verdict& into) { compare_read(session, state, kernel.traffic.front(), into); });
}

void check_additions(const CudaSession& session, const ActorState& state, const Kernel& kernel, Checks& checks) {
  checks.add(state.device, [&](Verdict& into) { compare_sum(session, state, kernel.traffic.front().span, into); });
}

void check_chase(const CudaSession& session, const ActorState& state, const Kernel& kernel, Checks& checks) {
  checks.add(state.device, [&](Verdict& into) { compare_position(session, state, kernel.traffic.front().span, into); });
}

}  // namespace linkscope
