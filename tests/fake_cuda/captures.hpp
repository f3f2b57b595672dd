// Captures of streams.
#pragma once
#include <cuda.h>

#include <functional>
#include <vector>

namespace fake {

/// The error of a call that a capture of mode "global" forbids to this thread.
[[nodiscard]] CUresult unsafe_during_capture();

/// A graph of these nodes in sequence (graphs.cpp).
[[nodiscard]] CUgraph graph_of(std::vector<std::function<void()>> work);

}  // namespace fake
