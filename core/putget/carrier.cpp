#include "putget/carrier.hpp"

#include <array>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "putget/cpu_words.hpp"
#include "putget/poster.hpp"
#include "putget/tcp.hpp"

namespace linkscope {
namespace {

class CpuCarrier : public Carrier {
 public:
  CpuCarrier(const PutRegion& local, const PutRegion& remote) : local_{local.start()}, remote_{remote.start()} {}
  void perform(const Operation& one) override { perform_operation(words_, thread_, one, local_, remote_); }
  void finish() override {}
  [[nodiscard]] std::string name() const override { return "CPU"; }

 private:
  u64 local_, remote_;
  CpuWords words_;
  OneThread thread_;
};

class TcpCarrier : public Carrier {
 public:
  TcpCarrier(const PutRegion& local, const PutRegion& remote, Seconds patience)
      : local_{local.start()}, client_{remote.tcp_address(), patience} {}
  void perform(const Operation& one) override {
    if (one.verb == Verb::get) client_.get(one, local_ + one.local);
    else client_.send(one, local_ + one.local);
  }
  void finish() override { client_.finish(); }
  [[nodiscard]] std::string why_gone() const override { return client_.why_gone(); }
  [[nodiscard]] std::string name() const override { return "TCP"; }

 private:
  u64 local_;
  TcpClient client_;
};

/// Posts elements to a network card as the only poster of a channel of its own.
class CardCarrier : public Carrier {
 public:
  CardCarrier(PutGet& all, const QueuePair& pair, const PutRegion& local, const PutRegion& remote, Seconds patience)
      : queues_{all, pair, local, remote, std::nullopt},
        poster_{channel_to(local, remote, patience), CpuWords{}, OneThread{}} {}
  void perform(const Operation& one) override { check(poster_.post_one(one)); }
  void finish() override { check(poster_.quiet()); }
  [[nodiscard]] std::string name() const override { return "network card"; }

 private:
  [[nodiscard]] Channel channel_to(const PutRegion& local, const PutRegion& remote, Seconds patience) const {
    Channel channel{};
    channel.local_bytes = local.bytes();
    channel.remote_bytes = remote.bytes();
    channel.control = reinterpret_cast<u64>(words_.data());
    channel.timeout_ns = static_cast<RingWord>(patience.count() * 1e9);
    channel.card = queues_.address();
    return channel;
  }
  void check(Posted posted) const {
    if (posted == Posted::ok) return;
    if (posted == Posted::timed_out) throw Error{ErrorKind::timeout, "the network card completes nothing"};
    throw card_error(words_[static_cast<u64>(ControlWord::completion) * control_gap / sizeof(u64)]);
  }
  std::array<u64, control_bytes / sizeof(u64)> words_{};
  PostedQueues queues_;
  Poster<CpuWords, OneThread> poster_;
};

/// Copies of the driver on a stream of the GPU that has the remote region, or else the local one. A word is set by a copy,
/// too, so that it follows the data.
class EngineCarrier : public Carrier {
 public:
  EngineCarrier(PutGet& all, const PutRegion& local, const PutRegion& remote)
      : all_{all}, local_{local}, remote_{remote}, gpu_{all.gpu(gpu_of(remote.on_host() ? local : remote))} {
    const CurrentContext current{all.driver(), gpu_.context()};
    stream_ = std::make_unique<Stream>(all.driver());
    values_ = all.take_pinned(slots * sizeof(u64));
  }
  ~EngineCarrier() override {
    try {
      const CurrentContext current{all_.driver(), gpu_.context()};
      stream_->synchronize();
      stream_.reset();
      all_.give_back(std::move(values_));
    } catch (const Error&) {  // the driver is shutting down
    }
  }

