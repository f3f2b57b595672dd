// Messages and meetings of processes: here each is a thread with a seat of its own.
#include <doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "host/peer_texts.hpp"
#include "host/peers.hpp"

using namespace linkscope;

namespace {

constexpr Seconds patience{300.0};

std::string fresh_name() {
  static int number = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++number);
}

/// Which processes are on one host: those before this number, and the others.
struct Hosts {
  std::vector<Descriptor> listeners{};
  u32 first = 0;

  /// Where one of the processes reaches the others.
  [[nodiscard]] FarPeers seen_by(u32 process) const {
    FarPeers far;
    if (listeners.empty()) return far;
    far.listener = listeners[process].get();
    for (u32 other = 0; other < listeners.size(); ++other) {
      auto& addresses = far.addresses.emplace_back();
      if ((other < first) != (process < first))
        addresses = {"192.0.2.1", "127.0.0.1:" + std::to_string(port_of(listeners[other].get()))};
    }
    return far;
  }
};

Hosts two_hosts(u32 processes, u32 first) {
  Hosts hosts{{}, first};
  for (u32 process = 0; process < processes; ++process) hosts.listeners.push_back(listen_for_far());
  return hosts;
}

/// Runs one function per process; returns the message of each one's error, "" for none.
std::vector<std::string> run_together(const std::vector<std::function<void(Peers&)>>& processes,
                                      const Hosts& hosts = {}) {
  const auto meeting = fresh_name();
  std::vector<std::string> errors(processes.size());
  {
    std::vector<std::jthread> threads;
    for (u32 number = 0; number < processes.size(); ++number)
      threads.emplace_back([&, number] {
        try {
          Peers peers{number, static_cast<u32>(processes.size()), meeting, hosts.seen_by(number)};
          processes[number](peers);
        } catch (const std::exception& error) {
          errors[number] = error.what();
        }
      });
  }
  return errors;
}

std::vector<std::string> all(u32 count, const std::function<void(Peers&)>& process) {
  return run_together(std::vector<std::function<void(Peers&)>>(count, process));
}

}  // namespace

TEST_CASE("each of three processes gets the values that the others gave it, in order") {
  const auto errors = all(3, [](Peers& peers) {
    for (u32 round = 0; round < 2; ++round)
      for (u32 other = 0; other < 3; ++other)
        if (other != peers.process()) peers.give(other, 100 * round + peers.process());
    for (u32 round = 0; round < 2; ++round)
      for (u32 other = 0; other < 3; ++other)
        if (other != peers.process() && peers.take<u32>(other, "a value", patience) != 100 * round + other)
          throw Error{ErrorKind::failed, "another value"};
  });
  CHECK(errors == std::vector<std::string>(3));
}

TEST_CASE("texts of any length arrive whole, one after the other") {
  const std::vector<std::size_t> lengths{0, 1, 1023, 1024, 1025, 2048, 5000};
  const auto text = [](std::size_t length) { return std::string(length, static_cast<char>('a' + length % 26)); };
  const auto errors =
      run_together({[&](Peers& peers) {
                      for (const auto length : lengths) give_text(peers, 1, text(length));
                    },
                    [&](Peers& peers) {
                      for (const auto length : lengths)
                        if (take_text(peers, 0, "a text", patience) != text(length))
                          throw Error{ErrorKind::failed, "another text of " + std::to_string(length) + " bytes"};
                    }});
  CHECK(errors == std::vector<std::string>(2));
}

TEST_CASE("a descriptor goes with a value, and both processes then see the same memory") {
  u64 seen = 0;
  const auto errors = run_together({[&](Peers& peers) {
                                      const SharedPages pages{0, 4096};
                                      peers.give(1, u32{7}, pages.descriptor().get());
                                      peers.meet("the other", patience);
                                      seen = *reinterpret_cast<const u64*>(pages.data());
                                    },
                                    [](Peers& peers) {
                                      Descriptor came;
                                      (void)peers.take<u32>(0, "pages", patience, &came);
                                      const SharedPages pages{came, 4096};
                                      *reinterpret_cast<u64*>(pages.data()) = 42;
                                      peers.meet("the other", patience);
                                    }});
  CHECK(errors == std::vector<std::string>(2));
  CHECK(seen == 42);
}

TEST_CASE("no process starts before all have come, any number of times") {
  std::atomic<int> come{0};
  const auto errors = all(3, [&](Peers& peers) {
    for (int round = 1; round <= 20; ++round) {
      ++come;
      peers.start_together();
      if (come < 3 * round) throw Error{ErrorKind::failed, "started alone"};
      peers.meet("the end of a round", patience);
    }
  });
  CHECK(errors == std::vector<std::string>(3));
}

TEST_CASE("a process that ends is named by those that wait for it") {
  const auto errors = run_together({[](Peers& peers) { peers.meet("the start", patience); }, [](Peers&) {},
                                    [](Peers& peers) { (void)peers.take<u32>(1, "its memory", patience); }});
  CHECK(errors[0] == "process 1 ended while process 0 waited for the start");
  CHECK(errors[2] == "process 1 ended while process 2 waited for its memory");
}

