// How two processes of one host exchange messages.
#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "base/units.hpp"

namespace linkscope {

/// `shm`: shared memory that both poll. `local`: a Unix domain socket. `tcp`: a socket of 127.0.0.1.
enum class Channel : u8 { shm, local, tcp };
inline constexpr std::array channel_names{"shm", "local", "tcp"};

[[nodiscard]] constexpr const char* to_string(Channel channel) {
  return channel_names[static_cast<std::size_t>(channel)];
}
[[nodiscard]] constexpr std::optional<Channel> find_channel(std::string_view name) {
  for (std::size_t i = 0; i < channel_names.size(); ++i)
    if (name == channel_names[i]) return static_cast<Channel>(i);
  return {};
}

}  // namespace linkscope