  void perform(const Operation& one) override {
    if (one.verb == Verb::none) return;
    if (const auto why = remote_.why_freed() + local_.why_freed(); !why.empty()) throw Error{ErrorKind::failed, why};
    const CurrentContext current{all_.driver(), gpu_.context()};
    const u64 here = local_.start() + one.local, there = remote_.start() + one.remote;
    if (one.verb == Verb::put) return copy({there, &remote_}, {here, &local_}, one.bytes);
    if (one.verb == Verb::get) return copy({here, &local_}, {there, &remote_}, one.bytes);
    if (remote_.on_host()) {
      stream_->synchronize();
      return perform_operation(words_, thread_, one, local_.start(), remote_.start());
    }
    if (one.verb == Verb::add) return add(there, one.value);
    if (used_ == slots) finish();
    auto* value = reinterpret_cast<u64*>(values_.memory.data()) + used_++;
    *value = one.value;
    LINKSCOPE_CU(all_.driver(), cuMemcpyHtoDAsync, there, value, sizeof *value, stream_->get());
  }
  void finish() override {
    const CurrentContext current{all_.driver(), gpu_.context()};
    stream_->synchronize();
    used_ = 0;
  }
  [[nodiscard]] std::string name() const override { return "copy engine"; }

 private:
  static constexpr u64 slots = 512;  // words under way
  struct End {
    u64 at;
    const PutRegion* of;
  };
  [[nodiscard]] u32 gpu_of(const PutRegion& region) const {
    return region.is_imported() ? region.mapped_for() : all_.index_of(region.location().device);
  }
  void copy(End to, End from, u64 bytes) {
    auto& driver = all_.driver();
    const auto stream = stream_->get();
    if (bytes == 0) return;
    if (from.of->on_host())
      LINKSCOPE_CU(driver, cuMemcpyHtoDAsync, to.at, reinterpret_cast<const void*>(from.at), bytes, stream);
    else if (to.of->on_host())
      LINKSCOPE_CU(driver, cuMemcpyDtoHAsync, reinterpret_cast<void*>(to.at), from.at, bytes, stream);
    else if (gpu_of(*to.of) == gpu_of(*from.of)) LINKSCOPE_CU(driver, cuMemcpyDtoDAsync, to.at, from.at, bytes, stream);
    else
      LINKSCOPE_CU(driver, cuMemcpyPeerAsync, to.at, all_.gpu(gpu_of(*to.of)).context(), from.at,
                   all_.gpu(gpu_of(*from.of)).context(), bytes, stream);
  }
  /// By a kernel of the GPU that has the word, since no copy engine adds.
  void add(u64 word, u64 value) {
    stream_->synchronize();
    auto& owner = all_.gpu(gpu_of(remote_));
    const CurrentContext current{all_.driver(), owner.context()};
    const auto kernel = owner.function("post", "linkscope_add_word");
    const auto stream = owner.stream(0).get();
    std::array<void*, 2> arguments{&word, &value};
    owner.launch(kernel, 1, 1, stream, arguments.data());
    owner.stream(0).synchronize();
  }

  PutGet& all_;
  const PutRegion &local_, &remote_;
  Device& gpu_;
  std::unique_ptr<Stream> stream_;
  PinnedBlock values_;
  u64 used_ = 0;
  CpuWords words_;
  OneThread thread_;
};

}  // namespace

std::unique_ptr<Carrier> make_carrier(PutGet& all, const PutRegion& local, const PutRegion& remote, Seconds patience) {
  if (!remote.tcp_address().empty()) {
    if (!local.on_host())
      throw Error{ErrorKind::usage, "a region on a GPU cannot be the local one of a channel over TCP: use host memory"};
    return std::make_unique<TcpCarrier>(local, remote, patience);
  }
  if (local.on_host() && remote.on_host()) return std::make_unique<CpuCarrier>(local, remote);
  return std::make_unique<EngineCarrier>(all, local, remote);
}

std::unique_ptr<Carrier> make_card_carrier(PutGet& all, const QueuePair& pair, const PutRegion& local,
                                           const PutRegion& remote, Seconds patience) {
  return std::make_unique<CardCarrier>(all, pair, local, remote, patience);
}

}  // namespace linkscope
