// Hops through the memory of a helper, and the paths of a copy: who has them, their slots, and copies that fail on the way.
#include "transfer/hops.hpp"
#include "transfer/transfers.hpp"
#include "transfer_testing.hpp"

using namespace linkscope;

namespace {

constexpr u64 slot_bytes = 64_KiB;

CUdeviceptr address(const std::byte* start) { return reinterpret_cast<CUdeviceptr>(start); }

/// Options with helpers whose relays have these links and chunks.
Options relays(u32 links, u64 chunk) {
  Options options = with_helpers();
  for (const auto id : {MethodId::relay_to_gpu, MethodId::relay_to_host})
    options.set_all(id, {false, 2, chunk, 1, 2, 0, 0, 1, links}, 64_KiB);
  return options;
}

}  // namespace

TEST_CASE("a hop is of one copy at a time, and of another stream only when its work is done") {
  const Application with;
  Gpus gpus{the_driver()};
  Hops hops{the_driver(), gpus, slot_bytes};
  const Stream other{the_driver()};
  const CopyLane lane{0, current_context(), with.stream->get()}, other_lane{0, current_context(), other.get()};
  const PinnedMemory source{the_driver(), slot_bytes, 0};
  const Event before{the_driver(), CU_EVENT_DISABLE_TIMING};
  {
    const Gate gate{with};
    LINKSCOPE_CU(the_driver(), cuEventRecord, before.get(), lane.stream);
    {
      const auto hop = hops.relay(1, lane, Towards::gpu);
      REQUIRE(hop);
      CHECK_FALSE(hops.relay(1, lane, Towards::gpu));
      hop->wait_for(before.get());
      hop->queue(with.memory.address(), address(source.data()), slot_bytes);
      hop->join(lane);
    }
    CHECK(hops.relay(1, lane, Towards::gpu));
    CHECK_FALSE(hops.relay(1, other_lane, Towards::gpu));
    CHECK(hops.relay(1, other_lane, Towards::host));  // the other direction has a hop of its own
  }
  with.stream->synchronize();
  CHECK(hops.relay(1, other_lane, Towards::gpu));
}

TEST_CASE("a hop uses only the slots that it was given last") {
  const Application with;
  const LegPlace place{0, current_context()};
  Hop hop{the_driver(), place, place, 3};
  const auto slot = [&](u64 number) { return with.memory.address() + number * slot_bytes; };
  const auto data = random_bytes(slot_bytes, 310);
  std::memcpy(with.on_gpu(6 * slot_bytes), data.data(), slot_bytes);
  hop.use({slot(0), slot(1), slot(2)});
  for (int i = 0; i < 2; ++i) hop.queue(slot(7), slot(6), slot_bytes);
  REQUIRE(hop.finish());
  std::memset(with.on_gpu(), 0, 3 * slot_bytes);
  hop.use({slot(3), slot(4)});
  for (int i = 0; i < 3; ++i) hop.queue(slot(7), slot(6), slot_bytes);
  REQUIRE(hop.finish());
  CHECK(same(with.on_gpu(), Bytes(3 * slot_bytes).data(), 3 * slot_bytes));
  CHECK(same(with.on_gpu(7 * slot_bytes), data.data(), slot_bytes));
}

TEST_CASE("chunks of a relayed copy are no longer than the slots of its hops") {
  const Application with;
  Transfers transfers{relays(8, 4_MiB)};
  const auto data = random_bytes(6_MiB, 311);
  const PinnedMemory source{the_driver(), data.size(), 0}, back{the_driver(), data.size(), 0};
  std::memcpy(source.data(), data.data(), data.size());
  transfers.copy({with.on_gpu(), source.data(), data.size(), with.stream->get()});
  transfers.copy({back.data(), with.on_gpu(), data.size(), with.stream->get()});
  with.stream->synchronize();
  CHECK(same(back.data(), data.data(), data.size()));
  CHECK(transfers.count_of(MethodId::relay_to_gpu) + transfers.count_of(MethodId::relay_to_host) == 2);
  CHECK(transfers.latest_fallback().empty());
}

TEST_CASE("a copy takes no more helpers than its links allow") {
  const Application with;
  for (const u32 links : {2u, 3u}) {
    Transfers transfers{relays(links, 100_KiB)};
    const PinnedMemory source{the_driver(), 2_MiB, 0};
    fake().fail(nullptr, 0, 0, 0);
    transfers.copy({with.on_gpu(), source.data(), 2_MiB, with.stream->get()});
    CHECK(fake().calls("cuMemCreate") == links - 1);
    with.stream->synchronize();
  }
}
