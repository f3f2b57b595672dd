// Many blocks in one call, between all kinds of memory.
#include <sys/mman.h>

#include "transfer_testing.hpp"

using namespace linkscope;

namespace {

/// Blocks with gaps between two memories of the same size.
std::vector<Block> scattered(std::byte* dst, const std::byte* src, u64 space, u64 longest, u64 seed) {
  std::mt19937_64 random{seed};
  std::vector<Block> blocks;
  for (u64 at = 0; at + longest + 64 < space; at += longest + 64)
    blocks.push_back({reinterpret_cast<u64>(dst + at + random() % 64), reinterpret_cast<u64>(src + at + random() % 64),
                      random() % 8 ? random() % (longest + 1) : 0});
  return blocks;
}

/// Whether a copy of these blocks over zeros gives this memory.
bool moved(const std::vector<Block>& blocks, const Bytes& source, const std::byte* src, const std::byte* dst) {
  Bytes expected(source.size());
  for (const auto& block : blocks)
    std::memcpy(expected.data() + (block.dst - reinterpret_cast<u64>(dst)),
                source.data() + (block.src - reinterpret_cast<u64>(src)), block.bytes);
  return same(expected.data(), dst, expected.size());
}

void set_all_blocks(Transfers& transfers, const BlockKnobs& knobs) {
  for (const auto towards : {Towards::gpu, Towards::host})
    for (const u64 mean : block_classes) transfers.set(towards, mean, knobs);
}

/// Copies random blocks between two memories and checks every byte.
void check_blocks(Transfers& transfers, const Application& with, std::byte* dst, std::byte* src, u64 space) {
  for (const u64 longest : {u64{1}, u64{300}, u64{4096}, u64{70'000}}) {
    CAPTURE(longest);
    const auto source = random_bytes(space, longest);
    std::memcpy(src, source.data(), space);
    std::memset(dst, 0, space);
    const auto blocks = scattered(dst, src, space, longest, longest);
    transfers.copy_blocks(blocks, with.stream->get());
    with.stream->synchronize();
    CHECK(moved(blocks, source, src, dst));
  }
}

std::byte* first_large_page(const Pages& pages) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<u64>(pages.start) + 2_MiB - 1) / 2_MiB * 2_MiB);
}

}  // namespace

TEST_CASE("blocks arrive between all kinds of memory by every method") {
  constexpr u64 space = 1_MiB;
  const Application with;
  const PinnedMemory pinned{the_driver(), space, 0};
  Bytes pageable(space), pageable_2(space);
  for (const auto method : {BlockMethod::loop, BlockMethod::batch, BlockMethod::kernel}) {
    CAPTURE(static_cast<int>(method));
    Transfers transfers{small_chunks()};
    set_all_blocks(transfers, {method, 8});
    check_blocks(transfers, with, with.on_gpu(), pinned.data(), space);
    check_blocks(transfers, with, pinned.data(), with.on_gpu(), space);
    check_blocks(transfers, with, with.on_gpu(), with.on_gpu(4_MiB), space);
    check_blocks(transfers, with, with.on_gpu(), pageable.data(), space);
    check_blocks(transfers, with, pageable.data(), with.on_gpu(), space);
    check_blocks(transfers, with, pageable.data(), pageable_2.data(), space);
    CHECK(transfers.latest_fallback().empty());
  }
}

TEST_CASE("pageable blocks may be changed when the call returns, and are complete in the other direction") {
  const Application with;
  Transfers transfers{small_chunks()};
  Bytes source = random_bytes(1_MiB, 50), back(1_MiB);
  const auto kept = source;
  const auto there = scattered(with.on_gpu(), source.data(), 1_MiB, 3000, 51);
  std::memset(with.on_gpu(), 0, 1_MiB);
  transfers.copy_blocks(there, with.stream->get());
  std::fill(source.begin(), source.end(), std::byte{0});
  transfers.copy({back.data(), with.on_gpu(), 1_MiB, with.stream->get()});
  CHECK(moved(there, kept, source.data(), with.on_gpu()));
}

