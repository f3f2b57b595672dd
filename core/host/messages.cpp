#include "host/messages.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "host/patience.hpp"

namespace linkscope {
namespace {

constexpr int inherited = 3;                 // the descriptor of the channel in the other process
constexpr u64 page = 4096, line = 128;       // two cache lines, which some CPUs fetch together
constexpr unsigned polls_to_look = 1 << 12;  // between two looks at the clock

Seconds patience_to_start() { return patient(Seconds{10.0}); }
Seconds patience() { return patient(Seconds{2.0}); }

[[noreturn]] void refused(const std::string& what) {
  throw Error{ErrorKind::failed, "messages between processes: " + what + ": " + std::strerror(errno)};
}

u64 rounded_up(u64 bytes) { return (bytes + page - 1) / page * page; }

/// Shared memory: a page with a word for each direction, which counts messages, and the bytes of each direction.
struct Mailbox {
  std::byte* start;
  u64 bytes;

  [[nodiscard]] std::atomic_ref<u64> count(unsigned direction) const {
    return std::atomic_ref<u64>{*reinterpret_cast<u64*>(start + direction * line)};
  }
  [[nodiscard]] std::byte* data(unsigned direction) const { return start + page + direction * rounded_up(bytes); }
  static u64 size(u64 bytes) { return page + 2 * rounded_up(bytes); }

  void send(unsigned direction, const void* from, u64 trip) const {
    std::memcpy(data(direction), from, bytes);
    count(direction).store(trip, std::memory_order_release);
  }
  /// Whether the message came before `give_up` says so, which is asked now and then.
  template <class GiveUp>
  [[nodiscard]] bool receive(unsigned direction, void* to, u64 trip, GiveUp give_up) const {
    const auto word = count(direction);
    for (unsigned i = 1; word.load(std::memory_order_acquire) < trip; ++i) {
      if (i % polls_to_look != 0) continue;
      if (give_up()) return false;
      sched_yield();  // the other process may wait for this CPU
    }
    std::memcpy(to, data(direction), bytes);
    return true;
  }
};

bool send_all(int socket, const void* data, u64 bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<u64>(sent);
  }
  return true;
}

/// 1: all came; 0: the other side has ended; -1: errno says why not.
int receive_all(int socket, void* data, u64 bytes) {
  for (char* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t came = recv(socket, at, bytes, 0);
    if (came < 0 && errno == EINTR) continue;
    if (came == 0 || (came < 0 && errno == ECONNRESET)) return 0;
    if (came < 0) return -1;
    at += came;
    bytes -= static_cast<u64>(came);
  }
  return 1;
}

using Pair = std::pair<Descriptor, Descriptor>;

Pair local_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) refused("no local socket");
  return {Descriptor{ends[0]}, Descriptor{ends[1]}};
}

Pair tcp_pair() {
  const auto made = [] {
    Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (!socket) refused("no TCP socket");
    return socket;
  };
  const Descriptor listener = made();
  Descriptor one = made();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* general = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), general, length) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), general, &length) != 0 || connect(one.get(), general, length) != 0)
    refused("no TCP connection to 127.0.0.1");
  Descriptor other{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  if (!other) refused("no TCP connection to 127.0.0.1");
  const int on = 1;
  for (const int socket : {one.get(), other.get()}) setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return {std::move(one), std::move(other)};
}

void set_patience(int socket, Seconds time) {
  const auto whole = static_cast<time_t>(time.count());
  const timeval limit{whole, 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) setsockopt(socket, SOL_SOCKET, option, &limit, sizeof limit);
}

/// Starts this executable again. The descriptor is its only open file besides standard error.
pid_t start_other(Channel channel, u64 bytes, const std::vector<int>& cpus, int descriptor) {
  std::string list;
  for (const int cpu : cpus) {
    list += list.empty() ? "" : ",";
    list += std::to_string(cpu);
  }
  std::string words[] = {"linkscope-messages", answer_option, to_string(channel), std::to_string(bytes), list};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
  // A copy above the number that it gets there: dup2() of a number to itself would leave it closed on exec.
  const Descriptor copy{fcntl(descriptor, F_DUPFD_CLOEXEC, inherited + 1)};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO})
    posix_spawn_file_actions_addopen(&actions, standard, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, copy.get(), inherited);
  pid_t child = -1;
  errno = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (errno != 0) refused("the process that answers cannot be started");
  return child;
}

}  // namespace

