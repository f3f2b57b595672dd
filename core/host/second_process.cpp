#include "host/second_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/error.hpp"

extern "C" char** environ;  // NOLINT(readability-redundant-declaration): POSIX has no header for it

namespace linkscope {
namespace {

constexpr Seconds end_patience{5.0};

/// One message with room for one descriptor.
struct Envelope {
  iovec data{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  Envelope(void* bytes, std::size_t count) {
    data = {bytes, count};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
  }
  void make_room() {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
};

Descriptor descriptor_in(msghdr& header) {
  const cmsghdr* found = CMSG_FIRSTHDR(&header);
  if (!found || found->cmsg_level != SOL_SOCKET || found->cmsg_type != SCM_RIGHTS ||
      found->cmsg_len != CMSG_LEN(sizeof(int)))
    return {};
  int number = -1;
  std::memcpy(&number, CMSG_DATA(found), sizeof number);
  return Descriptor{number};
}

template <class Call>
auto again_after_signals(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return "was ended by signal " + std::to_string(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

SecondProcess::SecondProcess(const char* argument) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error{ErrorKind::failed, std::string{"no socket for a second process: "} + std::strerror(errno)};
  socket_ = Descriptor{ends[0]};
  const Descriptor theirs{ends[1]};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  char name[] = "linkscope-worker";
  std::string text{argument};
  char* arguments[] = {name, text.data(), nullptr};
  // Started anew and not forked, because the CUDA driver does not survive a fork.
  const int status = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0)
    throw Error{ErrorKind::failed, std::string{"a second process cannot be started: "} + std::strerror(status)};
}

SecondProcess::~SecondProcess() { end(); }

void SecondProcess::end() {
  socket_.reset();
  if (!how_.empty()) return;
  kill(pid_, SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  int status = 0;
  while (again_after_signals([&] { return waitpid(pid_, &status, WNOHANG); }) == 0) {
    if (std::chrono::steady_clock::now() - start > end_patience) break;  // the kernel holds it until its holder ends
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  how_ = "was ended";
}

void SecondProcess::lost(const std::string& how) {
  end();
  how_ = how;
  throw Error{ErrorKind::lost, "the second process, which owns shared memory, " + how};
}

void SecondProcess::check_alive() {
  if (!how_.empty()) throw Error{ErrorKind::lost, "the second process, which owned shared memory, " + how_};
  int status = 0;
  if (again_after_signals([&] { return waitpid(pid_, &status, WNOHANG); }) != pid_) return;
  socket_.reset();
  how_ = how_it_ended(status);
  throw Error{ErrorKind::lost, "the second process, which owns shared memory, " + how_};
}

void SecondProcess::gone() {
  // Its end of the socket closes shortly before it can be waited for.
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < Seconds{1.0}) {
    check_alive();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  lost("closed its socket; it was ended");
}

void SecondProcess::tell(const void* message, std::size_t bytes, int descriptor) {
  check_alive();
  if (!give_message(socket_.get(), message, bytes, descriptor)) gone();
}

Descriptor SecondProcess::hear(void* answer, std::size_t bytes, Seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  pollfd wanted{socket_.get(), POLLIN, 0};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    const int ready = poll(&wanted, 1, static_cast<int>(left > 0 ? left : 0));
    if (ready > 0) break;
    if (ready == 0)
      lost("did not answer within " + std::to_string(static_cast<int>(patience.count())) + " s; it was ended");
    if (errno != EINTR) lost(std::string{"cannot be read: "} + std::strerror(errno));
  }
  Envelope envelope{answer, bytes};
  envelope.make_room();
  const ssize_t taken = again_after_signals([&] { return recvmsg(socket_.get(), &envelope.header, MSG_CMSG_CLOEXEC); });
  if (taken <= 0) gone();
  Descriptor descriptor = descriptor_in(envelope.header);
  if (taken != static_cast<ssize_t>(bytes) || (envelope.header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
    lost("gave an answer that is not valid; it was ended");
  return descriptor;
}

bool take_message(int socket, void* message, std::size_t bytes, Descriptor& descriptor) {
  Envelope envelope{message, bytes};
  envelope.make_room();
  const ssize_t taken = again_after_signals([&] { return recvmsg(socket, &envelope.header, MSG_CMSG_CLOEXEC); });
  descriptor = taken > 0 ? descriptor_in(envelope.header) : Descriptor{};
  return taken == static_cast<ssize_t>(bytes) && !(envelope.header.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
}

bool give_message(int socket, const void* message, std::size_t bytes, int descriptor) {
  Envelope envelope{const_cast<void*>(message), bytes};
  if (descriptor >= 0) {
    envelope.make_room();
    cmsghdr* beside = CMSG_FIRSTHDR(&envelope.header);
    beside->cmsg_level = SOL_SOCKET;
    beside->cmsg_type = SCM_RIGHTS;
    beside->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(beside), &descriptor, sizeof descriptor);
  }
  return again_after_signals([&] { return sendmsg(socket, &envelope.header, MSG_NOSIGNAL); }) ==
         static_cast<ssize_t>(bytes);
}

}  // namespace linkscope
