// The links of a transfer: fewest hops, then the widest, unless the machine file overrides it.
#pragma once
#include <optional>
#include <vector>

#include "platform/sim/machine.hpp"

namespace linkscope::sim {

class Routes {
 public:
  explicit Routes(const Machine&);

  /// The directed links from one node to another; none without a path. Data passes through NUMA nodes and switches,
  /// never through a GPU that is not an end.
  [[nodiscard]] const std::optional<std::vector<u32>>& between(Node from, Node to) const {
    return routes_[from * nodes_ + to];
  }

 private:
  u32 nodes_;
  std::vector<std::optional<std::vector<u32>>> routes_;

  void from_node(const Machine&, Node from);
};

}  // namespace linkscope::sim
