// What the tests of the simulation share: the bundled machine files, a small machine made for arithmetic, and the cost
// of an operation as the sampler takes it.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/case.hpp"
#include "platform/sim/sim.hpp"

namespace linkscope::testing {

/// machines/NAME.toml as JSON, as the worker's parent sends it.
[[nodiscard]] nlohmann::json bundled(const std::string& name);
/// The same without noise and with event stamps that are exact.
[[nodiscard]] nlohmann::json exact(nlohmann::json machine);
/// Round numbers and no noise: two NUMA nodes of 100 GB/s, joined by 20 GB/s; a GPU on each behind 10 GB/s, joined by
/// 40 GB/s and peers. One thread copies 5 GB/s, 4 across.
[[nodiscard]] nlohmann::json toy();

[[nodiscard]] Case copy_case(const std::string& benchmark, const std::string& src, const std::string& src_memory,
                             const std::string& dst, const std::string& dst_memory, u64 bytes,
                             std::map<std::string, std::string> params = {});

/// 4 KiB by the row, or a few parts, with every parameter at its default.
[[nodiscard]] Case default_case(const Benchmark& row);

/// With another value of a parameter, and of those without which it is refused.
[[nodiscard]] Case with_value(Case, std::string_view param, std::string_view value);

/// T(n) of the first sample: from the first start to the last end, in seconds; all actors do n.
[[nodiscard]] double time_of(Platform&, const Program&, u32 n, const std::string& key = "key#0");
/// (T(2n) - T(n)) / n
[[nodiscard]] double slope(Platform&, const Program&, u32 n = 8, const std::string& key = "key#0");
/// T(1) - T(0)
[[nodiscard]] double single(Platform&, const Program&, const std::string& key = "key#0");

}  // namespace linkscope::testing
