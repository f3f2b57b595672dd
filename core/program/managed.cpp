#include "program/managed.hpp"

#include <algorithm>

namespace linkscope {

u64 managed_bytes(const Program& program) {
  u64 bytes = 0;
  for (const auto& region : program.regions)
    if (pages_move(region.kind)) bytes += region.bytes;
  return bytes;
}

std::string why_no_managed(const Program& program, const Place& gpu, u64 free_bytes) {
  const u64 wanted = managed_bytes(program), most = std::min(most_managed, free_bytes / 10);
  if (wanted <= most) return "";
  const auto why = most == most_managed ? "" : ", a tenth of what " + to_string(gpu) + " has free";
  return "managed memory is taken in small amounts only: the program wants " + bytes_text(wanted) + " of it, and " +
         bytes_text(most) + why + ", is the most";
}

}  // namespace linkscope
