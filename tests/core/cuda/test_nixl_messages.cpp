// Writes and notifications of NIXL between two agents of this process, by the fake NIXL.
#include <doctest.h>

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "host/topology.hpp"
#include "nixl/messages.hpp"
#include "platform/cuda/ranks.hpp"

using namespace linkscope;

namespace {

/// An empty folder, where the fake NIXL keeps what is under way.
struct NixlFolder {
  NixlFolder() {
    std::filesystem::create_directories(path);
    setenv("FAKE_NIXL_FOLDER", path.c_str(), 1);
  }
  ~NixlFolder() {
    unsetenv("FAKE_NIXL_FOLDER");
    std::filesystem::remove_all(path);
  }
  NixlFolder(const NixlFolder&) = delete;
  NixlFolder& operator=(const NixlFolder&) = delete;
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("linkscope-nixl-" + std::to_string(getpid()));
};

/// Two processes, as NIXL sees them, that know each other.
struct Two {
  Two() {
    (void)here->load(there->description());
    (void)there->load(here->description());
  }
  NixlFolder folder;
  Nixl library{{{"libnixl_capi.so", "the tests have it"}}};
  std::shared_ptr<NixlAgent> here = std::make_shared<NixlAgent>(library, "here"),
                             there = std::make_shared<NixlAgent>(library, "there");
};

}  // namespace

TEST_CASE("each notification counts once, and those of an earlier session are dropped") {
  const Two two;
  for (int i = 0; i < 3; ++i) two.there->notify("here");
  for (int i = 0; i < 3; ++i) CHECK(two.here->take_notification("there"));
  CHECK_FALSE(two.here->take_notification("there"));
  for (int i = 0; i < 2; ++i) two.there->notify("here");
  CHECK(two.here->take_notification("there"));
  two.here->forget_notifications();
  CHECK_FALSE(two.here->take_notification("there"));
}

TEST_CASE("the last window of a batch has only the messages that are left") {
  const Two two;
  std::array<std::byte, 64> source{}, target{};
  RankPost send, receive;
  send.sends = true;
  send.peer = 1;
  send.start = source.data();
  receive.start = target.data();
  send.bytes = receive.bytes = source.size();
  NixlMessages theirs{two.there}, ours{two.here};
  theirs.add_memory(receive, 0);
  ours.add_memory(send, 0);
  ours.connect(1, two.there->description());
  ours.add_target(send, 0, {reinterpret_cast<u64>(target.data()), target.size(), 0, NixlMemory::host});
  const auto under_way = [&] { return std::filesystem::file_size(two.folder.path / "there"); };
  const auto sent = [&](u64 count) {
    two.there->notify("here");  // the answer to the window
    const auto before = std::filesystem::exists(two.folder.path / "there") ? under_way() : 0;
    ours.exchange({&send, 1}, 4, count);
    return under_way() - before;
  };
  const auto one = sent(1), two_messages = sent(2);
  CHECK(two_messages > one);
  CHECK(sent(4) - one == 3 * (two_messages - one));
}

TEST_CASE("processes that poll for messages of UCX and NIXL get different CPUs of their NUMA node") {
  for (const auto by : {Engine::ucx, Engine::nixl, Engine::mpi}) {
    Program program;
    for (u32 process = 0; process < 2; ++process) {
      Actor actor;
      actor.place = parse_place("numa:0");
      actor.kind = ActorKind::cpu_thread;
      actor.process = process;
      actor.loop = {RankMessage{process == 0, 1 - process, {}, {}, 1, by}};
      program.actors.push_back(actor);
    }
    CAPTURE(static_cast<int>(by));
    for (const auto& actor : program.actors)
      CHECK(cpus_of_messages(program, actor) ==
            (by == Engine::mpi ? std::vector<int>{} : dealt_cpus(0, actor.process, 2)));
  }
}
