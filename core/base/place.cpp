#include "base/place.hpp"

#include <array>
#include <charconv>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr std::array<std::string_view, 5> kind_names{"numa", "gpu", "nic", "disk", "rank"};

[[noreturn]] void not_a_place(std::string_view text) {
  throw Error{ErrorKind::usage,
              "'" + std::string{text} + "' is not a place; write numa:0, gpu:1, nic:0, disk:PATH or rank:3"};
}

u32 parse_index(std::string_view digits, std::string_view whole) {
  u32 value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || status != std::errc{} || end != digits.data() + digits.size()) not_a_place(whole);
  return value;
}

}  // namespace

std::string_view to_string(PlaceKind kind) { return kind_names[static_cast<std::size_t>(kind)]; }

std::string to_string(const Place& place) {
  std::string text = place.host == one_host ? "" : "host:" + std::to_string(place.host) + "/";
  text += to_string(place.kind);
  text += ':';
  if (place.kind == PlaceKind::disk) return text + place.path;
  return text + (place.index == all_places ? "all" : std::to_string(place.index));
}

Place parse_place(std::string_view text) {
  Place place;
  std::string_view rest = text;
  if (rest.starts_with("host:")) {
    const auto slash = rest.find('/');
    if (slash == std::string_view::npos) not_a_place(text);
    place.host = parse_index(rest.substr(5, slash - 5), text);
    rest = rest.substr(slash + 1);
  }
  const auto colon = rest.find(':');
  if (colon == std::string_view::npos) not_a_place(text);
  for (std::size_t kind = 0; kind < kind_names.size(); ++kind) {
    if (rest.substr(0, colon) != kind_names[kind]) continue;
    place.kind = static_cast<PlaceKind>(kind);
    const auto value = rest.substr(colon + 1);
    if (place.kind == PlaceKind::disk) {
      if (value.empty()) not_a_place(text);
      place.path = value;
    } else {
      place.index = value == "all" && place.kind == PlaceKind::gpu ? all_places : parse_index(value, text);
    }
    return place;
  }
  not_a_place(text);
}

std::vector<std::pair<Place, Place>> parse_paths(std::string_view text) {
  std::vector<std::pair<Place, Place>> found;
  for (bool more = true; more;) {
    const auto comma = text.find(',');
    const auto path = text.substr(0, comma);
    const auto arrow = path.find("->");
    if (arrow == std::string_view::npos)
      throw Error{ErrorKind::usage,
                  "'" + std::string{path} + "' is not a path; write numa:0->gpu:1, and a comma between paths"};
    found.emplace_back(parse_place(path.substr(0, arrow)), parse_place(path.substr(arrow + 2)));
    more = comma != std::string_view::npos;
    if (more) text = text.substr(comma + 1);
  }
  return found;
}

}  // namespace linkscope
