// CPU threads that share the timed work.
#include <doctest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "host/crew.hpp"

using namespace linkscope;

TEST_CASE("a crew runs every part once per call, each part on its own thread, also after a pause") {
  for (const u32 size : {1u, 2u, 5u}) {
    CAPTURE(size);
    Crew crew{0, size};
    REQUIRE(crew.size() == size);
    std::vector<std::atomic<u32>> done(size);
    std::vector<std::thread::id> by(size);
    for (u32 round = 1; round <= 200; ++round) {
      if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds{30});  // lets the threads fall asleep
      if (round % 3 == 0) crew.wake();
      crew.run([&](u32 part) {
        ++done[part];
        by[part] = std::this_thread::get_id();
      });
      bool all = true;
      for (const auto& count : done) all = all && count == round;  // each part ran once, before run() returned
      REQUIRE(all);
    }
    CHECK(std::set(by.begin(), by.end()).size() == size);
    CHECK(by[0] == std::this_thread::get_id());
  }
}
