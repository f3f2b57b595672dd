#include "system_calls.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <mutex>

namespace linkscope {
namespace {

struct Plan {
  std::mutex mutex;
  std::string kind;
  u64 after = 0, times = 0;
  int error = 0;
  std::map<std::string, u64> calls;
};

Plan& plan() {
  static auto* made = new Plan;  // calls come until the end of the process
  return *made;
}

std::atomic<bool> has_plan{false};
std::atomic<std::int64_t> mappings{0};

const char* kind_of_open(int flags) {
  if (flags & O_CREAT) return "open O_CREAT";
  if ((flags & O_DIRECTORY) == O_DIRECTORY) return "open O_DIRECTORY";
  return flags & O_DIRECT ? "open O_DIRECT" : "open";
}

}  // namespace

FailingSystem::FailingSystem(const std::string& kind, u64 after, u64 times, int error) {
  const std::lock_guard held{plan().mutex};
  plan().kind = kind;
  plan().after = after;
  plan().times = times;
  plan().error = error;
  plan().calls.clear();
  has_plan = true;
}

FailingSystem::~FailingSystem() { has_plan = false; }

std::map<std::string, u64> system_calls() {
  const std::lock_guard held{plan().mutex};
  return plan().calls;
}

bool system_call_fails(const std::string& kind) {
  if (!has_plan) return false;
  const std::lock_guard held{plan().mutex};
  const u64 before = plan().calls[kind]++;
  if (kind != plan().kind || before < plan().after || before - plan().after >= plan().times) return false;
  errno = plan().error;
  return true;
}

std::int64_t live_mappings() { return mappings; }

}  // namespace linkscope

using linkscope::system_call_fails;

// The others are in the tests of files that are read and written, which change them in other ways too.
extern "C" {
int __real_open(const char*, int, ...);
int __wrap_open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  return system_call_fails(linkscope::kind_of_open(flags)) ? -1 : __real_open(path, flags, mode);
}
// As in Linux, the descriptor is gone also after an error.
int __real_close(int);
int __wrap_close(int file) {
  const bool fails = system_call_fails("close");
  const int error = errno, status = __real_close(file);
  if (fails) errno = error;
  return fails ? -1 : status;
}
void* __real_mmap(void*, size_t, int, int, int, off_t);
void* __wrap_mmap(void* start, size_t bytes, int access, int flags, int file, off_t offset) {
  if (system_call_fails("mmap")) return MAP_FAILED;
  void* made = __real_mmap(start, bytes, access, flags, file, offset);
  if (made != MAP_FAILED) ++linkscope::mappings;
  return made;
}
int __real_munmap(void*, size_t);
int __wrap_munmap(void* start, size_t bytes) {
  --linkscope::mappings;
  return __real_munmap(start, bytes);
}
#define WRAP(name, parameters, arguments) \
  int __real_##name parameters;           \
  int __wrap_##name parameters { return system_call_fails(#name) ? -1 : __real_##name arguments; }
WRAP(fstat, (int file, struct stat* facts), (file, facts))
WRAP(stat, (const char* path, struct stat* facts), (path, facts))
WRAP(fstatfs, (int file, struct statfs* facts), (file, facts))
WRAP(access, (const char* path, int mode), (path, mode))
WRAP(fchmod, (int file, mode_t mode), (file, mode))
WRAP(unlink, (const char* path), (path))
WRAP(poll, (pollfd * files, nfds_t count, int ms), (files, count, ms))
WRAP(madvise, (void* start, size_t bytes, int advice), (start, bytes, advice))
#undef WRAP
#define WRAP(name)                                                                                            \
  ssize_t __real_##name(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);      \
  ssize_t __wrap_##name(pid_t process, const iovec* local, unsigned long count, const iovec* remote,          \
                        unsigned long remote_count, unsigned long flags) {                                    \
    return system_call_fails(#name) ? -1 : __real_##name(process, local, count, remote, remote_count, flags); \
  }
WRAP(process_vm_readv)
WRAP(process_vm_writev)
#undef WRAP
}
