#include "platform/cuda/managed.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/error.hpp"
#include "base/pattern.hpp"
#include "host/topology.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/cuda/contents.hpp"
#include "program/managed.hpp"

namespace linkscope {

u64 page_bytes() { return static_cast<u64>(sysconf(_SC_PAGESIZE)); }

std::byte* host_view(const Buffer& buffer) { return reinterpret_cast<std::byte*>(buffer.address()); }

u64 touch_spacing(const Kernel& kernel) {
  const u64 stride = kernel.traffic.front().stride;
  return stride ? stride : page_bytes();
}

namespace {

/// Whether all words of the pages are accessed, and not only the first byte of each.
bool every_word(const Kernel& kernel) {
  const auto& traits = traits_of(kernel.id);
  return traits.touches_pages && !traits.follows_chain && kernel.traffic.front().pattern == Access::Pattern::linear;
}

bool is_managed(const Program& program, const Step& step) {
  const auto all = touches(step);
  return std::any_of(all.begin(), all.end(),
                     [&](const Touch& touch) { return pages_move(program.regions[touch.span.region].kind); });
}

CUmemLocation location_of(const CudaSession& session, const Place& place) {
  if (place.kind == PlaceKind::numa) return {CU_MEM_LOCATION_TYPE_HOST_NUMA, {host_nodes().at(place.index).os_index}};
  const auto on_it =
      std::find_if(session.gpus.begin(), session.gpus.end(), [&](const auto& gpu) { return gpu.first == place.index; });
  return {CU_MEM_LOCATION_TYPE_DEVICE, {on_it->second->facts().handle}};
}

}  // namespace

// --- what it can run ----------------------------------------------------------------------------------------------

std::string why_no_moving_pages(const Driver& driver, const std::vector<DeviceFacts>& gpus, const Region& region) {
  for (const char* symbol : {"cuMemAllocManaged", "cuMemPrefetchAsync", "cuMemGetInfo"})
    if (auto why = driver.why_no(symbol); !why.empty()) return why;
  if (region.advice)
    if (auto why = driver.why_no("cuMemAdvise"); !why.empty()) return why;
  for (const auto& gpu : gpus) {
    if (gpu.attribute("CONCURRENT_MANAGED_ACCESS", 0) == 0)
      return "the GPU " + gpu.name +
             " does not let CPUs access managed memory while it runs (CONCURRENT_MANAGED_ACCESS is 0)";
    if (region.kind == MemKind::system && gpu.attribute("PAGEABLE_MEMORY_ACCESS", 0) == 0)
      return "the GPU " + gpu.name +
             " cannot access pageable memory: this machine has neither HMM nor ATS "
             "(PAGEABLE_MEMORY_ACCESS is 0)";
  }
  return "";
}

std::string why_no_managed_step(const Driver& driver, const Program& program, const Actor& actor, const Step& step) {
  if (const auto* prefetch = std::get_if<Prefetch>(&step)) {
    if (actor.kind != ActorKind::stream) return "prefetches are queued on streams";
    if (prefetch->ranges > 0 && prefetch->discard != Prefetch::Discard::with)
      if (auto why = driver.why_no("cuMemPrefetchBatchAsync"); !why.empty()) return why;
    if (prefetch->discard == Prefetch::Discard::no) return "";
    return driver.why_no(prefetch->discard == Prefetch::Discard::with ? "cuMemDiscardAndPrefetchBatchAsync"
                                                                      : "cuMemDiscardBatchAsync");
  }
  const auto* kernel = std::get_if<Kernel>(&step);
  const bool touches_pages = kernel && traits_of(kernel->id).touches_pages;
  if (!is_managed(program, step)) return touches_pages ? "only managed memory is touched page by page here" : "";
  const bool on_gpu = actor.kind == ActorKind::stream;
  const bool all_bytes = kernel && on_gpu && traits_of(kernel->id).all_bytes;
  if (kernel && on_gpu && every_word(*kernel))
    return "a GPU reads or writes all words of managed memory, and touches pages in their first byte";
  return touches_pages || all_bytes ? ""
                                    : "managed memory is touched, read, written and prefetched here, and not copied";
}

// --- prepare ------------------------------------------------------------------------------------------------------

std::unique_ptr<Buffer> make_managed(const Driver& driver, Device* device, const Region& region, u64 number) {
  constexpr u64 block = u64{2} << 20;  // unit of migration of the driver
  auto made = std::make_unique<Buffer>(driver, device, region, (region.bytes + block - 1) / block * block);
  if (region.content == Content::pattern) made->fill_with_pattern(0x6D616E6167656421ull + number);
  return made;
}

namespace {

/// For regions at home on the host, because move_pages() does not see pages on a GPU.
void check_home(CudaSession& session) {
  for (std::size_t i = 0; i < session.buffers.size(); ++i) {
    const auto& region = session.program.regions[i];
    if (!session.buffers[i] || !pages_move(region.kind) || region.at.kind != PlaceKind::numa) continue;
    const auto found = page_nodes(host_view(*session.buffers[i]), region.bytes);
    session.notes.emplace_back("pages " + to_string(region.at) + "." + to_string(region.kind), found);
    if (found != "hidden" && found != to_string(region.at))
      throw Error{ErrorKind::failed,
                  "pages that should have moved back to " + to_string(region.at) + " are on " + found};
  }
}

}  // namespace

void prepare_managed(CudaSession& session) {
  for (auto& state : session.actors)
    for (const auto& step : state.actor->loop) {
      const auto* kernel = std::get_if<Kernel>(&step);
      if (!kernel || !traits_of(kernel->id).touches_pages) continue;
      const u32 threads = kernel->shape.threads == all_cpus ? static_cast<u32>(host_nodes().at(state.node).cpus.size())
                                                            : kernel->shape.threads;
      if (!state.stream && threads > 1) state.crew = std::make_unique<Crew>(state.node, threads);
      const Span& span = kernel->traffic.front().span;
      std::byte* start = host_view(*session.buffers[span.region]);
      if (traits_of(kernel->id).follows_chain)
        for (u64 i = 0; i < span.slices; ++i)
          *reinterpret_cast<std::byte**>(start + span.offset_at(i)) = start + span.offset_at(i + 1);
    }
  bring_home(session);
  check_home(session);
}

void restore_managed(const CudaSession& session) {
  for (const auto& buffer : session.managed)
    if (buffer->seed()) buffer->fill_with_pattern(buffer->seed());
}

namespace {

/// Gives an advice, or withdraws it, which also removes copies and mappings that it caused.
void advise(const CudaSession& session, const Buffer& buffer, const Region& region, bool gives) {
  const auto kind = [&] {
    switch (region.advice->kind) {
      case Advice::Kind::read_mostly:
        return gives ? CU_MEM_ADVISE_SET_READ_MOSTLY : CU_MEM_ADVISE_UNSET_READ_MOSTLY;
      case Advice::Kind::preferred:
        return gives ? CU_MEM_ADVISE_SET_PREFERRED_LOCATION : CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
      default:
        return gives ? CU_MEM_ADVISE_SET_ACCESSED_BY : CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    }
  }();
  // Read-mostly advice names no place, but the driver requires one.
  const Place& place = region.advice->kind == Advice::Kind::read_mostly ? region.at : region.advice->place;
  CUmemLocation location = location_of(session, place);
  // Host accesses come from any NUMA node: the driver refuses a particular one.
  if (region.advice->kind == Advice::Kind::accessed_by && place.kind == PlaceKind::numa)
    location = {CU_MEM_LOCATION_TYPE_HOST, {0}};
  buffer.device()->use();
  LINKSCOPE_CU(session.driver, cuMemAdvise, buffer.address(), region.bytes, kind, location);
}

/// For every region with advice. The advice is withdrawn before pages return home, because advised pages might keep
/// copies elsewhere.
void advise_all(const CudaSession& session, bool gives) {
  for (std::size_t i = 0; i < session.buffers.size(); ++i)
    if (session.buffers[i] && session.program.regions[i].advice)
      advise(session, *session.buffers[i], session.program.regions[i], gives);
}

}  // namespace

void bring_home(CudaSession& session) {
  advise_all(session, false);
  for (const auto& actor : session.whole.actors)  // memory of a call may be prepared by several processes
    for (const auto& step : actor.once)
      if (const auto* call = std::get_if<Call>(&step)) bring_to(session, *call);
  for (auto& state : session.actors) {
    for (const auto& step : state.actor->once) {
      if (!std::holds_alternative<Prefetch>(step)) continue;
      const auto& prefetch = std::get<Prefetch>(step);
      queue_prefetch(session, state, prefetch);
      session.buffers[prefetch.span.region]->device()->stream(0).synchronize();
      if (state.stream) state.stream->synchronize();
    }
    if (state.crew) state.crew->wake();
  }
  advise_all(session, true);
}

// --- steps --------------------------------------------------------------------------------------------------------

void queue_prefetch(const CudaSession& session, const ActorState& state, const Prefetch& prefetch) {
  using enum Prefetch::Discard;
  const Buffer& buffer = *session.buffers[prefetch.span.region];
  Device& device = state.stream ? *state.device : *buffer.device();
  const CUstream stream = state.stream ? state.stream->get() : device.stream(0).get();  // of a CPU thread, untimed
  device.use();
  const CUdeviceptr start = buffer.address() + prefetch.span.offset_at(state.iteration);
  CUmemLocation to = location_of(session, prefetch.to);
  std::vector<CUdeviceptr> starts;
  std::vector<std::size_t> lengths;
  for (const auto& range : ranges_of(prefetch)) {
    starts.push_back(start + range.offset);
    lengths.push_back(range.bytes);
  }
  std::size_t first = 0;  // all ranges go to one place, so the first entry applies to all
  if (prefetch.discard == before)
    LINKSCOPE_CU(session.driver, cuMemDiscardBatchAsync, starts.data(), lengths.data(), starts.size(), 0, stream);
  if (prefetch.discard == with)
    LINKSCOPE_CU(session.driver, cuMemDiscardAndPrefetchBatchAsync, starts.data(), lengths.data(), starts.size(), &to,
                 &first, 1, 0, stream);
  else if (prefetch.ranges > 0)
    LINKSCOPE_CU(session.driver, cuMemPrefetchBatchAsync, starts.data(), lengths.data(), starts.size(), &to, &first, 1,
                 0, stream);
  else LINKSCOPE_CU(session.driver, cuMemPrefetchAsync, start, prefetch.span.bytes, to, 0, stream);
}

namespace {

/// The part of `pages` for thread `part` of `parts`.
u64 bound(u64 pages, u32 part, u32 parts) { return pages * part / parts; }

/// Writes 0, or returns the content.
template <class Word>
u64 touched(std::byte* at, bool write) {
  auto* word = reinterpret_cast<volatile Word*>(at);
  if (!write) return *word;
  *word = 0;
  return 0;
}

}  // namespace

void touch_on_cpu(const CudaSession& session, ActorState& state, const Kernel& kernel, u64) {
  const Span& span = kernel.traffic.front().span;
  std::byte* start = host_view(*session.buffers[span.region]) + span.offset_at(state.iteration);
  const bool write = writes(kernel), words = every_word(kernel);
  const u64 page = page_bytes(), pages = (span.bytes + page - 1) / page;
  const u32 parts = state.crew ? state.crew->size() : 1;
  std::atomic<u64> sum{0};
  const auto part_of = [&](u32 part) {
    u64 mine = 0;
    const u64 begin = bound(pages, part, parts) * page,
              end = std::min(bound(pages, part + 1, parts) * page, span.bytes);
    if (words)
      for (u64 at = begin; at < end; at += sizeof(u64)) mine += touched<u64>(start + at, write);
    else
      for (u64 at = begin; at < end; at += page) mine += touched<unsigned char>(start + at, write);
    sum += mine;
  };
  if (state.crew) state.crew->run(part_of);
  else part_of(0);
  state.sum += sum;
}

// --- verification -------------------------------------------------------------------------------------------------

namespace {

/// The expected content: the pattern, with a 0 in the byte of each written page, `page` bytes apart. Returns the sum of
/// the accessed bytes in the pattern.
u64 check_pages(const CudaSession& session, const Span& span, u64 page, bool written, Verdict& verdict) {
  const Buffer& buffer = *session.buffers[span.region];
  const std::byte* start = host_view(buffer) + span.offset;
  u64 sum = 0, changed = 0;
  for (u64 at = 0; at < span.bytes; at += page) {
    const u64 pattern = linkscope_pattern_word(buffer.seed(), (span.offset + at) / 8), first = pattern & 0xFF;
    const u64 expected = written ? pattern - first : pattern, found = *reinterpret_cast<const u64*>(start + at);
    sum += first;
    changed += written && first != 0;
    add_wrong(verdict, found == expected ? 0 : 8, session, span, span.offset + at,
              written ? ", the first of a page that was touched" : "");
    changed -= written && first != 0 && found == pattern;  // requested just now
  }
  const auto differs = check_pattern(start, span.bytes, buffer.seed(), span.offset);
  verdict.checked_bytes += span.bytes;
  if (differs.wrong > changed && verdict.ok)
    add_wrong(verdict, (differs.wrong - changed) * 8, session, span, span.offset + differs.first * 8, " or later");
  return sum;
}

/// The expected content: the pattern, or 0 in all words if they were written. Returns the sum of the pattern.
u64 check_words(const CudaSession& session, const Span& span, bool written, Verdict& verdict) {
  const Buffer& buffer = *session.buffers[span.region];
  const auto* words = reinterpret_cast<const u64*>(host_view(buffer) + span.offset);
  u64 sum = 0, wrong = 0, first = 0;
  for (u64 i = 0; i < span.bytes / sizeof(u64); ++i) {
    const u64 pattern = linkscope_pattern_word(buffer.seed(), span.offset / sizeof(u64) + i);
    sum += pattern;
    if (words[i] != (written ? 0 : pattern) && wrong++ == 0) first = i;
  }
  verdict.checked_bytes += span.bytes;
  add_wrong(verdict, wrong * sizeof(u64), session, span, span.offset + first * sizeof(u64), " or later");
  return sum;
}

/// Whether the sum of all that was read differs from the memory's.
bool sum_differs(const CudaSession& session, const ActorState& state, u64 sum) {
  const u64 found = state.stream ? result_of(session, state) : state.sum;
  return found != sum * state.iteration;
}

void compare_touched(const CudaSession& session, const ActorState& state, const Kernel& kernel, Verdict& verdict) {
  const Span& span = kernel.traffic.front().span;
  const u64 sum = every_word(kernel) ? check_words(session, span, writes(kernel), verdict)
                                     : check_pages(session, span, touch_spacing(kernel), writes(kernel), verdict);
  if (!writes(kernel) && sum_differs(session, state, sum))
    add_wrong(verdict, span.bytes, session, span, span.offset, " or later, by the sum of all bytes read");
}

void compare_position(const CudaSession& session, const ActorState& state, const Span& span, Verdict& verdict) {
  const std::byte* start = host_view(*session.buffers[span.region]);
  const u64 expected = span.offset_at(state.iteration);
  const auto* stands = state.stream ? reinterpret_cast<const std::byte*>(result_of(session, state))
                                    : static_cast<const std::byte*>(state.position);
  verdict.checked_bytes += state.iteration * sizeof(u64);
  if (stands != start + expected)
    add_wrong(verdict, sizeof(u64), session, span, expected,
              ", the address that the pointer chase should have reached");
}

}  // namespace

void check_prefetch(const CudaSession& session, const ActorState& state, const Prefetch& prefetch, Checks& checks) {
  if (state.iteration == 0) return;
  Buffer& pages = *session.buffers[prefetch.span.region];
  checks.add(pages.device(), [&](Verdict& into) {
    // Discarded pages may hold anything, but must keep what is written from now.
    if (prefetch.discard != Prefetch::Discard::no) pages.fill_with_pattern(pages.seed());
    check_pages(session, prefetch.span, page_bytes(), false, into);
  });
}

void check_touch(const CudaSession& session, const ActorState& state, const Kernel& kernel, Checks& checks) {
  if (state.iteration == 0) return;
  checks.add(session.buffers[kernel.traffic.front().span.region]->device(),
             [&](Verdict& into) { compare_touched(session, state, kernel, into); });
}

void check_touch_chain(const CudaSession& session, const ActorState& state, const Kernel& kernel, Checks& checks) {
  if (state.iteration == 0) return;
  const Span& span = kernel.traffic.front().span;
  checks.add(session.buffers[span.region]->device(),
             [&](Verdict& into) { compare_position(session, state, span, into); });
}

}  // namespace linkscope
