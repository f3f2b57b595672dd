// Times copies with memory of its own, for `linkscope tune`.
#pragma once
#include <memory>

#include "gpu/memory.hpp"
#include "gpu/stream.hpp"
#include "transfer/transfers.hpp"
#include "transfer/trial_file.hpp"

namespace linkscope {

class Trial {
 public:
  /// How a copy is made: with the method's present knobs, by the driver, or by the driver from or to pinned memory.
  /// Copies between memories of GPUs with peer access have no pinned memory: there, pinned is plain.
  enum class Way : u8 { chosen, plain, pinned };

  /// Allocates `bytes` on the GPU, pageable and pinned, over which copies rotate. Throws Error{usage} for a GPU that is
  /// not here, and Error{memory}.
  Trial(Transfers&, u32 gpu, u64 bytes);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Allocates `bytes` on another GPU, from which between_gpus copies. Memory that this GPU reaches, from which
  /// between_peers copies, is allocated at its first copy. Throws Error{usage} for a GPU that is not here.
  void add_gpu(u32 gpu);
  /// The median seconds of `repeats` copies on an idle stream, each with its end. Throws Error{failed} if the method
  /// fell back to plain copies.
  [[nodiscard]] double copy(MethodId, Way, u64 bytes, u32 repeats);
  /// The same for `count` blocks between pinned memory, in order, and pages of the GPU in a random order.
  [[nodiscard]] double blocks(Towards towards, u64 block_bytes, u64 count, u32 repeats) {
    return blocks_of(pinned_.data(), towards, block_bytes, count, repeats);
  }
  /// The same with pageable memory.
  [[nodiscard]] double packed(Towards towards, u64 block_bytes, u64 count, u32 repeats) {
    return blocks_of(pageable_.data(), towards, block_bytes, count, repeats);
  }
  /// The median seconds of reading the first `bytes` of a file to the GPU: of a file in `directory`, or in memory if it
  /// is empty. `is_cold`: the page cache is evicted before each reading. Throws Error{failed} if it is not, or if the
  /// system refuses the file.
  [[nodiscard]] double file(const std::string& directory, bool is_cold, u64 bytes, u32 repeats);
  /// The same for saving memory of the GPU durably to a file in `directory`, which is removed.
  [[nodiscard]] double save(const std::string& directory, u64 bytes, u32 repeats);

 private:
  [[nodiscard]] u64 next_offset(u64 bytes);
  template <class Call>
  [[nodiscard]] double timed(Call call);
  [[nodiscard]] CopyRequest request_of(MethodId, Way, u64 bytes, void* fresh);
  [[nodiscard]] double blocks_of(std::byte* memory, Towards, u64 block_bytes, u64 count, u32 repeats);
  void require(u64 bytes) const;
  void require_memory(MethodId);

  Transfers& transfers_;
  Device& gpu_;
  u32 number_, other_number_ = 0;
  u64 bytes_, offset_ = 0;
  std::unique_ptr<Stream> stream_;
  DeviceMemory on_gpu_;
  PinnedMemory pinned_;
  std::vector<std::byte> pageable_;
  Device* other_ = nullptr;
  DeviceMemory on_other_, also_on_gpu_;
  std::unique_ptr<GrantedMemory> on_peer_;
  std::unique_ptr<TrialFile> file_;
};

}  // namespace linkscope
