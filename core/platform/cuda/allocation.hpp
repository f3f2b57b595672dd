// One piece of memory of any kind, through the phases of its life (program/allocation.hpp).
#pragma once
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/ipc.hpp"
#include "gpu/memory.hpp"
#include "gpu/vmm.hpp"
#include "host/pages.hpp"
#include "host/scratch_file.hpp"
#include "host/shared_pages.hpp"
#include "program/program.hpp"

namespace linkscope {

/// What another process needs to open memory of this one: the handle of `ipc`, the descriptor of `posix_fd` and of `shm`.
struct Share {
  CUipcMemHandle handle{};
  u64 bytes = 0;  // in whole blocks or granules
  Descriptor descriptor{};
};

class Allocation {
 public:
  /// Allocates nothing yet. `device` is the GPU that holds the memory, or any GPU whose context pins host memory; null:
  /// a host without GPUs, or memory that no driver knows. The region gives place, kind and pages. `own`: false for shared
  /// memory that another process allocates and this one opens.
  Allocation(const Driver&, Device* device, const Region&, u64 bytes, bool own = true);
  ~Allocation();  // frees what exists
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  /// Runs all phases up to usable memory; for another process's memory after receive().
  void make();
  /// Runs one phase; earlier ones are complete. Throws Error{memory} if there is no more.
  void advance(std::string_view phase);
  /// Prepares the phase: frees everything, then runs all phases before it.
  void bring_to(std::string_view phase);
  /// Gives another GPU access to memory that is granted per GPU (pools, virtual memory); once.
  void grant(const Device& other);
  /// Exports what another process needs to open this memory.
  void share();
  /// What was exported, and the descriptor that goes with it; -1: none.
  [[nodiscard]] const Share& shared() const { return share_; }
  [[nodiscard]] int descriptor() const {
    return (region_.kind == MemKind::shm ? shared_pages_.descriptor() : share_.descriptor).get();
  }
  /// Takes what the process that owns the memory exported.
  void receive(Share share) { share_ = std::move(share); }
  /// Another process's memory behind an IPC handle, opened by another GPU.
  [[nodiscard]] std::unique_ptr<IpcOpened> opened_by(const Device& other) const;

  [[nodiscard]] std::byte* host() const { return host_; }
  [[nodiscard]] CUdeviceptr address() const { return address_; }
  [[nodiscard]] u64 size() const { return bytes_; }
  [[nodiscard]] bool in_use() const { return touched_; }
  /// The file of memory in files.
  [[nodiscard]] const ScratchFile& file() const { return file_; }
  /// Page sizes as text for memory in huge pages; "" otherwise.
  [[nodiscard]] std::string page_size() const;

 private:
  void allocate();
  void map();
  void touch();
  void pin();
  void unpin();
  void unmap();
  void give_back();
  void allocate_by_flags(unsigned flags);
  /// The memory that the driver lacks, with the request and the cure.
  template <class Call>
  void of_driver(Call) const;
  [[nodiscard]] u32 node_of_region() const;
  [[nodiscard]] PageSize pages_of_region() const;
  [[nodiscard]] CUmemoryPool pool() const;
  // Shared memory (allocation_shared.cpp).
  void make_shared();
  void allocate_to_share();
  void import();
  void open();
  void close();
  void give_back_shared();

  const Driver& driver_;
  Device* device_;
  Region region_;
  u64 bytes_;         // requested
  u64 reserved_ = 0;  // for virtual memory: whole granules
  HostPages pages_;
  bool own_;
  Share share_;
  SharedPages shared_pages_;
  ScratchFile file_;
  std::unique_ptr<IpcOpened> opened_;
  DeviceMemory memory_;
  PinnedMemory pinned_memory_;
  PhysicalMemory physical_;
  std::unique_ptr<Mapping> mapping_;
  std::byte* host_ = nullptr;
  CUdeviceptr address_ = 0;
  bool pinned_ = false, touched_ = false;
  std::set<int> granted_;
};

/// Symbols that a kind of memory needs in addition to the common ones.
[[nodiscard]] std::vector<const char*> symbols_of(MemKind);

}  // namespace linkscope
