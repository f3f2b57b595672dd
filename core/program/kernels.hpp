// Kernels and their traits. Programs name a kernel by its identity, and platforms ask for its traits.
#pragma once
#include <span>

#include "base/units.hpp"

namespace linkscope {

/// `read`, `write`: all bytes of a span, or the first bytes of every stride. `exchange`: copies two spans concurrently.
/// `add`, `add_chain`: atomic additions to words. `chase`: follows a chain of addresses through the lines of a span.
/// `touch`: the first byte of each page that moves; CPU threads with a linear pattern access every word. `touch_chain`:
/// follows a chain of addresses from slice to slice of pages that move.
enum class KernelId : u8 { read, write, exchange, add, add_chain, chase, touch, touch_chain };

/// What shows that a kernel did its work.
enum class Proof : u8 {
  sum,        // the sum of all that it read; a kernel that writes leaves no sum
  contents,   // the contents of the memory that it wrote
  additions,  // the sum of the memory, which counts the additions
  position,   // the address that it reached
};

struct KernelTraits {
  KernelId id;
  const char* name;
  const char* module;  // the file of its device code
  /// Accesses that state its traffic.
  u32 accesses = 0;
  Proof proof = Proof::contents;
  /// CPU threads run it too. Streams run every kernel.
  bool by_cpu_thread = false;
  bool atomic = false;
  /// Each access needs the address that the one before found.
  bool follows_chain = false;
  /// Accesses pages that move one by one.
  bool touches_pages = false;
  /// Accesses all bytes of its only span, so that all pages of the span move.
  bool all_bytes = false;
  /// Its accesses are pairs of a source and a destination.
  bool in_pairs = false;
  /// Its linear form is an op of actors that wait (base/actor_ops.hpp).
  bool as_op = false;
  /// A program may choose the SM that runs it.
  bool on_chosen_sm = false;
};

/// One row for each kernel, in the order of KernelId.
[[nodiscard]] std::span<const KernelTraits> kernels();
[[nodiscard]] const KernelTraits& traits_of(KernelId);
[[nodiscard]] const char* to_string(KernelId);

}  // namespace linkscope
