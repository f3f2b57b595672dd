// What the kernels of this room take: operations that a block posts (kernels/post.cu), and a channel that a block serves
// (kernels/serve.cu).
#pragma once
#include "putget/poster.hpp"

namespace linkscope {

/// A step of a posting block: an operation, or a wait. `put_signal` sets the word at offset `word` behind its put.
enum class StepKind : unsigned { operation, put_signal, await, quiet };
struct PostStep {
  StepKind kind;
  Operation operation;  // await: local and value
  RingWord word;
};

enum class GroupKind : unsigned { thread, warp, block, grid };
inline constexpr RingWord grid_bytes = 88;  // of the memory that a Grid needs (device.hpp)

/// `steps`: an array, `result`: Posted, and the number of steps that were done. `grid_words`: memory of grid_bytes.
struct PostTask {
  Channel channel;
  RingWord steps, count, result;
  GroupKind group;
  RingWord grid_words;
};

template <class Memory, class Group>
LINKSCOPE_ANYWHERE Posted perform_step(Poster<Memory, Group>& poster, const PostStep& step) {
  const auto& [verb, local, remote, bytes, value] = step.operation;
  switch (step.kind) {
    case StepKind::await:
      return poster.await(local, value);
    case StepKind::quiet:
      return poster.quiet();
    case StepKind::put_signal:
      return poster.put_signal(remote, local, bytes, step.word, value);
    default:
      break;
  }
  if (verb == Verb::put) return poster.put(remote, local, bytes);
  if (verb == Verb::get) return poster.get(local, remote, bytes);
  return poster.post_one(step.operation);
}

template <class Memory, class Group>
LINKSCOPE_ANYWHERE void run_posts(const PostTask& task, Memory memory, Group group) {
  Poster<Memory, Group> poster{task.channel, memory, group};
  Posted done = poster.open();
  const bool opened = done == Posted::ok;
  const auto* steps = reinterpret_cast<const PostStep*>(task.steps);
  RingWord i = 0;
  PostStep next = task.count ? steps[0] : PostStep{};
  while (done == Posted::ok && i < task.count) {
    const PostStep step = next;
    if (++i < task.count) next = steps[i];  // it comes from the host's memory meanwhile
    done = perform_step(poster, step);
  }
  if (opened) poster.close();
  if (group.lane() != 0) return;
  memory.release(task.result + sizeof(RingWord), done == Posted::ok ? i : i - (i > 0));
  memory.release(task.result, static_cast<RingWord>(done) + 1);
}

/// Serves a channel's ring until its channel ends, something fails, or nobody posts for `idle_ns`. `local` and `remote`:
/// the regions as the server sees them.
struct ServeTask {
  Channel channel;
  RingWord local, remote, taken, idle_ns;
};

template <class Memory, class Group>
LINKSCOPE_ANYWHERE Posted serve_one(const ServeTask& task, DescriptorServer& server, Memory& memory, Group& group,
                                    Operation* operations) {
  for (unsigned i = 0; i < server.ring.words; ++i) {
    const Posted wrong = check_operation(operations[i], task.channel.local_bytes, task.channel.remote_bytes);
    if (wrong != Posted::ok) return wrong;
    if (operations[i].verb != Verb::none) perform_operation(memory, group, operations[i], task.local, task.remote);
  }
  group.after_all([&] { server.complete(memory); });
  return Posted::ok;
}

/// `operations`: room for most_descriptor_words, which all threads of the group see.
template <class Memory, class Group>
LINKSCOPE_ANYWHERE void serve(const ServeTask& task, Memory memory, Group group, Operation* operations) {
  DescriptorServer server{task.channel.ring(), task.taken};
  const RingWord failure = task.channel.word(ControlWord::failure), stop = task.channel.word(ControlWord::stop);
  constexpr unsigned looks = 256;
  RingWord since = memory.now_ns();
  Posted state = Posted::ok;
  while (state == Posted::ok) {
    const auto taken = group.lead([&] {
      LINKSCOPE_ROLLED
      for (unsigned i = 0; i < looks; ++i)
        if (server.try_take(memory, operations)) return RingWord{1};
      if (memory.acquire(stop)) return RingWord{2};
      return memory.now_ns() - since > task.idle_ns ? RingWord{2} : RingWord{0};
    });
    if (taken == 2) state = Posted::ended;
    if (taken != 1) continue;
    state = serve_one(task, server, memory, group, operations);
    since = memory.now_ns();
  }
  if (group.lane() == 0) memory.release(failure, static_cast<RingWord>(state));
}

}  // namespace linkscope
