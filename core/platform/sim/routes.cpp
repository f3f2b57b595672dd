#include "platform/sim/routes.hpp"

#include <algorithm>
#include <limits>

namespace linkscope::sim {

Routes::Routes(const Machine& machine) : nodes_{machine.nodes()}, routes_(std::size_t{nodes_} * nodes_) {
  for (Node from = 0; from < nodes_; ++from) from_node(machine, from);
  for (const auto& route : machine.overrides) routes_[route.from * nodes_ + route.to] = route.links;
}

void Routes::from_node(const Machine& machine, Node from) {
  // Breadth first: each round extends the paths of the round before by one link and keeps the widest to each new node;
  // among equal ones the first in the file.
  std::vector<double> width(nodes_, 0);
  std::vector<u8> reached(nodes_, 0);
  const auto route_to = [&](Node to) -> auto& { return routes_[from * nodes_ + to]; };
  width[from] = std::numeric_limits<double>::infinity();
  reached[from] = 1;
  route_to(from) = std::vector<u32>{};
  std::vector<Node> edge{from};
  while (!edge.empty()) {
    std::vector<Node> next;
    for (const Node here : edge) {
      if (here != from && !machine.is_passed(here)) continue;
      for (u32 id = 0; id < machine.links.size(); ++id) {
        const auto& link = machine.links[id];
        if (link.from != here || reached[link.to]) continue;
        const double through = std::min(width[here], link.rate);
        if (through <= width[link.to]) continue;
        if (width[link.to] == 0) next.push_back(link.to);
        width[link.to] = through;
        auto path = *route_to(here);
        path.push_back(id);
        route_to(link.to) = std::move(path);
      }
    }
    for (const Node node : next) reached[node] = 1;
    edge = std::move(next);
  }
}

}  // namespace linkscope::sim
