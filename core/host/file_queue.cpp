#include "host/file_queue.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr Seconds for_ever{1e6};  // the destructor waits for the kernel, which always answers
constexpr u32 most_threads = 64;

class Threads final : public FileQueue::Engine {
 public:
  explicit Threads(u32 count) {
    for (u32 i = 0; i < std::min(count, most_threads); ++i) threads_.emplace_back([this] { serve(); });
  }
  ~Threads() override {
    {
      const std::lock_guard lock{guard_};
      ends_ = true;
    }
    asked_.notify_all();
  }

  void start(u64 slot, const FileRequest& request) override {
    {
      const std::lock_guard lock{guard_};
      waiting_.push_back({slot, request});
    }
    asked_.notify_one();
  }

  bool wait(Seconds patience, Result& result) override {
    std::unique_lock lock{guard_};
    if (!done_one_.wait_for(lock, patience, [this] { return !done_.empty(); })) return false;
    result = done_.front();
    done_.pop_front();
    return true;
  }

 private:
  struct Job {
    u64 slot = 0;
    FileRequest request;
  };

  void serve() {
    std::unique_lock lock{guard_};
    while (true) {
      asked_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const Job job = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const FileRequest& r = job.request;
      const auto offset = static_cast<off_t>(r.offset);
      const ssize_t moved =
          r.write ? pwrite(r.file->get(), r.at, r.bytes, offset) : pread(r.file->get(), r.at, r.bytes, offset);
      const std::int64_t result = moved < 0 ? -errno : moved;
      lock.lock();
      done_.push_back({job.slot, result});
      done_one_.notify_one();
    }
  }

  std::mutex guard_;
  std::condition_variable asked_, done_one_;
  std::deque<Job> waiting_;
  std::deque<Result> done_;
  bool ends_ = false;
  std::vector<std::jthread> threads_;  // last: the threads use the members above
};

[[noreturn]] void too_short(const FileRequest& r) {
  throw Error{ErrorKind::failed, r.file->path() + ": it ends at byte " + std::to_string(r.file->bytes()) +
                                     ", and bytes up to " + std::to_string(r.offset + r.bytes) + " were wanted"};
}

}  // namespace

const char* to_string(FileEngine engine) { return engine == FileEngine::io_uring ? "io_uring" : "threads with pread"; }

std::unique_ptr<FileQueue::Engine> thread_engine(u32 count) { return std::make_unique<Threads>(count); }

FileQueue::FileQueue(u32 depth, FileEngine wanted, std::span<const std::span<std::byte>> buffers)
    : depth_{depth}, slots_{std::make_unique<FileRequest[]>(depth)} {
  if (depth == 0) throw Error{ErrorKind::usage, "a queue of files has room for one request at least"};
  if (wanted == FileEngine::io_uring) does_ = uring_engine(depth, buffers, why_no_uring_);
  engine_ = does_ ? FileEngine::io_uring : FileEngine::threads;
  if (!does_) does_ = thread_engine(depth);
}

FileQueue::~FileQueue() {
  Engine::Result ignored;
  while (in_flight_ > 0 && does_->wait(for_ever, ignored)) --in_flight_;
}

void FileQueue::check(const FileRequest& r) const {
  if (in_flight_ == depth_)
    throw Error{ErrorKind::usage, std::to_string(depth_) + " requests are in flight, which is the depth of the queue"};
  const u64 granule = r.file->granule();
  if (reinterpret_cast<u64>(r.at) % granule != 0 || r.bytes % granule != 0 || r.offset % granule != 0)
    throw Error{ErrorKind::usage, r.file->path() +
                                      ": direct requests have addresses, offsets and lengths in multiples of " +
                                      std::to_string(granule) + " B"};
}

void FileQueue::start(const FileRequest& request) {
  check(request);
  const auto free = std::find_if(slots_.get(), slots_.get() + depth_, [](const FileRequest& r) { return !r.file; });
  *free = request;
  does_->start(static_cast<u64>(free - slots_.get()), request);
  ++in_flight_;
}

u64 FileQueue::wait(Seconds patience) {
  if (in_flight_ == 0) throw Error{ErrorKind::usage, "no request is in flight"};
  const auto end = std::chrono::steady_clock::now() + patience;
  while (true) {
    Engine::Result result;
    const Seconds left = end - std::chrono::steady_clock::now();
    if (!does_->wait(std::max(left, Seconds{0}), result))
      throw Error{ErrorKind::timeout, "no request to a file ended within " + std::to_string(patience.count()) + " s"};
    FileRequest& rest = slots_[result.slot];
    const bool again = result.moved == -EINTR || result.moved == -EAGAIN;
    if (!again && result.moved >= 0 && static_cast<u64>(result.moved) < rest.bytes && result.moved > 0) {
      // A part was moved: the rest follows.
      const auto moved = static_cast<u64>(result.moved);
      rest.at += moved, rest.offset += moved, rest.bytes -= moved;
      does_->start(result.slot, rest);
      continue;
    }
    if (again) {
      does_->start(result.slot, rest);
      continue;
    }
    const FileRequest done = std::exchange(rest, {});
    --in_flight_;
    if (result.moved < 0)
      file_failed(done.file->path(), done.write ? "it cannot be written" : "it cannot be read",
                  static_cast<int>(-result.moved));
    if (static_cast<u64>(result.moved) < done.bytes) too_short(done);
    return done.tag;
  }
}

}  // namespace linkscope
