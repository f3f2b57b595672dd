// A network card of the mlx5 kind, in host memory, that trusts nothing: it checks every bit of what it reads, executes
// operations between pairs of its own, and writes completions. It decodes by byte offsets and shares no code with
// core/putget, so that one mistake cannot hide another.
#pragma once
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"

namespace linkscope {

class MockCard {
 public:
  struct CompletionRing {
    std::span<std::byte> entries;
    const u32* record = nullptr;
    u64 written = 0;
    struct Told {
      u32 pair, end;  // the send queue's blocks that a completion frees
    };
    std::deque<Told> told;
    u64 confirmed = 0;
  };
  /// What a driver would tell a card of a queue pair.
  struct Pair {
    u32 number = 0;
    std::span<std::byte> send, receive;
    const u32 *send_record = nullptr, *receive_record = nullptr;
    u64* doorbell = nullptr;
    u32 completions = 0, peer = 0;  // indices
    u32 executed = 0, received = 0, confirmed = 0;
    bool failed = false, cut = false;
  };

  /// The key of a region.
  u32 add_region(std::span<std::byte>);
  u32 add_completions(std::span<std::byte> entries, const u32& record);
  /// An idle doorbell is set to `idle`.
  u32 add_pair(Pair);
  void connect(u32 pair, u32 peer) { pairs_[pair].peer = peer; }

  /// The card at the other end of a pair does not answer any longer.
  void cut(u32 pair) { pairs_[pair].cut = true; }

  /// Executes what doorbells announce. Others may post at the same time if `beside_posters` is true: then an element
  /// counts as announced when its doorbell rings, and blocks that are not posted yet are not looked at.
  void work();
  bool beside_posters = false;
  /// Reads return what they find when the next element with a fence begins, or when all that was announced is done.
  bool late_reads = false;

  /// What a real card would answer with undefined behaviour. Such an element also completes with an error.
  std::vector<std::string> faults;

  static constexpr u64 idle = ~u64{0};

 private:
  struct Element;
  void serve(u32 pair);
  [[nodiscard]] u32 announced(const Pair&, u32 posted, u64 rung);
  void execute(u32 pair, const Element&);
  void read_late(u32 pair);
  [[nodiscard]] Element decode(const Pair&, u32 left);
  void check_control(const Pair&, const Element&);
  void check_segments(const Element&);
  void check_stamps(u32 pair);
  [[nodiscard]] u8 perform(u32 pair, const Element&);
  [[nodiscard]] u8 deliver(u32 pair, const Element&, std::span<const std::byte> payload);
  void complete(u32 pair, const Element&, u8 syndrome);
  void write_entry(CompletionRing&, std::span<const std::byte> entry, CompletionRing::Told);
  void expect(bool, const std::string& otherwise);
  [[nodiscard]] std::byte* range(u32 key, u64 address, u64 bytes) const;

  struct Region {
    u32 key;
    std::span<std::byte> memory;
  };
  std::vector<Region> regions_;
  std::vector<CompletionRing> completions_;
  std::vector<Pair> pairs_;
  std::vector<std::pair<u32, std::vector<std::byte>>> late_;  // elements: their index and bytes
};

}  // namespace linkscope
