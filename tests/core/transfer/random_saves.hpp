// Random saves of memory of every kind, which are read again.
#pragma once
#include <array>

#include "random_blocks.hpp"
#include "random_copies.hpp"

namespace linkscope {

/// Memory of the same random bytes: of a GPU, of another one, pinned and pageable; and room on the GPU for what is read.
struct SaveSources {
  const Bytes data;
  std::array<const std::byte*, 4> starts;
  std::byte* room;
};

/// Copies the data to all places. `gpu`: twice as long as the data.
inline SaveSources save_sources(Bytes data, std::byte* gpu, std::byte* other_gpu, std::byte* pinned) {
  for (std::byte* to : {gpu, other_gpu, pinned}) std::copy(data.begin(), data.end(), to);
  const std::byte* room = gpu + data.size();
  const std::byte* pageable = data.data();  // moves with the vector
  return {std::move(data), {gpu, other_gpu, pinned, pageable}, const_cast<std::byte*>(room)};
}

/// Up to 12 ranges of random sizes and places. `expected` receives their bytes, one behind the other.
inline std::vector<FileSource> random_sources(const SaveSources& from, u64 most, CUstream stream,
                                              std::mt19937_64& random, Bytes& expected) {
  std::vector<FileSource> sources;
  for (u64 i = random() % 13; i > 0; --i) {
    const u64 bytes = std::min(random_size(random, most), from.data.size() - expected.size()),
              at = random() % (from.data.size() - bytes + 1), kind = random() % from.starts.size();
    sources.push_back({from.starts[kind] + at, bytes, kind == 0 ? stream : nullptr});
    expected.insert(expected.end(), from.data.begin() + static_cast<std::ptrdiff_t>(at),
                    from.data.begin() + static_cast<std::ptrdiff_t>(at + bytes));
  }
  return sources;
}

struct SaveTo {
  std::string path;
  bool durable = false;
};

/// Saves random ranges over an earlier file, and reads it to the GPU from a random byte on. Returns whether the file has
/// the bytes and these arrived.
inline bool save_arrives(Transfers& transfers, const SaveSources& from, const SaveTo& to, u64 most, CUstream stream,
                         std::mt19937_64& random) {
  Bytes expected;
  const auto sources = random_sources(from, most, stream, random, expected);
  WriteCounts written;
  Progress progress;
  transfers.save(to.path, sources, to.durable, written, progress);
  if (written.direct + written.buffered != expected.size()) return false;
  const FileReader reader{to.path};
  Bytes content(expected.size());
  ReadCounts counts;
  reader.read(content.data(), 0, content.size(), counts);
  const u64 start = random() % (expected.size() + 1), left = expected.size() - start;
  std::memset(from.room, 0x5A, left + 1);
  Progress reading;
  transfers.read(reader, {{{start, left, from.room}}}, stream, counts, reading);
  LINKSCOPE_CU(the_driver(), cuStreamSynchronize, stream);
  return reader.size() == expected.size() && content == expected && same(from.room, expected.data() + start, left) &&
         from.room[left] == std::byte{0x5A};
}

/// How files are saved.
struct SaveWay {
  const char* name;
  Knobs knobs;
  bool durable = false;
  const char* refused = nullptr;  // a call of the system that always fails
};

inline constexpr Knobs saves_by_uring{false, 3, 100_KiB, 2, 2, 0, 0, 1, 1, false, false, 5};

inline constexpr SaveWay save_ways[] = {
    {"threads", {false, 3, 100_KiB, 2, 2, 0}},
    {"io_uring", saves_by_uring},
    {"plain", {true, 1, 100_KiB, 1, 1, 0}},
    {"cuFile", {false, 3, 100_KiB, 2, 2, 0, 0, 1, 1, true}},
    {"durable", saves_by_uring, true},
    {"no O_DIRECT", saves_by_uring, false, "open O_DIRECT"},
    {"no io_uring", saves_by_uring, false, "io_uring_setup"},
    {"no reserved space", saves_by_uring, false, "fallocate"},
};

inline std::unique_ptr<Transfers> transfers_of(const SaveWay& way) {
  auto transfers = std::make_unique<Transfers>(small_chunks());
  for (const auto work : {StagedWork::write_file, StagedWork::read_cold, StagedWork::read_cached})
    for (const u64 start : file_classes) transfers->set(work, start, way.knobs);
  return transfers;
}

inline bool are_kept(const SaveSources& sources) {
  return std::all_of(sources.starts.begin(), sources.starts.end(),
                     [&](const std::byte* one) { return same(one, sources.data.data(), sources.data.size()); });
}

}  // namespace linkscope
