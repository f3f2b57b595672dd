// Random copies, blocks, readings and saves are bit-exact when several threads make them at once by one object of the
// library, each on a stream and memory of its own.
#include <optional>
#include <thread>

#include "random_saves.hpp"
#include "saves_testing.hpp"
#include "system_calls.hpp"

using namespace linkscope;

namespace {

constexpr u64 threads = 4;

/// Lets each thread make its share of the cases. `sample`: cases of a thread in the short campaign. Returns the number of
/// wrong ones, with those that threw.
template <class Case>
int wrong_of_threads(const Application& with, int sample, Case one) {
  std::atomic<int> wrong{0};
  std::vector<std::jthread> running;
  for (u64 thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      with.gpu.use();
      const Stream own{the_driver()};
      std::mt19937_64 random{200 + thread};
      const int cases = is_long() ? 10'000 / static_cast<int>(threads) : sample;
      for (int i = 0; i < cases; ++i) {
        bool is_right = false;
        const auto error = error_of([&] { is_right = one(thread, i, own.get(), random); });
        wrong += !error.empty() || !is_right;
      }
      own.synchronize();
    });
  running.clear();
  return wrong;
}

/// The route with the memory of one thread.
Route shifted(Route route, u64 by) {
  for (std::byte** start : {&route.source, &route.middle, &route.back})
    if (*start) *start += by;
  return route;
}

}  // namespace

TEST_CASE("copies by several threads at once are bit-exact by every method") {
  constexpr u64 most = 3_MiB, space = most + 4 * margin;
  Everywhere all{nullptr, threads * space};
  for (const auto& route : all.routes()) {
    CAPTURE(route.name);
    Transfers transfers{route.options};
    CHECK(wrong_of_threads(all.with, 6, [&](u64 thread, int i, CUstream stream, std::mt19937_64& random) {
            const auto own = shifted(route, thread * space);
            return round_trip(transfers, own, stream, random, i % 6 ? 1_MiB : most);
          }) == 0);
    for (const auto id : route.methods) CHECK(transfers.count_of(id) > 0);
    CHECK(transfers.arena_bytes() <= 8_MiB);
  }
}

TEST_CASE("blocks by several threads at once are bit-exact by every method") {
  const Application with;
  const PinnedMemory pinned{the_driver(), threads * block_space, 0};
  Bytes pageable(threads * block_space), pageable_2(threads * block_space);
  std::byte *gpu = with.on_gpu(), *gpu_2 = with.on_gpu(16_MiB);
  const Ends ends[] = {{gpu, pinned.data()},   {pinned.data(), gpu},   {gpu, gpu_2},
                       {gpu, pageable.data()}, {pageable.data(), gpu}, {pageable.data(), pageable_2.data()}};
  for (const auto method : block_methods) {
    CAPTURE(static_cast<int>(method));
    const auto transfers = transfers_of(method);
    CHECK(wrong_of_threads(with, 18, [&](u64 thread, int i, CUstream stream, std::mt19937_64& random) {
            const auto& [dst, src] = ends[static_cast<std::size_t>(i) % std::size(ends)];
            return blocks_arrive(*transfers, {dst + thread * block_space, src + thread * block_space}, stream, random);
          }) == 0);
  }
}

TEST_CASE("pieces of one file that several threads read at once are bit-exact by every way of reading") {
  constexpr u64 space = 4_MiB;
  const Application with;
  const auto data = random_bytes(3_MiB + 77, 201);
  const File file{data};
  const FileReader reader{file.path.string()};
  Bytes host(threads * space);
  for (const auto& way : read_ways) {
    CAPTURE(std::string{way.name});
    const auto transfers = transfers_of(way);
    pretend_nothing_cached(way.cold);
    const int wrong = wrong_of_threads(with, 8, [&](u64 thread, int i, CUstream stream, std::mt19937_64& random) {
      std::byte* dst = (i % 4 ? with.on_gpu() : host.data()) + thread * space;
      return pieces_arrive(*transfers, reader, data, dst, stream, random);
    });
    pretend_nothing_cached(false);
    CHECK(wrong == 0);
  }
}

TEST_CASE("saves by several threads at once, to files of their own and to one file, are whole by every way") {
  constexpr u64 space = 1_MiB, common_bytes = 64_KiB;
  const Application with{threads * (2 * space + 64)};
  const OnOther elsewhere{with, threads * space};
  const PinnedMemory pinned{the_driver(), threads * space, 0};
  std::vector<std::unique_ptr<const SaveSources>> sources;  // each has pointers into itself
  for (u64 t = 0; t < threads; ++t)
    sources.emplace_back(new SaveSources(save_sources(random_bytes(space, 210 + t), with.on_gpu(t * (2 * space + 64)),
                                                      elsewhere.at(t * space), pinned.data() + t * space)));
  for (const auto& way : save_ways) {
    CAPTURE(std::string{way.name});
    const SavesFolder folder;
    const std::string common = folder.path / "common";
    const auto transfers = transfers_of(way);
    std::optional<FailingSystem> refused;
    if (way.refused) refused.emplace(way.refused, 0, ~u64{0}, EOPNOTSUPP);
    CHECK(wrong_of_threads(with, 5, [&](u64 thread, int i, CUstream stream, std::mt19937_64& random) {
            const auto& from = *sources[thread];
            WriteCounts counts;
            Progress progress;
            transfers->save(common, {{{from.starts[static_cast<u64>(i) % 4], common_bytes, nullptr}}}, false, counts,
                            progress);
            return save_arrives(*transfers, from, {folder.path / std::to_string(thread), way.durable}, 64_KiB, stream,
                                random);
          }) == 0);
    const auto content = content_of(common);
    CHECK(std::count_if(sources.begin(), sources.end(), [&](const auto& one) {
            return content.size() == common_bytes && same(content.data(), one->data.data(), common_bytes);
          }) == 1);
    CHECK(folder.count() == 1 + threads);
    CHECK(std::all_of(sources.begin(), sources.end(), [](const auto& one) { return are_kept(*one); }));
  }
}
