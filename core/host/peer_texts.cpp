#include "host/peer_texts.hpp"

#include <array>

namespace linkscope {
namespace {

/// A part of a text: processes give each other short messages.
struct Piece {
  u32 left = 0;  // bytes of the text in this piece and the next ones
  std::array<char, 1024> bytes{};
};

}  // namespace

void give_text(Peers& peers, u32 to, const std::string& text) {
  std::size_t at = 0;
  do {
    Piece piece;
    piece.left = static_cast<u32>(text.size() - at);
    text.copy(piece.bytes.data(), piece.bytes.size(), at);
    peers.give(to, piece);
    at += piece.bytes.size();
  } while (at < text.size());
}

std::string take_text(Peers& peers, u32 from, const char* what, Seconds patience) {
  std::string text;
  for (bool more = true; more;) {
    const auto piece = peers.take<Piece>(from, what, patience);
    more = piece.left > piece.bytes.size();
    text.append(piece.bytes.data(), more ? piece.bytes.size() : piece.left);
  }
  return text;
}

}  // namespace linkscope