Messenger::Messenger(Channel channel, u64 bytes, u32 node, const std::vector<int>& cpus)
    : channel_{channel}, sent_(bytes / sizeof(u64)), came_(sent_.size()) {
  for (u64 i = 0; i < sent_.size(); ++i) sent_[i] = 0x9e3779b97f4a7c15 * (i + 1);
  Descriptor theirs;
  if (channel == Channel::shm) {
    pages_ = SharedPages{node, Mailbox::size(bytes)};
    pages_.touch();
    for (const unsigned direction : {0U, 1U}) Mailbox{pages_.data(), bytes}.count(direction).store(0);
  } else {
    std::tie(socket_, theirs) = channel == Channel::local ? local_pair() : tcp_pair();
    set_patience(socket_.get(), patience_to_start());
  }
  other_ = start_other(channel, bytes, cpus, theirs ? theirs.get() : pages_.descriptor().get());
  theirs.reset();
  try {
    exchange(patience_to_start());
  } catch (...) {
    end_other();
    throw;
  }
  if (socket_) set_patience(socket_.get(), patience());
}

Messenger::~Messenger() { end_other(); }

void Messenger::end_other() const {
  if (other_ < 0) return;
  kill(other_, SIGKILL);
  while (waitpid(other_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Messenger::round_trip() { exchange(patience()); }

void Messenger::exchange(Seconds limit) {
  const auto gone = [] { return Error{ErrorKind::failed, "the process that answers messages has ended"}; };
  const auto late = [&] {
    return Error{ErrorKind::timeout, "the process that answers messages did not answer within " +
                                         std::to_string(static_cast<int>(limit.count())) + " s"};
  };
  sent_.front() = ++trips_;
  if (channel_ == Channel::shm) {
    if (other_ < 0) throw gone();
    const Mailbox box{pages_.data(), bytes()};
    box.send(0, sent_.data(), trips_);
    const auto end = std::chrono::steady_clock::now() + limit;
    const auto give_up = [&] {
      if (waitpid(other_, nullptr, WNOHANG) != 0) other_ = -1;
      return other_ < 0 || std::chrono::steady_clock::now() > end;
    };
    if (box.receive(1, came_.data(), trips_, give_up)) return;
    throw other_ < 0 ? gone() : late();
  }
  const bool sent = send_all(socket_.get(), sent_.data(), bytes());
  const int came = sent ? receive_all(socket_.get(), came_.data(), bytes()) : errno == EAGAIN ? -1 : 0;
  if (came == 0) throw gone();
  if (came < 0) throw late();
}

u64 Messenger::wrong_bytes() const {
  u64 wrong = 0;
  const auto *sent = reinterpret_cast<const char*>(sent_.data()), *came = reinterpret_cast<const char*>(came_.data());
  for (u64 i = 0; i < bytes(); ++i) wrong += sent[i] != came[i];
  return wrong;
}

// --- the other process ----------------------------------------------------------------------------------------------

namespace {

void use_cpus(const char* list) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (char* at = const_cast<char*>(list); *at;) {
    CPU_SET(static_cast<int>(std::strtol(at, &at, 10)), &set);
    if (*at) ++at;
  }
  if (CPU_COUNT(&set) > 0) sched_setaffinity(0, sizeof set, &set);
}

void answer_in_memory(u64 bytes, pid_t parent) {
  // A copy of the number: the pages own theirs.
  const SharedPages pages{Descriptor{fcntl(inherited, F_DUPFD_CLOEXEC, 0)}, Mailbox::size(bytes)};
  const Mailbox box{pages.data(), bytes};
  std::vector<std::byte> message(bytes);
  const auto orphaned = [&] { return getppid() != parent; };
  for (u64 trip = 1; box.receive(0, message.data(), trip, orphaned); ++trip) box.send(1, message.data(), trip);
}

void answer_by_socket(u64 bytes) {
  std::vector<std::byte> message(bytes);
  while (receive_all(inherited, message.data(), bytes) == 1 && send_all(inherited, message.data(), bytes)) {
  }
}

}  // namespace

int answer_messages(int count, char** arguments) {
  if (count != 5 || std::string_view{arguments[1]} != answer_option) return -1;
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto channel = find_channel(arguments[2]);
  const u64 bytes = std::strtoull(arguments[3], nullptr, 10);
  if (!channel || bytes == 0) return 2;
  use_cpus(arguments[4]);
  try {
    if (*channel == Channel::shm) answer_in_memory(bytes, parent);
    else answer_by_socket(bytes);
  } catch (const Error&) {
    return 1;  // the parent reports that this process has ended
  }
  return 0;
}

}  // namespace linkscope
