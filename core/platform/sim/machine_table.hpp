// Reading the values of a machine file, with messages that name the key.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "platform/sim/machine.hpp"

namespace linkscope::sim {

inline constexpr double giga = 1e9, micro = 1e-6, nano = 1e-9;
inline constexpr double kib = 1024, gib = 1024.0 * 1024 * 1024;

[[noreturn]] inline void wrong(const std::string& where, const std::string& what) {
  throw Error{ErrorKind::usage, "machine: " + where + ": " + what};
}

/// A table of a machine file with its name for messages. Every value is checked where it is read.
struct Table {
  const nlohmann::json* value;
  std::string name;

  [[nodiscard]] bool has(const char* key) const { return value->contains(key); }
  [[nodiscard]] Table operator[](const char* key) const {
    const auto found = value->find(key);
    if (found == value->end()) wrong(name, std::string{"it lacks '"} + key + "'");
    return {&*found, name + "." + key};
  }
  [[nodiscard]] double number(const char* key) const {
    const Table at = (*this)[key];
    const nlohmann::json& plain =
        at.value->is_object() ? at.value->at("v") : *at.value;  // {v, from, …} or a plain number
    if (!plain.is_number()) wrong(at.name, "it must be a number");
    const double number = plain.get<double>();
    if (!(number >= 0)) wrong(at.name, "it must not be negative");
    return number;
  }
  [[nodiscard]] double number(const char* key, double otherwise) const { return has(key) ? number(key) : otherwise; }
  [[nodiscard]] double rate(const char* key) const {
    const double gbps = number(key);
    if (gbps == 0) wrong(name + "." + key, "a rate must be more than 0");
    return gbps * giga;
  }
  [[nodiscard]] u32 count(const char* key) const {
    const double count = number(key);
    if (count < 1) wrong(name + "." + key, "there must be at least one");
    return static_cast<u32>(count);
  }
  [[nodiscard]] u64 bytes(const char* key) const {
    const auto bytes = static_cast<u64>(number(key) * kib);
    if (bytes == 0) wrong(name + "." + key, "it must be more than 0");
    return bytes;
  }
  [[nodiscard]] std::string text(const char* key) const { return (*this)[key].value->get<std::string>(); }
  [[nodiscard]] std::vector<Table> list(const char* key) const {
    std::vector<Table> items;
    if (!has(key)) return items;
    for (const auto& item : value->at(key))
      items.push_back({&item, name + "." + key + "[" + std::to_string(items.size()) + "]"});
    return items;
  }
};

/// The values of a [memory].
[[nodiscard]] MemoryCosts memory_costs(const Table&);
/// A network card of a [[nic]], whose node is not known yet.
[[nodiscard]] Nic nic_of(const Table&);

}  // namespace linkscope::sim
