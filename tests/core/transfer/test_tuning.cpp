// Knobs by size class, the file that keeps them, and checks against the driver's own copies.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "transfer/checks.hpp"
#include "transfer/trial.hpp"
#include "transfer_testing.hpp"

using namespace linkscope;
namespace fs = std::filesystem;

namespace {

/// A file that is removed at the end.
struct TuningFile {
  explicit TuningFile(const char* name)
      : path{(fs::temp_directory_path() / (std::to_string(getpid()) + "-" + name)).string()} {}
  ~TuningFile() { fs::remove(path); }
  TuningFile(const TuningFile&) = delete;
  TuningFile& operator=(const TuningFile&) = delete;
  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    text << std::ifstream{path}.rdbuf();
    return text.str();
  }
  /// Replaces the first `old` in the file.
  void change(const std::string& old, const std::string& by) const {
    std::string now = text();
    const auto at = now.find(old);
    REQUIRE(at != std::string::npos);
    std::ofstream{path} << now.replace(at, old.size(), by);
  }
  std::string path;
};

Options reading(const std::string& path) {
  Options options = small_chunks();
  options.tuning = path;
  return options;
}

constexpr auto to_gpu = MethodId::ring_to_gpu;
constexpr Knobs by_tma{false, 1, 16_KiB, 1, 1, 0, 32, 4_KiB, 1, false, true},
    by_sm{false, 1, 16_KiB, 1, 1, 0, 64, 4_KiB};
constexpr Knobs mapped{false, 4, 16_MiB, 2, 1, 0, 0, 1, 1, false, false, 0, true};
constexpr Knobs tuned{false, 2, 128_KiB, 3, 1, 64_KiB};

/// Writes a file with one changed class.
void write_with(const TuningFile& file, const Knobs& knobs, u64 bytes = 1_MiB) {
  Transfers transfers{small_chunks()};
  transfers.set(to_gpu, bytes, knobs);
  transfers.set(Towards::host, 4_KiB, {BlockMethod::batch, 5});
  transfers.set("packed_to_host", 5_KiB, {true, 2, 64_KiB, 3, 1, 0, 7, 4_KiB});
  transfers.set("read_cold", 2_MiB, {false, 2, 512_KiB, 32, 1, 0, 0, 1, 1, true});
  transfers.set("read_cached", 2_MiB, mapped);
  transfers.set("write_file", 2_MiB, {false, 2, 512_KiB, 3, 1, 0, 0, 1, 1, false, false, 7});
  transfers.set("between_gpus", 1_MiB, {false, 1, 512_KiB, 2, 1, 0});
  transfers.set("within_gpu", 1_MiB, by_tma);
  transfers.set("between_peers", 4_MiB, by_sm);
  CHECK(transfers.save_tuning(file.path, "1.2.3") == file.path);
}

}  // namespace

TEST_CASE("a size belongs to the class whose first size is the largest that is not larger") {
  CHECK(class_of(size_classes, 1) == 0);
  CHECK(class_of(size_classes, 64_KiB) == 0);
  CHECK(class_of(size_classes, 256_KiB - 1) == 0);
  CHECK(class_of(size_classes, 256_KiB) == 1);
  CHECK(class_of(size_classes, 4096_MiB) == size_classes.size() - 1);
  CHECK(class_of(size_classes, 512_MiB) == size_classes.size() - 2);
}

TEST_CASE("a kernel that was chosen at 512 MiB does not move copies of 1 GiB") {
  Transfers transfers{small_chunks()};
  Knobs by_kernel = transfers.options().of(to_gpu, 512_MiB);
  by_kernel.sm_blocks = 32;
  by_kernel.sm_chunk = 64_KiB;
  transfers.set(to_gpu, 512_MiB, by_kernel);
  CHECK(transfers.options().of(to_gpu, 300_MiB).sm_blocks == 32);
  CHECK(transfers.options().of(to_gpu, 1024_MiB).sm_blocks == 0);
}

