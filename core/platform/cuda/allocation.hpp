// One piece of memory of any kind, through the phases of its life (program/allocation.hpp).
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "platform/cuda/device.hpp"
#include "platform/host/pages.hpp"
#include "program/program.hpp"

namespace linkscope {

class Allocation {
 public:
  /// Nothing yet. `device` is the GPU that holds the memory, or any GPU whose context pins host memory; null: a host
  /// without GPUs, or memory that no driver knows of. The region says place, kind and pages.
  Allocation(const Driver&, Device* device, const Region&, u64 bytes);
  ~Allocation();  // gives back what is there
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  /// All phases up to memory that is in use.
  void make();
  /// One phase; those before it were done. Throws Error{memory} where there is no more.
  void advance(std::string_view phase);
  /// To where `phase` is next: back to nothing, then all before it.
  void bring_to(std::string_view phase);
  /// Lets another GPU reach memory whose access is granted one by one (pools, virtual memory); once.
  void grant(const Device& other);

  [[nodiscard]] std::byte* host() const { return host_; }
  [[nodiscard]] CUdeviceptr address() const { return address_; }
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
  void allow(int device) const;
  [[nodiscard]] PageSize pages_of_region() const;
  [[nodiscard]] CUmemoryPool pool() const;

  const Driver& driver_;
  Device* device_;
  Region region_;
  u64 bytes_;       // as asked for
  u64 reserved_ = 0;  // of virtual memory: whole granules
  HostPages pages_;
  std::byte* host_ = nullptr;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  bool by_driver_ = false, pinned_ = false, mapped_ = false, touched_ = false;
  std::set<int> granted_;
};

/// The symbols that memory of a kind needs besides those that everything needs.
[[nodiscard]] std::vector<const char*> symbols_of(MemKind);

}  // namespace linkscope
