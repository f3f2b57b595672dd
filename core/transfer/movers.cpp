#include "transfer/movers.hpp"

#include <unistd.h>

#include <csignal>

#include <algorithm>
#include <atomic>
#include <exception>

namespace linkscope {
namespace {

/// Blocks all signals while it lives. New threads inherit this: the application's handlers run in its own threads.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &callers_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &callers_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t callers_{};
};

}  // namespace

Movers::Movers() : process_{getpid()} {}

Movers::~Movers() {
  {
    const std::lock_guard lock{mutex_};
    ends_ = true;
  }
  offered_.notify_all();
}

void Movers::start_threads(u32 wanted) {
  const WithoutSignals blocked;
  while (threads_.size() < wanted) threads_.emplace_back([this] { serve(); });
}

void Movers::run(u32 parts, const std::function<void(u32)>& work) {
  if (parts > 1 && getpid() != process_) parts = 1;
  Job job{&work, 1, parts, 0};
  if (parts > 1) {
    const std::lock_guard lock{mutex_};
    try {
      start_threads(parts - 1);
    } catch (const std::system_error&) {
      // The limit of threads is reached. Those that exist share the work.
    }
    jobs_.push_back(&job);
  }
  if (parts > 1) offered_.notify_all();
  work(0);
  if (parts <= 1) return;
  std::unique_lock lock{mutex_};
  std::erase(jobs_, &job);
  left_.wait(lock, [&] { return job.running == 0; });
}

void Movers::serve() {
  std::unique_lock lock{mutex_};
  for (;;) {
    offered_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (ends_) return;
    Job& job = *jobs_.front();
    const u32 part = job.next++;
    ++job.running;
    if (job.next >= job.parts) jobs_.pop_front();
    lock.unlock();
    (*job.work)(part);
    lock.lock();
    if (--job.running == 0) left_.notify_all();
  }
}

void share_out(Movers& movers, u64 count, u32 threads, const Progress& progress, const std::function<void(u64)>& work) {
  std::atomic<u64> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  movers.run(static_cast<u32>(std::clamp<u64>(count, 1, threads)), [&](u32) {
    try {
      for (u64 i = next++; i < count && !progress.cancelled; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock{mutex};
      failure = std::current_exception();
      next = count;
    }
  });
  if (failure) std::rethrow_exception(failure);
  if (progress.cancelled) throw Cancelled{};
}

}  // namespace linkscope
