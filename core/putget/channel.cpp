#include "putget/channel.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "gpu/context.hpp"

namespace linkscope {
namespace {

constexpr u64 line = control_gap;
constexpr u32 most_slots = 1u << 20, most_threads = 1024, threads_of_server = 1024;
constexpr Seconds idle_kernel{10.0};  // a kernel that nobody posts to gives the GPU back

void check_options(const ChannelOptions& options) {
  if (options.slots < 2 || options.slots > most_slots)
    throw Error{ErrorKind::usage,
                "a ring of " + std::to_string(options.slots) + " descriptors: use 2 to " + std::to_string(most_slots)};
  if (options.descriptor_bytes % pair_bytes != 0 || options.descriptor_bytes == 0 ||
      options.descriptor_bytes > most_descriptor_words * pair_bytes)
    throw Error{ErrorKind::usage, "descriptors of " + std::to_string(options.descriptor_bytes) +
                                      " B: use a multiple of 16 from 16 to 128"};
  if (options.ring_gpu && (!options.gpu || options.transport != Transport::kernel))
    throw Error{
        ErrorKind::usage,
        "a ring in the memory of a GPU needs a GPU that posts and a kernel that serves: a CPU does not reach it"};
  if (options.timeout.count() <= 0) throw Error{ErrorKind::usage, "the time-out must be above 0 s"};
}

RingWord nanoseconds(Seconds time) { return static_cast<RingWord>(time.count() * 1e9); }

}  // namespace

OpenChannel::OpenChannel(PutGet& all, PutRegion& local, PutRegion& remote, const ChannelOptions& options)
    : all_{all}, local_{local}, remote_{remote}, options_{options} {
  check_options(options);
  if (options.gpu) (void)all_.gpu(*options.gpu);
  auto why = why_not_reached(remote);
  if (why.empty()) why = why_not_reached(local);
  choose_transport(why);
  const bool serves = options_.transport == Transport::kernel || options_.transport == Transport::proxy;
  const u64 slots_bytes = serves ? u64{options.slots} * options.descriptor_bytes : 0;
  make_words(control_bytes + (options.ring_gpu ? 0 : slots_bytes));
  view_.local = options.gpu && local.on_host() ? address_for(*options.gpu, local) : local.start();
  view_.local_bytes = local.bytes();
  view_.remote_bytes = remote.bytes();
  view_.timeout_ns = nanoseconds(options.timeout);
  view_.credits = view_.control;
  if (options.tma && options.gpu) check_tma(*options.gpu);
  if (options_.transport == Transport::memory) {
    view_.remote = options.gpu ? address_for(*options.gpu, remote) : remote.start();
    transport_ = "memory";
  } else if (options_.transport == Transport::verbs) {
    queues_ = std::make_unique<PostedQueues>(all_, *options.pair, local, remote, options.gpu);
    view_.card = queues_->address();
    transport_ = "network card (queue pair " + std::to_string(options.pair->number) + ")";
  } else {
    view_.slots = view_.control + control_bytes;
    if (options.ring_gpu) place_ring(slots_bytes);
    view_.slot_count = options.slots;
    view_.slot_words = options.descriptor_bytes / pair_bytes;
    if (options_.transport == Transport::kernel) start_kernel();
    else start_proxy();
    if (!why.empty()) transport_ += ": " + why;
  }
  ++local_.users();
  ++remote_.users();
  if (!options.gpu) start_posting();
}

/// Replaces `any` by what the channel uses.
void OpenChannel::choose_transport(const std::string& why_not_memory) {
  auto& chosen = options_.transport;
  const bool has_pair = options_.pair.has_value();
  if (chosen == Transport::memory && !why_not_memory.empty())
    throw Error{ErrorKind::usage, "no channel by memory: " + why_not_memory};
  if (chosen == Transport::any)
    chosen = why_not_memory.empty() ? Transport::memory : has_pair ? Transport::verbs : Transport::proxy;
  const bool uses_pair = chosen == Transport::verbs || (chosen == Transport::proxy && remote_.behind_card());
  if (uses_pair && !has_pair)
    throw Error{ErrorKind::usage, "a channel through a network card needs a queue pair of the card"};
  if (chosen == Transport::kernel && remote_.behind_card())
    throw Error{ErrorKind::usage,
                "a kernel does not serve a region behind a network card: use transport verbs or proxy"};
}

/// A CPU thread posts, and nobody else has the ring yet.
void OpenChannel::start_posting() {
  Channel here = view_;
  here.control = here.credits = control_;
  if (view_.slots) here.slots = control_ + control_bytes;
  poster_ = std::make_unique<CpuPoster>(here, CpuWords{}, OneThread{});
  (void)poster_->open();
}

OpenChannel::~OpenChannel() {
  end_posting();
  end_server();
  --local_.users();
  --remote_.users();
  all_.give_back(std::move(pinned_));
  all_.give_back(std::move(run_memory_));
  for (auto* block : {&ring_, &credits_, &grid_}) all_.give_back(std::move(*block));
}

/// "", or why the poster's loads and stores do not reach a region.
std::string OpenChannel::why_not_reached(const PutRegion& region) const {
  if (!region.tcp_address().empty()) return "the region is behind TCP";
  if (region.behind_card()) return "the region is behind a network card";
  if (!options_.gpu) return region.on_host() ? "" : "a CPU thread does not reach " + to_string(region.location());
  if (region.on_host())
    return region.location().memory == MemoryType::pinned ? "" : "a GPU does not reach pageable memory";
  if (region.is_imported())
    return region.mapped_for() == *options_.gpu ? "" : "the memory is mapped for another GPU of this process";
  return all_.why_no_peer(*options_.gpu, all_.index_of(region.location().device));
}

u64 OpenChannel::address_for(u32 gpu, const PutRegion& region) const {
  if (!region.on_host()) return region.start();
  if (region.location().memory != MemoryType::pinned) return 0;
  const CurrentContext current{all_.driver(), all_.gpu(gpu).context()};
  return mapped_address(all_.driver(), reinterpret_cast<std::byte*>(region.start()));
}

/// The words that the poster and the server share: pinned if a GPU is among them.
void OpenChannel::make_words(u64 bytes) {
  const bool pinned = options_.gpu || options_.transport == Transport::kernel;
  if (!pinned) {
    plain_ = std::make_unique<std::byte[]>(bytes + line);
    control_ = (reinterpret_cast<u64>(plain_.get()) + line - 1) / line * line;
    view_.control = control_;
    return;
  }
  auto& gpu = all_.gpu(options_.gpu.value_or(options_.server_gpu));
  pinned_ = all_.take_pinned(bytes);
  control_ = reinterpret_cast<u64>(pinned_.memory.data());
  const CurrentContext current{all_.driver(), gpu.context()};
  view_.control = mapped_address(all_.driver(), pinned_.memory.data());
}

void OpenChannel::check_tma(u32 gpu) const {
  constexpr int least = 9;
  if (all_.gpu(gpu).facts().attribute("COMPUTE_CAPABILITY_MAJOR", 0) < least)
    throw Error{ErrorKind::unsupported, "GPU " + std::to_string(gpu) + " has no TMA: it needs compute capability 9.0"};
}

/// The slots in the memory of the chosen GPU, and the credits in that of the poster, which polls them.
void OpenChannel::place_ring(u64 bytes) {
  for (const u32 by : {*options_.gpu, options_.server_gpu})
    for (const u32 owner : {*options_.ring_gpu, *options_.gpu})
      if (const auto why = all_.why_no_peer(by, owner); !why.empty())
        throw Error{ErrorKind::usage,
                    "no ring in the memory of GPU " + std::to_string(*options_.ring_gpu) + ": " + why};
  ring_ = all_.take_device(*options_.ring_gpu, bytes);
  credits_ = all_.take_device(*options_.gpu, sizeof(u64));
  view_.slots = ring_.memory.address();
  view_.credits = credits_.memory.address();
}

// --- who serves -------------------------------------------------------------------------------------------------------

/// Loads the kernel that posts by running it without steps. The driver may load a kernel only when no other one runs.
void OpenChannel::load_posting() {
  if (!options_.gpu) return;
  run_on_gpu({}, 1, nullptr);
  finish_on_gpu();
}

void OpenChannel::start_kernel() {
  const u32 number = options_.server_gpu;
  auto& gpu = all_.gpu(number);
  ServeTask task{view_, address_for(number, local_), address_for(number, remote_), 0, nanoseconds(idle_kernel)};
  for (const auto* region : {&local_, &remote_}) {
    const bool is_device = !region->on_host() && region->tcp_address().empty();
    const bool other = is_device && (region->is_imported()
                                         ? region->mapped_for() != number
                                         : !all_.why_no_peer(number, all_.index_of(region->location().device)).empty());
    if (other || !region->tcp_address().empty() || (region->on_host() && address_for(number, *region) == 0))
      throw Error{ErrorKind::usage,
                  "GPU " + std::to_string(number) + " does not reach both regions, so it cannot serve"};
  }
  if (options_.tma) check_tma(number);
  load_posting();
  const CurrentContext current{all_.driver(), gpu.context()};
  const auto kernel = gpu.function("post", options_.tma ? "linkscope_serve_tma" : "linkscope_serve");
  server_stream_ = std::make_unique<Stream>(all_.driver());
  std::array<void*, 1> arguments{&task};
  gpu.launch(kernel, 1, threads_of_server, server_stream_->get(), arguments.data());
  transport_ = "kernel on GPU " + std::to_string(number);
  if (options_.ring_gpu) transport_ += ", ring on GPU " + std::to_string(*options_.ring_gpu);
}

void OpenChannel::start_proxy() {
  if (!has_whole_pairs())
    throw Error{ErrorKind::unsupported, "this CPU does not store 16 bytes at once, which a proxy's ring needs"};
  carrier_ = remote_.behind_card() ? make_card_carrier(all_, *options_.pair, local_, remote_, options_.timeout)
                                   : make_carrier(all_, local_, remote_, options_.timeout);
  transport_ = "proxy (" + carrier_->name() + ")";
  served_.ring = view_.ring();
  served_.ring.slots = control_ + control_bytes;
  served_.ring.credits = control_ + control_gap * static_cast<u64>(ControlWord::credits);
  proxy_ = options_.proxy ? all_.proxy(*options_.proxy) : std::make_shared<Proxy>();
  proxy_->add(*this);
}

bool OpenChannel::serve() {
  try {
    return !failed_ && serve_batch();
  } catch (const Error& error) {
    fail(error.kind() == ErrorKind::lost ? Posted::ended : Posted::failed, error.what());
    return false;
  }
}

void OpenChannel::look_after() {
  if (failed_) return;
  const auto why = remote_.why_gone();
  if (const auto lost = why.empty() ? carrier_->why_gone() : why; !lost.empty()) fail(Posted::ended, lost);
}

/// Performs what is there, at most half a ring, and completes it at once. False: nothing was there.
bool OpenChannel::serve_batch() {
  CpuWords words;
  std::array<Operation, most_descriptor_words> operations;
  const u32 most = std::max(1u, options_.slots / 2);
  u32 taken = 0;
  for (; taken < most && served_.try_take(words, operations.data()); ++taken)
    for (const auto& one : std::span{operations}.first(served_.ring.words)) {
      if (check_operation(one, local_.bytes(), remote_.bytes()) != Posted::ok)
        throw Error{ErrorKind::usage, "a descriptor of the ring names memory outside of its regions"};
      if (one.verb != Verb::none) carrier_->perform(one);
    }
  if (taken == 0) return false;
  carrier_->finish();
  served_.complete(words);
  return true;
}

void OpenChannel::fail(Posted state, const std::string& text) {
  failed_ = true;
  {
    const std::lock_guard lock{failure_mutex_};
    failure_ = text;
  }
  CpuWords::release(control_ + control_gap * static_cast<u64>(ControlWord::failure), static_cast<u64>(state));
}

/// A kernel that posts uses the words of the channel, which later ones get.
void OpenChannel::end_posting() {
  try {
    finish_on_gpu();
  } catch (const Error&) {  // nobody asks for the end of the steps any longer
  }
}

void OpenChannel::end_server() {
  if (proxy_) proxy_->remove(*this);
  if (control_) CpuWords::release(control_ + control_gap * static_cast<u64>(ControlWord::stop), 1);
  if (!server_stream_) return;
  try {
    const CurrentContext current{all_.driver(), all_.gpu(options_.server_gpu).context()};
    server_stream_->synchronize();
    server_stream_.reset();
  } catch (const Error&) {  // the GPU is lost
  }
}

// --- posting ----------------------------------------------------------------------------------------------------------

std::string OpenChannel::waited_text() const {
  const auto word = [&](ControlWord which) {
    return CpuWords::acquire(control_ + control_gap * static_cast<u64>(which));
  };
  const auto expected = std::to_string(word(ControlWord::expected)), found = std::to_string(word(ControlWord::found));
  switch (static_cast<Waited>(word(ControlWord::waited))) {
    case Waited::room:
      return (queues_ ? "room in the send queue of " + std::to_string(queues_->blocks()) + " blocks: "
                      : "room in the ring of " + std::to_string(options_.slots) + " descriptors: ") +
             found + " are complete, and " + expected + " must be";
    case Waited::completion:
      return "the end of " + expected + (queues_ ? " blocks" : " descriptors") + ": " + found + " are complete";
    case Waited::signal:
      return "the word at offset " + std::to_string(word(ControlWord::offset)) + " of the local region to reach " +
             expected + ": it is " + found;
    default:
      return "nothing";
  }
}

void OpenChannel::check(Posted posted) const {
  switch (posted) {
    case Posted::ok:
      return;
    case Posted::outside:
      throw Error{ErrorKind::usage, "the operation ends outside of its region: the local one has " +
                                        bytes_text(local_.bytes()) + ", the remote one " + bytes_text(remote_.bytes())};
    case Posted::misaligned:
      throw Error{ErrorKind::usage, "the offset of a word must be a multiple of 8 B"};
    case Posted::in_use:
      throw Error{ErrorKind::usage, "the ring has another user: one thread, warp or block posts at a time"};
    case Posted::timed_out:
      throw Error{ErrorKind::timeout, "waited in vain for " + waited_text()};
    default:
      break;
  }
  if (const auto said = CpuWords::acquire(control_ + control_gap * static_cast<u64>(ControlWord::completion)))
    throw card_error(said);
  const std::lock_guard lock{failure_mutex_};
  const auto kind = posted == Posted::ended ? ErrorKind::lost : ErrorKind::failed;
  throw Error{kind, failure_.empty() ? "the kernel that serves the channel has ended: nobody posted for 10 s, or an "
                                       "operation was outside of its region"
                                     : failure_};
}

template <class Call>
void OpenChannel::post(Call call) {
  const std::unique_lock lock{user_, std::try_to_lock};
  if (!poster_) throw Error{ErrorKind::usage, "kernels of a GPU post to this channel, not CPU threads"};
  if (!lock) check(Posted::in_use);
  check(call(*poster_));
}

void OpenChannel::put(u64 remote, u64 local, u64 bytes) {
  post([&](CpuPoster& poster) { return poster.put(remote, local, bytes); });
}
void OpenChannel::get(u64 local, u64 remote, u64 bytes) {
  post([&](CpuPoster& poster) { return poster.get(local, remote, bytes); });
}
void OpenChannel::put_signal(u64 remote, u64 local, u64 bytes, u64 word, u64 value) {
  post([&](CpuPoster& poster) { return poster.put_signal(remote, local, bytes, word, value); });
}
void OpenChannel::signal(u64 remote, u64 value) {
  post([&](CpuPoster& poster) { return poster.signal(remote, value); });
}
void OpenChannel::add(u64 remote, u64 value) {
  post([&](CpuPoster& poster) { return poster.add(remote, value); });
}
void OpenChannel::flush() {
  post([](CpuPoster& poster) { return poster.flush(); });
}
void OpenChannel::quiet() {
  post([](CpuPoster& poster) { return poster.quiet(); });
}

/// Asks between short waits whether the other process still lives.
void OpenChannel::await(u64 local, u64 value) {
  if (!local_.on_host()) throw Error{ErrorKind::usage, "a CPU thread does not poll " + to_string(local_.location())};
  post([&](CpuPoster& poster) {
    const RingWord begin = CpuWords::now_ns();
    for (;;) {
      const RingWord waited = CpuWords::now_ns() - begin;
      if (waited >= view_.timeout_ns) return poster.await(local, value, 1);
      constexpr RingWord slice = 10'000'000;
      const auto done = poster.await(local, value, std::min(slice, view_.timeout_ns - waited));
      if (done != Posted::timed_out) return done;
      if (const auto why = remote_.why_gone(); !why.empty()) throw Error{ErrorKind::lost, why};
    }
  });
}

void OpenChannel::poll(u64 local, u64 value, bool* there) {
  if (!local_.on_host()) throw Error{ErrorKind::usage, "a CPU thread does not poll " + to_string(local_.location())};
  post([&](CpuPoster& poster) { return poster.poll(local, value, *there); });
  if (const auto why = *there ? std::string{} : remote_.why_gone(); !why.empty()) throw Error{ErrorKind::lost, why};
}

void OpenChannel::run_on_gpu(std::span<const PostStep> steps, u32 threads, CUstream stream, u32 blocks) {
  if (!options_.gpu) throw Error{ErrorKind::usage, "CPU threads post to this channel, not kernels of a GPU"};
  if (threads == 0 || threads > most_threads) throw Error{ErrorKind::usage, "a block has 1 to 1024 threads"};
  auto& gpu = all_.gpu(*options_.gpu);
  if (const u32 sms = static_cast<u32>(gpu.facts().attribute("MULTIPROCESSOR_COUNT", 1)); blocks == 0 || blocks > sms)
    throw Error{ErrorKind::usage, "a put by blocks that wait for each other has 1 to " + std::to_string(sms) +
                                      " of them, as many as GPU " + std::to_string(*options_.gpu) + " has SMs"};
  constexpr Seconds most_of_grid{10.0};  // blocks meet within 20 s
  if (blocks > 1 && options_.timeout > most_of_grid)
    throw Error{ErrorKind::usage, "blocks that post together wait at most 10 s: use a shorter time-out"};
  const auto group = blocks > 1      ? GroupKind::grid
                     : options_.tma  ? GroupKind::block
                     : threads == 1  ? GroupKind::thread
                     : threads == 32 ? GroupKind::warp
                                     : GroupKind::block;
  // A kernel that stores to memory without a mapping ends its context, and with it all work of this process on the GPU.
  if (const auto why = remote_.why_freed() + local_.why_freed(); !why.empty()) throw Error{ErrorKind::failed, why};
  const CurrentContext current{all_.driver(), gpu.context()};
  finish_on_gpu();
  constexpr u64 result_bytes = 2 * sizeof(u64);
  if (const u64 bytes = result_bytes + steps.size_bytes(); bytes > run_memory_.bytes) {
    all_.give_back(std::move(run_memory_));
    run_memory_ = all_.take_pinned(bytes);
  }
  auto* memory = run_memory_.memory.data();
  std::memset(memory, 0, result_bytes);
  if (!steps.empty()) std::memcpy(memory + result_bytes, steps.data(), steps.size_bytes());
  const u64 at = mapped_address(all_.driver(), memory);
  all_.give_back(std::exchange(grid_, {}));
  if (group == GroupKind::grid) grid_ = all_.take_device(*options_.gpu, grid_bytes);
  PostTask task{view_, at + result_bytes, steps.size(), at, group, grid_.memory.address()};
  std::array<void*, 1> arguments{&task};
  const auto kernel = gpu.function("post", options_.tma ? "linkscope_post_tma" : "linkscope_post");
  gpu.launch(kernel, blocks, threads, stream, arguments.data());
  run_stream_ = stream;
}

void OpenChannel::finish_on_gpu() {
  if (!run_stream_) return;
  const CurrentContext current{all_.driver(), all_.gpu(*options_.gpu).context()};
  LINKSCOPE_CU(all_.driver(), cuStreamSynchronize, *std::exchange(run_stream_, std::nullopt));
  const auto posted = CpuWords::acquire(reinterpret_cast<u64>(run_memory_.memory.data()));
  if (posted == 0) throw Error{ErrorKind::failed, "the kernel that posts has not run"};
  check(static_cast<Posted>(posted - 1));
}

}  // namespace linkscope
