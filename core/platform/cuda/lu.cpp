#include "platform/cuda/lu.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <mutex>

#include "gpu/cublas.hpp"
#include "host/parallel.hpp"
#include "platform/cuda/moves.hpp"
#include "platform/cuda/references.hpp"

namespace linkscope {
namespace {

/// What one factorization queues: the panels on a stream of their own, so that the next panel is ready when the update
/// ends (look-ahead). That stream is urgent where the driver has priorities: otherwise the few blocks of a panel wait for
/// the thousands of the update that was queued before.
class LuRunner final : public StepRunner {
 public:
  explicit LuRunner(const Opaque& call) : call_{call}, n_{call.shape[0]}, block_{call.shape[1]} {}

  void load_code(ActorState& state) override {
    state.device->use();
    load_ = state.device->function("compute", "linkscope_load_dominant");
    factor_ = state.device->function("compute", "linkscope_factor_block");
    updates_ = std::make_unique<Cublas>();
    panels_ = std::make_unique<Cublas>();
  }

  void run(CudaSession& session, ActorState& state, u64) override {
    if (!panel_stream_) {
      const bool urgent = why_no_urgent_stream(session.driver).empty();
      panel_stream_ = std::make_unique<Stream>(session.driver, urgent ? Priority::urgent : Priority::usual);
      panel_done_ = std::make_unique<Event>(session.driver, CU_EVENT_DISABLE_TIMING);
      columns_ready_ = std::make_unique<Event>(session.driver, CU_EVENT_DISABLE_TIMING);
    }
    const auto update = state.stream->get(), panel = panel_stream_->get();
    load(session, state);
    LINKSCOPE_CU(session.driver, cuEventRecord, columns_ready_->get(), update);
    for (u64 first = 0; first < n_; first += block_) {
      LINKSCOPE_CU(session.driver, cuStreamWaitEvent, panel, columns_ready_->get(), 0);
      queue_panel(*state.device, first);
      LINKSCOPE_CU(session.driver, cuEventRecord, panel_done_->get(), panel);
      LINKSCOPE_CU(session.driver, cuStreamWaitEvent, update, panel_done_->get(), 0);
      const u64 next = first + block_;
      if (next >= n_) break;
      queue_update(update, first, next, block_);
      LINKSCOPE_CU(session.driver, cuEventRecord, columns_ready_->get(), update);
      if (next + block_ < n_) queue_update(update, first, next + block_, n_ - next - block_);
    }
  }

  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    if (state.iteration > 0) checks.add(state.device, [this, &session](Verdict& into) { check(session, into); });
  }

 private:
  const Opaque& call_;
  u64 n_, block_;
  CUdeviceptr factors_ = 0;
  CUfunction load_ = nullptr, factor_ = nullptr;
  std::unique_ptr<Cublas> updates_, panels_;
  std::unique_ptr<Stream> panel_stream_;
  std::unique_ptr<Event> panel_done_, columns_ready_;

  [[nodiscard]] Columns at(u64 row, u64 column) const {
    return {factors_ + (column * n_ + row) * sizeof(double), static_cast<int>(n_)};
  }

  void load(const CudaSession& session, const ActorState& state) {
    const auto address = [&](std::size_t array) {
      const Span& span = call_.traffic[array].span;
      return session.address(span.region, *state.device) + span.offset_at(state.iteration);
    };
    CUdeviceptr in = address(0);
    factors_ = address(1);
    u64 n = n_;
    double more = diagonal_of(n_);
    void* arguments[] = {&in, &factors_, &n, &more};
    state.device->launch(load_, 8 * blocks_of(*state.device, {0, 256}), 256, state.stream->get(), arguments);
  }

  /// The block on the diagonal, and the part of L below it.
  void queue_panel(const Device& device, u64 first) const {
    queue_block_factors(device, factor_, panel_stream_->get(), at(first, first), block_, 0);
    const u64 below = first + block_;
    if (below < n_)
      panels_->solve(panel_stream_->get(), Triangle::upper_from_right, static_cast<int>(n_ - below),
                     static_cast<int>(block_), at(first, first), at(below, first));
  }

  /// The rows of U of some columns, and the rest of these columns.
  void queue_update(CUstream stream, u64 first, u64 column, u64 columns) const {
    const auto wide = static_cast<int>(columns), depth = static_cast<int>(block_);
    const u64 below = first + block_;
    updates_->solve(stream, Triangle::unit_lower_from_left, depth, wide, at(first, first), at(first, column));
    updates_->subtract_product(stream, static_cast<int>(n_ - below), wide, depth, at(below, first), at(first, column),
                               at(below, column));
  }