TEST_CASE("pageable blocks are packed in chunks of their own knobs, or copied one by one if these are plain") {
  constexpr u64 count = 64, bytes = 8_KiB;
  const Application with;
  const auto source = random_bytes(count * bytes, 52);
  std::vector<Block> blocks;
  for (u64 i = 0; i < count; ++i)
    blocks.push_back(
        {reinterpret_cast<u64>(with.on_gpu(2 * i * bytes)), reinterpret_cast<u64>(source.data() + i * bytes), bytes});
  const struct {
    bool plain;
    u64 chunk;
    unsigned long long launches, copies;
  } cases[] = {{false, 64_KiB, 10, 0}, {false, 256_KiB, 3, 0}, {true, 64_KiB, 0, count}};
  for (const auto& [plain, chunk, launches, copies] : cases) {
    CAPTURE(chunk);
    Transfers transfers{small_chunks()};
    transfers.set(StagedWork::packed_to_gpu, bytes, {plain, 1, chunk, 4, 1, 0, 8, 4_KiB});
    std::memset(with.on_gpu(), 0, 2 * count * bytes);
    fake().fail(nullptr, 0, 0, 0);
    transfers.copy_blocks(blocks, with.stream->get());
    with.stream->synchronize();
    CHECK(fake().calls("cuLaunchKernel") == launches);
    CHECK(fake().calls("cuMemcpyAsync") == copies);
    for (u64 i = 0; i < count; ++i) CHECK(same(with.on_gpu(2 * i * bytes), source.data() + i * bytes, bytes));
  }
}

TEST_CASE("small blocks are one launch of a kernel") {
  const Application with;
  Transfers transfers{small_chunks()};
  const PinnedMemory pinned{the_driver(), 64_KiB, 0};
  std::vector<Block> blocks;
  for (u64 at = 0; at < 64_KiB; at += 4096)
    blocks.push_back({reinterpret_cast<u64>(with.on_gpu(at)), reinterpret_cast<u64>(pinned.data() + at), 4096});
  fake().fail(nullptr, 0, 0, 0);
  transfers.copy_blocks(blocks, with.stream->get());
  CHECK(fake().calls("cuLaunchKernel") == 1);
  CHECK(fake().calls("cuMemcpyAsync") == 0);
}

