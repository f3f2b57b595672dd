// CPU threads that move chunks for the callers of the library. They sleep while no copy is under way.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "transfer/progress.hpp"

namespace linkscope {

class Movers {
 public:
  Movers();
  ~Movers();
  Movers(const Movers&) = delete;
  Movers& operator=(const Movers&) = delete;

  /// Calls work(part) for part 0 by the caller, and for the parts below `parts` by as many threads as are idle before
  /// the caller has finished. Returns when all calls have returned. The work must not throw, and must be complete when
  /// part 0 alone is done. Several threads may call this at once.
  void run(u32 parts, const std::function<void(u32)>& work);

 private:
  struct Job {
    const std::function<void(u32)>* work;
    u32 next, parts, running;
  };
  void serve();
  void start_threads(u32 wanted);
  int process_;  // in which the threads are: a child of fork() has none, and a lock may never open there
  std::mutex mutex_;
  std::condition_variable offered_, left_;
  std::deque<Job*> jobs_;  // those with a part for another thread
  bool ends_ = false;
  std::vector<std::jthread> threads_;  // last: the threads use the members above
};

/// Calls work(i) for every i below `count`, by at most `threads` threads. Ends early at the first failure, which it throws,
/// and when the copy is cancelled; then it throws Cancelled.
void share_out(Movers&, u64 count, u32 threads, const Progress&, const std::function<void(u64)>& work);

}  // namespace linkscope
