// The pipe's JSON forms (docs/reference/worker.md). The only file besides main.cpp and the machine model's reader that knows JSON.
#pragma once
#include <nlohmann/json.hpp>

#include "benchmarks/case.hpp"
#include "mpi/world.hpp"
#include "platform/cuda/cuda_platform.hpp"
#include "program/platform.hpp"

namespace linkscope {

using Json = nlohmann::json;

[[nodiscard]] Case parse_case(const Json&);
[[nodiscard]] Order parse_order(const Json&, std::size_t actors);
[[nodiscard]] std::vector<Wanted> parse_wanted(const Json&);
[[nodiscard]] std::vector<NcclSource> parse_nccl(const Json&);  // of a request
[[nodiscard]] std::vector<UcxSource> parse_ucx(const Json&);    // likewise
[[nodiscard]] std::vector<NixlSource> parse_nixl(const Json&);  // likewise
[[nodiscard]] Floors parse_floors(const Json&);
/// By GPU, of the field `own_floors_s` if it is there.
[[nodiscard]] std::map<u32, Seconds> parse_own_floors(const Json&);
[[nodiscard]] Json to_json(const Benchmark&);
[[nodiscard]] Json to_json(const Program&);  // actors, flows, slices and the program's text
[[nodiscard]] Json to_json(const DriverFacts&);
[[nodiscard]] Json to_json(const std::vector<ContextsMade>&, const DriverFacts&);
[[nodiscard]] Json to_json(const MpiFacts&);
[[nodiscard]] Json to_json(const NcclFacts&);
[[nodiscard]] Json to_json(const Spent&);
[[nodiscard]] Json to_json(const Trace&);  // everything except the stamps, which follow as doubles

}  // namespace linkscope
