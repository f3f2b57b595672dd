// A second process of a test: this executable, which runs one test case that is skipped otherwise. Its standard input is a
// pipe: it ends when the first process closes that.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "doctest.h"
#include "host/descriptor.hpp"

namespace linkscope {

class OtherProcess {
 public:
  /// `settings`: variables of its environment.
  OtherProcess(const std::string& test_case, std::vector<std::pair<std::string, std::string>> settings) {
    std::array<int, 2> to{}, from{};
    REQUIRE(pipe2(to.data(), O_CLOEXEC) == 0);
    REQUIRE(pipe2(from.data(), O_CLOEXEC) == 0);
    input_ = Descriptor{to[1]};
    output_ = Descriptor{from[0]};
    const Descriptor child_input{to[0]}, child_output{from[1]};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, from[1], STDOUT_FILENO);
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    std::string program = "/proc/self/exe", only = "-tc=" + test_case, all = "--no-skip", quiet = "-m";
    std::array<char*, 5> arguments{program.data(), only.data(), all.data(), quiet.data(), nullptr};
    REQUIRE(posix_spawn(&pid_, program.c_str(), &files, nullptr, arguments.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&files);
    for (const auto& [name, value] : settings) unsetenv(name.c_str());
  }
  ~OtherProcess() {
    kill();
    wait();
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  /// A line that it printed behind "> ".
  std::string line() {
    std::string text;
    for (char letter = 0; read(output_.get(), &letter, 1) == 1;) {
      if (letter != '\n') {
        text += letter;
        continue;
      }
      if (text.starts_with("> ")) return text.substr(2);
      text.clear();
    }
    return "";
  }
  void kill() const {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }
  /// Lets it end, and returns its exit status.
  int end() {
    input_.reset();
    return wait();
  }

 private:
  int wait() {
    int status = 0;
    if (pid_ > 0) waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }
  Descriptor input_, output_;
  pid_t pid_ = -1;
};

/// In the other process: waits until the first one lets it end.
inline void wait_for_the_end() {
  char letter = 0;
  while (read(STDIN_FILENO, &letter, 1) > 0) {
  }
}

}  // namespace linkscope
