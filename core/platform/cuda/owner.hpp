// Memory of another process, as requested by this one. That process is this program started again: it opens the driver
// for itself, allocates on request, and ends when this one does.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "gpu/driver.hpp"
#include "host/second_process.hpp"
#include "platform/cuda/owner_messages.hpp"
#include "program/program.hpp"

namespace linkscope {

/// The driver shares whole blocks, which smaller pieces share with their neighbours.
[[nodiscard]] constexpr u64 whole_blocks(u64 bytes) { return (bytes + (u64{2} << 20) - 1) >> 21 << 21; }

/// The argument that makes this program the owner.
inline constexpr const char* owner_argument = "--owns-memory";

class Owner {
 public:
  /// A piece of its memory by its number there. Host memory comes with the descriptor by which both map it.
  struct Piece {
    u64 number = 0;
    u64 bytes = 0;  // at least the requested bytes, in whole granules
    Descriptor descriptor{};
  };
  /// What another process needs to open a piece of a GPU's memory: the handle of `ipc`, the descriptor of `posix_fd`.
  struct Share {
    CUipcMemHandle handle{};
    Descriptor descriptor{};
  };

  /// Each throws the error that occurred there, and Error{lost} if it has ended or does not answer. The first request
  /// starts it. `gpu` is the UUID of the GPU whose memory it is; "" for host memory.
  [[nodiscard]] Piece allocate(const Region&, const std::string& gpu, u64 bytes);
  [[nodiscard]] Share share(const Piece&);
  /// Writes the first byte to each page.
  void touch(const Piece&);
  /// The word of 8 bytes as the owner sees it.
  [[nodiscard]] u64 look(const Piece&, u64 offset);
  /// Frees a piece that it allocated or opened.
  void free(const Piece&);
  /// Opens memory that this process shares, for a GPU (by its UUID).
  [[nodiscard]] Piece open(MemKind, const Share&, const std::string& gpu, u64 bytes);
  /// Starts a thread of the owner, of a GPU (by its UUID) or a CPU (""), that sets words and waits for them, until
  /// `exchanged`.
  void exchange(const OwnerExchange&, const std::string& gpu);
  struct Exchanged {
    std::optional<u64> in_vain;      // the value that did not arrive in time, if any
    double enter_s = 0, exit_s = 0;  // by its clock, which is the host's
  };
  [[nodiscard]] Exchanged exchanged();
  [[nodiscard]] bool exchanging() const { return exchange_patience_.has_value(); }
  /// Total duration of its own calls by its clock, without messages.
  [[nodiscard]] Seconds spent() const { return spent_; }
  /// Throws Error{lost} if it was started and has ended.
  void check_alive();

 private:
  struct Answered;
  void tell(const OwnerRequest&, int descriptor = -1);
  Answered hear(Seconds patience);
  Answered ask(const OwnerRequest&, Seconds patience, int descriptor = -1);
  std::unique_ptr<SecondProcess> process_;
  Seconds spent_{0};
  std::optional<Seconds> exchange_patience_;  // requests without an answer yet
};

/// Main loop of the owner: serves the socket until it closes, and ends the process.
[[noreturn]] void own_memory(int socket);

}  // namespace linkscope
