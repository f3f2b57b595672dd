// A second process: this program started again, with one end of a socket as its standard input. What goes through is whole
// messages, with a file descriptor where one belongs to them.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <string>

#include "base/units.hpp"
#include "platform/host/descriptor.hpp"

namespace linkscope {

class SecondProcess {
 public:
  /// Starts it with one argument. By the main thread only: it dies with the thread that started it. Throws Error{failed}.
  explicit SecondProcess(const char* argument);
  ~SecondProcess();  // ends it
  SecondProcess(const SecondProcess&) = delete;
  SecondProcess& operator=(const SecondProcess&) = delete;

  /// Sends one message, with a descriptor where that is not negative. Throws Error{lost} where it has ended.
  void tell(const void* message, std::size_t bytes, int descriptor = -1);
  /// Takes the answer, which has exactly so many bytes, and the descriptor that came with it. Throws Error{lost} where it
  /// does not answer within `patience` or has ended; it is ended then.
  Descriptor hear(void* answer, std::size_t bytes, Seconds patience);
  /// Throws Error{lost} where it has ended.
  void check_alive();

 private:
  [[noreturn]] void lost(const std::string& how);
  [[noreturn]] void gone();
  void end();
  pid_t pid_ = -1;
  Descriptor socket_;
  std::string how_;  // it ended; "" while it runs
};

/// The second process's side: waits for a message of exactly so many bytes, and takes the descriptor that came with it. False
/// where the first has ended, or sends anything else.
[[nodiscard]] bool take_message(int socket, void* message, std::size_t bytes, Descriptor& descriptor);
/// Sends a message, with a descriptor where that is not negative. False where the other end is closed.
[[nodiscard]] bool give_message(int socket, const void* message, std::size_t bytes, int descriptor);

}  // namespace linkscope
