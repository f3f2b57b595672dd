// Copies of real files on the cuda platform, with the fake driver: cold and hot, exact in both directions, and nothing is
// left in the directory.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "benchmarks/case.hpp"
#include "cuda_testing.hpp"
#include "fake_driver.hpp"
#include "host/topology.hpp"

using namespace linkscope;
using namespace linkscope::literals;

namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  explicit Folder(fs::path within = fs::temp_directory_path())
      : path{std::move(within) / ("linkscope-files-" + std::to_string(getpid()))} {
    fs::create_directory(path);
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

Program copy_of_file(const fs::path& folder, bool to_gpu, u64 bytes, std::map<std::string, std::string> params) {
  const Place disk = parse_place("disk:" + folder.string()), gpu = parse_place("gpu:0");
  params.emplace("chunk", "64KiB");
  params.emplace("ring", "numa:0");
  return build_program({"file_copies", Engine::file, to_gpu ? disk : gpu, to_gpu ? gpu : disk,
                        to_gpu ? MemKind::file : MemKind::device, to_gpu ? MemKind::device : MemKind::file, bytes,
                        2 * bytes, std::move(params)});
}

std::string why_not(const Program& program) { return platform().supports(program).why_not; }

/// The trace of a run, and the note on the page cache.
std::pair<Trace, std::string> run(const Program& program) {
  REQUIRE_MESSAGE(platform().supports(program), why_not(program));
  const auto session = platform().prepare(program, "files#0");
  const std::vector<u32> batch(program.actors.size(), 3);
  std::string note;
  auto trace = platform().run(*session, {2, {batch, batch}, true});
  for (const auto& [name, text] : trace.notes)
    if (name.starts_with("page cache disk:")) note = text;
  return {std::move(trace), note};
}

/// Whether files in the folder leave the page cache, as on a disk.
bool is_on_disk(const fs::path& folder) {
  try {
    for (const bool to_gpu : {false, true})
      (void)platform().prepare(copy_of_file(folder, to_gpu, 64_KiB, {}), "files#0");
    return true;
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    CHECK(std::string{error.what()}.find("choose cache=hot") != std::string::npos);
    return false;
  }
}

}  // namespace

TEST_CASE("a CPU thread reads a file exactly into host memory, also for a duration") {
  const Folder folder;
  for (const char* cache : {"cold", "hot"}) {
    if (std::string{cache} == "cold" && !is_on_disk(folder.path)) continue;
    const Place disk = parse_place("disk:" + folder.path.string());
    const auto program = build_program({"read_file",
                                        Engine::file,
                                        disk,
                                        parse_place("numa:0"),
                                        MemKind::file,
                                        MemKind::pinned,
                                        256_KiB,
                                        512_KiB,
                                        {{"cache", cache}}});
    const auto [trace, note] = run(program);
    CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
    CHECK(trace.verdict->checked_bytes >= 512_KiB);
    const auto session = platform().prepare(program, "files#0");
    Order order{1, {}, true};
    order.lasts = Duration{Seconds{0.02}, Seconds{0.01}};
    CHECK(platform().run(*session, order).verdict->ok);
    CHECK(fs::is_empty(folder.path));
  }
}

TEST_CASE("several requests in flight move a file exactly in both directions, or the kernel's refusal is said") {
  const Folder folder;
  for (const char* cache : {"cold", "hot"})
    for (const bool to_gpu : {true, false}) {
      if (std::string{cache} == "cold" && !is_on_disk(folder.path)) continue;
      const auto program = copy_of_file(folder.path, to_gpu, 512_KiB, {{"cache", cache}, {"depth", "4"}});
      if (const auto why = why_not(program); !why.empty()) {
        CHECK(why.find("the kernel refuses io_uring") == 0);
        continue;
      }
      const auto [trace, note] = run(program);
      CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
      CHECK(trace.verdict->checked_bytes >= 512_KiB);
    }
}

TEST_CASE("cuFile moves a file exactly in both directions, and its absence is said") {
  const Folder folder;
  const Place disk = parse_place("disk:" + folder.path.string()), gpu = parse_place("gpu:0");
  using enum MemKind;
  for (const bool reads : {true, false}) {
    const auto program = build_program({"file_direct",
                                        Engine::file,
                                        reads ? disk : gpu,
                                        reads ? gpu : disk,
                                        reads ? file : device,
                                        reads ? device : file,
                                        256_KiB,
                                        512_KiB,
                                        {}});
    if (const auto why = why_not(program); !why.empty()) {
      CHECK_MESSAGE(why.find("libcufile") != std::string::npos, why);
      continue;
    }
    if (!is_on_disk(folder.path)) continue;
    const auto [trace, note] = run(program);
    CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
    CHECK(trace.verdict->checked_bytes >= 512_KiB);
  }
}

