// Where memory lies or an actor runs: "numa:0", "gpu:1", "nic:0", "disk:/data", "rank:3", with "host:N/" before it on
// models of several hosts. GPUs are numbered in PCI bus order, NUMA nodes densely from 0. "gpu:all" names every GPU but
// the one at the other end, in a case whose flows run to or from all of them at once; no region or actor lies there.
#pragma once
#include <compare>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.hpp"

namespace linkscope {

enum class PlaceKind : u8 { numa, gpu, nic, disk, rank };

inline constexpr u32 all_places = ~u32{0};
inline constexpr u32 one_host = ~u32{0};  // of a place without "host:N/": a machine with one host

struct Place {
  PlaceKind kind = PlaceKind::numa;
  u32 index = 0;
  u32 host = one_host;
  std::string path;  // disks only

  auto operator<=>(const Place&) const = default;
};

inline Place numa(u32 index) { return {PlaceKind::numa, index, one_host, {}}; }
inline Place gpu(u32 index) { return {PlaceKind::gpu, index, one_host, {}}; }

[[nodiscard]] std::string to_string(const Place&);
[[nodiscard]] std::string_view to_string(PlaceKind);
/// Throws Error{usage} with the text if it is not a place.
[[nodiscard]] Place parse_place(std::string_view text);
/// Paths, "numa:0->gpu:1,gpu:2->numa:0". Throws Error{usage} with the part that is not a path.
[[nodiscard]] std::vector<std::pair<Place, Place>> parse_paths(std::string_view text);

}  // namespace linkscope
