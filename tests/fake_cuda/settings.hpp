// The settings of the fake driver, read once from FAKE_CUDA_* (table in README.md).
#pragma once
#include <cuda.h>

#include <set>
#include <string>
#include <vector>

namespace fake {

constexpr unsigned long long never = ~0ull;

/// The copies that a fault affects, counted from 1.
struct Copies {
  unsigned long long first = never, last = 0, step = 1;
  [[nodiscard]] bool contain(unsigned long long number) const {
    return number >= first && number <= last && (number - first) % step == 0;
  }
};

struct Settings {
  int version = 13000;
  std::vector<int> visible;  // ordinals into `buses`, filtered by CUDA_VISIBLE_DEVICES
  int capability_major = 9, capability_minor = 0;
  std::set<std::string> missing;
  unsigned long long memory_bytes = 0, pinned_bytes = never;
  CUcomputemode mode = CU_COMPUTEMODE_DEFAULT;
  bool held_by_another = false;         // exclusive mode, and another process holds the GPU
  unsigned long long mode_gpu = never;  // the only ordinal with this mode
  CUresult init = CUDA_SUCCESS;
  unsigned long long lost_after = never;
  CUresult lost_error = CUDA_ERROR_ECC_UNCORRECTABLE;
  std::string hang_symbol;
  unsigned long long hang_after = 0;
  Copies corrupt, skip, overrun;
  std::string slow_symbol, slow_while;
  unsigned long long slow_us = 0, copy_us = 0, late_us = 0;
  std::string slow_contexts;  // pattern over the contexts of a GPU, repeated; 'x': copies within the GPU take longer
  unsigned long long extra_us = 0;
  std::string refuse_symbol, die_symbol;
  CUresult refusal = CUDA_ERROR_NOT_PERMITTED;
  unsigned long long die_after = 0;
  bool no_posix_fd = false, private_shares = false;
  bool no_peer = false, lying_peer = false, hmm = false;
  unsigned long long staging_bytes = never;
  std::string staging_while;
  unsigned long long held_sm = never;
  bool launch_blocking = false;
  unsigned long long queues = 8;  // of the hardware
  std::string log, calls, stamps;
};

const Settings& settings();

}  // namespace fake
