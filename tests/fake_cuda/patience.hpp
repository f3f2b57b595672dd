#pragma once
#include <chrono>
#include <thread>

namespace fake {

/// One wait for a word that another thread sets. That thread may need this core, and most waits are short: the waiting
/// thread yields at first, and sleeps between polls after 200 us.
class Patience {
 public:
  void pause() const {
    if (std::chrono::steady_clock::now() - start_ < std::chrono::microseconds{200}) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds{20});
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace fake