TEST_CASE("a class that chooses plain copies plainly, and its neighbours do not") {
  const Application with;
  Transfers transfers{small_chunks()};
  Knobs plain = transfers.options().of(to_gpu, 1_MiB);
  plain.plain = true;
  transfers.set(to_gpu, 1_MiB, plain);
  const auto source = random_bytes(5_MiB, 60);
  for (const u64 bytes : {u64{512_KiB}, u64{2_MiB}, u64{5_MiB}})
    transfers.copy({with.on_gpu(), source.data(), bytes, with.stream->get()});
  with.stream->synchronize();
  CHECK(same(with.on_gpu(), source.data(), source.size()));
  CHECK(transfers.count_of(to_gpu) == 2);
  CHECK(transfers.count_of(MethodId::plain) == 1);
}

TEST_CASE("knobs that no copy can have are refused") {
  Transfers transfers{small_chunks()};
  const auto refused = [&](const Knobs& knobs) {
    return !error_of([&] { transfers.set(to_gpu, 1_MiB, knobs); }).empty();
  };
  CHECK(refused({false, 0, 1_MiB, 1, 1, 0}));
  CHECK(refused({false, 1, 0, 1, 1, 0}));
  CHECK(refused({false, 1, 1_MiB, 0, 1, 0}));
  CHECK(refused({false, 1, 1_MiB, 1, 0, 0}));
  CHECK(refused({false, 1, 1_MiB, 1, 1, 100}));
  CHECK_FALSE(refused(tuned));
}

TEST_CASE("a tuning file gives the knobs back that were written") {
  const TuningFile file{"round-trip"};
  write_with(file, tuned);
  const Transfers read{reading(file.path)};
  CHECK(read.tuning().file == file.path);
  CHECK(read.tuning().note.find("by linkscope 1.2.3") != std::string::npos);
  CHECK(read.options().of(to_gpu, 1_MiB) == tuned);
  CHECK(read.options().of(to_gpu, 4_MiB) == small_chunks().of(to_gpu, 4_MiB));
  CHECK(read.options().of(Towards::host, 5_KiB) == BlockKnobs{BlockMethod::batch, 5});
  CHECK(read.knobs("packed_to_host", 4_KiB) == Knobs{true, 2, 64_KiB, 3, 1, 0, 7, 4_KiB});
  CHECK(read.knobs("packed_to_host", 64_KiB) == small_chunks().of(StagedWork::packed_to_host, 64_KiB));
  CHECK(read.knobs("read_cold", 1_MiB) == Knobs{false, 2, 512_KiB, 32, 1, 0, 0, 1, 1, true});
  CHECK(read.knobs("read_cold", 16_MiB) == small_chunks().of(StagedWork::read_cold, 16_MiB));
  CHECK(read.knobs("read_cached", 1_MiB) == mapped);
  CHECK(read.knobs("read_cached", 16_MiB) == small_chunks().of(StagedWork::read_cached, 16_MiB));
  CHECK(file.text().find("copies read_cached from 1048576 mapped ") != std::string::npos);
  CHECK(read.knobs("write_file", 1_MiB).uring == 7);
  CHECK(read.knobs("write_file", 16_MiB).uring == 32);
  CHECK(read.knobs("between_gpus", 1_MiB).chunk == 512_KiB);
  CHECK(read.knobs("within_gpu", 1_MiB) == by_tma);
  CHECK(read.knobs("between_peers", 4_MiB) == by_sm);
  CHECK(file.text().find("copies within_gpu from 1048576 tma ") != std::string::npos);
  CHECK(file.text().find("copies between_peers from 4194304 sm ") != std::string::npos);
}

