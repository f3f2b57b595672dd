// Whichever call of the driver fails, the data is right or the error is clear. The calls are those that were made.
#include <array>
#include <map>
#include <numeric>

#include "random_blocks.hpp"
#include "transfer/asynchronous.hpp"

using namespace linkscope;

namespace {

constexpr u64 each_bytes = 256_KiB;

/// How copies and blocks move, and how many calls succeed before one fails in the short campaign.
struct Way {
  Options options;
  BlockMethod blocks;
  u64 after;
};

/// One application that uses every function of the library.
struct Everything {
  const Application with{8 * each_bytes};
  const OnOther elsewhere{with, each_bytes};
  const PinnedMemory pinned{the_driver(), each_bytes, 0};
  const Bytes data = random_bytes(each_bytes, 130);
  const Bytes old = random_bytes(1000, 131);
  const File file{data}, saved{old, "-saved"};

  /// Does one thing. Returns its error; without one, the data must have arrived.
  template <class Work>
  std::string step(std::byte* dst, Work work) const {
    std::memset(dst, 0, each_bytes);
    const auto error = error_of(work);
    if (!error.empty()) return error;
    arrivals.push_back(dst);
    return "";
  }
  std::vector<std::string> go(const Way& way, std::unique_ptr<Transfers>& made) const {
    arrivals.clear();
    Bytes back(each_bytes);
    std::vector<std::string> errors;
    const CUstream stream = with.stream->get();
    std::memcpy(pinned.data(), data.data(), each_bytes);
    std::memcpy(with.on_gpu(), data.data(), each_bytes);
    errors.push_back(error_of([&] {
      made = std::make_unique<Transfers>(way.options);
      for (const auto towards : {Towards::gpu, Towards::host})
        for (const u64 mean : block_classes) made->set(towards, mean, {way.blocks, 8});
    }));
    if (!made) return errors;
    Transfers& transfers = *made;
    const auto copied = [&](std::byte* dst, const std::byte* src) {
      errors.push_back(step(dst, [&] { transfers.copy({dst, src, each_bytes, stream}); }));
    };
    copied(with.on_gpu(1 * each_bytes), data.data());
    copied(with.on_gpu(2 * each_bytes), pinned.data());
    copied(elsewhere.at(), with.on_gpu());
    errors.push_back(step(with.on_gpu(3 * each_bytes),
                          [&] { transfers.copy_blocks(blocks(3 * each_bytes, pinned.data()), stream); }));
    errors.push_back(
        step(with.on_gpu(4 * each_bytes), [&] { transfers.copy_blocks(blocks(4 * each_bytes, data.data()), stream); }));
    errors.push_back(step(with.on_gpu(5 * each_bytes), [&] {
      ReadCounts counts;
      Progress progress;
      transfers.read(FileReader{file.path.string()}, {{{0, each_bytes, with.on_gpu(5 * each_bytes)}}}, stream, counts,
                     progress);
    }));
    errors.push_back(step(with.on_gpu(6 * each_bytes), [&] {
      AsynchronousCopy copy{transfers, {with.on_gpu(6 * each_bytes), data.data(), each_bytes, stream}};
      copy.wait();
    }));
    errors.push_back(step(with.on_gpu(7 * each_bytes), [&] {
      transfers.prepare({with.on_gpu(7 * each_bytes), data.data(), each_bytes, stream}).run();
    }));
    errors.push_back(save(transfers));
    errors.push_back(error_of([&] {
      transfers.copy({back.data(), with.on_gpu(), each_bytes, stream});
      came_back = back == data;
    }));
    return errors;
  }
  /// Half of the data from the GPU and half from the host.
  std::string save(Transfers& transfers) const {
    const auto error = error_of([&] {
      WriteCounts counts;
      Progress progress;
      const u64 half = each_bytes / 2;
      transfers.save(saved.path, {{{with.on_gpu(), half, with.stream->get()}, {data.data() + half, half, nullptr}}},
                     false, counts, progress);
    });
    is_saved = saved.content() == (error.empty() ? data : old);
    return error;
  }
  [[nodiscard]] std::vector<Block> blocks(u64 at, const std::byte* src) const {
    std::vector<Block> found;
    for (u64 i = 0; i < each_bytes; i += 16_KiB)
      found.push_back({reinterpret_cast<u64>(with.on_gpu(at + i)), reinterpret_cast<u64>(src + i), 16_KiB});
    return found;
  }
  [[nodiscard]] bool all_arrived() const {
    return std::all_of(arrivals.begin(), arrivals.end(),
                       [&](const std::byte* dst) { return same(dst, data.data(), each_bytes); });
  }
  mutable std::vector<std::byte*> arrivals;
  mutable bool came_back = false, is_saved = false;
};

Options where_threads_save() {
  Options options = small_chunks();
  for (const u64 start : file_classes) options.of(StagedWork::write_file, start).uring = 0;
  return options;
}

/// Kernels move chunks, and the GPU copies files from the page cache.
Options where_files_are_mapped() {
  Options options = small_chunks_by_kernel();
  for (const u64 start : file_classes) options.of(StagedWork::read_cached, start).mapped = true;
  return options;
}

const Way ways[] = {{where_threads_save(), BlockMethod::loop, 0},
                    {where_files_are_mapped(), BlockMethod::kernel, 1},
                    {with_links(), BlockMethod::batch, 3}};

/// The driver's functions that all of the library calls, and how often.
std::map<std::string, u64> calls_of(const Way& way) {
  const Everything all;
  std::unique_ptr<Transfers> transfers;
  fake().fail(nullptr, 0, 0, 0);
  for (const auto& error : all.go(way, transfers)) CHECK(error == "");
  std::map<std::string, u64> calls;
  for (u64 i = 0; const char* name = fake().called(i); ++i) calls[name] = 0;
  for (auto& [name, count] : calls) count = fake().calls(name.c_str());
  all.with.stream->synchronize();
  CHECK(all.all_arrived());
  CHECK(all.came_back);
  CHECK(all.is_saved);
  return calls;
}

/// The calls after which one fails: in the long campaign each, but for those that wait again and again.
std::vector<u64> places(const Way& way, u64 count) {
  constexpr u64 most = 100;
  if (!is_long()) return {way.after};
  std::vector<u64> all(std::min(count, most));
  std::iota(all.begin(), all.end(), u64{0});
  return all;
}

void go_while_failing(const Way& way, const std::string& symbol, u64 after) {
  const Everything all;
  std::unique_ptr<Transfers> transfers;
  std::vector<std::string> errors;
  {
    const Failing failing{symbol.c_str(), after};
    errors = all.go(way, transfers);
  }
  all.with.gpu.use();
  all.with.stream->synchronize();
  CHECK(all.all_arrived());
  CHECK((all.came_back || !errors.back().empty()));
  CHECK((all.is_saved || !transfers));
  // A stream whose state the driver does not tell counts as captured. Files and copies in the background need another one.
  for (const auto& error : errors)
    CHECK_MESSAGE(
        (error.empty() || error.find("CUDA_ERROR") != std::string::npos || error.find("captured") != std::string::npos),
        error);
}

}  // namespace

TEST_CASE("whichever call of the driver fails, the data is right or the error is clear, and nothing leaks") {
  const Impatient impatient;
  for (const auto& way : ways)
    for (const auto& [symbol, count] : calls_of(way)) {
      CAPTURE(symbol);
      // What the driver does not free, or whose context it does not make current, stays.
      const bool frees = std::ranges::any_of(std::array{"Free", "Destroy", "Unmap", "Release", "Unload", "cuCtx"},
                                             [&](const char* part) { return symbol.find(part) != std::string::npos; });
      for (const u64 after : places(way, count)) {
        CAPTURE(after);
        const u64 held = fake().held();
        go_while_failing(way, symbol, after);
        if (!frees) CHECK(fake().held() == held);
      }
    }
}
