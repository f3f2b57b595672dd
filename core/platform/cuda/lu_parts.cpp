#include <list>
#include <variant>

#include "platform/cuda/lu.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {
namespace {

constexpr auto panel_call = "lu_panel";

/// What the parts have in common: lengths, addresses, and the library's handle of their stream.
class PartRunner : public StepRunner {
 public:
  explicit PartRunner(const Opaque& call)
      : call_{call}, n_{call.shape[0]}, width_{call.shape[1]}, first_{call.shape[2]} {}

  void load_code(ActorState& state) override {
    state.device->use();
    if (!state.products) state.products = std::make_shared<Cublas>();
  }

 protected:
  const Opaque& call_;
  u64 n_, width_, first_;

  /// Whole columns in the memory of the stream's GPU, below a row, with the row.
  [[nodiscard]] Columns columns(const CudaSession& session, const ActorState& state, std::size_t array, u64 row,
                                u64 column = 0) const {
    const Span& span = call_.traffic[array].span;
    const CUdeviceptr start = session.address(span.region, *state.device) + span.offset;
    return {start + (column * n_ + row) * sizeof(double), static_cast<int>(n_)};
  }
};

class PanelRunner final : public PartRunner {
 public:
  using PartRunner::PartRunner;

  void load_code(ActorState& state) override {
    PartRunner::load_code(state);
    factor_ = state.device->function("compute", "linkscope_factor_block");
  }

  void run(CudaSession& session, ActorState& state, u64) override {
    const auto stream = state.stream->get();
    const auto at = [&](u64 row, u64 column) { return columns(session, state, 0, row, column); };
    constexpr int depth = largest_block;
    for (u64 column = 0; column < width_; column += largest_block) {
      const u64 row = first_ + column, below = row + largest_block, next = column + largest_block;
      queue_block_factors(*state.device, factor_, stream, at(row, column), largest_block, diagonal_of(n_));
      if (below >= n_) return;
      const int rows = static_cast<int>(n_ - below), wide = static_cast<int>(width_ - next);
      state.products->solve(stream, Triangle::upper_from_right, rows, depth, at(row, column), at(below, column));
      if (wide == 0) return;
      state.products->solve(stream, Triangle::unit_lower_from_left, depth, wide, at(row, column), at(row, next));
      state.products->subtract_product(stream, rows, wide, depth, at(below, column), at(row, next), at(below, next));
    }
  }

  /// The last panel checks the whole factorization.
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    if (state.iteration > 0 && first_ + width_ == n_)
      checks.add(state.device, [this, &session](Verdict& into) { check(session, into); });
  }

 private:
  CUfunction factor_ = nullptr;

  void check(const CudaSession& session, Verdict& verdict) const {
    std::vector<FactoredColumns> parts;
    std::list<Contents> factors;
    for (const auto& actor : session.program.actors)
      for (const auto& step : actor.loop) {
        const auto* panel = std::get_if<Opaque>(&step);
        if (!panel || panel->library_call != panel_call) continue;
        const Span& span = panel->traffic[0].span;
        const auto& own = factors.emplace_back(session, span);
        parts.push_back({panel->shape[2], input_of(session, span).value_or(Input{}), own.as<double>()});
        verdict.checked_bytes += span.bytes;
      }
    const Span& last = call_.traffic[0].span;
    if (!(scaled_residual(n_, parts) <= largest_residual))
      add_wrong(verdict, last.bytes, session, last, last.offset, ", by the residual of the factors");
  }
};

/// The rows of U of some columns, and the rest of these columns.
class ColumnsRunner final : public PartRunner {
 public:
  using PartRunner::PartRunner;

  void run(CudaSession& session, ActorState& state, u64) override {
    const auto stream = state.stream->get();
    const u64 below = first_ + width_;
    const int depth = static_cast<int>(width_), wide = static_cast<int>(call_.shape[3]),
              rows = static_cast<int>(n_ - below);
    const auto triangle = columns(session, state, 0, first_), upper = columns(session, state, 1, first_);
    state.products->solve(stream, Triangle::unit_lower_from_left, depth, wide, triangle, upper);
    state.products->subtract_product(stream, rows, wide, depth, columns(session, state, 0, below), upper,
                                     columns(session, state, 1, below));
  }
};

}  // namespace

std::string why_no_lu_part(const Opaque& call) {
  const bool panel = call.library_call == panel_call;
  if (call.element != "f64") return call.library_call + " factors f64, and not '" + call.element + "'";
  const auto& shape = call.shape;
  if (shape.size() != (panel ? 3 : 4)) return call.library_call + " takes " + (panel ? "three" : "four") + " lengths";
  const u64 n = shape[0], width = shape[1], first = shape[2], column = n * sizeof(double);
  if (width == 0 || width % largest_block || n % width || first % width || first + width > n)
    return "the panels of an LU divide its order, and have a multiple of " + std::to_string(largest_block) + " columns";
  const std::vector<u64> bytes = panel ? std::vector{width * column} : std::vector{width * column, shape[3] * column};
  bool fits = call.traffic.size() == bytes.size();
  for (std::size_t i = 0; fits && i < bytes.size(); ++i) fits = call.traffic[i].span.bytes == bytes[i];
  if (!fits) return call.library_call + " accesses whole columns of " + bytes_text(column);
  return Cublas::why_not();
}

std::unique_ptr<StepRunner> lu_panel_runner(const Opaque& call) { return std::make_unique<PanelRunner>(call); }
std::unique_ptr<StepRunner> lu_columns_runner(const Opaque& call) { return std::make_unique<ColumnsRunner>(call); }

}  // namespace linkscope
