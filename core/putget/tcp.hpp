// Puts and gets over TCP: a server's threads perform the requests of its clients on memory of this process.
#pragma once
#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "base/ring.hpp"
#include "base/units.hpp"
#include "host/descriptor.hpp"

namespace linkscope {

struct TcpMemory {
  u64 start = 0, bytes = 0;
};

class TcpServer {
 public:
  /// Listens at an IPv4 address of this host; port 0: any free one. Throws Error{failed}.
  TcpServer(TcpMemory, const std::string& address, unsigned short port);
  /// Ends all connections.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  [[nodiscard]] unsigned short port() const { return port_; }

 private:
  struct Connection {
    explicit Connection(Descriptor accepted) : socket{std::move(accepted)} {}
    Descriptor socket;
    std::thread server{};
    std::atomic<bool> ended{false};
  };
  void accept_all();
  void add(Descriptor socket);
  void forget_ended();
  void serve(Connection&);
  TcpMemory memory_;
  Descriptor listener_;
  unsigned short port_ = 0;
  std::atomic<bool> stops_{false};
  std::list<Connection> connections_;  // of the acceptor, until it ends
  std::thread acceptor_;
};

class TcpClient {
 public:
  /// `address`: "127.0.0.1 4711". Each wait for the server lasts at most `patience`. Throws Error{failed} if nobody
  /// listens there.
  TcpClient(const std::string& address, Seconds patience);

  // These throw Error{lost} if the server has ended, Error{timeout} if it does not answer.

  /// Sends an operation; `local` is the address of the data of a put. The server performs it in order.
  void send(const Operation&, u64 local);
  /// Sends a get, and waits for its data.
  void get(const Operation&, u64 local);
  /// Waits until the server has performed all that was sent.
  void finish();
  /// "", or that the server has ended. For a client that waits for nothing from it.
  [[nodiscard]] std::string why_gone() const;

 private:
  Descriptor socket_;
};

}  // namespace linkscope
