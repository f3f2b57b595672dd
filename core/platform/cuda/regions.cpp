#include "platform/cuda/regions.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "platform/cuda/calls.hpp"
#include "platform/cuda/contents.hpp"
#include "platform/cuda/files.hpp"
#include "platform/cuda/managed.hpp"
#include "platform/cuda/sharing.hpp"
#include "platform/cuda/supports.hpp"
#include "platform/cuda/verification.hpp"
#include "program/allocation.hpp"
#include "program/processes.hpp"

namespace linkscope {
namespace {

/// The buffer of a region; null if calls allocate its memory, or if it is another process's.
Buffer* make_buffer(CudaSession& session, Buffers& buffers, Devices& devices, u32 r, u32 number) {
  const auto& region = session.program.regions[r];
  const bool own = region.process == session.process;
  if (allocated_by_calls(session.whole, r)) {
    if (own || (is_shared(region.kind) && session.process == 0))
      prepare_phases(session, r, device_for(devices, session.whole, r));
    return nullptr;
  }
  if (!own) return nullptr;
  Device* const device = device_for(devices, session.program, r);
  if (pages_move(region.kind)) {
    session.managed.push_back(
        with_room(buffers, [&] { return make_managed(session.driver, device, region, session.managed.size()); }));
    return session.managed.back().get();
  }
  if (!is_shared(region.kind)) return &buffers.get(region, number, device);
  session.shared.push_back(with_room(
      buffers, [&] { return std::make_unique<Buffer>(session.driver, device, region, whole_grains(region.bytes)); }));
  return session.shared.back().get();
}

/// Gives the program's GPUs access, and notes where pages are. Throws Error{failed} if they are elsewhere.
void place_buffers(CudaSession& session, Devices& devices) {
  for (u32 r = 0; r < session.program.regions.size(); ++r) {
    const auto& region = session.program.regions[r];
    Buffer* const buffer = session.buffers[r];
    if (!buffer || pages_move(region.kind)) continue;
    if (session.acts && session.program.peer && traits_of(region.kind).granted_to_peers)
      for (const u32 index : gpus_of(session.program)) buffer->memory().grant(devices.at(index));
    if (!buffer->host() || region.kind == MemKind::file) continue;
    if (const auto size = buffer->memory().page_size(); !size.empty())
      session.notes.emplace_back("page size " + to_string(region.at) + "." + to_string(region.kind), size);
    const auto found = page_nodes(buffer->host(), region.bytes);
    session.notes.emplace_back("pages " + to_string(region.at) + "." + to_string(region.kind), found);
    if (region.bound && found != "hidden" && found != to_string(region.at))
      throw Error{ErrorKind::failed, "pages asked for on " + to_string(region.at) + " are on " + found};
  }
}

void fill_buffers(CudaSession& session) {
  const auto& actors = session.whole.actors;
  const bool travels = session.peers && std::any_of(actors.begin(), actors.end(), [](const Actor& actor) {
                         return talks_to_ranks(actor) || collective_of(actor);
                       });  // to processes that compare it
  for (u32 r = 0; r < session.buffers.size(); ++r) {
    const auto& region = session.program.regions[r];
    Buffer* const buffer = session.buffers[r];
    if (!buffer) continue;
    const bool fills = filler_of(session.whole, r) == session.process;
    if (has_pattern(region.content) && (is_shared(region.kind) || travels)) {
      const u64 seed = common_seed(r) | seed_bits(region.content);
      if (fills) buffer->fill_with_pattern(seed);
      else buffer->expect_pattern(seed);
    }
    if (!fills) continue;
    if (region.kind == MemKind::file) prepare_file(session, *buffer, region);
    if (region.content == Content::zero) buffer->fill_with(std::byte{0}, region.bytes);
    if (region.content == Content::chain && !pages_move(region.kind)) buffer->fill_with_chain(region.bytes);
  }
}

}  // namespace

void make_buffers(CudaSession& session, Buffers& buffers, Devices& devices) {
  std::map<std::tuple<Place, MemKind, u64, bool, Content>, u32> count;
  buffers.begin_program();
  for (u32 r = 0; r < session.program.regions.size(); ++r) {
    const auto& region = session.program.regions[r];
    auto& number = count[{region.at, region.kind, region.page_bytes, region.transparent, region.content}];
    session.buffers.push_back(make_buffer(session, buffers, devices, r, number++));
  }
  if (session.peers) share_memory(session, devices);
  place_buffers(session, devices);
  fill_buffers(session);
}

}  // namespace linkscope
