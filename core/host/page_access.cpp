#include "host/page_access.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace linkscope {
namespace {

/// struct procmap_query of linux/fs.h, which older headers lack.
struct Query {
  u64 size, flags, address;  // asked
  u64 start, end, state, page_size, offset, inode;
  u32 major, minor, name_bytes, build_bytes;
  u64 name, build;
};
static_assert(sizeof(Query) == 104);
constexpr u64 readable = 1, writable = 2;  // PROCMAP_QUERY_VMA_READABLE, _WRITABLE
constexpr int query_number = 17;

}  // namespace

PageAccess::PageAccess() : maps_{open("/proc/self/maps", O_RDONLY | O_CLOEXEC)}, owner_{getpid()} {}

std::optional<u64> PageAccess::first_refused(const void* start, u64 bytes, Access access) const {
  if (!maps_ || getpid() != owner_) return {};
  const u64 begin = reinterpret_cast<u64>(start);
  for (u64 at = begin; at - begin < bytes;) {  // the end may be beyond the last address
    Query query{};
    query.size = sizeof(query);
    query.flags = access == Access::read ? readable : writable;
    query.address = at;
    if (ioctl(maps_.get(), _IOWR('f', query_number, Query), &query) == 0) at = query.end;
    else if (errno == ENOENT) return at - begin;
    else return {};
  }
  return {};
}

}  // namespace linkscope
