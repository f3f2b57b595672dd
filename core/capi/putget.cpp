#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "capi/guarded.hpp"
#include "capi/linkscope.h"
#include "putget/channel.hpp"
#include "putget/region.hpp"

using namespace linkscope;

struct ls_region {
  PutRegion region;
};

struct ls_channel {
  OpenChannel channel;
};

static_assert(sizeof(ls_view) == sizeof(Channel));

namespace {

thread_local std::string handle_text;

std::mutex one_at_a_time;
PutGet* state = nullptr;
u64 regions = 0;  // that are open

/// Opens a region with what all regions share, which is made for the first one.
template <class... Arguments>
void open_region(ls_region** region, const Arguments&... arguments) {
  const std::lock_guard lock{one_at_a_time};
  if (!state) state = new PutGet;
  *region = new ls_region{PutRegion{*state, arguments...}};
  ++regions;
}

template <class... Arguments>
ls_status posted(ls_channel* channel, void (OpenChannel::*call)(Arguments...), Arguments... arguments) {
  return guarded([&] { (channel->channel.*call)(arguments...); });
}

std::byte* bytes_at(void* start) { return static_cast<std::byte*>(start); }

QueuePair pair_from(const ls_queue_pair& given) {
  QueuePair pair;
  pair.number = given.number;
  pair.send = bytes_at(given.send);
  pair.completions = bytes_at(given.completions);
  pair.send_bytes = given.send_bytes;
  pair.completions_bytes = given.completions_bytes;
  pair.send_record = bytes_at(given.send_record);
  pair.completions_record = bytes_at(given.completions_record);
  pair.doorbell = bytes_at(given.doorbell);
  pair.local = given.local;
  pair.old_value = given.old_value;
  pair.local_key = given.local_key;
  pair.old_value_key = given.old_value_key;
  return pair;
}

ChannelOptions options_from(const ls_channel_options& given) {
  ChannelOptions options;
  if (given.gpu >= 0) options.gpu = static_cast<u32>(given.gpu);
  if (given.transport > LS_VERBS) throw Error{ErrorKind::usage, "there is no such transport"};
  options.transport = static_cast<Transport>(given.transport);
  options.server_gpu = given.server_gpu;
  options.slots = given.slots;
  options.descriptor_bytes = given.descriptor_bytes;
  options.timeout = Seconds{given.timeout_s};
  if (given.ring_gpu >= 0) options.ring_gpu = static_cast<u32>(given.ring_gpu);
  options.tma = given.tma != 0;
  if (given.proxy > 0) options.proxy = given.proxy;
  if (given.pair) options.pair = pair_from(*given.pair);
  return options;
}

PostStep step_from(const ls_step& given) {
  PostStep step{StepKind::operation, {Verb::none, given.local, given.remote, given.bytes, given.value}, given.word};
  switch (given.verb) {
    case LS_STEP_PUT_SIGNAL:
      step.kind = StepKind::put_signal;
      step.operation.verb = Verb::put;
      return step;
    case LS_STEP_AWAIT:
      step.kind = StepKind::await;
      return step;
    case LS_STEP_QUIET:
      step.kind = StepKind::quiet;
      return step;
    case LS_STEP_PUT:
    case LS_STEP_GET:
    case LS_STEP_SIGNAL:
    case LS_STEP_ADD:
      step.operation.verb = static_cast<Verb>(given.verb);
      return step;
    default:
      throw Error{ErrorKind::usage, "there is no verb " + std::to_string(given.verb) + " of a step"};
  }
}

}  // namespace

void linkscope::close_putget() {
  const std::lock_guard lock{one_at_a_time};
  if (regions) return;
  delete state;
  state = nullptr;
}

ls_status ls_region_open(ls_region** region, void* start, size_t bytes) {
  return guarded([&] { open_region(region, start, u64{bytes}); });
}
ls_status ls_region_create(ls_region** region, size_t bytes) {
  return guarded([&] { open_region(region, u64{bytes}); });
}
ls_status ls_region_create_on_gpu(ls_region** region, size_t bytes, uint32_t gpu) {
  return guarded([&] { open_region(region, u64{bytes}, OnGpu{gpu}); });
}
ls_status ls_region_import(ls_region** region, const char* handle, uint32_t gpu) {
  return guarded([&] { open_region(region, std::string{handle}, gpu); });
}

