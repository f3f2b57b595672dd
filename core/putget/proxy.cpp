#include "putget/proxy.hpp"

#include <algorithm>
#include <chrono>

namespace linkscope {

using namespace std::chrono_literals;

Proxy::Proxy() : thread_{[this] { run(); }} {}

Proxy::~Proxy() {
  {
    const std::lock_guard lock{mutex_};
    stops_ = true;
  }
  added_.notify_all();
  thread_.join();
}

void Proxy::add(ServedRing& ring) {
  ++changing_;
  {
    const std::lock_guard lock{mutex_};
    rings_.push_back(&ring);
  }
  --changing_;
  added_.notify_all();
}

void Proxy::remove(ServedRing& ring) {
  ++changing_;
  const std::lock_guard lock{mutex_};
  std::erase(rings_, &ring);
  --changing_;
}

void Proxy::run() {
  // A thread that sleeps answers late, and one that never sleeps takes a core from the application.
  constexpr unsigned attentive = 20'000, between_questions = 100;
  for (unsigned idle_looks = 0; !stops_; ++idle_looks) {
    while (changing_ > 0) std::this_thread::yield();  // this thread would take the lock again at once
    std::unique_lock lock{mutex_};
    added_.wait(lock, [&] { return stops_ || !rings_.empty(); });
    bool idle = true;
    for (auto* ring : rings_) idle = !ring->serve() && idle;
    if (!idle) idle_looks = 0;
    if (idle_looks < attentive) continue;
    if (idle_looks % between_questions == 0)
      for (auto* ring : rings_) ring->look_after();
    lock.unlock();
    std::this_thread::sleep_for(20us);
  }
}

}  // namespace linkscope
