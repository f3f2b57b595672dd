// Elements of inputs and results as numbers, and the comparison of results with a reference on the host.
#pragma once
#include <functional>

#include "gpu/cublas.hpp"
#include "platform/cuda/references.hpp"

namespace linkscope {

/// The number that starts at `bytes`.
[[nodiscard]] double number_in(const char* bytes, Element);
[[nodiscard]] double number_at(const Input&, Element, u64 index);
/// The pattern of numbers that a span holds; none if its contents have no value as numbers.
[[nodiscard]] std::optional<Input> numbers_of(const CudaSession&, const Span&, u64 slice);

/// The relative error of rounding a result to the element.
[[nodiscard]] double rounding_of(Element);

struct Expected {
  double value, allowed;  // the largest difference
};
/// What element `at` should be.
using Reference = std::function<Expected(u64 at)>;

/// Compares sampled elements of each slice that was written with the slice's reference. Without one a result that ran left
/// no poison.
void check_result(const CudaSession&, const Span& result, Element, u64 iterations, u64 samples,
                  const std::function<Reference(u64 slice)>& reference_of, Verdict&);

}  // namespace linkscope