TEST_CASE("the GPU moves the first of many blocks before all are listed, and a list longer than a slot uses several") {
  constexpr u64 space = 4_MiB;
  const Application with;
  const PinnedMemory pinned{the_driver(), space, 0};
  const auto source = random_bytes(space, 60);
  std::memcpy(pinned.data(), source.data(), space);
  for (const auto& [longest, launches] : {std::pair{u64{4096}, 2}, std::pair{u64{64}, 5}}) {
    CAPTURE(longest);
    for (const int failing_launch : {0, 2}) {
      Transfers transfers{small_chunks()};
      set_all_blocks(transfers, {BlockMethod::kernel, 8});
      std::vector<Block> blocks;
      for (u64 at = 0; at + longest <= space; at += longest + 32)
        blocks.push_back({reinterpret_cast<u64>(with.on_gpu(at)), reinterpret_cast<u64>(pinned.data() + at), longest});
      std::memset(with.on_gpu(), 0, space);
      fake().fail(failing_launch ? "cuLaunchKernel" : nullptr, failing_launch - 1, 1,
                  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
      transfers.copy_blocks(blocks, with.stream->get());
      CHECK(fake().calls("cuLaunchKernel") == (failing_launch ? failing_launch : launches));
      fake().fail(nullptr, 0, 0, 0);
      with.stream->synchronize();
      CHECK(moved(blocks, source, pinned.data(), with.on_gpu()));
      CHECK(transfers.fallbacks() == (failing_launch ? 1 : 0));
    }
  }
}

TEST_CASE("a block that was freed, cannot be written or overlaps itself is refused before any block is copied") {
  const Application with;
  const PinnedMemory pinned{the_driver(), 64_KiB, 0};
  Transfers transfers{small_chunks()};
  std::memset(with.on_gpu(), 1, 64_KiB);
  std::memset(pinned.data(), 2, 64_KiB);
  Pages pages{4_MiB, PROT_READ};
  std::byte* read_only = pages.at();
  const auto refused = [&](std::byte* dst, const std::byte* src) {
    const auto block = [](std::byte* to, const std::byte* from) {
      return Block{reinterpret_cast<u64>(to), reinterpret_cast<u64>(from), 4_KiB};
    };
    const std::vector<Block> blocks{block(with.on_gpu(), pinned.data()), block(dst, src)};
    return error_of([&] { transfers.copy_blocks(blocks, with.stream->get()); });
  };
  for (std::byte* start : {with.on_gpu(8_KiB), pinned.data() + 8_KiB})
    CHECK(refused(start, start + 100).find("a block overlap; copy through a third") != std::string::npos);
  CHECK(refused(read_only, with.on_gpu(8_KiB)).find("this process can write") != std::string::npos);
  pages.free();
  CHECK(refused(read_only, with.on_gpu(8_KiB)).find("this process can write") != std::string::npos);
  CHECK(refused(with.on_gpu(8_KiB), read_only).find("this process can read") != std::string::npos);
  with.stream->synchronize();
  CHECK(with.on_gpu()[0] == std::byte{1});
}

TEST_CASE("a freed or protected pageable block is refused, although the others of the same 2 MiB are good") {
  const Application with;
  Transfers transfers{small_chunks()};
  const Pages pages{4_MiB};
  std::byte* first = first_large_page(pages);
  const auto error = [&](bool to_gpu, std::initializer_list<u64> offsets) {
    std::vector<Block> blocks;
    for (const u64 offset : offsets) {
      const auto host = reinterpret_cast<u64>(first + offset), gpu = reinterpret_cast<u64>(with.on_gpu(offset));
      blocks.push_back({to_gpu ? gpu : host, to_gpu ? host : gpu, 4_KiB});
    }
    const auto found = error_of([&] { transfers.copy_blocks(blocks, with.stream->get()); });
    with.stream->synchronize();
    return found;
  };
  const auto check = [&](bool to_gpu) {
    CHECK(error(to_gpu, {0, 8_KiB, 64_KiB}).find("no memory that this process can") != std::string::npos);
    CHECK(error(to_gpu, {0, 8_KiB, 72_KiB}).empty());
  };
  if (says_access()) {
    mprotect(first + 64_KiB, 4_KiB, PROT_NONE);
    check(true);
    check(false);
    mprotect(first + 64_KiB, 4_KiB, PROT_READ);
    CHECK(error(true, {0, 8_KiB, 64_KiB}).empty());
    check(false);
  }
  munmap(first + 64_KiB, 4_KiB);
  check(true);
  check(false);
}

TEST_CASE("destinations that overlap each other or a source are refused, in long lists for neighbours") {
  const Application with;
  const PinnedMemory pinned{the_driver(), 1_MiB, 0};
  Transfers transfers{small_chunks()};
  const auto block = [&](u64 dst, const std::byte* src, u64 bytes = 4_KiB) {
    return Block{reinterpret_cast<u64>(with.on_gpu(dst)), reinterpret_cast<u64>(src), bytes};
  };
  const auto error = [&](std::vector<Block> blocks) {
    std::memset(with.on_gpu(), 1, 64_KiB);
    const auto text = error_of([&] { transfers.copy_blocks(blocks, with.stream->get()); });
    with.stream->synchronize();
    if (!text.empty()) CHECK(with.on_gpu()[0] == std::byte{1});
    return text;
  };
  std::memset(pinned.data(), 2, 1_MiB);
  const char *twice = "the destinations of two blocks overlap; blocks have no order, so make two calls",
             *read = "the destination of a block overlaps the source of another";
  const std::byte* from = pinned.data();
  CHECK(error({block(0, from), block(8_KiB, from), block(4_KiB - 1, from)}) == twice);
  CHECK(error({block(0, from), block(100, from, 0), block(0, from)}) == twice);
  CHECK(error({block(0, from, 64_KiB), block(128_KiB, from), block(4_KiB, from, 1)}) == twice);
  CHECK(error({block(0, from), block(128_KiB, with.on_gpu(4_KiB - 1))}).starts_with(read));
  CHECK(error({block(128_KiB, with.on_gpu()), block(64_KiB, from), block(4_KiB - 1, from)}).starts_with(read));
  // Blocks that touch, a source that two blocks read, and empty blocks anywhere are no overlap.
  CHECK(error({block(4_KiB, from), block(0, from), block(100, from, 0), block(64_KiB, with.on_gpu(8_KiB))}) == "");
  for (const bool descending : {false, true}) {
    std::vector<Block> many;
    for (u64 i = 0; i < 200; ++i) many.push_back(block((descending ? 199 - i : i) * 4_KiB, from));
    CHECK(error(many) == "");
    many[150].dst += descending ? 1 : u64(-1);
    CHECK(error(many) == twice);
  }
}

TEST_CASE("an error in the calls for blocks leaves each block to a copy of its own") {
  const Application with;
  const PinnedMemory pinned{the_driver(), 1_MiB, 0};
  Bytes pageable(1_MiB);
  for (const char* symbol : {"cuLaunchKernel", "cuModuleLoadData", "cuModuleGetFunction", "cuEventRecord",
                             "cuMemHostAlloc", "cuMemcpyBatchAsync"}) {
    CAPTURE(symbol);
    const u64 held = fake().held();
    {
      Transfers transfers{small_chunks()};
      if (std::string{symbol} == "cuMemcpyBatchAsync") set_all_blocks(transfers, {BlockMethod::batch, 8});
      const Failing failing{symbol};
      check_blocks(transfers, with, with.on_gpu(), pinned.data(), 1_MiB);
      check_blocks(transfers, with, with.on_gpu(), pageable.data(), 1_MiB);
      check_blocks(transfers, with, pageable.data(), with.on_gpu(), 1_MiB);
      CHECK(transfers.latest_fallback().find("blocks: ") == 0);
    }
    CHECK(fake().held() == held);
  }
}

TEST_CASE("a pageable block that begins in known memory and ends in memory that was freed is refused") {
  const Application with;
  Transfers transfers{small_chunks()};
  const Pages pages{6_MiB};
  std::byte* first = first_large_page(pages);
  munmap(first + 2_MiB, 4_KiB);
  const auto start = reinterpret_cast<u64>(first), gpu = reinterpret_cast<u64>(with.on_gpu());
  const auto error = [&](bool to_gpu, u64 bytes) {
    const u64 offset = 2_MiB - 4_KiB;
    std::vector<Block> blocks{{gpu, start, 4_KiB}, {gpu + offset, start + offset, bytes}};
    for (auto& block : blocks)
      if (!to_gpu) std::swap(block.dst, block.src);
    return error_of([&] { transfers.copy_blocks(blocks, with.stream->get()); });
  };
  for (const bool to_gpu : {false, true}) {
    CHECK(error(to_gpu, 4_KiB + 1).find("no memory that this process can") != std::string::npos);
    CHECK(error(to_gpu, 4_KiB).empty());
  }
  with.stream->synchronize();
}

TEST_CASE("packed blocks whose places within 16 bytes differ most fit into their slots") {
  const Application with;
  Options options = small_chunks();
  options.slot_bytes = 32_KiB;
  options.arena_bytes = 64_KiB;  // two slots, one behind the other: what one holds too much is in the other
  Transfers transfers{options};
  constexpr u64 count = 1500, bytes = 18, gap = 64, place = 15;
  transfers.set(StagedWork::packed_to_host, bytes, {false, 1, 32_KiB, 2, 2, 0, 8, 4_KiB});
  const auto source = random_bytes(count * gap, 53);
  std::memcpy(with.on_gpu(), source.data(), source.size());
  Bytes destination(count * bytes);
  std::vector<Block> blocks;
  for (u64 i = 0; i < count; ++i)
    blocks.push_back({reinterpret_cast<u64>(destination.data() + i * bytes),
                      reinterpret_cast<u64>(with.on_gpu(i * gap + place)), bytes});
  const Gate gate{with};  // both slots are listed before the GPU fills the first one
  const std::jthread opener{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{30});
    gate.open();
  }};
  transfers.copy_blocks(blocks, with.stream->get());
  for (u64 i = 0; i < count; ++i) CHECK(same(destination.data() + i * bytes, source.data() + i * gap + place, bytes));
  CHECK(transfers.latest_fallback().empty());
}