const char* ls_region_handle(ls_region* region) {
  return guarded([&] { handle_text = region->region.handle(); }) == LS_OK ? handle_text.c_str() : nullptr;
}
const char* ls_region_serve(ls_region* region, const char* address, uint16_t port) {
  return guarded([&] { handle_text = region->region.serve_tcp(address, port); }) == LS_OK ? handle_text.c_str()
                                                                                          : nullptr;
}
const char* ls_region_card_handle(const ls_region* region, uint64_t address, uint32_t key) {
  return guarded([&] { handle_text = region->region.card_handle(address, key); }) == LS_OK ? handle_text.c_str()
                                                                                           : nullptr;
}
void* ls_region_start(const ls_region* region) { return reinterpret_cast<void*>(region->region.start()); }

ls_status ls_region_close(ls_region* region) {
  return guarded([&] {
    if (!region) return;
    if (const u32 users = region->region.users(); users > 0)
      throw Error{ErrorKind::usage, std::to_string(users) + " open channels use the region: close them first"};
    const std::lock_guard lock{one_at_a_time};
    delete region;
    --regions;
  });
}

ls_status ls_channel_open(ls_channel** channel, ls_region* local, ls_region* remote,
                          const ls_channel_options* options) {
  return guarded([&] {
    const auto chosen = options ? options_from(*options) : ChannelOptions{};
    *channel = new ls_channel{OpenChannel{*state, local->region, remote->region, chosen}};
  });
}
void ls_channel_close(ls_channel* channel) { delete channel; }
const char* ls_channel_transport(const ls_channel* channel) { return channel->channel.transport().c_str(); }
ls_status ls_channel_view(const ls_channel* channel, ls_view* view) {
  std::memcpy(view, &channel->channel.view(), sizeof *view);
  return LS_OK;
}

ls_status ls_put(ls_channel* channel, uint64_t remote, uint64_t local, uint64_t bytes) {
  return posted(channel, &OpenChannel::put, remote, local, bytes);
}
ls_status ls_get(ls_channel* channel, uint64_t local, uint64_t remote, uint64_t bytes) {
  return posted(channel, &OpenChannel::get, local, remote, bytes);
}
ls_status ls_put_signal(ls_channel* channel, uint64_t remote, uint64_t local, uint64_t bytes, uint64_t word,
                        uint64_t value) {
  return posted(channel, &OpenChannel::put_signal, remote, local, bytes, word, value);
}
ls_status ls_signal(ls_channel* channel, uint64_t word, uint64_t value) {
  return posted(channel, &OpenChannel::signal, word, value);
}
ls_status ls_add(ls_channel* channel, uint64_t word, uint64_t value) {
  return posted(channel, &OpenChannel::add, word, value);
}
ls_status ls_flush(ls_channel* channel) { return posted(channel, &OpenChannel::flush); }
ls_status ls_quiet(ls_channel* channel) { return posted(channel, &OpenChannel::quiet); }
ls_status ls_await(ls_channel* channel, uint64_t word, uint64_t value) {
  return posted(channel, &OpenChannel::await, word, value);
}
ls_status ls_poll(ls_channel* channel, uint64_t word, uint64_t value, int32_t* there) {
  bool found = false;
  const ls_status status = posted(channel, &OpenChannel::poll, word, value, &found);
  *there = found;
  return status;
}

ls_status ls_run_steps(ls_channel* channel, const ls_step* steps, size_t count, uint32_t threads, void* stream) {
  return ls_run_steps_by_blocks(channel, steps, count, 1, threads, stream);
}
ls_status ls_run_steps_by_blocks(ls_channel* channel, const ls_step* steps, size_t count, uint32_t blocks,
                                 uint32_t threads, void* stream) {
  return guarded([&] {
    std::vector<PostStep> made;
    for (size_t i = 0; i < count; ++i) made.push_back(step_from(steps[i]));
    channel->channel.run_on_gpu(made, threads, static_cast<CUstream>(stream), blocks);
  });
}
ls_status ls_finish_steps(ls_channel* channel) { return posted(channel, &OpenChannel::finish_on_gpu); }
