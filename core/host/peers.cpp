#include "host/peers.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "host/patience.hpp"

namespace linkscope {
namespace {

constexpr u32 most_processes = 256;
constexpr Seconds stranger_patience{1.0};  // anybody in the network can connect, and say nothing
constexpr std::size_t longest_message = 2048;

/// Shorter than the patience of the worker's parent.
Seconds meeting_patience() { return patient(Seconds{8.0}); }

enum class Tag : char { value = 'v', failure = 'f' };

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  explicit Deadline(Seconds patience) : end_{Clock::now() + std::chrono::duration_cast<Clock::duration>(patience)} {}
  [[nodiscard]] bool passed() const { return Clock::now() >= end_; }
  [[nodiscard]] int milliseconds() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
    return static_cast<int>(std::max<long long>(left, 0));
  }

 private:
  Clock::time_point end_;
};

template <class Call>
auto again_after_signals(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// The same for reading. A process that ends before it has read everything resets the connection, which is reported once,
/// before its last words.
template <class Call>
auto again_after_reset(Call call) {
  const auto result = again_after_signals(call);
  return result < 0 && errno == ECONNRESET ? again_after_signals(call) : result;
}

/// Waits until a socket can be read; false after the deadline.
bool readable(int socket, const Deadline& deadline) {
  pollfd wanted{socket, POLLIN, 0};
  while (poll(&wanted, 1, deadline.milliseconds()) <= 0)
    if (deadline.passed()) return false;
  return true;
}

/// Two parts as one message, with room for one descriptor.
struct Envelope {
  iovec parts[2];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  Envelope(void* head, std::size_t head_count, void* rest, std::size_t rest_count)
      : parts{{head, head_count}, {rest, rest_count}} {
    header.msg_iov = parts;
    header.msg_iovlen = 2;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }

  void enclose(int descriptor) {
    if (descriptor < 0) {
      header.msg_control = nullptr;
      header.msg_controllen = 0;
      return;
    }
    cmsghdr* beside = CMSG_FIRSTHDR(&header);
    beside->cmsg_level = SOL_SOCKET;
    beside->cmsg_type = SCM_RIGHTS;
    beside->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(beside), &descriptor, sizeof descriptor);
  }

  Descriptor enclosed() {
    const cmsghdr* found = CMSG_FIRSTHDR(&header);
    if (!found || found->cmsg_type != SCM_RIGHTS || found->cmsg_len != CMSG_LEN(sizeof(int))) return {};
    int number = -1;
    std::memcpy(&number, CMSG_DATA(found), sizeof number);
    return Descriptor{number};
  }
};

std::string named(u32 process) { return "process " + std::to_string(process); }

/// Throws the failure that a message reports, if it is one: a kind of error and its text.
void throw_failure(const char* message, std::size_t bytes, std::string& text) {
  if (bytes < 2 || message[0] != static_cast<char>(Tag::failure)) return;
  text.assign(message + 2, bytes - 2);
  throw Error{static_cast<ErrorKind>(message[1]), text};
}

[[noreturn]] void no_socket(const char* call) {
  throw Error{ErrorKind::failed,
              std::string{"no socket for the processes of a program ("} + call + "): " + std::strerror(errno)};
}

Descriptor new_socket() {
  Descriptor made{socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  if (!made) no_socket("socket");
  return made;
}

/// The address of a process at a meeting. It is abstract: no file has to be removed after the last process.
struct Address {
  sockaddr_un name{};
  socklen_t length = 0;

  Address(const std::string& meeting, u32 process) {
    const auto text = "linkscope." + meeting + "." + std::to_string(process);
    if (text.size() + 1 > sizeof name.sun_path)
      throw Error{ErrorKind::usage, "the name of the meeting '" + meeting.substr(0, 80) + "' is too long"};
    name.sun_family = AF_UNIX;
    text.copy(name.sun_path + 1, text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

/// Anybody on this host can name an abstract address.
void check_same_user(int socket) {
  ucred other{};
  socklen_t length = sizeof other;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &length) != 0 || other.uid != geteuid())
    throw Error{ErrorKind::failed, "a process of another user came to the meeting of this program's processes"};
}

void bound_sending(int socket) {
  const timeval longest{static_cast<time_t>(meeting_patience().count()), 0};
  if (setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest) != 0) no_socket("setsockopt");
}

}  // namespace

// --- meeting --------------------------------------------------------------------------------------------------------

