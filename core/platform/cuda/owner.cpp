#include "platform/cuda/owner.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace linkscope {
namespace {

// Together less than the shortest time-out of the requesting process. The first answer comes when the driver has
// started there.
constexpr Seconds first_patience{3.0}, short_patience{3.0};

/// For memory that is allocated, touched or freed.
Seconds patience_for(u64 bytes) {
  constexpr double slowest_rate = 0.2e9;
  return short_patience + Seconds{static_cast<double>(bytes) / slowest_rate};
}

void name(OwnerRequest& request, const std::string& gpu) { gpu.copy(request.gpu, sizeof request.gpu - 1); }
}  // namespace

struct Owner::Answered {
  OwnerAnswer what;
  Descriptor descriptor;
};

void Owner::tell(const OwnerRequest& request, int descriptor) {
  if (!process_) process_ = std::make_unique<SecondProcess>(owner_argument);
  if (exchange_patience_) (void)exchanged();  // that was never requested
  process_->tell(&request, sizeof request, descriptor);
}

Owner::Answered Owner::hear(Seconds wait) {
  Answered answer;
  answer.descriptor = process_->hear(&answer.what, sizeof answer.what, wait);
  auto& message = answer.what.message;
  message[sizeof message - 1] = '\0';
  if (answer.what.failed) {
    const auto kind = std::min(answer.what.failed - 1, static_cast<u32>(ErrorKind::memory));
    throw Error{static_cast<ErrorKind>(kind), std::string{"in the process that owns it, "} + message};
  }
  spent_ += Seconds{answer.what.seconds};
  return answer;
}

Owner::Answered Owner::ask(const OwnerRequest& request, Seconds patience, int descriptor) {
  if (!process_) patience += first_patience;
  tell(request, descriptor);
  return hear(patience);
}

Owner::Piece Owner::allocate(const Region& region, const std::string& gpu, u64 bytes) {
  OwnerRequest request;
  request.kind = static_cast<u32>(region.kind);
  request.bytes = bytes;
  if (region.at.kind == PlaceKind::numa) request.node = region.at.index;
  name(request, gpu);
  auto answer = ask(request, patience_for(bytes));
  if (answer.what.bytes < bytes)
    throw Error{ErrorKind::lost, "the process that owns shared memory gave " + bytes_text(answer.what.bytes) +
                                     " instead of " + bytes_text(bytes)};
  return {answer.what.piece, answer.what.bytes, std::move(answer.descriptor)};
}

Owner::Share Owner::share(const Piece& piece) {
  auto answer = ask({.op = OwnerOp::share, .piece = piece.number}, short_patience);
  return {answer.what.handle, std::move(answer.descriptor)};
}

void Owner::touch(const Piece& piece) {
  (void)ask({.op = OwnerOp::touch, .piece = piece.number}, patience_for(piece.bytes));
}

u64 Owner::look(const Piece& piece, u64 offset) {
  return ask({.op = OwnerOp::look, .piece = piece.number, .offset = offset}, short_patience).what.word;
}

void Owner::free(const Piece& piece) {
  (void)ask({.op = OwnerOp::free, .piece = piece.number}, patience_for(piece.bytes));
}

Owner::Piece Owner::open(MemKind kind, const Share& share, const std::string& gpu, u64 bytes) {
  OwnerRequest request{.op = OwnerOp::open, .kind = static_cast<u32>(kind), .bytes = bytes, .handle = share.handle};
  name(request, gpu);
  const auto answer = ask(request, patience_for(bytes), share.descriptor.get());
  return {answer.what.piece, bytes, {}};
}

void Owner::exchange(const OwnerExchange& words, const std::string& gpu) {
  constexpr Seconds slowest_round_trip{1e-4};
  OwnerRequest request{.op = OwnerOp::exchange, .exchange = words};
  name(request, gpu);
  tell(request);
  exchange_patience_ =
      short_patience + Seconds{words.loop.timeout_s} + static_cast<double>(words.loop.count) * slowest_round_trip;
}

Owner::Exchanged Owner::exchanged() {
  const auto answer = hear(*std::exchange(exchange_patience_, std::nullopt));
  return {answer.what.in_vain ? std::optional{answer.what.word} : std::nullopt, answer.what.enter_s,
          answer.what.enter_s + answer.what.seconds};
}

void Owner::check_alive() {
  if (process_) process_->check_alive();
}

}  // namespace linkscope
