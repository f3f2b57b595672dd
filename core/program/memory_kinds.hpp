// Kinds of memory and their traits. Code asks for a trait instead of listing kinds, so a new kind is one row.
#pragma once
#include <span>
#include <string_view>

#include "base/units.hpp"

namespace linkscope {

/// `system`: ordinary memory of the operating system that GPUs access directly (HMM, ATS); its pages move like those of
/// managed memory. `ipc`, `posix_fd` and `shm` belong to another process: GPU memory shared by a CUDA IPC handle or by a
/// POSIX file descriptor, and POSIX shared memory of the host that is pinned afterwards.
enum class MemKind : u8 {
  pageable,
  pinned,
  registered,
  wc,
  mapped,
  managed,
  device,
  vmm,
  pool,
  hugepage,
  file,
  system,
  registered_hugepage,
  ipc,
  posix_fd,
  shm
};

/// Whose memory it is. `either`: the host's or a GPU's, wherever its pages are.
enum class Holder : u8 { host, gpu, either, disk };

struct MemKindTraits {
  MemKind kind;
  const char* name;
  Holder holder;
  /// The phases of its life, in order (program/allocation.hpp); none: calls allocate no such memory.
  std::span<const std::string_view> phases{};
  /// Pages migrate to the processor that accesses them.
  bool pages_move = false;
  /// The driver does not know the memory: it copies through its own pinned staging, and GPUs cannot access it.
  bool pageable = false;
  /// One process owns the memory and others open it.
  bool shared = false;
  /// Its pages may be huge pages.
  bool huge_pages = false;
  /// Host memory that the driver allocates; all its pages exist after allocation.
  bool by_driver = false;
  /// Host memory that is pinned after its allocation.
  bool registered = false;
  /// Handles of virtual memory management: allocated in whole granules, then mapped.
  bool by_vmm = false;
  /// Other GPUs access it only after each got access, besides peer access between the GPUs.
  bool granted_to_peers = false;
};

/// One row for each kind, in the order of MemKind.
[[nodiscard]] std::span<const MemKindTraits> mem_kinds();
[[nodiscard]] const MemKindTraits& traits_of(MemKind);

[[nodiscard]] inline bool pages_move(MemKind kind) { return traits_of(kind).pages_move; }
[[nodiscard]] inline bool is_pageable(MemKind kind) { return traits_of(kind).pageable; }
[[nodiscard]] inline bool is_shared(MemKind kind) { return traits_of(kind).shared; }
[[nodiscard]] inline bool is_gpu_memory(MemKind kind) { return traits_of(kind).holder == Holder::gpu; }

[[nodiscard]] const char* to_string(MemKind);
/// Throws Error{usage} that lists the known names.
[[nodiscard]] MemKind parse_mem_kind(std::string_view);

}  // namespace linkscope
