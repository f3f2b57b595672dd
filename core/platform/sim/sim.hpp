// The simulated platform: a machine file's memories, links, engines, driver costs, noise and faults, in virtual time.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "program/platform.hpp"

namespace linkscope {

struct SimPlatform : Platform {
  /// Bytes that open sessions hold at a place.
  [[nodiscard]] virtual u64 in_use(const Place&) const = 0;
  /// The same for all places.
  [[nodiscard]] virtual u64 in_use() const = 0;
};

/// `machine` is the content of a machine file; `seed` and the keys given to prepare() determine all noise. Throws
/// Error{usage} that names the key of an unusable file.
[[nodiscard]] std::unique_ptr<SimPlatform> make_sim(const nlohmann::json& machine, u64 seed);

}  // namespace linkscope
