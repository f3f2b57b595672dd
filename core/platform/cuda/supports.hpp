// The programs that this machine can run, and reasons for the others.
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "platform/cuda/cuda_platform.hpp"

namespace linkscope {

class Offer {
 public:
  /// Why an earlier program could not share memory as this one does; "" if none is known.
  using WhyNotShared = std::function<std::string(const Program&)>;
  /// Why an actor's collective, or its messages to other processes, cannot run here; "" if they can.
  using WhyNot = std::function<std::string(const Program&, const Actor&)>;
  /// All arguments outlive it. `free_bytes` opens a GPU and returns its free memory.
  Offer(const Driver& driver, const DriverFacts& facts, WhyNot why_no_messages, WhyNot why_no_collective,
        std::function<u64(u32)> free_bytes, WhyNotShared why_not_shared)
      : driver_{driver},
        facts_{facts},
        why_no_messages_{std::move(why_no_messages)},
        why_no_collective_{std::move(why_no_collective)},
        free_bytes_{std::move(free_bytes)},
        why_not_shared_{std::move(why_not_shared)} {}
  [[nodiscard]] Support supports(const Program&) const;

 private:
  [[nodiscard]] std::string why_no_place(const Place&) const;
  [[nodiscard]] std::string why_no_region(const Region&) const;
  [[nodiscard]] std::string why_no_gpu_memory(const Region&) const;
  [[nodiscard]] std::string why_no_host_memory(const Region&) const;
  [[nodiscard]] static std::string why_no_other_process(const Program&, const Actor&);
  [[nodiscard]] std::string why_no_actor(const Program&, const Actor&) const;
  [[nodiscard]] std::string why_no_calls(const Program&, const Actor&) const;
  [[nodiscard]] std::string why_no_kernel(const Program&, const Actor&, const Kernel&) const;
  [[nodiscard]] std::string why_no_block(const Program&, const Actor&) const;
  [[nodiscard]] std::string why_no_threads(const Program&, const Actor&, const Move&) const;
  [[nodiscard]] std::string why_no_processes(const Program&) const;
  [[nodiscard]] std::string why_no_peer(const Program&) const;
  [[nodiscard]] std::string why_too_much_managed(const Program&) const;

  const Driver& driver_;
  const DriverFacts& facts_;
  WhyNot why_no_messages_, why_no_collective_;
  std::function<u64(u32)> free_bytes_;
  WhyNotShared why_not_shared_;
};

/// Why a program's CPU threads that poll for words are too many for this number of CPUs; "" if they are not. A thread whose
/// CPU another one polls on sees its words late, and those who wait for it time out. Up to 12 share CPUs all the same.
[[nodiscard]] std::string why_too_many_waiting(const Program&, u64 cpus);
/// The GPUs, by number, that a program names.
[[nodiscard]] std::set<u32> gpus_of(const Program&);
/// Pairs of GPUs with flows between them.
[[nodiscard]] std::set<std::pair<u32, u32>> peer_pairs(const Program&);
/// Whether one GPU may access the memory of another directly.
[[nodiscard]] bool can_access(const DriverFacts&, u32 from, u32 to);

}  // namespace linkscope
