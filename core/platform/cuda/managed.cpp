#include "platform/cuda/managed.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/error.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/host/contents.hpp"
#include "platform/host/topology.hpp"
#include "program/managed.hpp"
#include "program/pattern.hpp"

namespace linkscope {
namespace {

u64 page_bytes() { return static_cast<u64>(sysconf(_SC_PAGESIZE)); }

/// As a CPU calls it: by the same address as a GPU.
std::byte* host_view(const Buffer& buffer) { return reinterpret_cast<std::byte*>(buffer.address()); }

bool writes(const Kernel& kernel) { return kernel.traffic.front().dir == Access::Dir::write; }

bool is_managed(const Program& program, const Step& step) {
  const auto all = touches(step);
  return std::any_of(all.begin(), all.end(), [&](const Touch& touch) { return program.regions[touch.span.region].kind == MemKind::managed; });
}

CUmemLocation location_of(const CudaSession& session, const Place& place) {
  if (place.kind == PlaceKind::numa) return {CU_MEM_LOCATION_TYPE_HOST_NUMA, {host_nodes().at(place.index).os_index}};
  const auto on_it = std::find_if(session.gpus.begin(), session.gpus.end(), [&](const auto& gpu) { return gpu.first == place.index; });
  return {CU_MEM_LOCATION_TYPE_DEVICE, {on_it->second->facts().handle}};
}

}  // namespace

// --- what it can run ----------------------------------------------------------------------------------------------

bool touches_pages(const Kernel& kernel) { return kernel.name == "touch" || kernel.name == "touch_chain"; }

std::string why_no_managed_access(const Driver& driver, const std::vector<DeviceFacts>& gpus) {
  for (const char* symbol : {"cuMemAllocManaged", "cuMemPrefetchAsync", "cuMemGetInfo"})
    if (auto why = driver.why_no(symbol); !why.empty()) return why;
  for (const auto& gpu : gpus)
    if (gpu.attribute("CONCURRENT_MANAGED_ACCESS", 0) == 0)
      return "the GPU " + gpu.name + " does not let CPUs touch managed memory at any time (CONCURRENT_MANAGED_ACCESS is 0)";
  return "";
}

std::string why_no_managed_step(const Program& program, const Actor& actor, const Step& step) {
  const auto* kernel = std::get_if<Kernel>(&step);
  const bool of_pages = std::holds_alternative<Prefetch>(step) || (kernel && touches_pages(*kernel));
  if (is_managed(program, step) != of_pages) return "managed memory is touched page by page and prefetched here, and no other memory is";
  if (std::holds_alternative<Prefetch>(step) && actor.kind != ActorKind::stream) return "prefetches are queued on streams";
  return "";
}

// --- prepare ------------------------------------------------------------------------------------------------------

std::unique_ptr<Buffer> make_managed(const Driver& driver, Device* device, const Region& region, u64 number) {
  constexpr u64 block = u64{2} << 20;  // what the driver moves at once
  auto made = std::make_unique<Buffer>(driver, device, region, (region.bytes + block - 1) / block * block);
  if (region.content == Content::pattern) made->fill_with_pattern(0x6D616E6167656421ull + number);
  return made;
}

namespace {

/// Of regions at home on the host: move_pages() does not see pages that are on a GPU.
void check_home(CudaSession& session) {
  for (std::size_t i = 0; i < session.buffers.size(); ++i) {
    const auto& region = session.program.regions[i];
    if (region.kind != MemKind::managed || region.at.kind != PlaceKind::numa) continue;
    const auto found = page_nodes(host_view(*session.buffers[i]), region.bytes);
    session.notes.emplace_back("pages " + to_string(region.at) + ".managed", found);
    if (found != "hidden" && found != to_string(region.at)) throw Error{ErrorKind::failed, "pages sent home to " + to_string(region.at) + " are on " + found};
  }
}

}  // namespace

void prepare_managed(CudaSession& session) {
  for (auto& state : session.actors)
    for (const auto& step : state.actor->loop) {
      const auto* kernel = std::get_if<Kernel>(&step);
      if (!kernel || !touches_pages(*kernel)) continue;
      if (!state.stream && kernel->shape.threads > 1) state.crew = std::make_unique<Crew>(state.node, kernel->shape.threads);
      const Span& span = kernel->traffic.front().span;
      std::byte* start = host_view(*session.buffers[span.region]);
      if (kernel->name == "touch_chain")
        for (u64 i = 0; i < span.slices; ++i) *reinterpret_cast<std::byte**>(start + span.offset_at(i)) = start + span.offset_at(i + 1);
    }
  bring_home(session);
  check_home(session);
}

void restore_managed(const CudaSession& session) {
  for (const auto& buffer : session.managed)
    if (buffer->seed()) buffer->fill_with_pattern(buffer->seed());
}

void bring_home(CudaSession& session) {
  for (auto& state : session.actors) {
    for (const auto& step : state.actor->once) {
      if (const auto* call = std::get_if<Call>(&step)) {
        bring_to(session, *call);
        continue;
      }
      const auto& prefetch = std::get<Prefetch>(step);
      queue_prefetch(session, state, prefetch);
      session.buffers[prefetch.span.region]->device()->stream(0).synchronize();
      if (state.stream) state.stream->synchronize();
    }
    if (state.crew) state.crew->wake();
  }
}

// --- steps --------------------------------------------------------------------------------------------------------

CUfunction touch_code(Device& device, const Kernel& kernel) {
  if (kernel.name == "touch_chain") return device.function("access", "linkscope_chase");
  return device.function("managed", writes(kernel) ? "linkscope_touch_write" : "linkscope_touch_read");
}

void queue_prefetch(const CudaSession& session, const ActorState& state, const Prefetch& prefetch) {
  const Buffer& buffer = *session.buffers[prefetch.span.region];
  Device& device = state.stream ? *state.device : *buffer.device();
  const CUstream stream = state.stream ? state.stream->get() : device.stream(0).get();  // a CPU thread's, untimed
  device.use();
  LINKSCOPE_CU(session.driver, cuMemPrefetchAsync, buffer.address() + prefetch.span.offset_at(state.iteration), prefetch.span.bytes,
               location_of(session, prefetch.to), 0, stream);
}

namespace {

/// The part of `pages` that thread `part` of `parts` has.
u64 bound(u64 pages, u32 part, u32 parts) { return pages * part / parts; }

void touch_on_cpu(ActorState& state, std::byte* start, u64 bytes, bool write) {
  const u64 page = page_bytes(), pages = (bytes + page - 1) / page;
  const u32 parts = state.crew ? state.crew->size() : 1;
  std::atomic<u64> sum{0};
  const auto part_of = [&](u32 part) {
    u64 mine = 0;
    for (u64 i = bound(pages, part, parts); i < bound(pages, part + 1, parts); ++i) {
      auto* at = reinterpret_cast<volatile unsigned char*>(start + i * page);
      if (write) *at = 0;
      else mine += *at;
    }
    sum += mine;
  };
  if (state.crew) state.crew->run(part_of);
  else part_of(0);
  state.sum += sum;
}

}  // namespace

void touch(const CudaSession& session, ActorState& state, const Kernel& kernel, u64 steps) {
  const Span& span = kernel.traffic.front().span;
  const Buffer& buffer = *session.buffers[span.region];
  const u64 offset = span.offset_at(state.iteration);
  if (!state.stream) {
    if (kernel.name == "touch") return touch_on_cpu(state, host_view(buffer) + offset, span.bytes, writes(kernel));
    const auto* at = state.position ? static_cast<const std::byte*>(state.position) : host_view(buffer) + offset;
    for (u64 i = 0; i < steps; ++i) at = *reinterpret_cast<const std::byte* const volatile*>(at);
    state.position = at;
    return;
  }
  const auto launch = [&](auto... arguments) {
    void* pointers[] = {&arguments...};
    state.device->launch(touch_code(*state.device, kernel), kernel.shape.blocks, kernel.shape.threads, state.stream->get(), pointers);
  };
  if (kernel.name == "touch_chain") launch(state.result, steps);
  else if (writes(kernel)) launch(buffer.address() + offset, span.bytes, page_bytes());
  else launch(buffer.address() + offset, span.bytes, page_bytes(), state.result);
}

// --- verification -------------------------------------------------------------------------------------------------

namespace {

void add_wrong(Verdict& verdict, u64 bytes, const CudaSession& session, const Span& span, u64 offset, const char* what) {
  if (bytes == 0) return;
  const auto& region = session.program.regions[span.region];
  if (verdict.ok) verdict.first_wrong = to_string(region.at) + ".managed at byte " + std::to_string(offset) + what;
  verdict.ok = false;
  verdict.wrong_bytes += bytes;
}

u64 result_of(const CudaSession& session, const ActorState& state) {
  if (!state.stream) return state.sum;
  u64 word = 0;
  state.device->use();
  LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &word, state.result, sizeof word);
  return word;
}

/// The pattern, but for the first byte of each page where pages were written: that is 0. Gives what the bytes that
/// were touched add up to in the pattern.
u64 check_pages(const CudaSession& session, const Span& span, bool written, Verdict& verdict) {
  const Buffer& buffer = *session.buffers[span.region];
  const std::byte* start = host_view(buffer) + span.offset;
  const u64 page = page_bytes();
  u64 sum = 0, changed = 0;
  for (u64 at = 0; at < span.bytes; at += page) {
    const u64 pattern = linkscope_pattern_word(buffer.seed(), (span.offset + at) / 8), first = pattern & 0xFF;
    const u64 expected = written ? pattern - first : pattern, found = *reinterpret_cast<const u64*>(start + at);
    sum += first;
    changed += written && first != 0;
    add_wrong(verdict, found == expected ? 0 : 8, session, span, span.offset + at, written ? ", the first of a page that was touched" : "");
    changed -= written && first != 0 && found == pattern;  // told just now
  }
  const auto differs = check_pattern(start, span.bytes, buffer.seed(), span.offset);
  verdict.checked_bytes += span.bytes;
  if (differs.wrong_words > changed && verdict.ok) add_wrong(verdict, (differs.wrong_words - changed) * 8, session, span, span.offset + differs.first_word * 8, " or later");
  return sum;
}

void check_chain(const CudaSession& session, const ActorState& state, const Span& span, Verdict& verdict) {
  const std::byte* start = host_view(*session.buffers[span.region]);
  const u64 expected = span.offset_at(state.iteration);
  const auto* stands = reinterpret_cast<const std::byte*>(state.stream ? result_of(session, state) : reinterpret_cast<u64>(state.position));
  verdict.checked_bytes += state.iteration * sizeof(u64);
  if (stands != start + expected) add_wrong(verdict, sizeof(u64), session, span, expected, ", where the chain should have led to");
}

}  // namespace

void check_managed(const CudaSession& session, const ActorState& state, const Step& step, Verdict& verdict) {
  if (state.iteration == 0) return;
  if (const auto* prefetch = std::get_if<Prefetch>(&step)) {
    check_pages(session, prefetch->span, false, verdict);
    return;
  }
  const auto& kernel = std::get<Kernel>(step);
  const Span& span = kernel.traffic.front().span;
  if (kernel.name == "touch_chain") return check_chain(session, state, span, verdict);
  const u64 sum = check_pages(session, span, writes(kernel), verdict);
  if (!writes(kernel) && result_of(session, state) != sum * state.iteration)
    add_wrong(verdict, span.bytes, session, span, span.offset, " or later, by the sum of all bytes read");
}

}  // namespace linkscope
