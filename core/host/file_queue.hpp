// Reads and writes of files with many requests in flight: by io_uring, or with pread and pwrite in threads where the kernel
// refuses io_uring.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/units.hpp"
#include "host/files.hpp"

namespace linkscope {

struct FileRequest {
  const BulkFile* file = nullptr;
  std::byte* at = nullptr;  // read into, or written from; owned by the caller until the request is done
  u64 bytes = 0, offset = 0;
  bool write = false;
  u64 tag = 0;  // returned by wait()
};

/// How a queue makes its requests. `threads` is the better one for files in the page cache, which io_uring copies in the
/// calling thread.
enum class FileEngine : u8 { io_uring, threads };
[[nodiscard]] const char* to_string(FileEngine);

class FileQueue {
 public:
  /// `depth` requests in flight at most. `buffers`: memory that requests use again and again; io_uring pins it once if
  /// the kernel allows. Throws Error{usage} for depth 0.
  explicit FileQueue(u32 depth, FileEngine wanted = FileEngine::io_uring,
                     std::span<const std::span<std::byte>> buffers = {});
  /// Waits for all requests in flight, because their memory is the caller's.
  ~FileQueue();
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  /// Starts a request. Throws Error{usage} if `depth` are in flight, or if a direct request is not made of granules.
  void start(const FileRequest&);
  /// The tag of a request that is complete, after at most `patience`. Throws Error{failed} if the request failed or the
  /// file is shorter, and Error{timeout}; other requests stay in flight.
  u64 wait(Seconds patience);

  [[nodiscard]] u32 in_flight() const { return in_flight_; }
  [[nodiscard]] u32 depth() const { return depth_; }
  [[nodiscard]] FileEngine engine() const { return engine_; }
  /// Why threads do the work although io_uring was wanted; "" otherwise.
  [[nodiscard]] const std::string& why_no_uring() const { return why_no_uring_; }

  /// What both engines do. A result is a number of bytes, or a negative errno.
  struct Engine {
    struct Result {
      u64 slot = 0;
      std::int64_t moved = 0;
    };
    virtual ~Engine() = default;
    virtual void start(u64 slot, const FileRequest&) = 0;
    /// False after `patience` without a result.
    virtual bool wait(Seconds patience, Result&) = 0;
  };

 private:
  void check(const FileRequest&) const;
  u32 depth_ = 0, in_flight_ = 0;
  FileEngine engine_ = FileEngine::threads;
  std::string why_no_uring_;
  std::unique_ptr<FileRequest[]> slots_;  // the rest of each request in flight; no file: free
  std::unique_ptr<Engine> does_;
};

/// An io_uring; null with the reason if the kernel refuses it.
[[nodiscard]] std::unique_ptr<FileQueue::Engine> uring_engine(u32 depth, std::span<const std::span<std::byte>> buffers,
                                                              std::string& why_not);
/// `count` threads with pread and pwrite.
[[nodiscard]] std::unique_ptr<FileQueue::Engine> thread_engine(u32 count);

}  // namespace linkscope
