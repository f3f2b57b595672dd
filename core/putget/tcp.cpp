#include "putget/tcp.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "base/error.hpp"
#include "putget/cpu_words.hpp"
#include "putget/poster.hpp"

namespace linkscope {
namespace {

using namespace std::chrono_literals;

/// Both sides are of this library, so the bytes are those of the structure. Verb none asks for an answer of one byte.
struct Request {
  u64 verb, remote, bytes, value;
};

sockaddr_in address_of(const std::string& address, unsigned short port) {
  sockaddr_in found{};
  found.sin_family = AF_INET;
  found.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &found.sin_addr) != 1)
    throw Error{ErrorKind::usage, "'" + address + "' is no IPv4 address, such as 127.0.0.1"};
  return found;
}

[[noreturn]] void refused(const std::string& what) {
  throw Error{ErrorKind::failed, what + ": " + std::strerror(errno)};
}

constexpr const char* closed = "the server of the region has closed the TCP connection";

[[noreturn]] void gone() {
  if (errno == EAGAIN || errno == EWOULDBLOCK)
    throw Error{ErrorKind::timeout, "the server of the region does not answer by TCP"};
  throw Error{ErrorKind::lost, closed};
}

void send_all(int socket, const void* data, u64 bytes, int flags) {
  for (const auto* at = static_cast<const char*>(data); bytes > 0;) {
    const auto sent = send(socket, at, bytes, flags | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) gone();
    at += sent;
    bytes -= static_cast<u64>(sent);
  }
}

void receive_all(int socket, void* data, u64 bytes) {
  for (auto* at = static_cast<char*>(data); bytes > 0;) {
    const auto came = recv(socket, at, bytes, 0);
    if (came < 0 && errno == EINTR) continue;
    if (came == 0) errno = ECONNRESET;
    if (came <= 0) gone();
    at += came;
    bytes -= static_cast<u64>(came);
  }
}

void at_once(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Another accept may succeed: the client has gone, or the process has too many files or too little memory for now.
bool is_passing(int error) {
  return error == EINTR || error == ECONNABORTED || error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

Request request_of(const Operation& one) { return {static_cast<u64>(one.verb), one.remote, one.bytes, one.value}; }

}  // namespace

// --- the server -------------------------------------------------------------------------------------------------------

TcpServer::TcpServer(TcpMemory memory, const std::string& address, unsigned short port)
    : memory_{memory}, listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
  auto at = address_of(address, port);
  const int on = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0)
    refused("no TCP server at " + address + " port " + std::to_string(port));
  socklen_t size = sizeof at;
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size);
  port_ = ntohs(at.sin_port);
  acceptor_ = std::thread{[this] { accept_all(); }};
}

TcpServer::~TcpServer() {
  stops_ = true;
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  for (const auto& connection : connections_) shutdown(connection.socket.get(), SHUT_RDWR);
  for (auto& connection : connections_) connection.server.join();
}

void TcpServer::accept_all() {
  while (!stops_) {
    Descriptor socket{accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    if (!socket && !is_passing(errno)) return;
    forget_ended();
    if (socket) add(std::move(socket));
    else std::this_thread::sleep_for(1ms);
  }
}

void TcpServer::add(Descriptor socket) {
  at_once(socket.get());
  auto& connection = connections_.emplace_back(std::move(socket));
  try {
    connection.server = std::thread{[this, &connection] { serve(connection); }};
  } catch (const std::system_error&) {  // the limit of threads is reached: the client finds its connection closed
    connections_.pop_back();
  }
}

void TcpServer::forget_ended() {
  std::erase_if(connections_, [](Connection& connection) {
    if (!connection.ended) return false;
    connection.server.join();
    return true;
  });
}

void TcpServer::serve(Connection& to) {
  const int connection = to.socket.get();
  try {
    for (;;) {
      Request request{};
      receive_all(connection, &request, sizeof request);
      Operation one{static_cast<Verb>(request.verb), 0, request.remote, request.bytes, request.value};
      // The client checks what it sends, so a request that does not fit ends the connection.
      if (check_operation(one, one.bytes, memory_.bytes) != Posted::ok) break;
      const u64 at = memory_.start + one.remote;
      if (one.verb == Verb::put) receive_all(connection, reinterpret_cast<void*>(at), one.bytes);
      else if (one.verb == Verb::get) send_all(connection, reinterpret_cast<const void*>(at), one.bytes, 0);
      else if (one.verb == Verb::set) CpuWords::release(at, one.value);
      else if (one.verb == Verb::add) CpuWords::add(at, one.value);
      else send_all(connection, "", 1, 0);
    }
  } catch (const Error&) {  // the client has ended
  }
  shutdown(connection, SHUT_RDWR);
  to.ended = true;
}

// --- the client -------------------------------------------------------------------------------------------------------

TcpClient::TcpClient(const std::string& address, Seconds patience)
    : socket_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
  const auto space = address.find(' ');
  const auto at = address_of(address.substr(0, space), static_cast<unsigned short>(std::stoul(address.substr(space))));
  const auto whole = static_cast<time_t>(patience.count());
  const timeval most{whole, static_cast<suseconds_t>((patience.count() - static_cast<double>(whole)) * 1e6)};
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    refused("nobody serves a region by TCP at " + address);
  at_once(socket_.get());
}

void TcpClient::send(const Operation& one, u64 local) {
  const auto request = request_of(one);
  const bool has_data = one.verb == Verb::put && one.bytes > 0;
  send_all(socket_.get(), &request, sizeof request, has_data ? MSG_MORE : 0);
  if (has_data) send_all(socket_.get(), reinterpret_cast<const void*>(local), one.bytes, 0);
}

void TcpClient::get(const Operation& one, u64 local) {
  send(one, local);
  receive_all(socket_.get(), reinterpret_cast<void*>(local), one.bytes);
}

void TcpClient::finish() {
  send({}, 0);
  char answer = 0;
  receive_all(socket_.get(), &answer, 1);
}

std::string TcpClient::why_gone() const {
  char letter = 0;
  const auto came = recv(socket_.get(), &letter, 1, MSG_PEEK | MSG_DONTWAIT);
  const bool silent = came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return came > 0 || silent ? "" : closed;
}

}  // namespace linkscope
