// CPU threads of one NUMA node that share timed work. They exist before the timing begins, because a thread takes tens
// of microseconds to start or to wake.
#pragma once
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/units.hpp"

namespace linkscope {

class Crew {
 public:
  /// `count` threads, of which the caller of run() is one.
  Crew(u32 node, u32 count);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  [[nodiscard]] u32 size() const { return static_cast<u32>(threads_.size()) + 1; }
  /// Wakes them, untimed: for some milliseconds they poll for work.
  void wake();
  /// Runs work(part) for every part below size(), each in its own thread; returns when all are done.
  void run(const std::function<void(u32)>& work);

 private:
  std::atomic<u64> signal_{0}, jobs_{0};
  std::atomic<u32> left_{0};
  std::atomic<bool> ends_{false};
  const std::function<void(u32)>* work_ = nullptr;
  std::vector<std::jthread> threads_;  // last: the threads use the members above

  void serve(u32 node, u32 part);
};

}  // namespace linkscope
