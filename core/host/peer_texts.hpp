// Texts of any length between the processes of a program.
#pragma once
#include <string>

#include "host/peers.hpp"

namespace linkscope {

/// Sends a text, which may hold any bytes. Throws as Peers::give() does.
void give_text(Peers&, u32 to, const std::string& text);
/// Receives a text that the other process gave; `what` is what this process waits for. Throws as Peers::take() does.
[[nodiscard]] std::string take_text(Peers&, u32 from, const char* what, Seconds patience);

}  // namespace linkscope
