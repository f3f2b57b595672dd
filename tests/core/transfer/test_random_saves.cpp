// Random saves of memory of GPUs and of the host are bit-exact by every way of writing, and are read again by every way.
#include <optional>
#include <thread>

#include "random_saves.hpp"
#include "saves_testing.hpp"
#include "system_calls.hpp"

using namespace linkscope;

namespace {

struct SaveWay {
  const char* name;
  Knobs knobs;
  bool durable = false;
  const char* refused = nullptr;  // a call of the system that always fails
};

constexpr Knobs by_uring{false, 3, 100_KiB, 2, 2, 0, 0, 1, 1, false, false, 5};

constexpr SaveWay save_ways[] = {
    {"threads", {false, 3, 100_KiB, 2, 2, 0}},
    {"io_uring", by_uring},
    {"plain", {true, 1, 100_KiB, 1, 1, 0}},
    {"cuFile", {false, 3, 100_KiB, 2, 2, 0, 0, 1, 1, true}},
    {"durable", by_uring, true},
    {"no O_DIRECT", by_uring, false, "open O_DIRECT"},
    {"no io_uring", by_uring, false, "io_uring_setup"},
    {"no reserved space", by_uring, false, "fallocate"},
};

std::unique_ptr<Transfers> transfers_of(const SaveWay& way) {
  auto transfers = std::make_unique<Transfers>(small_chunks());
  for (const auto work : {StagedWork::write_file, StagedWork::read_cold, StagedWork::read_cached})
    for (const u64 start : file_classes) transfers->set(work, start, way.knobs);
  return transfers;
}

}  // namespace

TEST_CASE("random saves by every way are bit-exact, and what they saved is read again by every way") {
  const u64 space = is_long() ? 64_MiB : 4_MiB;
  const Application with{2 * space + 64};
  const OnOther elsewhere{with, space};
  const PinnedMemory pinned{the_driver(), space, 0};
  const auto sources = save_sources(random_bytes(space, 150), with.on_gpu(), elsewhere.at(), pinned.data());
  const SavesFolder folder;
  for (const auto& way : save_ways) {
    CAPTURE(way.name);
    const auto transfers = transfers_of(way);
    std::optional<FailingSystem> refused;
    if (way.refused) refused.emplace(way.refused, 0, ~u64{0}, EOPNOTSUPP);
    std::mt19937_64 random{151};
    int wrong = 0;
    const int cases = is_long() ? 10'000 : 40;
    for (int i = 0; i < cases; ++i) {
      pretend_nothing_cached(random() % 2);
      const u64 most = i % 1000 == 999 ? space : i % 40 == 39 ? 1_MiB : 64_KiB;
      wrong +=
          !save_arrives(*transfers, sources, {folder.path / "file", way.durable}, most, with.stream->get(), random);
    }
    pretend_nothing_cached(false);
    CHECK(wrong == 0);
    CHECK(are_kept(sources));
    CHECK(folder.count() == 1);
    CHECK((way.knobs.cufile || transfers->latest_fallback().empty()));
  }
}

TEST_CASE("saves by several threads at once, to files of their own and to one file, are whole") {
  constexpr u64 space = 1_MiB, threads = 4;
  const Application with{threads * (2 * space + 64)};
  const OnOther elsewhere{with, threads * space};
  const PinnedMemory pinned{the_driver(), threads * space, 0};
  const auto transfers = transfers_of(save_ways[0]);
  const SavesFolder folder;
  const std::string common = folder.path / "common";
  std::atomic<int> wrong{0};
  std::vector<Bytes> whole(threads);
  {
    std::vector<std::jthread> running;
    for (u64 t = 0; t < threads; ++t)
      running.emplace_back([&, t] {
        with.gpu.use();
        const Stream own{the_driver()};
        const auto sources = save_sources(random_bytes(space, 160 + t), with.on_gpu(t * (2 * space + 64)),
                                          elsewhere.at(t * space), pinned.data() + t * space);
        whole[t] = sources.data;
        std::mt19937_64 random{170 + t};
        for (int i = 0; i < (is_long() ? 500 : 10); ++i) {
          wrong += !save_arrives(*transfers, sources, {folder.path / std::to_string(t)}, 64_KiB, own.get(), random);
          WriteCounts counts;
          Progress progress;
          transfers->save(common, {{{sources.starts[i % 4], space, nullptr}}}, false, counts, progress);
        }
        own.synchronize();
        wrong += !are_kept(sources);
      });
  }
  CHECK(wrong == 0);
  Bytes content(space);
  ReadCounts counts;
  FileReader{common}.read(content.data(), 0, space, counts);
  CHECK(std::count(whole.begin(), whole.end(), content) == 1);
  CHECK(folder.count() == 1 + threads);
}
