#include "transfer/checks.hpp"

#include <cstdio>

#include "transfer/methods.hpp"

namespace linkscope {

PlainChecks::Kind PlainChecks::next(MethodId id, u64 bytes) {
  if (bytes > most_bytes) return Kind::none;
  switch (entry(id, bytes).copies.fetch_add(1, std::memory_order_relaxed) % every) {
    case first:
      return Kind::plain;
    case first + 1:
      return Kind::method;
    default:
      return Kind::none;
  }
}

void PlainChecks::add(MethodId id, u64 bytes, Kind kind, double seconds) {
  const std::lock_guard lock{mutex_};
  Entry& of = entry(id, bytes);
  const double gbps = static_cast<double>(bytes) / seconds / 1e9;
  if (kind == Kind::plain) {
    of.plain_gbps = gbps;
    return;
  }
  if (kind == Kind::none || of.plain_gbps == 0) return;
  if (of.plain_gbps > gbps) of.wins.push_back({of.plain_gbps, gbps});
  else of.wins.clear();
  of.plain_gbps = 0;
  if (of.wins.size() >= deciding) of.is_plain = true;
}

std::string PlainChecks::text() const {
  const std::lock_guard lock{mutex_};
  std::string text;
  for (const auto& method : copy_methods())
    for (const u64 start : size_classes) {
      const Entry& of = entry(method.id, start);
      if (!of.is_plain) continue;
      std::string rates;
      for (const auto& [plain, by_method] : of.wins) {
        std::array<char, 64> pair{};
        std::snprintf(pair.data(), pair.size(), "%s%.3g and %.3g", rates.empty() ? "" : ", ", plain, by_method);
        rates += pair.data();
      }
      text += text.empty() ? "" : " ";
      text += std::string{"copies by "} + method.name + " from " + bytes_text(start) +
              " are plain in this process, because plain copies were faster in three checks in a row (plain and " +
              method.name + ": " + rates + " GB/s).";
    }
  return text;
}

}  // namespace linkscope