  void check(const CudaSession& session, Verdict& verdict) const {
    const Span& span = call_.traffic[1].span;
    const auto in = input_of(session, call_.traffic[0].span).value_or(Input{});
    verdict.checked_bytes += span.bytes;
    const Contents factors{session, span};
    if (!(scaled_residual(n_, {{0, in, factors.as<double>()}}) <= largest_residual))
      add_wrong(verdict, span.bytes, session, span, span.offset, ", by the residual of the factors");
  }
};

}  // namespace

void queue_block_factors(const Device& device, CUfunction factor, CUstream stream, const Columns& block, u64 length,
                         double more) {
  constexpr unsigned threads = 512;
  CUdeviceptr at = block.at;
  u64 stride = static_cast<u64>(block.stride);
  auto n = static_cast<u32>(length);
  void* arguments[] = {&at, &stride, &n, &more};
  device.launch(factor, 1, threads, stream, arguments);
}

namespace {

/// Sums over the columns of a part, one for each row. add(column, its first element, sums) adds what a column gives.
template <std::size_t count, class Add>
void add_columns(u64 n, const FactoredColumns& part, std::array<std::vector<double>, count>& sums, Add add) {
  std::mutex guard;
  const u64 bytes = n * sizeof(double);
  parallel_ranges(part.factors.size() * sizeof(double), bytes, [&](u64 begin, u64 end) {
    std::array<std::vector<double>, count> own;
    own.fill(std::vector<double>(n));
    for (u64 at = begin / bytes; at < end / bytes; ++at) add(part.first + at, at * n, own);
    const std::scoped_lock lock{guard};
    for (std::size_t i = 0; i < count; ++i)
      std::transform(own[i].begin(), own[i].end(), sums[i].begin(), sums[i].begin(), std::plus{});
  });
}

}  // namespace

double scaled_residual(u64 n, const std::vector<FactoredColumns>& parts) {
  const auto x = [](u64 i) { return i % 7 < 3 ? 1.0 : -0.5; };
  std::array<std::vector<double>, 3> sums;  // the matrix times x, U times x, and the absolute values
  std::array<std::vector<double>, 1> by_both;
  sums.fill(std::vector<double>(n));
  by_both.fill(std::vector<double>(n));
  for (const auto& part : parts)
    add_columns(n, part, sums, [&](u64 column, u64 first, auto& of) {
      for (u64 row = 0; row < n; ++row) {
        const double element = part.matrix.at<double>(first + row) + (row == column ? diagonal_of(n) : 0);
        of[0][row] += element * x(column);
        of[2][row] += std::abs(element);
        if (row <= column) of[1][row] += part.factors[first + row] * x(column);
      }
    });
  for (const auto& part : parts)
    add_columns(n, part, by_both, [&](u64 column, u64 first, auto& of) {
      of[0][column] += sums[1][column];
      for (u64 row = column + 1; row < n; ++row) of[0][row] += part.factors[first + row] * sums[1][column];
    });
  double largest = 0, norm = 0;
  for (u64 row = 0; row < n; ++row) {
    const double difference = std::abs(sums[0][row] - by_both[0][row]);
    if (std::isnan(difference)) return difference;  // std::max would forget it
    largest = std::max(largest, difference);
    norm = std::max(norm, sums[2][row]);
  }
  constexpr double epsilon = 0x1p-53;
  return largest / (epsilon * norm * static_cast<double>(n));
}

std::string why_no_lu(const Opaque& call) {
  if (call.element != "f64") return "lu factors f64, and not '" + call.element + "'";
  if (call.shape.size() != 2 || call.shape[1] == 0 || call.shape[1] > largest_block || call.shape[0] % call.shape[1])
    return "lu takes the order of a matrix, and that of its blocks, at most " + std::to_string(largest_block);
  const u64 bytes = call.shape[0] * call.shape[0] * sizeof(double);
  if (call.traffic.size() != 2 || call.traffic[0].span.bytes != bytes || call.traffic[1].span.bytes != bytes)
    return "lu of this order reads " + bytes_text(bytes) + " and writes as many";
  return Cublas::why_not();
}

std::unique_ptr<StepRunner> lu_runner(const Opaque& call) { return std::make_unique<LuRunner>(call); }

}  // namespace linkscope
