// Random blocks, and random pieces of files.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "host/file_reader.hpp"
#include "transfer_testing.hpp"

namespace linkscope {

inline constexpr u64 block_space = 256_KiB;

struct Ends {
  std::byte *dst, *src;
};

/// Blocks of up to `longest` bytes with gaps of random lengths, in a random order.
inline std::vector<Block> random_blocks(const Ends& ends, u64 longest, std::mt19937_64& random) {
  std::vector<Block> blocks;
  for (u64 at = 0; at + longest + 64 < block_space && blocks.size() < 1000; at += longest + 64)
    blocks.push_back({reinterpret_cast<u64>(ends.dst + at + random() % 64),
                      reinterpret_cast<u64>(ends.src + at + random() % 64), random() % (longest + 1)});
  std::shuffle(blocks.begin(), blocks.end(), random);
  return blocks;
}

/// Copies random blocks over other bytes. Returns whether the destination is as if each block was copied alone.
inline bool blocks_arrive(Transfers& transfers, const Ends& ends, CUstream stream, std::mt19937_64& random) {
  const auto source = random_bytes(block_space, random());
  std::memcpy(ends.src, source.data(), block_space);
  std::memset(ends.dst, 0x5A, block_space);
  Bytes expected(block_space, std::byte{0x5A});
  const auto blocks = random_blocks(ends, 1 + random() % (u64{1} << random() % 17), random);
  for (const auto& block : blocks)
    std::memcpy(expected.data() + (block.dst - reinterpret_cast<u64>(ends.dst)),
                source.data() + (block.src - reinterpret_cast<u64>(ends.src)), block.bytes);
  transfers.copy_blocks(blocks, stream);
  LINKSCOPE_CU(the_driver(), cuStreamSynchronize, stream);
  return same(expected.data(), ends.dst, block_space);
}

inline constexpr BlockMethod block_methods[] = {BlockMethod::loop, BlockMethod::batch, BlockMethod::kernel};

/// Moves all blocks by one method. Pageable ones are packed, or copied one by one with the loop.
inline std::unique_ptr<Transfers> transfers_of(BlockMethod method) {
  auto transfers = std::make_unique<Transfers>(small_chunks());
  const bool plain = method == BlockMethod::loop;
  for (const auto work : {StagedWork::packed_to_gpu, StagedWork::packed_to_host})
    for (const u64 mean : packed_classes) transfers->set(work, mean, {plain, 3, 100_KiB, 2, 2, 0, 8, 4_KiB});
  for (const auto towards : {Towards::gpu, Towards::host})
    for (const u64 mean : block_classes) transfers->set(towards, mean, {method, 8});
  return transfers;
}

/// A file that its destructor removes.
struct File {
  explicit File(const Bytes& data, const std::string& name = "") {
    path += name;
    std::FILE* file = std::fopen(path.c_str(), "wb");
    REQUIRE(std::fwrite(data.data(), 1, data.size(), file) == data.size());
    std::fclose(file);
  }
  ~File() { std::filesystem::remove(path); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] Bytes content() const {
    std::ifstream file{path, std::ios::binary};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    const auto* start = reinterpret_cast<const std::byte*>(text.data());
    return {start, start + text.size()};
  }
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("linkscope-random-" + std::to_string(getpid()));
};

/// How files are read.
struct ReadWay {
  const char* name;
  bool cold, plain, cufile;
  u32 uring = 4;  // reads of io_uring in flight
  bool mapped = false;
};
inline constexpr ReadWay read_ways[] = {
    {"cached", false, false, false}, {"mapped", false, false, false, 0, true},
    {"cold", true, false, false},    {"cold, without io_uring", true, false, false, 0},
    {"plain", true, true, false},    {"cuFile", true, false, true}};

inline std::unique_ptr<Transfers> transfers_of(const ReadWay& way) {
  auto transfers = std::make_unique<Transfers>(small_chunks());
  for (const auto work : {StagedWork::read_cached, StagedWork::read_cold})
    for (const u64 start : file_classes)
      transfers->set(work, start, {way.plain, 3, 100_KiB, 4, 1, 0, 0, 1, 1, way.cufile, false, way.uring, way.mapped});
  return transfers;
}

/// Reads up to 20 random pieces, which may overlap in the file. Returns whether all arrived and nothing else changed.
inline bool pieces_arrive(Transfers& transfers, const FileReader& file, const Bytes& data, std::byte* dst,
                          CUstream stream, std::mt19937_64& random) {
  std::vector<FilePiece> pieces;
  u64 place = 0;
  for (u64 i = random() % 20; i > 0; --i) {
    const u64 bytes = random() % (u64{1} << random() % 18), offset = random() % (data.size() - bytes);
    place += random() % 64;
    pieces.push_back({offset, bytes, dst + place});
    place += bytes;
  }
  std::memset(dst, 0x5A, place + 64);
  Bytes expected(place + 64, std::byte{0x5A});
  for (const auto& piece : pieces)
    std::memcpy(expected.data() + (static_cast<std::byte*>(piece.dst) - dst), data.data() + piece.offset, piece.bytes);
  ReadCounts counts;
  Progress progress;
  transfers.read(file, pieces, stream, counts, progress);
  LINKSCOPE_CU(the_driver(), cuStreamSynchronize, stream);
  return same(expected.data(), dst, expected.size());
}

}  // namespace linkscope
