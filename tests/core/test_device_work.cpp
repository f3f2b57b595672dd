// Concurrent work of several GPUs. The tests use no GPU: the device pointer only identifies the queue of work.
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "doctest.h"
#include "gpu/device_work.hpp"

using namespace linkscope;

namespace {

Device* device(std::uintptr_t number) { return reinterpret_cast<Device*>(number * 64); }

}  // namespace

TEST_CASE("all work of one GPU is done, in its order") {
  std::vector<int> first, second;
  std::vector<DeviceWork> work;
  for (int i = 0; i < 50; ++i) {
    work.push_back({device(1), [&first, i] { first.push_back(i); }});
    work.push_back({device(2), [&second, i] { second.push_back(i); }});
  }
  side_by_side(work);
  REQUIRE(first.size() == 50);
  for (int i = 0; i < 50; ++i) CHECK((first[i] == i && second[i] == i));
}

TEST_CASE("the work of different GPUs runs concurrently") {
  std::atomic<bool> other{false};
  const auto wait = [&] {
    while (!other) std::this_thread::yield();
  };
  side_by_side({{device(1), wait}, {device(2), [&] { other = true; }}});
  CHECK(other);
}

TEST_CASE("a failure on one GPU is reported after all GPUs have ended") {
  for (const int failing : {0, 1, 2}) {
    std::atomic<int> done{0};
    std::vector<DeviceWork> work;
    for (int i = 0; i < 3; ++i)
      work.push_back({i == 0 ? nullptr : device(i), [&done, i, failing] {
                        if (i == failing) throw std::runtime_error{"lost"};
                        ++done;
                      }});
    CHECK_THROWS_WITH(side_by_side(work), "lost");
    CHECK(done == 2);
  }
  side_by_side({});
}
