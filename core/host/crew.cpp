#include "host/crew.hpp"

#include <chrono>

#include "host/topology.hpp"

namespace linkscope {

Crew::Crew(u32 node, u32 count) {
  for (u32 part = 1; part < count; ++part) threads_.emplace_back([this, node, part] { serve(node, part); });
}

Crew::~Crew() {
  ends_ = true;
  wake();
}

void Crew::wake() {
  ++signal_;
  signal_.notify_all();
}

void Crew::run(const std::function<void(u32)>& work) {
  work_ = &work;
  left_ = static_cast<u32>(threads_.size());
  ++jobs_;
  wake();
  work(0);
  while (left_ != 0) std::this_thread::yield();
}

void Crew::serve(u32 node, u32 part) {
  constexpr std::chrono::milliseconds attentive{20};
  bind_thread_to_node(node);
  for (u64 done = 0;;) {
    const u64 heard = signal_;
    if (ends_) return;
    if (jobs_ != done) {
      ++done;
      (*work_)(part);
      --left_;
      continue;
    }
    const auto asleep = std::chrono::steady_clock::now() + attentive;
    while (signal_ == heard && std::chrono::steady_clock::now() < asleep) std::this_thread::yield();
    signal_.wait(heard);
  }
}

}  // namespace linkscope
