#include "transfer/options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "base/error.hpp"
#include "host/own_memory.hpp"

namespace linkscope {
namespace {

using namespace literals;

[[noreturn]] void refuse(const char* variable, std::string_view value, const char* wanted) {
  throw Error{ErrorKind::usage,
              std::string{variable} + "='" + std::string{value} + "' is not " + wanted + "; correct it or unset it"};
}

template <class Number>
Number number(const char* variable, std::string_view text) {
  Number value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size())
    refuse(variable, text, std::is_same_v<Number, u32> ? "the number of a GPU, as in 1,3" : "a number of bytes");
  return value;
}

constexpr u32 most_blocks = 1024;  // of a kernel
constexpr u32 most_links = 64;

}  // namespace

Options::Options() : registered_bytes{host_memory_bytes() / 2} {
  // Runs on H100s with 16 cores: of the settings that take at most 0.2 core-seconds a GB, 10 threads and chunks of 2 MiB
  // move 1 GiB to the GPU fastest. Shorter chunks cost more calls, and longer ones leave the caches. From the GPU, 16
  // threads fill the link.
  const u32 cpus = usable_cpus(), few = std::min(cpus, 10u), many = std::min(cpus, 16u);
  // memcpy bypasses the caches from about 1 MiB. Smaller pieces keep the ring in the last-level cache, from which the
  // GPU reads faster than from memory.
  set_all(MethodId::ring_to_gpu, {false, few, 2_MiB, 2, 8, 256_KiB}, 1_MiB);
  set_all(MethodId::ring_to_host, {false, many, 4_MiB, 2, 8, 0}, 1_MiB);
  set_all(MethodId::ring_to_fresh, {false, many, 4_MiB, 2, 8, 0}, 4_MiB);
  set_all(MethodId::host, {false, many, 4_MiB, 1, 8, 0}, 4_MiB);
  // With helpers, copies use all of them: no probe says more. One thread can queue chunks for about three links.
  set_all(MethodId::relay_to_gpu, {false, std::min(cpus, 2u), 4_MiB, 1, 4, 0, 0, 1, most_links}, 16_MiB);
  set_all(MethodId::relay_to_host, {false, std::min(cpus, 2u), 4_MiB, 1, 4, 0, 0, 1, most_links}, 16_MiB);
  for (const auto id : {MethodId::relay_to_gpu, MethodId::relay_to_host})  // a probe: 8 MiB fill four links
    for (const u64 start : {256_MiB, 768_MiB}) of(id, start).chunk = 8_MiB;
  set_all(MethodId::between_gpus, {false, 1, 4_MiB, 3, 16, 0}, 16_MiB);
  // Runs on H100 and H200: kernels gain 9 % at 4 MiB and nothing from 16 MiB, and take SMs that other work then lacks.
  for (const auto id : {MethodId::within_gpu, MethodId::between_peers})
    set_all(id, {true, 1, 16_KiB, 1, 1, 0, 128, 4_KiB}, ~u64{0});
  for (const auto id : {MethodId::ring_to_gpu, MethodId::ring_to_host, MethodId::ring_to_fresh})
    for (const u64 start : {256_MiB, 768_MiB}) of(id, start).links = most_links;
  // Probes on H100: a call of the driver takes 8 us here, so a kernel moves the short chunks of copies below 256 MiB
  // faster. Chunks to the GPU lie in caches of the CPUs that wrote them, from which a few SMs read too slowly.
  for (const u64 start : size_classes) {
    if (start >= 1_MiB && start < 256_MiB) {
      of(MethodId::ring_to_gpu, start).sm_blocks = start >= 16_MiB ? 64 : 32;
      of(MethodId::ring_to_gpu, start).sm_chunk = 64_KiB;
      of(MethodId::ring_to_host, start).sm_blocks = 16;
      of(MethodId::ring_to_host, start).sm_chunk = 128_KiB;
    }
  }
  // Probes on the same GPUs: 32 thread blocks fill the link with reads of 4 KiB, 16 with reads of 8 KiB and more, 8 with
  // writes. From 512 KiB the copy engine alone fills the link.
  for (const u64 mean : block_classes) {
    const auto method = mean >= 512_KiB ? BlockMethod::loop : BlockMethod::kernel;
    of(Towards::gpu, mean) = {method, mean >= 16_KiB ? 8u : mean >= 8_KiB ? 16u : 32u};
    of(Towards::host, mean) = {method, 8};
  }
  set_staged_defaults(cpus);
}

