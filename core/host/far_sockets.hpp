// Connections between processes of one program on several hosts, by TCP. Messages have lengths, as those of local sockets do.
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "host/descriptor.hpp"

namespace linkscope {

/// Where the processes of other hosts can be reached.
struct FarPeers {
  int listener = -1;  // of this process, from listen_for_far(); -1: all are on this host
  std::vector<std::vector<std::string>> addresses{};  // by process, "10.0.0.2:4711" each; none: it is on this host

  [[nodiscard]] bool has(u32 process) const { return process < addresses.size() && !addresses[process].empty(); }
  [[nodiscard]] bool any() const;
};

/// A socket at a free port of all addresses of this host. Throws Error{failed} if there is none.
[[nodiscard]] Descriptor listen_for_far();
/// The port of such a socket.
[[nodiscard]] u32 port_of(int listener);
/// A connection to the first address that answers; each gets its share of the time. Throws Error{failed} that names the
/// addresses and the reason.
[[nodiscard]] Descriptor connect_far(const std::vector<std::string>& addresses, Seconds patience);
/// Bounds each receive and send; small messages leave at once.
void bound_far(int socket, Seconds patience);
/// Sends a message of less than 64 KiB; false with errno if it does not leave.
[[nodiscard]] bool send_far(int socket, std::string_view message, int flags = 0);
/// Receives the next message; its bytes, 0 at the end of the connection, -1 with errno if it does not come or has more bytes.
[[nodiscard]] ssize_t receive_far(int socket, char* message, std::size_t most);

}  // namespace linkscope
