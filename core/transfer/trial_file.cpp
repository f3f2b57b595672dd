#include "transfer/trial_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.hpp"

namespace linkscope {
namespace {

using namespace literals;

/// Random, because some disks compress.
std::vector<std::byte> random_data(u64 bytes) {
  std::mt19937_64 random{bytes};
  std::vector<std::byte> data(bytes + 8);
  for (u64 at = 0; at < bytes; at += 8) {
    const u64 word = random();
    std::memcpy(data.data() + at, &word, 8);
  }
  data.resize(bytes);
  return data;
}

Descriptor memory_file(u64 bytes) {
  Descriptor file{memfd_create("linkscope", MFD_CLOEXEC)};
  const auto data = random_data(std::min(bytes, u64{4_MiB}));
  for (u64 at = 0; file && at < bytes;) {
    const ssize_t put = pwrite(file.get(), data.data(), std::min<u64>(data.size(), bytes - at), static_cast<off_t>(at));
    if (put <= 0) file = {};
    else at += static_cast<u64>(put);
  }
  if (!file)
    throw Error{ErrorKind::memory, "no file of " + bytes_text(bytes) + " can be made in memory: " + strerror(errno)};
  return file;
}

}  // namespace

TrialFile::TrialFile(const std::string& directory, u64 bytes) : directory_{directory}, bytes_{bytes} {
  if (directory.empty()) {
    in_memory_ = memory_file(bytes);
    return;
  }
  if (const auto why = why_no_scratch_file(directory, bytes); !why.empty()) throw Error{ErrorKind::failed, why};
  on_disk_ = {directory, bytes};
  // Space that was only reserved is read without the disk.
  const auto data = random_data(std::min(bytes, u64{4_MiB}));
  for (u64 at = 0; at < bytes; at += data.size())
    std::memcpy(on_disk_.data() + at, data.data(), std::min<u64>(data.size(), bytes - at));
}

std::string TrialFile::path() const {
  return "/proc/self/fd/" + std::to_string(in_memory_ ? in_memory_.get() : on_disk_.buffered());
}

void TrialFile::prepare(bool is_cold, u64 bytes) const {
  constexpr double some = 0.1;
  if (in_memory_) {
    if (is_cold) throw Error{ErrorKind::failed, "a file in memory never leaves it; name a directory on a disk"};
    return;
  }
  if (!is_cold) return on_disk_.touch(bytes);
  on_disk_.evict();
  if (on_disk_.cached_share(bytes) > some)
    throw Error{ErrorKind::failed, "files in " + directory_ + " stay in memory; name a directory on a disk"};
}

}  // namespace linkscope