Peers::Peers(u32 process, u32 processes, const std::string& meeting, FarPeers far)
    : process_{process}, far_{std::move(far)} {
  if (process >= processes || processes > most_processes)
    throw Error{ErrorKind::usage, named(process) + " of " + std::to_string(processes) + " processes cannot join"};
  sockets_.resize(processes);
  const auto listener = new_socket();
  const Address own{meeting, process};
  if (bind(listener.get(), own.get(), own.length) != 0) no_socket("bind");
  if (listen(listener.get(), static_cast<int>(most_processes)) != 0) no_socket("listen");
  for (u32 other = 0; other < process; ++other) connect_to(other, meeting);
  admit_others(listener.get());
  admit_far(meeting);
  if (!far_.any()) share_start();
}

void Peers::connect_to(u32 other, const std::string& meeting) {
  const Deadline deadline{meeting_patience()};
  const Address address{meeting, other};
  auto& socket = sockets_[other];
  if (far_.has(other)) {
    socket = connect_far(far_.addresses[other], meeting_patience());
    bound_far(socket.get(), meeting_patience());
    if (!send_far(socket.get(), meeting + ' ' + std::to_string(process_))) gone(other, "it to come to the meeting");
    return;
  }
  socket = new_socket();
  while (connect(socket.get(), address.get(), address.length) != 0) {
    if (errno != ECONNREFUSED && errno != EINTR && errno != EAGAIN) no_socket("connect");
    if (deadline.passed()) throw Error{ErrorKind::timeout, named(other) + " did not come to the meeting in time"};
    std::this_thread::sleep_for(std::chrono::milliseconds{1});  // it has not named its address yet
  }
  check_same_user(socket.get());
  bound_sending(socket.get());
  give(other, process_);
}

void Peers::admit_others(int listener) {
  const Deadline deadline{meeting_patience()};
  while (missing(false) < processes()) {
    Descriptor came{readable(listener, deadline)
                        ? again_after_signals([&] { return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC); })
                        : -1};
    if (!came) throw Error{ErrorKind::timeout, named(missing(false)) + " did not come to the meeting in time"};
    check_same_user(came.get());
    bound_sending(came.get());
    char message[1 + sizeof(u32)] = {};
    u32 other = 0;
    if (!readable(came.get(), deadline) || recv(came.get(), message, sizeof message, 0) != sizeof message)
      throw Error{ErrorKind::failed, "a process came to the meeting without its number"};
    std::memcpy(&other, message + 1, sizeof other);
    if (other <= process_ || other >= processes() || sockets_[other])
      throw Error{ErrorKind::failed, named(other) + " came to the meeting and was not expected"};
    sockets_[other] = std::move(came);
  }
}

void Peers::admit_far(const std::string& meeting) {
  const Deadline deadline{meeting_patience()};
  while (missing(true) < processes()) {
    if (!readable(far_.listener, deadline))
      throw Error{ErrorKind::timeout, named(missing(true)) + " did not come to the meeting in time"};
    Descriptor came{again_after_signals([&] { return accept4(far_.listener, nullptr, nullptr, SOCK_CLOEXEC); })};
    if (!came || !readable(came.get(), Deadline{stranger_patience})) continue;
    bound_far(came.get(), meeting_patience());
    char message[longest_message];
    const auto taken = receive_far(came.get(), message, sizeof message);
    const std::string_view said{message, static_cast<std::size_t>(std::max<ssize_t>(taken, 0))};
    const std::string key = meeting + ' ';
    u32 other = processes();
    if (said.starts_with(key)) std::from_chars(said.data() + key.size(), said.data() + said.size(), other);
    if (other <= process_ || other >= processes() || !far_.has(other) || sockets_[other]) continue;  // a stranger
    sockets_[other] = std::move(came);
  }
}

/// The first process that has not come yet, of those on other hosts or on this one; processes() if all have.
u32 Peers::missing(bool far) const {
  u32 other = process_ + 1;
  while (other < processes() && (far_.has(other) != far || sockets_[other])) ++other;
  return other;
}

void Peers::share_start() {
  constexpr u64 bytes = 4096;
  if (process_ > 0) {
    Descriptor page;
    (void)take<u32>(0, "the page of the common start", meeting_patience(), &page);
    page_ = SharedPages{page, bytes};
    return;
  }
  page_ = SharedPages{0, bytes};
  for (u32 other = 1; other < processes(); ++other) give(other, other, page_.descriptor().get());
}

// --- messages -------------------------------------------------------------------------------------------------------

void Peers::gone(u32 other, const char* what) {
  throw Error{ErrorKind::lost, named(other) + " ended while " + named(process_) + " waited for " + what};
}

