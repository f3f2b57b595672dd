// C++ versions of core/platform/cuda/kernels/*.cu and core/transfer/kernels/*.cu, with the same names and parameters.
// Loops replace the GPU's threads, so the shape of a launch has no effect. computations.cpp and blocks.cpp have the others.
#include "kernels.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>

#include "base/actor_ops.hpp"
#include "base/pattern.hpp"
#include "base/ring.hpp"
#include "faults.hpp"
#include "log.hpp"
#include "memory.hpp"
#include "patience.hpp"
#include "program/chain.hpp"
#include "program/row_order.hpp"
#include "putget/cpu_words.hpp"
#include "putget/run_task.hpp"
#include "settings.hpp"
#include "transfer/block.hpp"
#include "transfer/pump_task.hpp"

namespace fake {
namespace {

using u64 = unsigned long long;

CUresult gate(CUcontext context, volatile unsigned* word, u64 timeout_ns, unsigned* timed_out) {
  if (!reachable(context, const_cast<unsigned*>(word), sizeof *word) ||
      !reachable(context, timed_out, sizeof *timed_out))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto start = std::chrono::steady_clock::now();
  const Patience patience;
  while (*word == 0 && lost() == CUDA_SUCCESS) {
    if (std::chrono::steady_clock::now() - start > std::chrono::nanoseconds{timeout_ns}) {
      *static_cast<volatile unsigned*>(timed_out) = 1;
      std::atomic_thread_fence(std::memory_order_seq_cst);
      return CUDA_SUCCESS;
    }
    patience.pause();
  }
  return CUDA_SUCCESS;
}

CUresult fill(CUcontext context, u64* p, u64 words, u64 seed, u64 first_index) {
  if (!reachable(context, p, words * sizeof *p)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (u64 i = 0; i < words; ++i) p[i] = linkscope_pattern_word(seed, first_index + i);
  return CUDA_SUCCESS;
}

CUresult check(CUcontext context, const u64* p, u64 words, u64 seed, u64 first_index, u64* result) {
  if (!reachable(context, p, words * sizeof *p) || !reachable(context, result, 2 * sizeof *result))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  u64 wrong = 0, first = ~u64{0};
  for (u64 i = 0; i < words; ++i) {
    if (p[i] == linkscope_pattern_word(seed, first_index + i)) continue;
    ++wrong;
    first = std::min(first, i);
  }
  std::atomic_ref{result[0]} += wrong;
  result[1] = std::min(result[1], first);
  return CUDA_SUCCESS;
}

CUresult copy(CUcontext context, char* to, const char* from, u64 bytes) {
  if (!reachable(context, to, bytes) || !reachable(context, from, bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto delivers = begin_copy();
  if (delivers != Delivers::nothing) std::memcpy(to, from, bytes);
  if (delivers == Delivers::one_byte_more) to[bytes] ^= 1;
  if (delivers == Delivers::one_wrong_byte) to[bytes / 2] ^= 1;
  end_copy();
  return CUDA_SUCCESS;
}

CUresult copy_by_tma(CUcontext context, char* to, const char* from, u64 bytes) {
  constexpr u64 line = 16;
  if ((reinterpret_cast<u64>(to) ^ reinterpret_cast<u64>(from)) % line) return CUDA_ERROR_MISALIGNED_ADDRESS;
  return copy(context, to, from, bytes);
}

CUresult copy_blocks(CUcontext context, const linkscope_block* table, u64 count) {
  if (!reachable(context, table, count * sizeof *table)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (u64 i = 0; i < count; ++i) {
    const auto status = copy(context, reinterpret_cast<char*>(table[i].dst),
                             reinterpret_cast<const char*>(table[i].src), table[i].bytes);
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

CUresult pump(CUcontext context, linkscope_pump_task task, unsigned to_gpu) {
  if (!reachable(context, reinterpret_cast<void*>(task.device), task.bytes) ||
      !reachable(context, reinterpret_cast<void*>(task.ring), task.slots * task.stride) ||
      !reachable(context, reinterpret_cast<void*>(task.filled), task.slots * task.word_gap))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  constexpr u64 line = 16;  // the kernel moves vectors, which have one place within 16 bytes at both ends
  if ((task.ring ^ task.device) % line != 0 || task.stride % line != 0 || task.chunk % line != 0)
    return CUDA_ERROR_MISALIGNED_ADDRESS;
  const auto word = [](u64 address) { return std::atomic_ref{*reinterpret_cast<u64*>(address)}; };
  const auto waits = [&](u64 address, u64 value) {
    const auto start = std::chrono::steady_clock::now();
    const Patience patience;
    while (!linkscope::has_come(word(address).load(), value) && word(task.given_up).load() == 0 &&
           std::chrono::steady_clock::now() - start < std::chrono::nanoseconds{task.timeout_ns})
      patience.pause();
    if (linkscope::has_come(word(address).load(), value)) return true;
    word(task.given_up).store(1);
    return false;
  };
  for (u64 i = 0; i < task.chunks; ++i) {
    const u64 gap = i % task.slots * task.word_gap, bytes = std::min(task.chunk, task.bytes - i * task.chunk);
    auto* device = reinterpret_cast<char*>(task.device + i * task.chunk);
    auto* ring = reinterpret_cast<char*>(task.ring + i % task.slots * task.stride);
    if (!(to_gpu ? waits(task.filled + gap, i + 1) : waits(task.emptied + gap, i + 1 - task.slots)))
      return CUDA_SUCCESS;
    if (const auto status = to_gpu ? copy(context, device, ring, bytes) : copy(context, ring, device, bytes);
        status != CUDA_SUCCESS)
      return status;
    word((to_gpu ? task.emptied : task.filled) + gap).store(i + 1);
  }
  return CUDA_SUCCESS;
}

/// The regions of a channel, and the words that its two sides share.
bool reaches(CUcontext context, const linkscope::Channel& channel) {
  const auto range = [&](u64 start, u64 bytes) {
    return start == 0 || reachable(context, reinterpret_cast<const void*>(start), bytes);
  };
  return range(channel.control, linkscope::control_bytes) && range(channel.local, channel.local_bytes) &&
         range(channel.slots, channel.slot_count * channel.slot_words * linkscope::pair_bytes) &&
         range(channel.remote, channel.remote_bytes);
}

CUresult post(CUcontext context, linkscope::PostTask task) {
  if (!reaches(context, task.channel) ||
      !reachable(context, reinterpret_cast<const void*>(task.steps), task.count * sizeof(linkscope::PostStep)))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  linkscope::run_posts(task, linkscope::CpuWords{}, linkscope::OneThread{});
  return CUDA_SUCCESS;
}

CUresult serve(CUcontext context, linkscope::ServeTask task) {
  if (!reachable(context, reinterpret_cast<const void*>(task.channel.control), linkscope::control_bytes) ||
      !reachable(context, reinterpret_cast<const void*>(task.local), task.channel.local_bytes) ||
      !reachable(context, reinterpret_cast<const void*>(task.remote), task.channel.remote_bytes))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  std::array<linkscope::Operation, linkscope::most_descriptor_words> operations;
  linkscope::serve(task, linkscope::CpuWords{}, linkscope::OneThread{}, operations.data());
  return CUDA_SUCCESS;
}

CUresult add_word(CUcontext context, u64 word, u64 value) {
  if (!reachable(context, reinterpret_cast<const void*>(word), sizeof word)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  linkscope::CpuWords::add(word, value);
  return CUDA_SUCCESS;
}

CUresult copy_rows(CUcontext context, char* to, const char* from, u64 row, u64 rows, u64 to_pitch, u64 from_pitch,
                   u64 in_plane, u64 to_plane, u64 from_plane) {
  const auto offset = [in_plane](u64 i, u64 pitch, u64 plane) { return i / in_plane * plane + i % in_plane * pitch; };
  if (!reachable(context, to, offset(rows - 1, to_pitch, to_plane) + row) ||
      !reachable(context, from, offset(rows - 1, from_pitch, from_plane) + row))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto delivers = begin_copy();
  for (u64 i = 0; i < rows && delivers != Delivers::nothing; ++i)
    std::memcpy(to + offset(i, to_pitch, to_plane), from + offset(i, from_pitch, from_plane), row);
  if (delivers == Delivers::one_byte_more) to[row] ^= 1;
  if (delivers == Delivers::one_wrong_byte) to[offset(rows / 2, to_pitch, to_plane) + row / 2] ^= 1;
  end_copy();
  return CUDA_SUCCESS;
}

CUresult exchange(CUcontext context, char* to, const char* from, char* back_to, const char* back_from, u64 bytes) {
  const auto status = copy(context, to, from, bytes);
  return status == CUDA_SUCCESS ? copy(context, back_to, back_from, bytes) : status;
}

CUresult read(CUcontext context, const char* from, u64 bytes, u64* sum) {
  if (!reachable(context, from, bytes) || !reachable(context, sum, sizeof *sum)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto delivers = begin_copy();
  const auto* words = reinterpret_cast<const u64*>(from);
  if (delivers != Delivers::nothing)
    for (u64 i = 0; i < bytes / sizeof *words; ++i) *sum += words[i];
  if (delivers == Delivers::one_wrong_byte) *sum ^= 1;
  end_copy();
  return CUDA_SUCCESS;
}

CUresult write(CUcontext context, char* to, u64 bytes, u64 seed, u64 first_index) {
  if (!reachable(context, to, bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto delivers = begin_copy();
  auto* words = reinterpret_cast<u64*>(to);
  if (delivers != Delivers::nothing)
    for (u64 i = 0; i < bytes / sizeof *words; ++i) words[i] = linkscope_pattern_word(seed, first_index + i);
  if (delivers == Delivers::one_byte_more) to[bytes] ^= 1;
  if (delivers == Delivers::one_wrong_byte) to[bytes / 2] ^= 1;
  end_copy();
  return CUDA_SUCCESS;
}

CUresult read_lines(CUcontext context, const char* from, u64 count, u64 stride, unsigned width, unsigned, u64* sum) {
  if (!reachable(context, from, (count - 1) * stride + width) || !reachable(context, sum, sizeof *sum))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto delivers = begin_copy();
  for (u64 i = 0; delivers != Delivers::nothing && i < count; ++i) {
    u64 words[2] = {0, 0};
    std::memcpy(words, from + i * stride, width);
    *sum += words[0] + words[1];
  }
  if (delivers == Delivers::one_wrong_byte) ++*sum;
  end_copy();
  return CUDA_SUCCESS;
}

CUresult write_lines(CUcontext context, char* to, u64 count, u64 stride, unsigned width, unsigned, u64 seed,
                     u64 first) {
  const u64 end = (count - 1) * stride + width;
  if (!reachable(context, to, end)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto delivers = begin_copy();
  for (u64 i = 0; delivers != Delivers::nothing && i < count; ++i) {
    const u64 byte = first + i * stride,
              words[2] = {linkscope_pattern_word(seed, byte / 8), linkscope_pattern_word(seed, byte / 8 + 1)};
    std::memcpy(to + i * stride, reinterpret_cast<const char*>(words) + byte % 8, width);
  }
  if (delivers == Delivers::one_byte_more) to[end] ^= 1;
  if (delivers == Delivers::one_wrong_byte) to[(count / 2) * stride] ^= 1;
  end_copy();
  return CUDA_SUCCESS;
}

CUresult sum_lines(CUcontext context, u64 count, u64 stride, u64 width, u64 seed, u64 first, u64 times, u64* sum) {
  if (!reachable(context, sum, sizeof *sum)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (u64 i = 0; i < count; ++i)
    for (u64 at = 0; at < width; at += 8) {
      const u64 byte = first + i * stride + at, word = linkscope_pattern_word(seed, byte / 8);
      *sum += times * (width > 4 ? word : byte % 8 ? word >> 32 : word & 0xFFFFFFFF);
    }
  return CUDA_SUCCESS;
}

CUresult check_lines(CUcontext context, const u64* at, u64 words, u64 count, u64 stride, u64 width, u64 seed, u64 first,
                     u64 untouched, u64* result) {
  if (!reachable(context, at, words * sizeof *at) || !reachable(context, result, 2 * sizeof *result))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (u64 i = 0; i < words; ++i) {
    const u64 within = i * 8 % stride, pattern = linkscope_pattern_word(seed, first / 8 + i);
    u64 expected = untouched;
    if (i * 8 / stride < count && within < width) std::memcpy(&expected, &pattern, std::min<u64>(8, width));
    if (at[i] == expected) continue;
    ++result[0];
    result[1] = std::min(result[1], i);
  }
  return CUDA_SUCCESS;
}

CUresult touch_write(CUcontext context, char* range, u64 bytes, u64 page, unsigned) {
  if (!reachable(context, range, bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto delivers = begin_copy();
  if (delivers != Delivers::nothing)
    for (u64 at = 0; at < bytes; at += page) range[at] = 0;
  if (delivers == Delivers::one_wrong_byte) range[bytes / 2] ^= 1;
  end_copy();
  return CUDA_SUCCESS;
}

CUresult touch_read(CUcontext context, const unsigned char* range, u64 bytes, u64 page, unsigned, u64* sum) {
  if (!reachable(context, range, bytes) || !reachable(context, sum, sizeof *sum)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto delivers = begin_copy();
  if (delivers != Delivers::nothing)
    for (u64 at = 0; at < bytes; at += page) *sum += range[at];
  if (delivers == Delivers::one_wrong_byte) *sum ^= 1;
  end_copy();
  return CUDA_SUCCESS;
}

CUresult check_rows(CUcontext context, const u64* p, u64 words, linkscope_row_copy copy, u64* result) {
  if (!reachable(context, p, words * sizeof *p) || !reachable(context, result, 2 * sizeof *result))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (u64 i = 0; i < words; ++i) {
    if (p[i] == linkscope_row_word(copy, 8 * i)) continue;
    ++result[0];
    result[1] = std::min(result[1], i);
  }
  return CUDA_SUCCESS;
}

CUresult sum_pattern(CUcontext context, u64 words, u64 seed, u64 first_index, u64 times, u64* sum) {
  if (!reachable(context, sum, sizeof *sum)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (u64 i = 0; i < words; ++i) *sum += times * linkscope_pattern_word(seed, first_index + i);
  return CUDA_SUCCESS;
}

CUresult chase(CUcontext context, u64* position, u64 steps) {
  if (!reachable(context, position, sizeof *position)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  log("steps", context, std::to_string(steps));
  const auto delivers = begin_copy();
  for (u64 i = delivers == Delivers::all ? 0 : 1; i < steps; ++i) {
    const auto* at = reinterpret_cast<const u64*>(*position);
    if (!reachable(context, at, sizeof *at)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    *position = *at;
  }
  end_copy();
  return CUDA_SUCCESS;
}

/// Blocks run on every SM except the one that FAKE_CUDA_HELD_SM names.
CUresult chase_on(CUcontext context, u64* position, u64 steps, unsigned sm, u64* turns, u64 turn) {
  if (!reachable(context, turns, sizeof *turns)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (sm == settings().held_sm || *turns != turn) return CUDA_SUCCESS;
  *turns = turn + 1;
  return chase(context, position, steps);
}

CUresult fill_chain(CUcontext context, char* region, u64 lines) {
  if (!reachable(context, region, lines * linkscope_chain_line)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (u64 i = 0; i < lines; ++i)
    *reinterpret_cast<char**>(region + i * linkscope_chain_line) =
        region + linkscope_chain_next(i, lines) * linkscope_chain_line;
  return CUDA_SUCCESS;
}

CUresult empty(CUcontext) { return CUDA_SUCCESS; }

template <std::size_t bytes>
CUresult take(CUcontext, std::array<char, bytes>) {
  return CUDA_SUCCESS;
}

CUresult add(CUcontext context, u64* words, u64 additions, u64 mask, unsigned) {
  if (!reachable(context, words, (mask ? additions : 1) * sizeof *words)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto delivers = begin_copy();
  if (delivers != Delivers::nothing)
    for (u64 i = 0; i < additions; ++i) ++std::atomic_ref{words[i & mask]};
  if (delivers == Delivers::one_wrong_byte) words[0] ^= 1;
  end_copy();
  return CUDA_SUCCESS;
}

CUresult add_chain(CUcontext context, u64* word, u64 steps, unsigned system) {
  log("steps", context, std::to_string(steps));
  return add(context, word, steps, 0, system);
}

}  // namespace

const Prepare* find_kernel(const std::string& name) {
  static const auto* kernels = [] {
    auto* all = new std::map<std::string, Prepare>{
        {"linkscope_gate", by_types(gate)},
        {"linkscope_fill", by_types(fill)},
        {"linkscope_check", by_types(check)},
        {"linkscope_copy", by_types(copy)},
        {"linkscope_copy_tma", by_types(copy)},
        {"linkscope_copy_rows", by_types(copy_rows)},
        {"linkscope_copy_blocks", by_types(copy_blocks)},
        {"linkscope_copy_by_sm", by_types(copy)},
        {"linkscope_copy_by_tma", by_types(copy_by_tma)},
        {"linkscope_pump", by_types(pump)},
        {"linkscope_post", by_types(post)},
        {"linkscope_serve", by_types(serve)},
        {"linkscope_post_tma", by_types(post)},
        {"linkscope_serve_tma", by_types(serve)},
        {"linkscope_add_word", by_types(add_word)},
        {"linkscope_exchange", by_types(exchange)},
        {"linkscope_read", by_types(read)},
        {"linkscope_write", by_types(write)},
        {"linkscope_read_lines", by_types(read_lines)},
        {"linkscope_write_lines", by_types(write_lines)},
        {"linkscope_sum_lines", by_types(sum_lines)},
        {"linkscope_check_lines", by_types(check_lines)},
        {"linkscope_check_rows", by_types(check_rows)},
        {"linkscope_sum_pattern", by_types(sum_pattern)},
        {"linkscope_chase", by_types(chase)},
        {"linkscope_chase_on", by_types(chase_on)},
        {"linkscope_fill_chain", by_types(fill_chain)},
        {"linkscope_touch_write", by_types(touch_write)},
        {"linkscope_touch_read", by_types(touch_read)},
        {"linkscope_empty", by_types(empty)},
        {"linkscope_take_8", by_types(take<8>)},
        {"linkscope_take_256", by_types(take<256>)},
        {"linkscope_take_1024", by_types(take<1024>)},
        {"linkscope_take_4096", by_types(take<4096>)},
        {"linkscope_add", by_types(add)},
        {"linkscope_add_chain", by_types(add_chain)},
    };
    add_computations(*all);
    add_blocks(*all);
    return all;
  }();
  const auto found = kernels->find(name);
  return found == kernels->end() ? nullptr : &found->second;
}

}  // namespace fake
