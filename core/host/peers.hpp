// The processes that run one program together: messages between any two of them, which may carry a file descriptor, and a
// common start.
#pragma once
#include <atomic>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "host/descriptor.hpp"
#include "host/far_sockets.hpp"
#include "host/shared_pages.hpp"

namespace linkscope {

class Peers {
 public:
  /// Meets the processes that name the same `meeting`, and returns when all have come. Throws Error{usage} for a number
  /// or a name that cannot be used, Error{timeout} that names a process that did not come. `far`: the processes on other
  /// hosts, which get no descriptors; over a network, nobody may know the name.
  Peers(u32 process, u32 processes, const std::string& meeting, FarPeers far = {});
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  [[nodiscard]] u32 process() const { return process_; }
  [[nodiscard]] u32 processes() const { return static_cast<u32>(sockets_.size()); }

  // Each of these throws Error{lost} that names a process that has ended, Error{timeout} that names one that does not
  // answer within `patience`, and the error of a process that failed. `what` is what this process waits for, as text.

  /// Sends a value, with a descriptor unless that is negative.
  template <class T>
  void give(u32 to, const T& value, int descriptor = -1, const char* what = "it to read a message") {
    static_assert(std::is_trivially_copyable_v<T>);
    send(to, {reinterpret_cast<const char*>(&value), sizeof value}, descriptor, what);
  }
  /// Receives a value that the other process gave, and the descriptor that came with it.
  template <class T>
  T take(u32 from, const char* what, Seconds patience, Descriptor* came = nullptr) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    receive(from, {reinterpret_cast<char*>(&value), sizeof value, came}, what, patience);
    return value;
  }
  /// Waits until all have come here.
  void meet(const char* what, Seconds patience);
  /// After meet(): returns in all processes at the same time, within the time of a cache miss; on several hosts, of a
  /// message.
  void start_together();
  [[nodiscard]] bool on_several_hosts() const { return far_.any(); }
  void check_alive(const char* what = "it to do its part");

  /// Tells the others why this process failed, and leaves the meeting.
  void fail(const Error&);
  /// Whether this process has left the meeting.
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  struct Room {
    char* bytes;
    std::size_t count;
    Descriptor* descriptor;
  };
  void connect_to(u32 other, const std::string& meeting);
  void admit_others(int listener);
  void admit_far(const std::string& meeting);
  [[nodiscard]] u32 missing(bool far) const;
  void share_start();
  void send(u32 to, std::string_view bytes, int descriptor, const char* what);
  void receive(u32 from, const Room&, const char* what, Seconds patience);
  [[noreturn]] void gone(u32 other, const char* what);

  u32 process_;
  FarPeers far_;
  std::vector<Descriptor> sockets_;  // by process; none for this one
  SharedPages page_;                 // of the word that counts arrivals
  std::string relayed_;              // the error of another process that this one received
  bool ended_ = false;
};

}  // namespace linkscope
