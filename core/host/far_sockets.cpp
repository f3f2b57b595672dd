#include "host/far_sockets.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr int backlog = 256;

Descriptor listener_of(int family) {
  Descriptor made{socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!made) return {};
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  const socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const int both = 0;
  if (family == AF_INET6 && setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both) != 0) return {};
  if (bind(made.get(), reinterpret_cast<const sockaddr*>(&any), length) != 0 || listen(made.get(), backlog) != 0)
    return {};
  return made;
}

/// Connects within the time; no descriptor, and errno, if the address does not answer.
Descriptor connected(const std::string& address, Seconds patience) {
  const auto colon = address.rfind(':');
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  errno = EADDRNOTAVAIL;
  if (colon == std::string::npos ||
      getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0)
    return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned{found, &freeaddrinfo};
  Descriptor made{socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!made) return {};
  if (connect(made.get(), found->ai_addr, found->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return {};
    pollfd wanted{made.get(), POLLOUT, 0};
    int problem = ETIMEDOUT;
    socklen_t length = sizeof problem;
    if (poll(&wanted, 1, static_cast<int>(patience.count() * 1e3)) > 0)
      (void)getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &problem, &length);
    if (problem != 0) {
      errno = problem;
      return {};
    }
  }
  (void)fcntl(made.get(), F_SETFL, fcntl(made.get(), F_GETFL) & ~O_NONBLOCK);
  return made;
}

}  // namespace

bool FarPeers::any() const {
  return std::any_of(addresses.begin(), addresses.end(), [](const auto& of) { return !of.empty(); });
}

Descriptor listen_for_far() {
  auto made = listener_of(AF_INET6);
  if (!made) made = listener_of(AF_INET);  // a kernel without IPv6
  if (!made)
    throw Error{ErrorKind::failed, std::string{"no port for processes of other hosts: "} + std::strerror(errno)};
  return made;
}

u32 port_of(int listener) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&own), &length) != 0)
    throw Error{ErrorKind::failed, std::string{"no port for processes of other hosts: "} + std::strerror(errno)};
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

Descriptor connect_far(const std::vector<std::string>& addresses, Seconds patience) {
  std::string reasons;
  for (const auto& address : addresses) {
    if (auto made = connected(address, patience / static_cast<double>(addresses.size()))) return made;
    reasons += (reasons.empty() ? "" : ", ") + address + ": " + std::strerror(errno);
  }
  throw Error{ErrorKind::failed, "another host cannot be reached (" + reasons + ")"};
}

void bound_far(int socket, Seconds patience) {
  const timeval longest{static_cast<time_t>(patience.count()), 0};
  const int yes = 1;
  if (setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest) != 0 ||
      setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest) != 0 ||
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0)
    throw Error{ErrorKind::failed, std::string{"no socket for processes of other hosts: "} + std::strerror(errno)};
}

bool send_far(int socket, std::string_view message, int flags) {
  std::string framed;
  framed += static_cast<char>(message.size() & 0xff);
  framed += static_cast<char>(message.size() >> 8);
  framed += message;
  for (std::string_view left = framed; !left.empty();) {
    const auto sent = send(socket, left.data(), left.size(), MSG_NOSIGNAL | flags);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    left.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

ssize_t receive_far(int socket, char* message, std::size_t most) {
  const auto take = [socket](char* to, std::size_t count) -> ssize_t {
    std::size_t have = 0;
    while (have < count) {
      const auto came = recv(socket, to + have, count - have, MSG_WAITALL);
      if (came < 0 && errno == EINTR) continue;
      if (came <= 0) return came;
      have += static_cast<std::size_t>(came);
    }
    return static_cast<ssize_t>(have);
  };
  unsigned char head[2];
  if (const auto came = take(reinterpret_cast<char*>(head), sizeof head); came <= 0) return came;
  const std::size_t count = head[0] | std::size_t{head[1]} << 8;
  if (count > most) {
    errno = EMSGSIZE;
    return -1;
  }
  return take(message, count);
}

}  // namespace linkscope
