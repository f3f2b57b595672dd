#include "putget/queue_pair.hpp"

#include <cstring>
#include <span>

#include "gpu/context.hpp"
#include "putget/verbs_host.hpp"
#include "transfer/location.hpp"

namespace linkscope {

PostedQueues::PostedQueues(PutGet& all, const QueuePair& pair, const PutRegion& local, const PutRegion& remote,
                           std::optional<u32> gpu)
    : all_{all}, gpu_{gpu} {
  if (!remote.behind_card())
    throw Error{
        ErrorKind::usage,
        "the remote region is not behind a network card: import the handle that its process made of the address "
        "and the key of its registration"};
  if (local.start() == 0) throw Error{ErrorKind::usage, "the local region must be memory of this process"};
  here_.send = verbs::send_queue_of({pair.send, pair.send_bytes}, pair.number);
  here_.completions = verbs::completion_queue_of({pair.completions, pair.completions_bytes});
  if (here_.completions.count < here_.send.blocks)
    throw Error{ErrorKind::usage, "a completion queue of " + std::to_string(here_.completions.count) +
                                      " entries may lose completions of a send queue of " +
                                      std::to_string(here_.send.blocks) + " blocks: it needs as many"};
  here_.send.ring = reached(pair.send, "the send queue");
  here_.completions.entries = reached(pair.completions, "the completion queue");
  here_.send.record = reached(pair.send_record, "the record of the send queue");
  here_.completions.record = reached(pair.completions_record, "the record of the completion queue");
  here_.send.doorbell = reached(pair.doorbell, "the doorbell");
  here_.local = pair.local;
  here_.local_key = pair.local_key;
  here_.old_value = pair.old_value;
  here_.old_value_key = pair.old_value_key;
  here_.remote = remote.card_address();
  here_.remote_key = remote.card_key();
  empty(here_.send.ring, pair.send_bytes, verbs::free_byte_of_send_queue);
  empty(here_.completions.entries, pair.completions_bytes, verbs::free_byte_of_completion_queue);
  if (!gpu) return;
  on_gpu_ = all.take_device(*gpu, sizeof here_);
  const CurrentContext current{all.driver(), all.gpu(*gpu).context()};
  const auto stream = all.gpu(*gpu).stream(0).get();
  LINKSCOPE_CU(all.driver(), cuMemcpyHtoDAsync, on_gpu_.memory.address(), &here_, sizeof here_, stream);
  LINKSCOPE_CU(all.driver(), cuStreamSynchronize, stream);
}

PostedQueues::~PostedQueues() { all_.give_back(std::move(on_gpu_)); }

/// The poster's address of what the queue pair has somewhere.
u64 PostedQueues::reached(const std::byte* start, const char* what) const {
  if (!start) throw Error{ErrorKind::usage, std::string{what} + " of the queue pair is NULL"};
  const auto location = locate(all_.driver(), start);
  if (!gpu_) {
    if (location.on_host()) return reinterpret_cast<u64>(start);
    throw Error{ErrorKind::usage, std::string{"a CPU thread does not reach "} + what + " in " + to_string(location)};
  }
  auto& gpu = all_.gpu(*gpu_);
  if (location.memory == MemoryType::device && location.device == gpu.facts().handle)
    return reinterpret_cast<u64>(start);
  if (location.memory != MemoryType::pinned)
    throw Error{ErrorKind::usage, "GPU " + std::to_string(*gpu_) + " does not reach " + what + " in " +
                                      to_string(location) + ": use pinned memory, or memory of that GPU"};
  const CurrentContext current{all_.driver(), gpu.context()};
  return mapped_address(all_.driver(), const_cast<std::byte*>(start));
}

void PostedQueues::empty(u64 start, u64 bytes, u8 with) const {
  if (!gpu_) {
    std::memset(reinterpret_cast<void*>(start), with, bytes);
    return;
  }
  auto& gpu = all_.gpu(*gpu_);
  const CurrentContext current{all_.driver(), gpu.context()};
  const auto stream = gpu.stream(0).get();
  LINKSCOPE_CU(all_.driver(), cuMemsetD8Async, start, with, bytes, stream);
  LINKSCOPE_CU(all_.driver(), cuStreamSynchronize, stream);
}

Error card_error(u64 packed) {
  const auto completion = unpacked_completion(packed);
  const bool is_gone = completion.status == verbs::Status::no_answer;
  return {is_gone ? ErrorKind::lost : ErrorKind::failed, verbs::text_of(completion)};
}

}  // namespace linkscope
