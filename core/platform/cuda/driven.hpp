// Streams whose loops have words. No stream waits for a word here: the stream's host thread waits, queues the copies
// behind the wait, and sets a word when the copies before it are done. Meanwhile it queues what may already follow.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "platform/cuda/session.hpp"

namespace linkscope {

[[nodiscard]] bool is_driven(const Actor&);
/// Why a stream cannot exchange the words of its loop here; "" if it can.
[[nodiscard]] std::string why_not_driven(const Program&, const Actor&);

/// Words that wait for copies of a stream. Its GPU's context is current in the calling thread.
class DueWords {
 public:
  DueWords(const Driver& driver, const Stream& stream) : driver_{driver}, stream_{stream} {}

  /// The word gets its value when the work that the stream has now is done.
  void add(Word word, Word value);
  /// Sets the words whose copies are done.
  void set_ready();
  /// Waits for all copies, and sets the words.
  void set_all();
  /// After an error: forgets the words, when nothing is in flight.
  void drop();

 private:
  struct Due {
    std::unique_ptr<Event> done;
    Word word = 0, value = 0;
  };
  const Driver& driver_;
  const Stream& stream_;
  std::deque<Due> due_;
  std::vector<std::unique_ptr<Event>> spare_;

  void set_first();
};

/// The executor of a Set or a Wait of such a stream.
[[nodiscard]] std::unique_ptr<StepRunner> word_runner(const Actor&, const Step&);
/// That many passes through the loop; returns when all copies are done.
void drive(CudaSession&, ActorState&, u64 passes);

}  // namespace linkscope
