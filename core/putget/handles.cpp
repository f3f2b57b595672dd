#include "putget/handles.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "base/error.hpp"
#include "base/units.hpp"
#include "host/patience.hpp"

namespace linkscope {
namespace {

constexpr int most_waiting = 64;
constexpr Seconds answer_time{2.0};

/// An abstract address: no file has to be removed.
struct Address {
  sockaddr_un name{};
  socklen_t length = 0;

  explicit Address(const std::string& text) {
    if (text.size() + 1 > sizeof name.sun_path) throw Error{ErrorKind::usage, "'" + text + "' names no region"};
    name.sun_family = AF_UNIX;
    text.copy(name.sun_path + 1, text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Descriptor new_socket() {
  Descriptor made{socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  if (!made) throw Error{ErrorKind::failed, std::string{"no socket for a region: "} + std::strerror(errno)};
  const auto most = std::chrono::ceil<std::chrono::seconds>(patient(answer_time));
  const timeval limit{most.count(), 0};
  setsockopt(made.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return made;
}

/// Anybody on this host can name an abstract address.
bool is_same_user(int socket) {
  ucred other{};
  socklen_t length = sizeof other;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

/// One byte, with room for one descriptor.
struct Envelope {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  Envelope() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
};

void give(int socket, int descriptor) {
  Envelope envelope;
  cmsghdr* beside = CMSG_FIRSTHDR(&envelope.header);
  beside->cmsg_level = SOL_SOCKET;
  beside->cmsg_type = SCM_RIGHTS;
  beside->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(beside), &descriptor, sizeof descriptor);
  (void)sendmsg(socket, &envelope.header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

HandleServer::HandleServer(Descriptor given) : given_{std::move(given)}, listener_{new_socket()} {
  static std::atomic<u64> made{0};
  name_ = "linkscope.region." + std::to_string(getpid()) + "." + std::to_string(made++);
  const Address address{name_};
  if (bind(listener_.get(), address.get(), address.length) != 0 || listen(listener_.get(), most_waiting) != 0)
    throw Error{ErrorKind::failed, std::string{"no socket for a region: "} + std::strerror(errno)};
  server_ = std::thread{[this] { serve(); }};
}

HandleServer::~HandleServer() {
  shutdown(listener_.get(), SHUT_RDWR);
  server_.join();
}

void HandleServer::serve() {
  for (;;) {
    const Descriptor came{accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    if (came && is_same_user(came.get())) give(came.get(), given_.get());
    if (!came && errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) return;
  }
}

Descriptor ask_for_descriptor(const std::string& name) {
  const auto socket = new_socket();
  const Address address{name};
  if (connect(socket.get(), address.get(), address.length) != 0)
    throw Error{ErrorKind::lost,
                "the process that has the region does not give it: " + std::string{std::strerror(errno)}};
  if (!is_same_user(socket.get())) throw Error{ErrorKind::failed, "the region belongs to a process of another user"};
  Envelope envelope;
  const auto taken = recvmsg(socket.get(), &envelope.header, MSG_CMSG_CLOEXEC);
  const cmsghdr* found = taken == 1 ? CMSG_FIRSTHDR(&envelope.header) : nullptr;
  if (!found || found->cmsg_type != SCM_RIGHTS)
    throw Error{ErrorKind::failed, "the process that has the region gave no file descriptor"};
  int number = -1;
  std::memcpy(&number, CMSG_DATA(found), sizeof number);
  return Descriptor{number};
}

}  // namespace linkscope
