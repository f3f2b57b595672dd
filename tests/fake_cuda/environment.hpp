// Reads settings from the environment. An invalid value ends the process with a message, so that a test with a misspelt
// setting does not pass.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

namespace fake {

[[noreturn]] inline void refuse(const char* name, const std::string& value, const char* wanted) {
  std::fprintf(stderr, "fake driver: %s='%s' is not %s\n", name, value.c_str(), wanted);
  std::_Exit(70);
}

inline std::string text(const char* name, const std::string& fallback = "") {
  const char* value = std::getenv(name);
  return value ? value : fallback;
}

inline bool flag(const char* name) {
  const auto value = text(name, "0");
  if (value != "0" && value != "1" && !value.empty()) refuse(name, value, "0 or 1");
  return value == "1";
}

inline unsigned long long to_number(const char* name, const std::string& value, int base = 10) {
  try {
    std::size_t used = 0;
    const auto number = std::stoull(value, &used, base);
    if (used == value.size()) return number;
  } catch (const std::exception&) {
  }
  refuse(name, value, "a number");
}

inline unsigned long long number(const char* name, unsigned long long fallback) {
  const auto value = text(name);
  return value.empty() ? fallback : to_number(name, value);
}

inline std::set<std::string> list(const char* name) {
  std::set<std::string> items;
  std::istringstream stream{text(name)};
  for (std::string item; std::getline(stream, item, ',');)
    if (!item.empty()) items.insert(item);
  return items;
}

/// "a:7" -> {"a", 7}; "a" -> {"a", fallback}.
inline std::pair<std::string, unsigned long long> with_number(const char* name, const std::string& value,
                                                              unsigned long long fallback) {
  const auto colon = value.find(':');
  if (colon == std::string::npos) return {value, fallback};
  return {value.substr(0, colon), to_number(name, value.substr(colon + 1))};
}

}  // namespace fake
