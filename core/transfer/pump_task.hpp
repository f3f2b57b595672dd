// What a kernel that moves one range through a ring of pinned memory is to do, as host code and the kernel
// (kernels/pump.cu) see it. CPU threads are at the other side of the ring.
#pragma once

/// Addresses and counts. Chunk i begins at byte i * chunk and passes through slot i % slots of the ring. Each slot has
/// two words of 8 bytes: `filled` is i + 1 when chunk i is in the slot, and `emptied` when it has left it.
struct linkscope_pump_task {
  unsigned long long device, bytes, chunk, chunks;
  unsigned long long ring, stride, slots;        // slot s begins at ring + s * stride
  unsigned long long filled, emptied, word_gap;  // the words of slot s are s * word_gap bytes behind these
  unsigned long long given_up;                   // a word: not 0 when either side has given up
  unsigned long long timeout_ns;                 // of each wait
};
