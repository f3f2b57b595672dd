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
constexpr u64 megabyte = 1'000'000;       // 100 us on a link of 10 GB/s
constexpr u64 ten_chunks = 10 * 102'400;  // of 100 KiB, in which the toy stages copies
constexpr double mib = 1 << 20;

/// Words that actors set, each in a line of its own.
constexpr u64 word = sizeof(u64), line = 256;

[[nodiscard]] Case copy_case(const std::string& benchmark, const std::string& src, const std::string& src_memory,
                             const std::string& dst, const std::string& dst_memory, u64 bytes,
                             std::map<std::string, std::string> params = {});

/// The valid program of a copy between pinned memory and memory of GPUs.
[[nodiscard]] Program valid_program(const std::string& benchmark, Engine engine, const std::string& src,
                                    const std::string& dst, std::map<std::string, std::string> params = {},
                                    u64 bytes = 4096);

/// A case of 4 KiB, or of a few parts, with every parameter at its default.
[[nodiscard]] Case default_case(const Benchmark& row);

/// The rows of the table with one of these names.
[[nodiscard]] std::vector<Benchmark> rows_of(const std::vector<std::string_view>& names);

/// The case with another value of a parameter, and with the parameters that this value requires.
[[nodiscard]] Case with_value(Case, std::string_view param, std::string_view value);

/// Why the model cannot run the program; "" if it can.
[[nodiscard]] std::string refusal(const nlohmann::json& machine, const Program& program);

/// T(n) of the first sample, in seconds: from the first start to the last end; all actors do n iterations.
[[nodiscard]] double time_of(Platform&, const Program&, u32 n, const std::string& key = "key#0");
/// (T(2n) - T(n)) / n
[[nodiscard]] double slope(Platform&, const Program&, u32 n = 8, const std::string& key = "key#0");
/// T(1) - T(0)
[[nodiscard]] double single(Platform&, const Program&, const std::string& key = "key#0");

void check_us(double seconds, double us);

}  // namespace linkscope::testing
