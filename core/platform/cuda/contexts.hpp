// Chooses contexts of GPUs with equal cost. On an H200 each context has one of two costs for its lifetime: in about
// half of them all kernels, and all copies within the GPU, take 0.12 us longer (docs/notes/context-effects.md). So
// several are made until one is cheap.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "gpu/device.hpp"

namespace linkscope {

/// The least known cost of an operation, by the name of the GPU's model.
using Floors = std::map<std::string, Seconds>;

/// One GPU, and how a context is made on it: `anew` ends the previous one and returns the cost of an operation in the
/// new one; nothing on failure. `floor`: the least known cost on this GPU, where it has made enough contexts to know.
struct ContextMaker {
  std::string model;
  std::function<std::optional<Seconds>()> anew;
  std::optional<Seconds> floor{};
};

/// Makes contexts until each GPU has one within a few per cent of its floor, or of the least cost seen on its model, or
/// after eight attempts of its own least cost. Without a known floor for a model, eight are made on its GPUs in any case. Returns
/// the costs of all contexts by GPU; the last is kept. A GPU on which one failed makes no more and is left out.
[[nodiscard]] std::vector<std::vector<Seconds>> make_contexts_alike(const std::vector<ContextMaker>&, Floors);

/// The time of a batch of `count` copies of `bytes` on one of a context's streams.
using TimeBatch = std::function<Seconds(std::size_t stream, u64 bytes, unsigned count)>;

/// The cost of one copy, from batches of two lengths, so that the fixed cost of a batch cancels: the mean of two sizes on
/// three streams, since streams of one context differ by 2 %.
[[nodiscard]] Seconds mean_cost(const TimeBatch&);

/// mean_cost() of copies within the GPU that wait behind a gate.
[[nodiscard]] Seconds operation_cost(const Driver&, Device&);

}  // namespace linkscope
