// A second process: this program started again, with one end of a socket as its standard input. Messages are whole and
// may carry a file descriptor.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <string>

#include "base/units.hpp"
#include "host/descriptor.hpp"

namespace linkscope {

class SecondProcess {
 public:
  /// Starts it with one argument. Only from the main thread, because it dies with the thread that started it. Throws
  /// Error{failed}.
  explicit SecondProcess(const char* argument);
  ~SecondProcess();  // ends it
  SecondProcess(const SecondProcess&) = delete;
  SecondProcess& operator=(const SecondProcess&) = delete;

  /// Sends one message, with a descriptor unless that is negative. Throws Error{lost} if it has ended.
  void tell(const void* message, std::size_t bytes, int descriptor = -1);
  /// Receives an answer of exactly that many bytes, and the descriptor that came with it. Throws Error{lost} if it does
  /// not answer within `patience` or has ended; it is ended then.
  Descriptor hear(void* answer, std::size_t bytes, Seconds patience);
  /// Throws Error{lost} if it has ended.
  void check_alive();

 private:
  [[noreturn]] void lost(const std::string& how);
  [[noreturn]] void gone();
  void end();
  pid_t pid_ = -1;
  Descriptor socket_;
  std::string how_;  // how it ended; "" while it runs
};

/// For the second process: waits for a message of exactly that many bytes, and takes the descriptor that came with it.
/// False if the first has ended, or sends anything else.
[[nodiscard]] bool take_message(int socket, void* message, std::size_t bytes, Descriptor& descriptor);
/// Sends a message, with a descriptor unless that is negative. False if the other end is closed.
[[nodiscard]] bool give_message(int socket, const void* message, std::size_t bytes, int descriptor);

}  // namespace linkscope