TEST_CASE("a file in the page cache is mapped, registered and copied exactly by one thread and by several") {
  const Folder folder;
  const auto program = [&](const char* chunk, const char* threads) {
    return build_program({"file_mapped",
                          Engine::file,
                          parse_place("disk:" + folder.path.string()),
                          parse_place("gpu:0"),
                          MemKind::file,
                          MemKind::device,
                          1_MiB,
                          2_MiB,
                          {{"chunk", chunk}, {"threads", threads}}});
  };
  const char* most_threads = host_nodes().at(0).cpus.size() > 1 ? "2" : "1";  // no more threads than CPUs
  for (const char* chunk : {"whole", "64KiB"})
    for (const char* threads : {"1", most_threads}) {
      fake().fail(nullptr, 0, 0, 0);  // counts calls from here
      const auto [trace, note] = run(program(chunk, threads));
      CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
      CHECK(trace.verdict->checked_bytes >= 1_MiB);
      CHECK(note == "100.0 % cached");
      constexpr u64 copies = 2 * 2 * 3;  // a rehearsal, two samples of three, and those of the comparison at least
      const u64 windows = fake().calls("cuMemHostRegister");
      CHECK(windows >= copies / 2 * (std::string{chunk} == "whole" ? 1 : 16));
      CHECK(windows == fake().calls("cuMemHostUnregister"));
      CHECK(fs::is_empty(folder.path));
    }
  const auto several = program("64KiB", most_threads);
  const auto session = platform().prepare(several, "files#0");
  const Failing sixth{"cuMemHostRegister", 5, 1};
  const std::vector<u32> batch(several.actors.size(), 1);
  CHECK_THROWS_WITH_AS((void)platform().run(*session, {1, {batch}, true}), doctest::Contains("cuMemHostRegister"),
                       Error);
  if (const auto cpus = host_nodes().at(0).cpus.size(); cpus < 16)
    CHECK(why_not(program("64KiB", "16")) ==
          "16 threads share the copy, and numa:0 has " + std::to_string(cpus) + " CPUs");
  auto back = program("whole", "1");
  auto& move = std::get<Move>(back.actors[0].loop[0]);
  std::swap(move.from, move.to);
  CHECK(why_not(back).find("mapped for reading only") != std::string::npos);
}

TEST_CASE("files are copied exactly in both directions, and their share of cached pages is noted") {
  const Folder folder;
  for (const char* cache : {"cold", "hot"})
    for (const bool to_gpu : {true, false})
      for (const char* both : {"false", "true"}) {
        if (std::string{cache} == "cold" && !is_on_disk(folder.path)) continue;
        const auto [trace, note] =
            run(copy_of_file(folder.path, to_gpu, 512_KiB, {{"cache", cache}, {"bidirectional", both}}));
        CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
        CHECK(trace.verdict->checked_bytes >= 512_KiB);
        CHECK(trace.timing == "host");
        if (std::string{cache} == "cold") CHECK(note == "0.0 % cached");
        else CHECK(note == "100.0 % cached");
        CHECK(fs::is_empty(folder.path));
      }
}

TEST_CASE("a slot that is written to the file too early is found") {
  const Folder folder;
  auto early = copy_of_file(folder.path, false, 512_KiB, {{"cache", "hot"}});
  std::get<Wait>(early.actors[1].loop[0]).value -= 1000;
  std::get<Wait>(early.actors[0].loop[0]).value -= 1000;
  CHECK_FALSE(run(early).first.verdict->ok);
}

TEST_CASE("files in memory are refused cold, and measured hot") {
  if (!fs::is_directory("/dev/shm")) return;
  const Folder folder{"/dev/shm"};
  CHECK_FALSE(is_on_disk(folder.path));
  CHECK(run(copy_of_file(folder.path, true, 512_KiB, {{"cache", "hot"}})).first.verdict->ok);
}

TEST_CASE("directories and sizes that cannot be measured are refused with the reason") {
  const Folder folder;
  CHECK(why_not(copy_of_file("/nonexistent", true, 64_KiB, {})).find("No such file or directory") != std::string::npos);
  const auto plain = folder.path / "plain";
  std::ofstream{plain} << "text";
  CHECK(why_not(copy_of_file(plain, true, 64_KiB, {})).find("is no directory") != std::string::npos);
  CHECK(why_not(copy_of_file(folder.path, true, 512, {})).find("whole pages of 4 KiB") != std::string::npos);
  CHECK(why_not(copy_of_file(folder.path, true, 512, {{"cache", "hot"}})).empty());
  auto large = copy_of_file(folder.path, false, 64_KiB, {});
  large.regions[2].bytes = u64{1} << 60;
  CHECK(why_not(large).find("does not fit in") != std::string::npos);
  CHECK_THROWS_WITH_AS((void)copy_of_file(folder.path, true, 64_KiB, {{"depth", "0"}}),
                       doctest::Contains("depth is 1, 4, 16, 32"), Error);
  auto wrong = copy_of_file(folder.path, true, 64_KiB, {});
  wrong.regions[0].kind = MemKind::pinned;
  CHECK(why_not(wrong).find("holds no pinned memory") != std::string::npos);
  auto by_cpu = copy_of_file(folder.path, true, 64_KiB, {});
  std::get<Move>(by_cpu.actors[0].loop[1]).engine = Engine::cpu;
  CHECK(why_not(by_cpu).find("engine file") != std::string::npos);
}
