// Helpers for tests of the simulation: the bundled machine files, a small machine with round numbers, and the cost of
// an operation as the sampler computes it.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/case.hpp"
#include "doctest.h"
#include "platform/sim/sim.hpp"

namespace linkscope::testing {

/// A value within a part of itself, `epsilon`. The error that doctest's own Approx allows is this part of 1 + value, and
/// any time in seconds is within that.
[[nodiscard]] inline doctest::Approx about(double value) { return doctest::Approx(value).scale(0); }

/// machines/NAME.toml as JSON, in the form that the worker receives.
[[nodiscard]] nlohmann::json bundled(const std::string& name);
/// The machine without noise and with exact event stamps.
[[nodiscard]] nlohmann::json exact(nlohmann::json machine);
/// A machine with round numbers and no noise: two NUMA nodes of 100 GB/s, joined by 20 GB/s. Each has a GPU behind a
/// link of 10 GB/s; the GPUs are peers over 40 GB/s. One thread copies 5 GB/s within a node, 4 GB/s across nodes.
[[nodiscard]] nlohmann::json toy();

[[nodiscard]] Case copy_case(const std::string& benchmark, const std::string& src, const std::string& src_memory,
                             const std::string& dst, const std::string& dst_memory, u64 bytes,
                             std::map<std::string, std::string> params = {});

/// A case of 4 KiB, or of a few parts, with every parameter at its default.
[[nodiscard]] Case default_case(const Benchmark& row);

/// The rows of the table with one of these names.
[[nodiscard]] std::vector<Benchmark> rows_of(const std::vector<std::string_view>& names);

/// The case with another value of a parameter, and with the parameters that this value requires.
[[nodiscard]] Case with_value(Case, std::string_view param, std::string_view value);

/// T(n) of the first sample, in seconds: from the first start to the last end; all actors do n iterations.
[[nodiscard]] double time_of(Platform&, const Program&, u32 n, const std::string& key = "key#0");
/// (T(2n) - T(n)) / n
[[nodiscard]] double slope(Platform&, const Program&, u32 n = 8, const std::string& key = "key#0");
/// T(1) - T(0)
[[nodiscard]] double single(Platform&, const Program&, const std::string& key = "key#0");

}  // namespace linkscope::testing
