// A blocked LU with look-ahead, by cuBLAS and device code of our own: as a whole on one GPU, and its parts for several.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/cublas.hpp"
#include "gpu/device.hpp"
#include "platform/cuda/references.hpp"
#include "platform/cuda/step_runner.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Why the call "lu" cannot be made: its lengths are the order of the matrix and that of a block; it reads the matrix and
/// writes the factors. "" if it can.
[[nodiscard]] std::string why_no_lu(const Opaque&);
[[nodiscard]] std::unique_ptr<StepRunner> lu_runner(const Opaque&);

/// The same for the parts of an LU (lu_parts.cpp). "lu_panel" factors the columns that begin at a diagonal element: its
/// lengths are the order of the matrix, columns of a panel, and the first. "lu_columns" updates columns by a panel: its
/// lengths are those of the panel, and the number of columns; it reads the panel and writes the columns.
[[nodiscard]] std::string why_no_lu_part(const Opaque&);
[[nodiscard]] std::unique_ptr<StepRunner> lu_panel_runner(const Opaque&);
[[nodiscard]] std::unique_ptr<StepRunner> lu_columns_runner(const Opaque&);

constexpr u64 largest_block = 64;  // of linkscope_factor_block

/// Numbers are less than 2, so a matrix of order n with this added to its diagonal is dominated by it and needs no pivots.
[[nodiscard]] inline double diagonal_of(u64 n) { return 4 * static_cast<double>(n); }

/// Queues L and U of a block on the diagonal, in place, after `more` was added to its diagonal.
void queue_block_factors(const Device&, CUfunction, CUstream, const Columns& block, u64 length, double more);

/// Consecutive whole columns of a matrix, and what its factorization made of them.
struct FactoredColumns {
  u64 first = 0;
  Input matrix;
  std::span<const double> factors;
};
/// HPL's scaled residual, of A x - L (U x), for a matrix of order n that had diagonal_of(n) added; rounding keeps it below
/// 16. The columns are all of the matrix, in any order.
[[nodiscard]] double scaled_residual(u64 n, const std::vector<FactoredColumns>&);
constexpr double largest_residual = 16;

}  // namespace linkscope
