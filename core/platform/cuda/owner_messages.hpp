// Messages between a process that owns memory and the one that requests it: one request, one answer, of fixed size.
#pragma once
#include <cuda.h>

#include "base/units.hpp"
#include "host/words.hpp"

namespace linkscope {

enum class OwnerOp : u32 { allocate, share, touch, look, free, exchange, open };

/// Words that a thread of the owner sets and waits for: a CPU thread, or a GPU thread if the request names a GPU.
struct OwnerExchange {
  u64 set_piece = 0, set_offset = 0, wait_piece = 0, wait_offset = 0;
  u32 node = 0;  // NUMA node of a CPU thread (dense number)
  WordLoop loop{};
};

struct OwnerRequest {
  OwnerOp op = OwnerOp::allocate;
  u32 kind = 0;    // allocate, open: as MemKind
  u32 node = 0;    // allocate, host memory: its NUMA node (dense number)
  u64 bytes = 0;   // allocate, open
  u64 piece = 0;   // share, touch, look, free
  u64 offset = 0;  // look
  char gpu[64] =
      // UUID of the GPU of the memory (allocate), of the GPU that opens it (open), or of the thread (exchange); or ""
      {};
  CUipcMemHandle handle{};  // open, ipc; for posix_fd the descriptor is passed alongside
  OwnerExchange exchange{};
};

struct OwnerAnswer {
  u32 failed = 0;            // 0, or 1 + ErrorKind; then `message` has the text
  u64 piece = 0, bytes = 0;  // allocate, open
  u64 word = 0;              // look; exchange: the value that did not arrive
  u32 in_vain = 0;           // exchange
  double enter_s = 0;        // their start, by the host's clock
  double seconds = 0;        // duration of the calls themselves
  CUipcMemHandle handle{};   // share
  char message[256] = {};
};

}  // namespace linkscope