void Peers::send(u32 to, std::string_view bytes, int descriptor, const char* what) {
  auto tag = Tag::value;
  if (far_.has(to)) {
    if (descriptor >= 0)
      throw Error{ErrorKind::unsupported, named(to) + " is on another host, which cannot use memory of this one"};
    if (send_far(sockets_[to].get(), static_cast<char>(tag) + std::string{bytes})) return;
    check_alive(what);
    gone(to, what);
  }
  Envelope envelope{&tag, sizeof tag, const_cast<char*>(bytes.data()), bytes.size()};
  envelope.enclose(descriptor);
  const auto sent = again_after_signals([&] { return sendmsg(sockets_[to].get(), &envelope.header, MSG_NOSIGNAL); });
  if (sent == static_cast<ssize_t>(bytes.size() + 1)) return;
  const bool full = errno == EAGAIN;
  check_alive(what);  // throws the reason if the other left one
  if (full) throw Error{ErrorKind::timeout, named(to) + " does not read its messages"};
  gone(to, what);
}

void Peers::receive(u32 from, const Room& room, const char* what, Seconds patience) {
  if (!readable(sockets_[from].get(), Deadline{patience}))
    throw Error{ErrorKind::timeout, named(from) + " did not answer within " +
                                        std::to_string(static_cast<int>(patience.count())) + " s: " + named(process_) +
                                        " waited for " + what};
  char message[longest_message];
  Envelope envelope{message, 1, message + 1, sizeof message - 1};
  const ssize_t taken = again_after_reset([&] {
    if (far_.has(from)) {
      envelope.header.msg_controllen = 0;
      return receive_far(sockets_[from].get(), message, sizeof message);
    }
    return recvmsg(sockets_[from].get(), &envelope.header, MSG_CMSG_CLOEXEC);
  });
  if (taken <= 0) gone(from, what);
  Descriptor came = envelope.enclosed();
  throw_failure(message, static_cast<std::size_t>(taken), relayed_);
  if (taken != static_cast<ssize_t>(room.count + 1) || (envelope.header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
    throw Error{ErrorKind::failed,
                named(from) + " sent a message that is not valid: " + named(process_) + " waited for " + what};
  std::memcpy(room.bytes, message + 1, room.count);
  if (room.descriptor) *room.descriptor = std::move(came);
}

void Peers::meet(const char* what, Seconds patience) {
  for (u32 other = 0; other < processes(); ++other)
    if (other != process_) give(other, process_, -1, what);
  for (u32 other = 0; other < processes(); ++other)
    if (other != process_) (void)take<u32>(other, what, patience);
}

void Peers::start_together() {
  if (far_.any()) return meet("the common start", meeting_patience());
  constexpr unsigned polls = 1 << 12;  // between two looks at the others
  const Deadline deadline{meeting_patience()};
  const std::atomic_ref<u64> arrivals{*reinterpret_cast<u64*>(page_.data())};
  const u64 before = arrivals.fetch_add(1), all = (before / processes() + 1) * processes();
  for (unsigned i = 1; arrivals.load(std::memory_order_acquire) < all; ++i) {
    if (i % polls != 0) continue;
    if (deadline.passed()) throw Error{ErrorKind::timeout, "the processes of the program did not start together"};
    check_alive();
    sched_yield();  // another process may wait for this core
  }
}

void Peers::check_alive(const char* what) {
  for (u32 other = 0; other < processes(); ++other) {
    pollfd wanted{sockets_[other].get(), POLLRDHUP, 0};
    if (other == process_ || poll(&wanted, 1, 0) <= 0) continue;
    char message[longest_message];  // its last words
    for (;;) {
      const ssize_t taken = again_after_reset([&] {
        return far_.has(other) ? receive_far(wanted.fd, message, sizeof message)
                               : recv(wanted.fd, message, sizeof message, MSG_DONTWAIT);
      });
      if (taken <= 0) gone(other, what);
      throw_failure(message, static_cast<std::size_t>(taken), relayed_);
    }
  }
}

void Peers::fail(const Error& error) {
  if (std::exchange(ended_, true)) return;
  std::string text = error.what() == relayed_ ? relayed_ : named(process_) + ": " + error.what();
  text = text.substr(0, longest_message - 2);
  char head[] = {static_cast<char>(Tag::failure), static_cast<char>(error.kind())};
  for (u32 other = 0; other < processes(); ++other) {
    const auto& socket = sockets_[other];
    if (!socket) continue;
    if (far_.has(other)) {
      (void)send_far(socket.get(), std::string{head, sizeof head} + text, MSG_DONTWAIT);
    } else {
      Envelope envelope{head, sizeof head, text.data(), text.size()};
      envelope.enclose(-1);
      (void)sendmsg(socket.get(), &envelope.header, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    shutdown(socket.get(), SHUT_RDWR);
  }
}

}  // namespace linkscope
