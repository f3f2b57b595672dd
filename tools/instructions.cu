// One post and one successful poll, each in a kernel of its own, whose machine code tools/instructions.py counts. State
// comes from memory and goes back, as in a kernel that lives no longer.
#include "base/actor_ops.hpp"
#include "base/block_words.hpp"
#include "putget/verbs.hpp"
#include "putget/verbs_device.hpp"

extern "C" __global__ void __launch_bounds__(1)
    post_put(linkscope::verbs::SendQueue* queue, linkscope::verbs::Request request, unsigned* posted) {
  request.opcode = linkscope::verbs::Opcode::write;
  request.in_element = false;
  linkscope::verbs::SendQueue mine = *queue;
  CardFromGpu card;
  *posted = static_cast<unsigned>(linkscope::verbs::post(mine, request, card));
  if (*posted != 0) return;
  linkscope::verbs::submit(mine, card);
  *queue = mine;
}

extern "C" __global__ void __launch_bounds__(1)
    poll_completion(linkscope::verbs::CompletionQueue* queue, linkscope::verbs::Completion* completion,
                    unsigned* came) {
  linkscope::verbs::CompletionQueue mine = *queue;
  CardFromGpu card;
  linkscope::verbs::Completion found;
  *came = linkscope::verbs::poll(mine, found, card);
  if (!*came) return;
  linkscope::verbs::confirm(mine, card);
  *completion = found;
  *queue = mine;
}

extern "C" __global__ void __launch_bounds__(1) post_word(unsigned long long word, unsigned long long value) {
  BlockWords::set(word, value);
}

extern "C" __global__ void __launch_bounds__(1)
    poll_word(unsigned long long word, unsigned long long value, unsigned* came) {
  *came = linkscope::has_come(BlockWords::acquire(word), value);
}