TEST_CASE("the end of a process is seen by one that waits for nothing, and by one at the common start") {
  const auto errors = run_together({[](Peers& peers) {
                                      const auto start = std::chrono::steady_clock::now();
                                      while (std::chrono::steady_clock::now() - start < patience) peers.check_alive();
                                    },
                                    [](Peers&) {}});
  CHECK(errors[0] == "process 1 ended while process 0 waited for it to do its part");
  CHECK(run_together({[](Peers& peers) { peers.start_together(); }, [](Peers&) {}})[0] == errors[0]);
}

TEST_CASE("the error of a process reaches all others with its kind and its number") {
  ErrorKind kind = ErrorKind::failed;
  const auto fails = [](Peers& peers) { peers.fail(Error{ErrorKind::memory, "no memory left"}); };
  const auto errors = run_together({[&](Peers& peers) {
                                      try {
                                        peers.meet("the start", patience);
                                      } catch (const Error& error) {
                                        kind = error.kind();
                                        peers.fail(error);
                                        throw;
                                      }
                                    },
                                    fails,
                                    [](Peers& peers) {
                                      // Process 0 may give its arrival before it hears of the error.
                                      for (int i = 0; i < 2; ++i) (void)peers.take<u32>(0, "its memory", patience);
                                    }});
  CHECK(errors[0] == "process 1: no memory left");
  CHECK(kind == ErrorKind::memory);
  CHECK(errors[2] == "process 1: no memory left");
}

TEST_CASE("a process that does not answer is named after the time-out") {
  const auto errors = run_together({[](Peers& peers) { (void)peers.take<u32>(1, "its memory", Seconds{0.05}); },
                                    [](Peers& peers) { (void)peers.take<u32>(0, "anything", patience); }});
  CHECK(errors[0] == "process 1 did not answer within 0 s: process 0 waited for its memory");
}

TEST_CASE("processes with numbers or names that cannot be used do not join") {
  const auto why = [](u32 process, u32 processes, const std::string& meeting) -> std::string {
    try {
      const Peers peers{process, processes, meeting};
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(why(2, 2, "a") == "process 2 of 2 processes cannot join");
  CHECK(why(0, 1000, "a") == "process 0 of 1000 processes cannot join");
  CHECK(why(0, 2, std::string(200, 'a')).find("is too long") != std::string::npos);
}

TEST_CASE("processes of two hosts give values, meet, and start together") {
  std::atomic<int> started{0};
  const auto process = [&](Peers& peers) {
    for (u32 other = 0; other < 3; ++other)
      if (other != peers.process()) peers.give(other, std::array<u64, 20>{peers.process()});
    for (u32 other = 0; other < 3; ++other)
      if (other != peers.process() && peers.take<std::array<u64, 20>>(other, "a value", patience)[0] != other)
        throw Error{ErrorKind::failed, "another value"};
    for (int round = 1; round <= 5; ++round) {
      peers.meet("the start", patience);
      ++started;
      peers.start_together();
      if (started < 3 * round) throw Error{ErrorKind::failed, "started alone"};
    }
  };
  CHECK(run_together({process, process, process}, two_hosts(3, 2)) == std::vector<std::string>(3));
}

TEST_CASE("a process of another host that fails or ends is named, and gets no memory") {
  const auto waits = [](Peers& peers) { (void)peers.take<u32>(1, "its memory", patience); };
  CHECK(run_together({waits, [](Peers&) {}}, two_hosts(2, 1))[0] ==
        "process 1 ended while process 0 waited for its memory");
  const auto fails = [](Peers& peers) { peers.fail(Error{ErrorKind::memory, "no memory left"}); };
  CHECK(run_together({waits, fails}, two_hosts(2, 1))[0] == "process 1: no memory left");
  const auto looks = [](Peers& peers) {
    for (const auto start = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - start < patience;)
      peers.check_alive();
  };
  CHECK(run_together({looks, fails}, two_hosts(2, 1))[0] == "process 1: no memory left");
  const auto gives = [](Peers& peers) { peers.give(0, 1U, 1); };
  CHECK(run_together({[](Peers&) {}, gives}, two_hosts(2, 1))[1] ==
        "process 0 is on another host, which cannot use memory of this one");
}

TEST_CASE("a stranger at the port of a meeting is refused, and the meeting takes place") {
  const auto hosts = two_hosts(2, 1);
  const auto port = "127.0.0.1:" + std::to_string(port_of(hosts.listeners[0].get()));
  const auto silent = connect_far({port}, patience), other = connect_far({port}, patience);
  REQUIRE(send_far(other.get(), "another-meeting 1"));
  const auto meets = [](Peers& peers) { peers.meet("the start", patience); };
  CHECK(run_together({meets, meets}, hosts) == std::vector<std::string>(2));
}

TEST_CASE("another host that cannot be reached is named with its addresses") {
  const auto closed = "127.0.0.1:" + std::to_string(port_of(listen_for_far().get()));
  try {
    (void)connect_far({closed, "nonsense"}, patience);
    FAIL("a connection was made");
  } catch (const Error& error) {
    CHECK(std::string{error.what()}.find("cannot be reached (" + closed + ": Connection refused") != std::string::npos);
  }
}
