// The default stream of the GPU that has the memory, while the context of another GPU is current.
#include <thread>

#include "random_blocks.hpp"
#include "transfer/asynchronous.hpp"

using namespace linkscope;

namespace {

/// Memory of the second GPU, whose default stream waits behind a closed gate. The first GPU's context is current.
struct Behind {
  const Application with;
  const OnOther elsewhere{with, 4_MiB};
  const PinnedMemory word{the_driver(), 4096, 0};
  Transfers transfers{small_chunks_by_kernel()};

  void close() const {
    std::memset(word.data(), 0, 4);
    on_other([&] {
      LINKSCOPE_CU(the_driver(), cuStreamWaitValue32, nullptr, reinterpret_cast<CUdeviceptr>(word.data()), 1,
                   CU_STREAM_WAIT_VALUE_EQ);
    });
  }
  void open() const { std::atomic_ref{*reinterpret_cast<unsigned*>(word.data())} = 1; }
  void open_soon() {
    opener = std::jthread{[this] {
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
      open();
    }};
  }
  /// Queues what the memory shall hold behind the gate.
  void fill(std::byte value, u64 bytes) const {
    on_other([&] {
      LINKSCOPE_CU(the_driver(), cuMemsetD8Async, reinterpret_cast<CUdeviceptr>(elsewhere.at()),
                   static_cast<unsigned char>(value), bytes, nullptr);
    });
  }
  void finish() const {
    on_other([] { LINKSCOPE_CU(the_driver(), cuStreamSynchronize, nullptr); });
  }
  template <class Work>
  void on_other(Work work) const {
    const CurrentContext current{the_driver(), with.other.context()};
    work();
  }
  std::jthread opener;
};

}  // namespace

TEST_CASE("a copy on the stream of its memory follows the work of that GPU, and not that of the current context") {
  Behind behind;
  for (const u64 bytes : {u64{100}, 1_MiB}) {
    CAPTURE(bytes);
    const auto data = random_bytes(bytes, 120);
    const PinnedMemory pinned{the_driver(), bytes, 0};
    std::memcpy(pinned.data(), data.data(), bytes);
    auto prepared = behind.transfers.prepare({behind.elsewhere.at(), pinned.data(), bytes, stream_of_memory});
    for (const bool again : {false, true}) {
      std::memset(behind.elsewhere.at(), 0, bytes);
      behind.close();
      behind.fill(std::byte{7}, bytes);
      if (again) prepared.run();
      else behind.transfers.copy({behind.elsewhere.at(), pinned.data(), bytes, stream_of_memory});
      CHECK_FALSE(same(behind.elsewhere.at(), data.data(), bytes));
      behind.open();
      behind.finish();
      CHECK(same(behind.elsewhere.at(), data.data(), bytes));
    }
  }
  CHECK(behind.transfers.latest_fallback().empty());
}

TEST_CASE("pageable copies on the stream of their memory read what the work before them wrote") {
  Behind behind;
  for (const u64 bytes : {u64{100}, 1_MiB}) {
    CAPTURE(bytes);
    Bytes back(bytes);
    behind.close();
    behind.fill(std::byte{9}, bytes);
    behind.open_soon();
    behind.transfers.copy({back.data(), behind.elsewhere.at(), bytes, stream_of_memory});
    CHECK(back == Bytes(bytes, std::byte{9}));
    behind.close();
    behind.fill(std::byte{5}, bytes);
    behind.open_soon();
    AsynchronousCopy copy{behind.transfers, {back.data(), behind.elsewhere.at(), bytes, stream_of_memory}};
    copy.wait();
    CHECK(back == Bytes(bytes, std::byte{5}));
  }
  CHECK(behind.transfers.latest_fallback().empty());
}