void Options::set_staged_defaults(u32 cpus) {
  const u32 threads = std::min(cpus, 12u);
  for (const u64 mean : packed_classes) {
    of(StagedWork::packed_to_gpu, mean) = {false, threads, 4_MiB, 2, 2, 0, of(Towards::gpu, mean).sm_blocks, 4_KiB, 1};
    of(StagedWork::packed_to_host, mean) = {false, threads, 4_MiB, 2, 2, 0, of(Towards::host, mean).sm_blocks,
                                            4_KiB, 1};
  }
  // A read of the page cache is slower than a copy of memory: 12 threads with chunks of 4 MiB read with 30 GB/s on one
  // host and with 52 on another, 16 with chunks of 2 MiB with 43 on the first. A disk array needs some 64 MiB in flight
  // to be busy.
  const u32 few = std::min(cpus, 8u), many = std::min(cpus, 16u);
  for (const u64 start : file_classes) {
    of(StagedWork::read_cached, start) = {false, many, 2_MiB, 2, 1, 0};
    of(StagedWork::read_cold, start) = {false, few, 4_MiB, 2, 1, 0};
    of(StagedWork::read_cold, start).uring = 16;
    of(StagedWork::write_file, start) = {false, start < 256_MiB ? threads : many, 4_MiB, 2, 1, 0};
    of(StagedWork::write_file, start).uring = 32;
  }
}

const char* name_of(StagedWork work) {
  constexpr std::array names{"packed_to_gpu", "packed_to_host", "read_cached", "read_cold", "write_file"};
  return names[static_cast<std::size_t>(work)];
}

std::span<const u64> classes_of(StagedWork work) {
  if (work == StagedWork::packed_to_gpu || work == StagedWork::packed_to_host) return packed_classes;
  return file_classes;
}

void Options::set_all(MethodId id, Knobs all, u64 from_bytes) {
  for (const u64 start : size_classes) {
    all.plain = start < from_bytes;
    of(id, start) = all;
  }
}

void check(const Knobs& knobs) {
  constexpr u32 most_threads = 1024, most_depth = 1024;
  constexpr u64 least_piece = 4_KiB;
  if (knobs.threads == 0 || knobs.threads > most_threads || knobs.depth == 0 || knobs.depth > most_depth)
    throw Error{ErrorKind::usage, "a method has 1 to 1024 threads and a depth of 1 to 1024"};
  if (knobs.uring > most_depth) throw Error{ErrorKind::usage, "io_uring has at most 1024 requests in flight"};
  if (knobs.chunk == 0 || knobs.chunks_each == 0)
    throw Error{ErrorKind::usage, "a method has chunks of at least 1 byte, and at least one for each thread"};
  if (knobs.sm_blocks > most_blocks || (knobs.sm_blocks && knobs.sm_chunk < least_piece))
    throw Error{ErrorKind::usage, "the kernel has at most 1024 thread blocks and chunks of at least 4 KiB"};
  if (knobs.links == 0 || knobs.links > most_links) throw Error{ErrorKind::usage, "a copy uses 1 to 64 links"};
  if (knobs.piece && knobs.piece < least_piece)
    throw Error{ErrorKind::usage, "a piece has at least 4 KiB; 0 stands for the whole chunk"};
}

void check(const BlockKnobs& knobs) {
  if (knobs.sm_blocks == 0 || knobs.sm_blocks > most_blocks)
    throw Error{ErrorKind::usage, "the kernel has 1 to 1024 thread blocks"};
}

Options Options::from_environment() {
  Options options;
  constexpr const char *mode = "LINKSCOPE_TRANSFER", *arena = "LINKSCOPE_TRANSFER_ARENA",
                       *registered = "LINKSCOPE_TRANSFER_REGISTERED", *helpers = "LINKSCOPE_TRANSFER_HELPERS";
  if (const char* value = std::getenv(mode); value && *value) {
    const std::string_view text{value};
    if (text != "plain" && text != "auto") refuse(mode, text, "'plain' or 'auto'");
    options.plain = text == "plain";
  }
  if (const char* value = std::getenv(arena); value && *value) options.arena_bytes = number<u64>(arena, value);
  if (const char* value = std::getenv(registered); value && *value)
    options.registered_bytes = number<u64>(registered, value);
  if (const char* value = std::getenv(helpers); value && *value) {
    std::istringstream list{value};
    for (std::string one; std::getline(list, one, ',');) options.helpers.push_back(number<u32>(helpers, one));
  }
  const char* tuning = std::getenv("LINKSCOPE_TRANSFER_TUNING");
  options.tuning = tuning && *tuning ? tuning : "auto";
  return options;
}

}  // namespace linkscope
