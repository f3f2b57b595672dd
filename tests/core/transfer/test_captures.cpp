// What an application may do while it captures a stream into a graph.
#include "random_blocks.hpp"
#include "transfer/asynchronous.hpp"

using namespace linkscope;

namespace {

/// Launches the graph on the stream and waits for its end.
void launch(CUgraph graph, CUstream stream) {
  const ReadyGraph ready{the_driver(), graph};
  LINKSCOPE_CU(the_driver(), cuGraphLaunch, ready.get(), stream);
  LINKSCOPE_CU(the_driver(), cuStreamSynchronize, stream);
}

}  // namespace

TEST_CASE("a copy in the background is refused on a captured stream with the cure, and the capture goes on") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(1_MiB, 180);
  const CopyRequest request{with.on_gpu(), source.data(), source.size(), with.stream->get()};
  REQUIRE(std::string{transfers.method_of(request)} == "ring_to_gpu");  // now the library holds the GPU's context
  const u64 held = fake().held();
  const Capture capture{with.stream->get()};
  CHECK(error_of([&] {
          const AsynchronousCopy refused{transfers, request};
        }).find("captured into a graph, and a copy in the background cannot be; start it before or after") !=
        std::string::npos);
  CHECK(fake().held() == held);
  transfers.copy(request);
  const CUgraph graph = capture.end();
  CHECK_FALSE(same(with.on_gpu(), source.data(), source.size()));
  launch(graph, with.stream->get());
  CHECK(same(with.on_gpu(), source.data(), source.size()));
  the_driver().cuGraphDestroy(graph);
  std::memset(with.on_gpu(), 0, source.size());
  AsynchronousCopy after{transfers, request};
  after.wait();
  CHECK(same(with.on_gpu(), source.data(), source.size()));
}

TEST_CASE("a copy in the background goes on while another stream is captured") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(4_MiB, 181);
  Bytes back(source.size());
  const Stream other{the_driver()};
  const Capture capture{with.stream->get()};
  AsynchronousCopy there{transfers, {with.on_gpu(), source.data(), source.size(), other.get()}};
  there.wait();
  AsynchronousCopy home{transfers, {back.data(), with.on_gpu(), back.size(), other.get()}};
  home.wait();
  CHECK(back == source);
  CHECK(transfers.fallbacks() == 0);
  the_driver().cuGraphDestroy(capture.end());
}

TEST_CASE("captured blocks of every kind of memory are one copy each of the graph, which repeats them") {
  const Application with;
  const PinnedMemory pinned{the_driver(), block_space, 0};
  Bytes pageable(block_space);
  const Ends ends[] = {{with.on_gpu(), pinned.data()},
                       {pinned.data(), with.on_gpu()},
                       {with.on_gpu(), with.on_gpu(1_MiB)},
                       {with.on_gpu(), pageable.data()},
                       {pageable.data(), with.on_gpu()}};
  for (const auto& [dst, src] : ends) {
    Transfers transfers{small_chunks()};
    std::vector<Block> blocks;
    for (u64 at = 0; at < block_space; at += 8_KiB)
      blocks.push_back({reinterpret_cast<u64>(dst + at), reinterpret_cast<u64>(src + at), 4_KiB});
    const auto first = random_bytes(block_space, 182), second = random_bytes(block_space, 183);
    std::memcpy(src, first.data(), block_space);
    std::memset(dst, 0, block_space);
    const Capture capture{with.stream->get()};
    fake().fail(nullptr, 0, 0, 0);
    transfers.copy_blocks(blocks, with.stream->get());
    CHECK(fake().calls("cuMemcpyAsync") == blocks.size());
    CHECK(fake().calls("cuLaunchKernel") == 0);
    const CUgraph graph = capture.end();
    CHECK(transfers.arena_bytes() == 0);  // the graph would use slots that other copies have meanwhile
    CHECK_FALSE(same(dst, first.data(), 4_KiB));
    for (const auto& data : {first, second}) {
      std::memcpy(src, data.data(), block_space);
      launch(graph, with.stream->get());
      for (u64 at = 0; at < block_space; at += 8_KiB) CHECK(same(dst + at, data.data() + at, 4_KiB));
      CHECK_FALSE(same(dst + 4_KiB, data.data() + 4_KiB, 4_KiB));
    }
    the_driver().cuGraphDestroy(graph);
  }
}

TEST_CASE("the legacy default stream is refused while another stream is captured, before the driver ends the capture") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(1_MiB, 184);
  const std::vector<Block> blocks{{with.memory.address(), reinterpret_cast<u64>(source.data()), source.size()}};
  const CopyRequest request{with.on_gpu(), source.data(), source.size(), nullptr};
  const Capture capture{with.stream->get()};
  fake().fail(nullptr, 0, 0, 0);
  for (const auto& error :
       {error_of([&] { transfers.copy(request); }), error_of([&] { transfers.copy_blocks(blocks, stream_of_memory); }),
        error_of([&] { const AsynchronousCopy refused{transfers, request}; })})
    CHECK_MESSAGE(
        error.find("legacy default stream cannot be used while another stream is captured") != std::string::npos,
        error);
  CHECK(fake().calls("cuMemcpyAsync") + fake().calls("cuMemcpyHtoDAsync") == 0);
  the_driver().cuGraphDestroy(capture.end());
}
