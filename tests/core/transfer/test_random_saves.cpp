// Random saves of memory of GPUs and of the host are bit-exact by every way of writing, and are read again by every way.
#include <optional>

#include "random_saves.hpp"
#include "saves_testing.hpp"
#include "system_calls.hpp"

using namespace linkscope;

TEST_CASE("random saves by every way are bit-exact, and what they saved is read again by every way") {
  const u64 space = is_long() ? 64_MiB : 4_MiB;
  const Application with{2 * space + 64};
  const OnOther elsewhere{with, space};
  const PinnedMemory pinned{the_driver(), space, 0};
  const auto sources = save_sources(random_bytes(space, 150), with.on_gpu(), elsewhere.at(), pinned.data());
  const SavesFolder folder;
  for (const auto& way : save_ways) {
    CAPTURE(std::string{way.name});
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