TEST_CASE("a small block that is pinned only in part is an error that says so, and no kernel reads beyond") {
  const Application with;
  Transfers transfers{small_chunks()};
  constexpr u64 page = 4_KiB, bytes = 200;
  auto* host = static_cast<std::byte*>(std::aligned_alloc(page, 3 * page));
  const auto source = random_bytes(3 * page, 54);
  std::memcpy(host, source.data(), source.size());
  transfers.register_memory(host + page, page);
  std::vector<Block> blocks;
  const auto add = [&](u64 at) {
    blocks.push_back({reinterpret_cast<u64>(with.on_gpu(at)), reinterpret_cast<u64>(host + at), bytes});
  };
  for (u64 i = 0; i < 4; ++i) add(page + i * bytes);
  add(2 * page - bytes / 2);
  const auto copied = [&] { transfers.copy_blocks(blocks, with.stream->get()); };
  CHECK(error_of(copied).find("the allocation of the source ends after 100 B") != std::string::npos);
  blocks.pop_back();
  copied();  // a kernel that reads what it does not reach would end the context
  with.stream->synchronize();
  CHECK(same(with.on_gpu(page), source.data() + page, 4 * bytes));
  CHECK(transfers.latest_fallback().empty());
  transfers.unregister_memory(host + page);
  std::free(host);
}
