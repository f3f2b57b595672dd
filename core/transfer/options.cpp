#include "transfer/options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "host/own_memory.hpp"

namespace linkscope {
namespace {

using namespace literals;

[[noreturn]] void refuse(const char* variable, std::string_view value, const char* wanted) {
  throw Error{ErrorKind::usage,
              std::string{variable} + "='" + std::string{value} + "' is not " + wanted + "; correct it or unset it"};
}

}  // namespace

Options::Options() {
  // Probes on H100 and H200 with 16 cores: 8 threads and chunks of 4 MiB fill the link to the GPU; from the GPU,
  // 16 threads do.
  const u32 cpus = usable_cpus(), few = std::min(cpus, 8u), many = std::min(cpus, 16u);
  // memcpy bypasses the caches from about 1 MiB. Smaller pieces keep the ring in the last-level cache, from which the
  // GPU reads faster than from memory.
  of(MethodId::ring_to_gpu) = {1_MiB, few, 4_MiB, 2, 256_KiB};
  of(MethodId::ring_to_host) = {1_MiB, many, 4_MiB, 2, 0};
  of(MethodId::ring_to_fresh) = {4_MiB, many, 4_MiB, 2, 0};
  of(MethodId::host) = {4_MiB, many, 4_MiB, 1, 0};
}

Options Options::from_environment() {
  Options options;
  constexpr const char *mode = "LINKSCOPE_TRANSFER", *arena = "LINKSCOPE_TRANSFER_ARENA";
  if (const char* value = std::getenv(mode); value && *value) {
    const std::string_view text{value};
    if (text != "plain" && text != "auto") refuse(mode, text, "'plain' or 'auto'");
    options.plain = text == "plain";
  }
  if (const char* value = std::getenv(arena); value && *value) {
    const std::string_view text{value};
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), options.arena_bytes);
    if (status != std::errc{} || end != text.data() + text.size()) refuse(arena, text, "a number of bytes");
  }
  return options;
}

}  // namespace linkscope