TEST_CASE("a damaged, stale or foreign file changes nothing and is named with its line") {
  const struct {
    const char *old, *by, *expected;
  } cases[] = {
      {"format 1", "format 2", ":1: another format"},
      {"linkscope transfer", "something else", ":1: not a tuning file"},
      {"driver ", "driver 1", ":2: made for another machine"},
      {"made: ", "", ":3: 'made: ' is missing"},
      {" threads 2", " threads 0", "1 to 1024 threads"},
      {" threads 2", " threads -2", "'-2' is not a number"},
      {" threads 2", " threads 99999999999", "'threads' is too large"},
      {" threads 2", " threads 99999999999999999999", "'99999999999999999999' is not a number"},
      {" chunk ", " lump ", "'chunk' is missing"},
      {" uring 0\n", "\n", "the line is too short"},
      {" uring 0\n", " uring 0 more\n", "'more' is too much"},
      {" links 1 ", " links 0 ", "1 to 64 links"},
      {" uring 32\n", " uring 1025\n", "at most 1024 requests in flight"},
      {" sm_blocks 0", " sm_blocks 2", "chunks of at least 4 KiB"},
      {"ring_to_gpu from 65536", "ring_to_gpu from 65537", "65537 is not the first size of a class"},
      {"copies ring_to_gpu", "copies ring_to_mars", "'ring_to_mars' is not a method"},
      {"read_cold from 1048576", "read_cold from 65536", "65536 is not the first size of a class"},
      {" ring threads", " string threads", "'string' is not plain, ring, cufile, mapped, sm or tma"},
      {"blocks to_gpu", "blocks to_mars", "'to_mars' is not a direction"},
      {"batch", "bunch", "'bunch' is not a method for blocks"},
      {"copies", "copy", "'copy' is not copies or blocks"},
      {"end\n", "", "the file ends too early"},
  };
  for (const auto& [old, by, expected] : cases) {
    CAPTURE(expected);
    const TuningFile file{"damaged"};
    write_with(file, tuned);
    file.change(old, by);
    const Transfers read{reading(file.path)};
    CHECK(read.tuning().file.empty());
    CHECK(read.tuning().note.find(file.path) == 0);
    CHECK(read.tuning().note.find(expected) != std::string::npos);
    CHECK(read.tuning().note.find("linkscope tune") != std::string::npos);
    CHECK(read.options().knobs == small_chunks().knobs);
  }
}

TEST_CASE("the bounds of pinned memory come from the environment, and text that is no number of bytes is refused") {
  const auto value = [](u64 Options::* of) { return Options::from_environment().*of; };
  for (const auto& [variable, of] : {std::pair{"LINKSCOPE_TRANSFER_ARENA", &Options::arena_bytes},
                                     {"LINKSCOPE_TRANSFER_REGISTERED", &Options::registered_bytes}}) {
    setenv(variable, "12345678", 1);
    CHECK(value(of) == 12'345'678);
    for (const char* wrong : {"64MB", "64 ", "-1", "many", "99999999999999999999"}) {
      setenv(variable, wrong, 1);
      CHECK(error_of([] { (void)Options::from_environment(); }) ==
            std::string{variable} + "='" + wrong + "' is not a number of bytes; correct it or unset it");
    }
    unsetenv(variable);
    CHECK(value(of) == Options{}.*of);
  }
}

TEST_CASE("a path that is no tuning file is ignored with a reason") {
  CHECK(Transfers{reading("/nowhere/at all")}.tuning().note.find("does not exist") != std::string::npos);
  CHECK(Transfers{reading("/tmp")}.tuning().note.find("is not a tuning file") != std::string::npos);
  CHECK(Transfers{small_chunks()}.tuning().file.empty());
}

TEST_CASE("a file that cannot be written is named") {
  const Transfers transfers{small_chunks()};
  CHECK(error_of([&] { (void)transfers.save_tuning("/proc/nowhere/file", "1"); }).find("cannot be written") !=
        std::string::npos);
}

