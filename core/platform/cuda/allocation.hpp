// One piece of memory of any kind, through the phases of its life (program/allocation.hpp).
#pragma once
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/cuda/device.hpp"
#include "platform/cuda/ipc.hpp"
#include "platform/cuda/owner.hpp"
#include "platform/cuda/vmm.hpp"
#include "platform/host/pages.hpp"
#include "platform/host/shared_pages.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Owns a piece that the other process allocated or opened.
class OwnersPiece {
 public:
  OwnersPiece(Owner& owner, Owner::Piece piece) : owner_{owner}, piece_{std::move(piece)} {}
  ~OwnersPiece();  // without complaint
  OwnersPiece(const OwnersPiece&) = delete;
  OwnersPiece& operator=(const OwnersPiece&) = delete;

  [[nodiscard]] const Owner::Piece& get() const { return piece_; }

 private:
  Owner& owner_;
  Owner::Piece piece_;
};

class Allocation {
 public:
  /// Nothing yet. `device` is the GPU that holds the memory, or any GPU whose context pins host memory; null: a host
  /// without GPUs, or memory that no driver knows of. The region says place, kind and pages, and whether what is shared belongs to
  /// this process or to `owner`'s.
  Allocation(const Driver&, Owner& owner, Device* device, const Region&, u64 bytes);
  ~Allocation();  // gives back what is there
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  /// All phases up to memory that is in use. Of what is shared its owner has seen a word that was written here: throws
  /// Error{failed} where it does not.
  void make();
  /// One phase; those before it were done. Throws Error{memory} where there is no more.
  void advance(std::string_view phase);
  /// To where `phase` is next: back to nothing, then all before it.
  void bring_to(std::string_view phase);
  /// Lets another GPU reach memory whose access is granted one by one (pools, virtual memory); once.
  void grant(const Device& other);
  /// Of the other process's memory behind an IPC handle: as another GPU reaches it, which its owner has seen. Throws
  /// Error{failed} where it does not arrive.
  [[nodiscard]] std::unique_ptr<IpcOpened> opened_by(Device& other);
  /// Of this process's memory: as a GPU of the other process has opened it, likewise.
  [[nodiscard]] std::unique_ptr<OwnersPiece> opened_there(const Device& by);

  [[nodiscard]] std::byte* host() const { return host_; }
  [[nodiscard]] CUdeviceptr address() const { return address_; }
  /// Of what the other process shares: as that knows it.
  [[nodiscard]] const Owner::Piece& piece() const { return piece_; }
  [[nodiscard]] bool in_use() const { return touched_; }
  /// What pages it has, in words, where it is in huge ones; "" elsewhere.
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
  /// What the driver has not got, with what was wanted and what helps.
  template <class Call>
  void of_driver(Call) const;
  [[nodiscard]] PageSize pages_of_region() const;
  [[nodiscard]] CUmemoryPool pool() const;
  // What the process that owns shared memory does, and what it takes to open it here (allocation_shared.cpp).
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
  u64 bytes_;         // as asked for
  u64 reserved_ = 0;  // of virtual memory: whole granules
  HostPages pages_;
  Owner::Piece piece_;
  Owner::Share share_;
  SharedPages shared_pages_;
  std::unique_ptr<IpcOpened> opened_;
  u64 proofs_ = 0;
  std::unique_ptr<Mapping> mapping_;
  std::byte* host_ = nullptr;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  bool by_driver_ = false, pinned_ = false, touched_ = false;
  std::set<int> granted_;
};

/// The symbols that memory of a kind needs besides those that everything needs.
[[nodiscard]] std::vector<const char*> symbols_of(MemKind);

}  // namespace linkscope
