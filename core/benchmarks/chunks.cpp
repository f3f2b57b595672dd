#include "benchmarks/chunks.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace linkscope {

u64 chunk_bytes(const Case& c) {
  const auto text = c.param("chunk", "1MiB");
  const auto found = std::find_if(chunks.begin(), chunks.end(), [&](const auto& one) { return one.first == text; });
  const u64 chunk = found->second == 0 ? c.bytes : std::min(found->second, c.bytes);
  if (c.bytes % chunk != 0)
    throw Error{ErrorKind::usage, c.benchmark + ": " + std::to_string(c.bytes) + " B is no whole number of chunks of " +
                                      bytes_text(chunk) + "; sizes are multiples of the chunk, or smaller"};
  return chunk;
}

Param chunk_param(std::string_view says) {
  Param param{"chunk", {}, says};
  for (const auto& [text, bytes] : chunks) param.values.push_back(text);
  return param;
}

Seconds chunk_timeout(u64 chunk, Seconds least) {
  constexpr double slowest_rate = 0.02e9;  // B/s of a chunk that still arrives
  return least + Seconds{static_cast<double>(chunk) / slowest_rate};
}

}  // namespace linkscope