TEST_CASE("plain copies that win three checks in a row replace the method, and a lost check starts anew") {
  using Kind = PlainChecks::Kind;
  PlainChecks checks;
  const auto check = [&](double plain_s, double method_s) {
    checks.add(to_gpu, 1_MiB, Kind::plain, plain_s);
    checks.add(to_gpu, 1_MiB, Kind::method, method_s);
  };
  check(1e-3, 2e-3);
  check(1e-3, 2e-3);
  check(2e-3, 1e-3);
  check(1e-3, 2e-3);
  check(1e-3, 2e-3);
  CHECK_FALSE(checks.prefers_plain(to_gpu, 1_MiB));
  CHECK(checks.text().empty());
  check(1e-3, 2e-3);
  CHECK(checks.prefers_plain(to_gpu, 2_MiB));
  CHECK_FALSE(checks.prefers_plain(to_gpu, 4_MiB));
  CHECK_FALSE(checks.prefers_plain(MethodId::ring_to_host, 1_MiB));
  CHECK(checks.text().find("ring_to_gpu from 1 MiB are plain") != std::string::npos);
}

TEST_CASE("two of 256 copies of a class are timed, and no copy of more than 1 GiB") {
  using Kind = PlainChecks::Kind;
  PlainChecks checks;
  for (int i = 0; i < 4; ++i) CHECK(checks.next(to_gpu, PlainChecks::most_bytes + 1) == Kind::none);
  std::vector<u64> plain, method;
  for (u64 i = 0; i < 2 * PlainChecks::every; ++i) {
    const auto kind = checks.next(to_gpu, 1_MiB);
    if (kind == Kind::plain) plain.push_back(i);
    if (kind == Kind::method) method.push_back(i);
  }
  CHECK(plain == std::vector<u64>{1, 257});
  CHECK(method == std::vector<u64>{2, 258});
}

TEST_CASE("with a tuning file the second copy of a class is plain, and without one no copy is") {
  const TuningFile file{"checked"};
  write_with(file, tuned);
  const Application with;
  const auto source = random_bytes(1_MiB, 61);
  for (const bool checked : {true, false}) {
    Transfers transfers{reading(checked ? file.path : "none")};
    for (int i = 0; i < 4; ++i) {
      transfers.copy({with.on_gpu(), source.data(), source.size(), with.stream->get()});
      with.stream->synchronize();
    }
    CHECK(transfers.count_of(MethodId::plain) == (checked ? 1 : 0));
    CHECK(transfers.count_of(to_gpu) == (checked ? 3 : 4));
    CHECK(same(with.on_gpu(), source.data(), source.size()));
  }
}

TEST_CASE("a trial times each way of each path, and frees what it allocated") {
  const u64 held = fake().held();
  {
    Transfers transfers{small_chunks()};
    Trial trial{transfers, 1, 4_MiB};
    for (const auto id : {to_gpu, MethodId::ring_to_host, MethodId::ring_to_fresh}) {
      for (const auto way : {Trial::Way::chosen, Trial::Way::plain, Trial::Way::pinned})
        CHECK(trial.copy(id, way, 1_MiB, 2) > 0);
      CHECK(transfers.count_of(id) == 2);
    }
    transfers.set("within_gpu", 1_MiB, by_sm);
    for (const auto way : {Trial::Way::chosen, Trial::Way::plain, Trial::Way::pinned})
      CHECK(trial.copy(MethodId::within_gpu, way, 1_MiB, 2) > 0);
    CHECK(transfers.count_of(MethodId::within_gpu) == 2);
    CHECK(trial.blocks(Towards::gpu, 4_KiB, 100, 1) > 0);
    CHECK(trial.blocks(Towards::host, 4_KiB, 100, 1) > 0);
    CHECK(trial.packed(Towards::gpu, 4_KiB, 100, 1) > 0);
    CHECK(trial.packed(Towards::host, 4_KiB, 100, 1) > 0);
    CHECK(error_of([&] { (void)trial.copy(to_gpu, Trial::Way::plain, 5_MiB, 1); }).find("cannot copy") !=
          std::string::npos);
    CHECK(error_of([&] { (void)trial.copy(MethodId::host, Trial::Way::plain, 4096, 1); }).find("a trial copies by") ==
          0);
    CHECK(error_of([&] { (void)trial.blocks(Towards::gpu, ~u64{0}, 2, 1); }).find("cannot copy") != std::string::npos);
    CHECK(error_of([&] { const Trial none{transfers, 7, 1_MiB}; }).find("gpu:7 is not here") != std::string::npos);
    const Failing failing{"cuLaunchKernel"};
    CHECK(error_of([&] { (void)trial.blocks(Towards::gpu, 4_KiB, 100, 1); }).find("blocks: ") == 0);
  }
  CHECK(fake().held() == held);
}

