// Contexts of GPUs that cost alike. On an H200 each context has one of two costs for as long as it lives: in about half of
// them all kernels, and all copies within the GPU, take 0.12 us longer (docs/notes/context-effects.md). So several are made, and kept is
// one as fast as they get.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "platform/cuda/device.hpp"

namespace linkscope {

/// What an operation costs at least, by the name of the GPU's model.
using Floors = std::map<std::string, Seconds>;

/// One GPU, and how a context is made on it: `anew` ends the one before and says what an operation costs in the new one;
/// nothing where that failed.
struct ContextMaker {
  std::string model;
  std::function<std::optional<Seconds>()> anew;
};

/// Makes contexts until each GPU has one that costs no more than the least seen on its model, within a few per cent; from
/// eight on, than the least of its own. Where no floor of a model is known, eight are made on its GPUs in any case. What
/// each that was made costs, by GPU; the last is kept. Of a GPU on which one failed no more are made: none is told.
[[nodiscard]] std::vector<std::vector<Seconds>> make_contexts_alike(const std::vector<ContextMaker>&, Floors);

/// What a copy of few bytes within the GPU costs in a queue: the mean of two sizes on three streams. One alone tells less,
/// as streams of one context differ by 2 %.
[[nodiscard]] Seconds operation_cost(const Driver&, Device&);

}  // namespace linkscope
