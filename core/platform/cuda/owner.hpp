// Memory that another process owns, as this one asks for it. That process is this program started again: it opens the
// driver for itself, allocates what it is asked for, and ends when this one does.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "platform/cuda/driver.hpp"
#include "platform/cuda/owner_messages.hpp"
#include "platform/host/second_process.hpp"
#include "program/program.hpp"

namespace linkscope {

/// The driver shares whole blocks: smaller pieces have neighbours in theirs.
[[nodiscard]] constexpr u64 whole_blocks(u64 bytes) { return (bytes + (u64{2} << 20) - 1) >> 21 << 21; }

/// The argument by which this program is the owner.
inline constexpr const char* owner_argument = "--owns-memory";

class Owner {
 public:
  /// A piece of its memory by its number there. Host memory comes with the descriptor that both map it by.
  struct Piece {
    u64 number = 0;
    u64 bytes = 0;  // at least as many as were asked for: whole granules
    Descriptor descriptor{};
  };
  /// What another process opens a piece of a GPU's memory by: of `ipc` the handle, of `posix_fd` the descriptor.
  struct Share {
    CUipcMemHandle handle{};
    Descriptor descriptor{};
  };

  /// Each throws what went wrong there, Error{lost} where it has ended or does not answer. The first starts it. `gpu` is the
  /// UUID of the GPU whose memory it is; "" for host memory.
  [[nodiscard]] Piece allocate(const Region&, const std::string& gpu, u64 bytes);
  [[nodiscard]] Share share(const Piece&);
  /// Writes a byte to each page: the first to do so.
  void touch(const Piece&);
  /// The word of 8 bytes that it sees there.
  [[nodiscard]] u64 look(const Piece&, u64 offset);
  /// Gives a piece back that it allocated or opened.
  void free(const Piece&);
  /// Has it open so many bytes that this process shares, for a GPU (by its UUID).
  [[nodiscard]] Piece open(MemKind, const Share&, const std::string& gpu, u64 bytes);
  /// Has a thread of its own, of a GPU (by its UUID) or a CPU (""), set words there and wait for them, until `exchanged`.
  void exchange(const OwnerExchange&, const std::string& gpu);
  struct Exchanged {
    std::optional<u64> in_vain;      // the value that it waited for, if it did not come
    double enter_s = 0, exit_s = 0;  // by its clock, which is the host's
  };
  [[nodiscard]] Exchanged exchanged();
  [[nodiscard]] bool exchanging() const { return exchange_patience_.has_value(); }
  /// How long its own calls have taken in all, by its clock: what messages take is not in it.
  [[nodiscard]] Seconds spent() const { return spent_; }
  /// Throws Error{lost} where it was started and has ended.
  void check_alive();

 private:
  struct Answered;
  void tell(const OwnerRequest&, int descriptor = -1);
  Answered hear(Seconds patience);
  Answered ask(const OwnerRequest&, Seconds patience, int descriptor = -1);
  std::unique_ptr<SecondProcess> process_;
  Seconds spent_{0};
  std::optional<Seconds> exchange_patience_;  // of what it was told and has not answered yet
};

/// The owner's life: does what comes through the socket until that ends, and ends the process.
[[noreturn]] void own_memory(int socket);

}  // namespace linkscope
