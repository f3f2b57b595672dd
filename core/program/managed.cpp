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
  const auto why = most == most_managed ? "" : ", a tenth of the free memory of " + to_string(gpu);
  return "linkscope limits managed memory: the program needs " + bytes_text(wanted) + ", and the limit is " +
         bytes_text(most) + why;
}

}  // namespace linkscope