TEST_CASE("blocks and files on the stream of their memory follow the work of that GPU") {
  Behind behind;
  Bytes back(64_KiB);
  std::vector<Block> blocks;
  for (u64 at = 0; at < back.size(); at += 4_KiB)
    blocks.push_back({reinterpret_cast<u64>(back.data() + at), reinterpret_cast<u64>(behind.elsewhere.at(at)), 4_KiB});
  behind.close();
  behind.fill(std::byte{3}, back.size());
  behind.open_soon();
  behind.transfers.copy_blocks(blocks, stream_of_memory);
  CHECK(back == Bytes(back.size(), std::byte{3}));

  const auto data = random_bytes(64_KiB, 121);
  const File file{data};
  ReadCounts read;
  WriteCounts written;
  Progress progress, saved;
  behind.close();
  behind.fill(std::byte{4}, data.size());
  behind.open_soon();
  behind.transfers.read(FileReader{file.path.string()}, {{{0, data.size(), behind.elsewhere.at()}}}, stream_of_memory,
                        read, progress);
  behind.finish();
  CHECK(same(behind.elsewhere.at(), data.data(), data.size()));

  behind.close();
  behind.fill(std::byte{6}, back.size());
  behind.open_soon();
  behind.transfers.save(file.path.string(), {{{behind.elsewhere.at(), back.size(), stream_of_memory}}}, false, written,
                        saved);
  const Bytes expected(back.size(), std::byte{6});
  const FileReader again{file.path.string()};
  ReadCounts counts;
  again.read(back.data(), 0, back.size(), counts);
  CHECK(back == expected);
}

TEST_CASE("a copy in the background between two GPUs on a default stream reads what the other GPU wrote before") {
  for (const Options& options : {with_helpers(), by_kernels(false)}) {
    Behind behind;
    Transfers transfers{options};
    const u64 bytes = 1_MiB;
    for (const CUstream stream : {stream_of_memory, CUstream{}, CU_STREAM_LEGACY}) {
      std::memset(behind.elsewhere.at(), 0, bytes);
      behind.close();
      behind.fill(std::byte{8}, bytes);
      AsynchronousCopy copy{transfers, {behind.with.on_gpu(), behind.elsewhere.at(), bytes, stream}};
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
      CHECK_FALSE(copy.has_ended());
      behind.open();
      copy.wait();
      CHECK(same(behind.with.on_gpu(), Bytes(bytes, std::byte{8}).data(), bytes));
    }
    CHECK(transfers.latest_fallback().empty());
  }
}

TEST_CASE("a copy between two ranges of host memory follows the default stream of a context that is not primary") {
  const Application with;
  Transfers transfers{small_chunks()};
  const u64 bytes = 1_MiB;
  const auto data = random_bytes(bytes, 123);
  std::memcpy(with.on_gpu(), data.data(), bytes);
  const PinnedMemory from{the_driver(), bytes, 0}, word{the_driver(), 4096, 0};
  std::memset(from.data(), 0, bytes);
  std::memset(word.data(), 0, 4);
  const auto create = driver_function<PFN_cuCtxCreate_v12050>("cuCtxCreate", 12050);
  const auto destroy = driver_function<PFN_cuCtxDestroy_v4000>("cuCtxDestroy", 4000);
  CUcontext own = nullptr;
  REQUIRE(create(&own, nullptr, 0, with.gpu.facts().handle) == CUDA_SUCCESS);
  LINKSCOPE_CU(the_driver(), cuStreamWaitValue32, nullptr, reinterpret_cast<CUdeviceptr>(word.data()), 1,
               CU_STREAM_WAIT_VALUE_EQ);
  LINKSCOPE_CU(the_driver(), cuMemcpyDtoHAsync, from.data(), reinterpret_cast<CUdeviceptr>(with.on_gpu()), bytes,
               nullptr);
  Bytes to(bytes);
  {
    const std::jthread opener{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
      std::atomic_ref{*reinterpret_cast<unsigned*>(word.data())} = 1;
    }};
    transfers.copy({to.data(), from.data(), bytes, nullptr});
  }
  CHECK(to == data);
  CHECK(destroy(own) == CUDA_SUCCESS);
  with.gpu.use();
}

TEST_CASE("between two ranges of host memory the stream of the memory is the default stream of the current context") {
  const Application with;
  Transfers transfers{small_chunks()};
  Bytes host(2_MiB);
  const auto data = random_bytes(host.size(), 122);
  for (const u64 bytes : {u64{100}, 2_MiB}) {
    std::fill(host.begin(), host.end(), std::byte{0});
    transfers.copy({host.data(), data.data(), bytes, stream_of_memory});
    LINKSCOPE_CU(the_driver(), cuStreamSynchronize, nullptr);
    CHECK(same(host.data(), data.data(), bytes));
  }
}
