// The library's copies in two legs: through the memory of helper GPUs, and through pinned memory between two GPUs.
#pragma once
#include <memory>
#include <mutex>
#include <utility>

#include "gpu/vmm.hpp"
#include "transfer/gpus.hpp"
#include "transfer/hop.hpp"
#include "transfer/options.hpp"

namespace linkscope {

/// Memory of one GPU that another one reaches too. The grant is for this memory alone: peer access between contexts
/// stays as the application has set it, and memory of the application stays out of reach.
class GrantedMemory {
 public:
  /// Throws Error{memory} if the GPU has no more, Error{failed} if the other one cannot reach it. Needs can_relay().
  GrantedMemory(const Driver&, CUdevice owner, CUdevice other, u64 bytes);
  [[nodiscard]] CUdeviceptr address() const { return mapping_->address(); }

 private:
  PhysicalMemory physical_;
  std::unique_ptr<Mapping> mapping_;  // last: it uses the memory above
};

class Hops {
 public:
  static constexpr u32 slots = 3;  // of each hop: one fills, one empties, one is between the calls for the two

  /// `slot_bytes`: of a slot in memory of a helper.
  Hops(const Driver& driver, Gpus& gpus, u64 slot_bytes) : driver_{driver}, gpus_{gpus}, slot_bytes_{slot_bytes} {}
  Hops(const Hops&) = delete;
  Hops& operator=(const Hops&) = delete;

  /// A hop for one copy, or none.
  class Lease {
   public:
    Lease() = default;
    Lease(Hops& hops, std::size_t number, Hop* hop) : hops_{&hops}, number_{number}, hop_{hop} {}
    ~Lease();
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    explicit operator bool() const { return hop_ != nullptr; }
    Hop* operator->() const { return hop_; }
    /// Waits for the hop's work, whose order after the caller's stream is not known. Returns false if the driver cannot;
    /// the hop is then never used again.
    [[nodiscard]] bool finish();

   private:
    Hops* hops_ = nullptr;
    std::size_t number_ = 0;
    Hop* hop_ = nullptr;
    bool is_broken_ = false;
  };

  /// Whether the target GPU can reach memory of the helper, and the driver can grant it.
  [[nodiscard]] bool can_relay(u32 helper, u32 target) const;
  /// Between host memory and the lane's GPU through memory of the helper, of slot_bytes() a slot. Empty if the hop still
  /// works for another stream: a copy must not wait for a stream that may itself wait for this copy.
  [[nodiscard]] Lease relay(u32 helper, const CopyLane&, Towards);
  /// From one GPU to another through slots that the caller names, for a copy of this lane. Empty likewise.
  [[nodiscard]] Lease bounce(u32 from, u32 to, const CopyLane&);
  [[nodiscard]] u64 slot_bytes() const { return slot_bytes_; }
  /// Waits for the GPUs and frees all. No hop is leased.
  void clear();

 private:
  enum class Kind : u8 { to_gpu, to_host, bounce };
  struct Entry {
    Kind kind;
    u32 first, second;
    std::unique_ptr<GrantedMemory> memory;
    std::unique_ptr<Hop> hop;  // after the memory that its queued work uses
    bool leased = false;
    CopyLane latest{};  // whose copy used it
  };
  [[nodiscard]] Lease take(Kind, u32 first, u32 second, const CopyLane&);
  [[nodiscard]] Entry made(Kind, u32 first, u32 second);

  const Driver& driver_;
  Gpus& gpus_;
  u64 slot_bytes_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace linkscope
