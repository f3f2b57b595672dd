// Which file lies behind memory that a program maps with MAP_SHARED.
#pragma once
#include <linux/magic.h>
#include <sys/vfs.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/units.hpp"

namespace linkscope {

/// The path of a file that a page of the range maps with MAP_SHARED and for writing; "" if none does. Files on tmpfs and
/// huge pages do not count. The kernel writes the changed pages of other files to a disk. Linux 6.5 and later do not pin
/// such pages for a device that writes.
[[nodiscard]] inline std::string shared_file(const void* start, u64 bytes) {
  const auto begin = reinterpret_cast<unsigned long>(start);
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) {
    unsigned long first = 0, end = 0;
    char rights[5]{};
    int path = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %*s %n", &first, &end, rights, &path) < 3) continue;
    if (end <= begin || first >= begin + bytes || rights[1] != 'w' || rights[3] != 's') continue;
    const std::string name = path > 0 ? line.substr(static_cast<std::size_t>(path)) : "";
    // The folder, as the file may be deleted. Memory without a file has names in the root: /memfd:NAME, /SYSV00000000.
    const std::string folder = std::filesystem::path{name}.parent_path();
    struct statfs on{};
    const auto& known = name.ends_with(" (deleted)") && folder != "/" ? folder : name;
    if (name.starts_with('/') && statfs(known.c_str(), &on) == 0 && on.f_type != TMPFS_MAGIC &&
        on.f_type != HUGETLBFS_MAGIC)
      return name;
  }
  return "";
}

}  // namespace linkscope
