// A channel from a local region to a remote one, with what serves it: nothing where its poster reaches both regions, else a
// proxy thread, or a kernel that stands for a network card.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "putget/carrier.hpp"
#include "putget/cpu_words.hpp"
#include "putget/poster.hpp"
#include "putget/proxy.hpp"
#include "putget/queue_pair.hpp"
#include "putget/region.hpp"
#include "putget/run_task.hpp"

namespace linkscope {

/// `any`: memory where the poster reaches both regions, else the network card if there is a queue pair, else a proxy.
enum class Transport : u8 { any, memory, kernel, proxy, verbs };

struct ChannelOptions {
  std::optional<u32> gpu{};  // whose kernels post; none: CPU threads
  Transport transport = Transport::any;
  u32 server_gpu = 0;  // transport kernel: the GPU that serves
  u32 slots = 256;
  u32 descriptor_bytes = 32;  // 16 to 128: an operation for each 16
  Seconds timeout{2.0};       // of each wait
  // Transport kernel, with a GPU that posts: the GPU whose memory has the ring; none: host memory has it. The poster's GPU
  // then has the words that it polls.
  std::optional<u32> ring_gpu{};
  // The number of a proxy thread that all channels of this process with that number share, which serves their rings in turn;
  // none: a thread of its own.
  std::optional<u32> proxy{};
  // Transport verbs: where the poster writes elements. Transport proxy: where the proxy thread does.
  std::optional<QueuePair> pair{};
  bool tma = false;  // blocks of kernels, those of run_on_gpu() and of transport kernel, copy by TMA
};

class OpenChannel : private ServedRing {
 public:
  /// The regions live longer. Throws Error{usage} for options that make no sense or a transport that cannot be.
  OpenChannel(PutGet&, PutRegion& local, PutRegion& remote, const ChannelOptions&);
  /// Waits for the latest run_on_gpu().
  ~OpenChannel() override;
  OpenChannel(const OpenChannel&) = delete;
  OpenChannel& operator=(const OpenChannel&) = delete;

  /// What carries the operations, and why if it is not memory: "proxy (copy engine): GPU 0 and GPU 1 have no peer access".
  [[nodiscard]] const std::string& transport() const { return transport_; }
  /// What a kernel of the poster's GPU takes.
  [[nodiscard]] const Channel& view() const { return view_; }

  // The calls of Poster for a CPU thread, one at a time. They throw Error{usage} for what cannot be posted, Error{timeout}
  // that says what was waited for, Error{lost} if the other side has ended, and the error of the server.
  void put(u64 remote, u64 local, u64 bytes);
  void get(u64 local, u64 remote, u64 bytes);
  void put_signal(u64 remote, u64 local, u64 bytes, u64 word, u64 value);
  void signal(u64 remote, u64 value);
  void add(u64 remote, u64 value);
  void flush();
  void quiet();
  void await(u64 local, u64 value);
  void poll(u64 local, u64 value, bool* there);

  /// Lets the poster's GPU perform steps in the order of a stream: a thread (1), a warp (32), a block of that many threads,
  /// or so many blocks together.
  void run_on_gpu(std::span<const PostStep>, u32 threads, CUstream, u32 blocks = 1);
  /// Waits for the latest run_on_gpu(), and throws the error that ended it.
  void finish_on_gpu();

 private:
  using CpuPoster = Poster<CpuWords, OneThread>;
  void choose_transport(const std::string& why_not_memory);
  [[nodiscard]] std::string why_not_reached(const PutRegion&) const;
  [[nodiscard]] u64 address_for(u32 gpu, const PutRegion&) const;
  void make_words(u64 bytes);
  void check_tma(u32 gpu) const;
  void place_ring(u64 bytes);
  void load_posting();
  void start_kernel();
  void start_proxy();
  void start_posting();
  bool serve() override;
  void look_after() override;
  [[nodiscard]] bool serve_batch();
  void fail(Posted, const std::string& text);
  void end_posting();
  void end_server();
  void check(Posted) const;
  [[nodiscard]] std::string waited_text() const;
  template <class Call>
  void post(Call call);

  PutGet& all_;
  PutRegion &local_, &remote_;
  ChannelOptions options_;
  std::string transport_;
  Channel view_{};
  u64 control_ = 0;  // as this process sees it
  std::unique_ptr<std::byte[]> plain_;
  PinnedBlock pinned_;
  DeviceBlock ring_, credits_, grid_;
  std::unique_ptr<PostedQueues> queues_;
  std::unique_ptr<Carrier> carrier_;
  DescriptorServer served_{};
  bool failed_ = false;  // seen by the proxy only
  std::shared_ptr<Proxy> proxy_;
  mutable std::mutex failure_mutex_;
  std::string failure_;
  std::unique_ptr<Stream> server_stream_;
  std::unique_ptr<CpuPoster> poster_;
  std::mutex user_;
  PinnedBlock run_memory_;
  std::optional<CUstream> run_stream_;
};

}  // namespace linkscope
