// Slots of the arena and of hops: whose work delays them, when they are free again, and threads that stop.
#include <thread>

#include "transfer/asynchronous.hpp"
#include "transfer/ring.hpp"
#include "transfer_testing.hpp"

using namespace linkscope;

namespace {

constexpr u64 slot_bytes = 64_KiB;

/// Opens a gate when the work has ended, and after minutes if it has not: a test that would hang fails.
class Opener {
 public:
  explicit Opener(const Gate& gate)
      : thread_{[this, &gate] {
          for (int i = 0; i < 12'000 && !ended_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{10});
          was_late_ = !ended_;
          gate.open();
        }} {}
  /// The work has ended. Returns whether it had to wait for the gate.
  [[nodiscard]] bool waited() {
    ended_ = true;
    thread_.join();
    return was_late_;
  }

 private:
  std::atomic<bool> ended_{false}, was_late_{false};
  std::jthread thread_;
};

/// Uses a slot on a lane, behind the work that the lane has.
void use(Slot& slot, const CopyLane& lane) {
  const CurrentContext current{the_driver(), lane.context};
  slot.expose(lane);
  slot.guard(the_driver());
}

}  // namespace

TEST_CASE("a slot that waits for the default stream of one GPU is not taken for that of another") {
  const Application with;
  Arena arena{the_driver(), slot_bytes, slot_bytes};
  const CopyLane here{0, with.gpu.context(), nullptr}, there{1, with.other.context(), nullptr};
  const PinnedMemory word{the_driver(), 4096, 0};
  std::memset(word.data(), 0, 4);
  LINKSCOPE_CU(the_driver(), cuStreamWaitValue32, nullptr, reinterpret_cast<CUdeviceptr>(word.data()), 1,
               CU_STREAM_WAIT_VALUE_EQ);
  use(arena.take(1, here)[0], here);
  CHECK(arena.take(1, here).size() == 1);
  {
    const CurrentContext current{the_driver(), there.context};
    CHECK(arena.take(1, there).size() == 0);
  }
  std::atomic_ref{*reinterpret_cast<unsigned*>(word.data())} = 1;
  LINKSCOPE_CU(the_driver(), cuStreamSynchronize, nullptr);
}

TEST_CASE("a slot whose use failed before its event was recorded is free again when the lease ends") {
  const Application with;
  Arena arena{the_driver(), 2 * slot_bytes, slot_bytes};
  const CopyLane lane{0, current_context(), with.stream->get()};
  arena.take(2, lane)[0].expose(lane);
  CHECK(arena.take_free(2).size() == 2);
}

TEST_CASE("a copy whose chunks all fit into the ring of a kernel returns before the stream's earlier work is done") {
  const Application with;
  Transfers transfers{small_chunks_by_kernel()};
  const auto source = random_bytes(96_KiB, 300);
  const CopyRequest request{with.on_gpu(), source.data(), source.size(), with.stream->get()};
  transfers.copy(request);  // the arena has its slot, and the kernel is loaded
  with.stream->synchronize();
  std::memset(with.on_gpu(), 0, source.size());
  const Gate gate{with};
  Opener opener{gate};
  transfers.copy(request);
  CHECK_FALSE(opener.waited());
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), source.data(), source.size()));
  CHECK(transfers.latest_fallback().empty());
}

TEST_CASE("each thread of a copy has the slots of its depth") {
  const Application with;
  Transfers transfers{small_chunks()};
  const auto source = random_bytes(6_MiB, 301);
  transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()});
  CHECK(transfers.arena_bytes() >= 6 * 256_KiB);
}

TEST_CASE("a thread that waits for a slot stops when another thread of the copy fails") {
  const Application with;
  Arena arena{the_driver(), 2 * slot_bytes, slot_bytes};
  const CopyLane lane{0, current_context(), with.stream->get()};
  auto lease = arena.take(2, lane);
  const Gate gate{with};
  use(lease[1], lane);  // the second thread waits for this slot
  RingWork work;
  for (u64 i = 0; i < 4; ++i) work.chunks.push_back({i, 1, slot_bytes});
  work.by_cpu = [](std::byte*, Chunk) {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    throw Error{ErrorKind::failed, "no data"};
  };
  work.queue = [](std::byte*, Chunk) {};
  Movers movers;
  Progress progress;
  Opener opener{gate};
  CHECK(error_of([&] { SlotRing{the_driver(), lane, lease, 2}.to_gpu(work, movers, progress); }) == "no data");
  CHECK_FALSE(opener.waited());
}

TEST_CASE("a copy in the background that was cancelled ends when the GPU has finished with its chunks") {
  const Application with;
  Transfers transfers{small_chunks()};  // the arena is shorter than the copy
  const auto source = random_bytes(16_MiB, 302);
  const Gate gate{with};
  AsynchronousCopy copy{transfers, {with.on_gpu(), source.data(), source.size(), with.stream->get()}};
  while (copy.done_bytes() == 0) std::this_thread::yield();
  std::atomic<bool> opened{false};
  const std::jthread opener{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
    opened = true;
    gate.open();
  }};
  copy.cancel();
  CHECK_THROWS_AS(copy.wait(), Cancelled);
  CHECK(opened);
}
