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
#include "host/shared_pages.hpp"
#include "platform/cuda/owner.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Owns a piece that the other process allocated or opened.
class OwnersPiece {
 public:
  OwnersPiece(Owner& owner, Owner::Piece piece) : owner_{owner}, piece_{std::move(piece)} {}
  ~OwnersPiece();  // without reporting errors
  OwnersPiece(const OwnersPiece&) = delete;
  OwnersPiece& operator=(const OwnersPiece&) = delete;

  [[nodiscard]] const Owner::Piece& get() const { return piece_; }

 private:
  Owner& owner_;
  Owner::Piece piece_;
};

class Allocation {
 public:
  /// Allocates nothing yet. `device` is the GPU that holds the memory, or any GPU whose context pins host memory; null:
  /// a host without GPUs, or memory that no driver knows. The region gives place, kind and pages, and whether shared
  /// memory belongs to this process or to `owner`'s.
  Allocation(const Driver&, Owner& owner, Device* device, const Region&, u64 bytes);
  ~Allocation();  // frees what exists
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  /// Runs all phases up to usable memory. The owner of shared memory has then seen a word that was written here; throws
  /// Error{failed} otherwise.
  void make();
  /// Runs one phase; earlier ones are complete. Throws Error{memory} if there is no more.
  void advance(std::string_view phase);
  /// Prepares the phase: frees everything, then runs all phases before it.
  void bring_to(std::string_view phase);
  /// Gives another GPU access to memory that is granted per GPU (pools, virtual memory); once.
  void grant(const Device& other);
  /// Another process's memory behind an IPC handle, opened by another GPU, as verified by its owner. Throws
  /// Error{failed} if a written word does not arrive.
  [[nodiscard]] std::unique_ptr<IpcOpened> opened_by(Device& other);
  /// This process's memory as opened by a GPU of the other process, verified likewise.
  [[nodiscard]] std::unique_ptr<OwnersPiece> opened_there(const Device& by);

  [[nodiscard]] std::byte* host() const { return host_; }
  [[nodiscard]] CUdeviceptr address() const { return address_; }
  /// The other process's name of the shared memory.
  [[nodiscard]] const Owner::Piece& piece() const { return piece_; }
  [[nodiscard]] bool in_use() const { return touched_; }
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
  [[nodiscard]] PageSize pages_of_region() const;
  [[nodiscard]] CUmemoryPool pool() const;
  // The work of the process that owns shared memory, and how it is opened here (allocation_shared.cpp).
  void allocate_there();
  void share();
  void import();
  void open();
  void close();
  void give_back_there();
  void allocate_to_share();
  void give_back_shared();
  void prove_shared(const Owner::Piece& seen, Device* by, CUdeviceptr at);

  const Driver& driver_;
  Owner& owner_;
  Device* device_;
  Region region_;
  u64 bytes_;         // requested
  u64 reserved_ = 0;  // for virtual memory: whole granules
  HostPages pages_;
  Owner::Piece piece_;
  Owner::Share share_;
  SharedPages shared_pages_;
  std::unique_ptr<IpcOpened> opened_;
  u64 proofs_ = 0;
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
