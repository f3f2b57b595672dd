// Messages to other processes of this host, as steps.
#pragma once
#include <memory>

#include "platform/cuda/step_runner.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Why this host cannot exchange the messages of an actor; "" if it can.
[[nodiscard]] std::string why_no_message(const Actor&, const Message&);
/// Starts the process that answers. Throws as Messenger does.
[[nodiscard]] std::unique_ptr<StepRunner> message_runner(const Actor&, const Message&);

}  // namespace linkscope