TEST_CASE("a trial copies between two GPUs through pinned slots, if another one was named") {
  const u64 held = fake().held();
  {
    Transfers transfers{with_helpers()};
    Trial trial{transfers, 0, 4_MiB};
    CHECK(error_of([&] { (void)trial.copy(MethodId::between_gpus, Trial::Way::plain, 1_MiB, 1); }).find("needs two") !=
          std::string::npos);
    CHECK(error_of([&] { (void)trial.copy(MethodId::between_peers, Trial::Way::plain, 1_MiB, 1); }).find("needs two") !=
          std::string::npos);
    CHECK(error_of([&] { trial.add_gpu(0); }).find("name another one") != std::string::npos);
    CHECK(error_of([&] { trial.add_gpu(9); }).find("gpu:9 is not here") != std::string::npos);
    trial.add_gpu(1);
    for (const auto way : {Trial::Way::chosen, Trial::Way::plain, Trial::Way::pinned})
      CHECK(trial.copy(MethodId::between_gpus, way, 1_MiB, 2) > 0);
    CHECK(transfers.count_of(MethodId::between_gpus) == 2);
    {
      const Failing failing{"cuDeviceCanAccessPeer"};
      CHECK(error_of([&] { (void)trial.copy(MethodId::between_peers, Trial::Way::plain, 1_MiB, 1); }) ==
            "gpu:0 does not reach memory of gpu:1 by peer access");
    }
    transfers.set("between_peers", 1_MiB, by_tma);
    for (const auto way : {Trial::Way::chosen, Trial::Way::plain, Trial::Way::pinned})
      CHECK(trial.copy(MethodId::between_peers, way, 1_MiB, 2) > 0);
    CHECK(transfers.count_of(MethodId::between_peers) == 2);
  }
  CHECK(fake().held() == held);
}

TEST_CASE("a trial reads a file from memory, from the page cache and from a disk, and saves one") {
  Transfers transfers{small_chunks()};
  Trial trial{transfers, 0, 4_MiB};
  const auto here = fs::temp_directory_path().string();
  CHECK(trial.file("", false, 4_MiB, 2) > 0);
  CHECK(trial.file(here, false, 1_MiB, 2) > 0);
  CHECK(trial.save(here, 1_MiB, 2) > 0);
  CHECK_FALSE(fs::exists(here + "/linkscope-trial-" + std::to_string(getpid())));
  CHECK(error_of([&] { (void)trial.save("/nowhere", 1_MiB, 1); }).find("cannot be made") != std::string::npos);
  const auto cold = error_of([&] { CHECK(trial.file(here, true, 1_MiB, 2) > 0); });
  CHECK((cold.empty() || cold.find("stay in memory") != std::string::npos));  // a file system in memory
  CHECK(error_of([&] { (void)trial.file("", true, 1_MiB, 1); }).find("name a directory on a disk") !=
        std::string::npos);
  CHECK(error_of([&] { (void)trial.file("/nowhere", false, 1_MiB, 1); }).find("/nowhere cannot be used") == 0);
  CHECK(error_of([&] { (void)trial.file("", false, 5_MiB, 1); }).find("cannot copy 5 MiB") != std::string::npos);
}
