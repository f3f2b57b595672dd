// Random copies by several processes at once, which share memory of one GPU and the tuning file.
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <sstream>

#include "gpu/ipc.hpp"
#include "random_saves.hpp"

using namespace linkscope;

namespace {

constexpr int processes = 3;
constexpr const char* variable = "LINKSCOPE_TEST_PROCESS";

/// What a process works on: its number, the tuning file, and the handle of the memory.
struct Task {
  int number = 0;
  std::string tuning;
  CUipcMemHandle memory{};

  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    text << number << ' ' << tuning << std::hex;
    for (const char byte : memory.reserved) text << ' ' << static_cast<unsigned>(static_cast<unsigned char>(byte));
    return text.str();
  }
  static Task of(const char* text) {
    std::istringstream words{text};
    Task task;
    words >> task.number >> task.tuning >> std::hex;
    for (char& byte : task.memory.reserved) {
      unsigned value = 0;
      words >> value;
      byte = static_cast<char>(value);
    }
    return task;
  }
};

pid_t started(const Task& task) {
  std::string value = variable;
  value.append("=").append(task.text());
  std::vector<char*> settings{value.data()};
  for (char** one = environ; *one; ++one) settings.push_back(*one);
  settings.push_back(nullptr);
  std::string program = "/proc/self/exe", which = "-tc=one of several processes*", skipped = "-ns";
  const std::array<char*, 4> words{program.data(), which.data(), skipped.data(), nullptr};
  pid_t child = 0;
  REQUIRE(posix_spawn(&child, program.c_str(), nullptr, nullptr, words.data(), settings.data()) == 0);
  return child;
}

/// Reads the tuning file and replaces it, as other processes do meanwhile. Then has the knobs of a route.
std::unique_ptr<Transfers> with_shared_tuning(const Task& task, const Options& route) {
  Options options = route;
  options.tuning = task.tuning;
  auto transfers = std::make_unique<Transfers>(options);
  CHECK(transfers->tuning().file == task.tuning);
  (void)transfers->save_tuning(task.tuning, "1");
  for (std::size_t id = 0; id < method_count; ++id)
    for (const u64 start : size_classes)
      transfers->set(static_cast<MethodId>(id), start, route.of(static_cast<MethodId>(id), start));
  return transfers;
}

/// Random blocks, readings and saves by every method.
void files_and_blocks(const Task& task, const Everywhere& all, int cases, std::mt19937_64& random) {
  const CUstream stream = all.with.stream->get();
  const auto data = random_bytes(1_MiB, random());
  const File file{data};
  const FileReader reader{file.path.string()};
  Bytes pageable(block_space);
  const Ends ends[] = {{all.gpu, pageable.data()}, {pageable.data(), all.gpu}, {all.gpu, all.source.data()}};
  const auto kept = save_sources(random_bytes(1_MiB, random()), all.gpu + 4_MiB, all.elsewhere.at(), all.source.data());
  const SaveTo saved{file.path.string() + "-saved"};
  const auto tuned = with_shared_tuning(task, small_chunks());
  int wrong = 0;
  for (const auto& way : save_ways) {
    const auto transfers = transfers_of(way);
    for (int i = 0; i < cases; ++i) wrong += !save_arrives(*transfers, kept, saved, 64_KiB, stream, random);
  }
  for (int i = 0; i < cases; ++i) wrong += !save_arrives(*tuned, kept, saved, 64_KiB, stream, random);
  wrong += !are_kept(kept);
  std::filesystem::remove(saved.path);
  for (const auto method : block_methods) {
    const auto transfers = transfers_of(method);
    for (int i = 0; i < cases; ++i)
      wrong += !blocks_arrive(*transfers, ends[static_cast<std::size_t>(i) % std::size(ends)], stream, random);
  }
  for (const auto& way : read_ways) {
    const auto transfers = transfers_of(way);
    pretend_nothing_cached(way.cold);
    for (int i = 0; i < cases; ++i) wrong += !pieces_arrive(*transfers, reader, data, all.gpu, stream, random);
  }
  pretend_nothing_cached(false);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("random copies by several processes at once are bit-exact, with memory of one GPU and one tuning file") {
  const auto tuning = std::filesystem::temp_directory_path() / ("linkscope-shared-" + std::to_string(getpid()));
  const Transfers writer{small_chunks()};
  (void)writer.save_tuning(tuning, "1");
  const Application with{processes * 2 * Everywhere::space};
  std::vector<pid_t> children;
  for (int number = 0; number < processes; ++number)
    children.push_back(started({number, tuning, ipc_handle(the_driver(), with.memory.address())}));
  for (const pid_t child : children) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  std::filesystem::remove(tuning);
}

TEST_CASE("one of several processes copies random data" * doctest::skip()) {
  const char* text = std::getenv(variable);
  REQUIRE_MESSAGE(text, "only for the test case above");
  const Task task = Task::of(text);
  const Application opener{4_KiB};
  const IpcOpened memory{the_driver(), opener.gpu, task.memory};
  Everywhere all{reinterpret_cast<std::byte*>(memory.address()) +
                 static_cast<u64>(task.number) * 2 * Everywhere::space};
  const int cases = is_long() ? 10'000 / processes + 1 : 20;
  std::mt19937_64 random{static_cast<u64>(task.number)};
  for (const auto& route : all.routes()) {
    CAPTURE(route.name);
    const auto transfers = with_shared_tuning(task, route.options);
    int wrong = 0;
    for (int i = 0; i < cases; ++i)
      wrong += !round_trip(*transfers, route, all.with.stream->get(), random, i % 20 ? 4_MiB : Everywhere::most);
    CHECK(wrong == 0);
    for (const auto id : route.methods) CHECK(transfers->count_of(id) > 0);
    CHECK(transfers->latest_fallback().empty());
  }
  files_and_blocks(task, all, is_long() ? cases : 5, random);
}
