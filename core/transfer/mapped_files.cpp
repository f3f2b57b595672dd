#include "transfer/mapped_files.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "gpu/pinned_range.hpp"
#include "gpu/stream.hpp"
#include "transfer/capture.hpp"

namespace linkscope {
namespace {

using namespace literals;

// Of a shorter piece the CPU may read the pages in place of the GPU, and pages that a truncated file lost would then end
// the process by SIGBUS.
constexpr u64 least_bytes = 64_KiB;

/// Pieces within one range of the file.
struct Window {
  std::vector<FilePiece> pieces;
  u64 begin = 0, end = 0;  // of the pieces in the file
  u64 bytes = 0;           // of all pieces, which may overlap
};

struct Windows {
  std::vector<Window> all;
  std::vector<FilePiece> too_short;
};

/// Joins neighbours that continue each other in the file and at the destination: pieces come in the lengths of slots.
std::vector<FilePiece> joined(std::span<const FilePiece> pieces) {
  std::vector<FilePiece> whole;
  for (const auto& piece : pieces) {
    if (!whole.empty() && whole.back().offset + whole.back().bytes == piece.offset &&
        static_cast<std::byte*>(whole.back().dst) + whole.back().bytes == piece.dst)
      whole.back().bytes += piece.bytes;
    else whole.push_back(piece);
  }
  return whole;
}

/// Divides pieces at the multiples of `window_bytes` in the file.
Windows divided(std::span<const FilePiece> pieces, u64 window_bytes) {
  std::vector<FilePiece> parts;
  Windows windows;
  for (const auto& [offset, bytes, dst] : joined(pieces))
    for (u64 at = 0; at < bytes;) {
      const u64 step = std::min(bytes - at, window_bytes - (offset + at) % window_bytes);
      auto& to = step < least_bytes ? windows.too_short : parts;
      to.push_back({offset + at, step, static_cast<std::byte*>(dst) + at});
      at += step;
    }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  for (const auto& part : parts) {
    if (windows.all.empty() || windows.all.back().begin / window_bytes != part.offset / window_bytes)
      windows.all.push_back({{}, part.offset, 0, 0});
    auto& window = windows.all.back();
    window.pieces.push_back(part);
    window.end = std::max(window.end, part.offset + part.bytes);
    window.bytes += part.bytes;
  }
  return windows;
}

/// Copies on a lane. Its destructor waits for them, because their source ends.
class LaneCopies {
 public:
  LaneCopies(const Driver& driver, const CopyLane& lane)
      : driver_{driver}, lane_{lane}, event_{driver, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC} {}
  ~LaneCopies() {
    if (under_way_) driver_.cuStreamSynchronize(lane_.stream);
  }
  LaneCopies(const LaneCopies&) = delete;
  LaneCopies& operator=(const LaneCopies&) = delete;
  void queue(const FilePiece& piece, const std::byte* src) {
    under_way_ = true;
    LINKSCOPE_CU(driver_, cuMemcpyHtoDAsync, reinterpret_cast<CUdeviceptr>(piece.dst), src, piece.bytes, lane_.stream);
  }
  void wait() {
    LINKSCOPE_CU(driver_, cuEventRecord, event_.get(), lane_.stream);
    LINKSCOPE_CU(driver_, cuEventSynchronize, event_.get());
    under_way_ = false;
  }

 private:
  const Driver& driver_;
  const CopyLane& lane_;
  Event event_;
  bool under_way_ = false;
};

void copy_window(const Driver& driver, const FileReader& file, const Window& window, const CopyLane& lane) {
  const CurrentContext current{driver, lane.context};
  const DuringCaptures allowed{driver};
  MappedRange mapped{file.buffered(), window.begin, window.end - window.begin};
  PinnedRange pinned{driver, mapped};
  {
    LaneCopies copies{driver, lane};
    for (const auto& piece : window.pieces) copies.queue(piece, mapped.at(piece.offset));
    copies.wait();
  }
  pinned.end();
  // The last page has zeros behind the end of a file that became shorter meanwhile.
  file.require(window.end);
}

}  // namespace

std::vector<FilePiece> read_mapped(const Resources& with, const FileReader& file, std::span<const FilePiece> pieces,
                                   const Knobs& knobs, const CopyLane& lane, ReadCounts& counts, Progress& progress) {
  const u64 most = with.options.arena_bytes,
            window_bytes = std::max(std::min(knobs.chunk, most / knobs.threads), 2 * least_bytes);
  const auto threads = static_cast<u32>(std::clamp<u64>(most / window_bytes, 1, knobs.threads));
  const auto [windows, too_short] = divided(pieces, window_bytes);
  std::vector<char> is_done(windows.size());
  std::atomic<bool> is_refused{false};
  share_out(with.movers, windows.size(), threads, progress, [&](u64 i) {
    if (is_refused) return;
    try {
      // Pages that a file lacks would be read one by one when they are mapped.
      if (!file.can_be_read_now(windows[i].begin, windows[i].end - windows[i].begin)) return;
      copy_window(with.driver, file, windows[i], lane);
      is_done[i] = true;
      counts.cached += windows[i].bytes;
      counts.mapped += windows[i].bytes;
      progress.add(windows[i].bytes);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::lost) throw;
      if (!is_refused.exchange(true)) with.fallbacks.note(std::string{"mapped: "} + error.what());
    }
  });
  std::vector<FilePiece> left = too_short;
  for (std::size_t i = 0; i < windows.size(); ++i)
    if (!is_done[i]) left.insert(left.end(), windows[i].pieces.begin(), windows[i].pieces.end());
  return left;
}

}  // namespace linkscope
