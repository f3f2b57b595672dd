#include "platform/cuda/neural.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/sampled.hpp"
#include "gpu/cudnn.hpp"
#include "platform/cuda/moves.hpp"
#include "platform/cuda/numbers.hpp"

namespace linkscope {
namespace {

/// An operation's inputs in one slice. Their order is that of the call's traffic, whose last is the result.
struct Inputs {
  Element element;
  std::vector<u64> shape;
  std::vector<Input> arrays;

  [[nodiscard]] double at(std::size_t array, u64 index) const { return number_at(arrays[array], element, index); }
};

Tensors tensors_of(Element element) {
  return element == Element::f32 ? Tensors::f32 : element == Element::f16 ? Tensors::f16 : Tensors::bf16;
}

// --- convolution ----------------------------------------------------------------------------------------------------

std::vector<u64> convolution_lengths(const std::vector<u64>& shape) {  // of images, weights and result
  const u64 image = shape[0] * shape[1] * shape[2] * shape[2];
  return {image, 9 * shape[1] * shape[1], image};
}

CudnnOperation convolution(const Driver& driver, Element element, const std::vector<u64>& shape) {
  return {driver, ConvolutionShape{tensors_of(element), shape[0], shape[1], shape[2]}};
}

/// Algorithms that transform tiles lose digits of the sums.
Expected convolved(const Inputs& in, u64 at) {
  const u64 c = in.shape[1], size = in.shape[2];
  const u64 channel = at % c, x = at / c % size, y = at / c / size % size, image = at / c / size / size;
  double sum = 0, all = 0;
  for (u64 tap = 0; tap < 9; ++tap) {
    const u64 from_y = y + tap / 3, from_x = x + tap % 3;  // one more than the pixel's
    if (from_y < 1 || from_y > size || from_x < 1 || from_x > size) continue;
    const u64 pixel = ((image * size + from_y - 1) * size + from_x - 1) * c, weight = (channel * 9 + tap) * c;
    for (u64 i = 0; i < c; ++i) {
      const double product = in.at(0, pixel + i) * in.at(1, weight + i);
      sum += product;
      all += std::abs(product);
    }
  }
  return {sum, 1e-3 * all + rounding_of(in.element) * std::abs(sum)};
}

// --- attention ------------------------------------------------------------------------------------------------------

std::vector<u64> attention_lengths(const std::vector<u64>& shape) {  // of Q, K, V and result
  return std::vector<u64>(4, shape[0] * shape[1] * shape[2] * shape[3]);
}

CudnnOperation attention(const Driver& driver, Element element, const std::vector<u64>& shape) {
  return {driver, AttentionShape{tensors_of(element), shape[0], shape[1], shape[2], shape[3]}};
}

/// The weights are rounded to the element before they multiply V.
Expected attended(const Inputs& in, u64 at) {
  const u64 length = in.shape[2], width = in.shape[3], matrix = length * width;
  const u64 column = at % width, row = at / width * width, keys = at / matrix * matrix;
  std::vector<double> scores(length);
  for (u64 key = 0; key < length; ++key) {
    for (u64 i = 0; i < width; ++i) scores[key] += in.at(0, row + i) * in.at(1, keys + key * width + i);
    scores[key] /= std::sqrt(static_cast<double>(width));
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double weights = 0, sum = 0, all = 0;
  for (u64 key = 0; key < length; ++key) {
    const double weight = std::exp(scores[key] - highest), value = in.at(2, keys + key * width + column);
    weights += weight;
    sum += weight * value;
    all += weight * std::abs(value);
  }
  return {sum / weights, 2 * rounding_of(in.element) * all / weights};
}

// --- softmax --------------------------------------------------------------------------------------------------------

std::vector<u64> softmax_lengths(const std::vector<u64>& shape) { return std::vector<u64>(2, shape[0] * shape[1]); }

CudnnOperation softmax(const Driver& driver, Element element, const std::vector<u64>& shape) {
  return {driver, SoftmaxShape{tensors_of(element), shape[0], shape[1]}};
}

Expected softened(const Inputs& in, u64 at) {
  const u64 row = at / in.shape[1] * in.shape[1];
  double sum = 0;
  for (u64 i = 0; i < in.shape[1]; ++i) sum += std::exp(in.at(0, row + i));
  const double value = std::exp(in.at(0, at)) / sum;
  return {value, (1e-5 + rounding_of(in.element)) * value};
}

// --- table ----------------------------------------------------------------------------------------------------------

struct Operation {
  const char* name;
  std::size_t lengths;  // of its shape
  std::vector<u64> (*arrays)(const std::vector<u64>& shape);
  CudnnOperation (*plan)(const Driver&, Element, const std::vector<u64>& shape);
  Expected (*expected)(const Inputs&, u64 at);
  u64 samples;
};
constexpr u64 attention_samples = 32;  // each computes a row of scores

constexpr auto table = std::to_array<Operation>({
    {"cudnn_convolution", 3, convolution_lengths, convolution, convolved, most_sampled},
    {"cudnn_attention", 4, attention_lengths, attention, attended, attention_samples},
    {"cudnn_softmax", 2, softmax_lengths, softmax, softened, most_sampled},
});

const Operation& operation_of(const Opaque& call) {
  return *std::find_if(table.begin(), table.end(), [&](const auto& row) { return call.library_call == row.name; });
}

class NeuralRunner final : public StepRunner {
 public:
  explicit NeuralRunner(const Opaque& call)
      : call_{call}, row_{operation_of(call)}, element_{*parse_element(call.element)} {}

  void load_code(ActorState& state) override {
    state.device->use();
    operation_ = std::make_unique<CudnnOperation>(row_.plan(state.device->driver(), element_, call_.shape));
  }
  void run(CudaSession& session, ActorState& state, u64) override {
    std::vector<CUdeviceptr> arrays;
    for (const auto& access : call_.traffic)
      arrays.push_back(session.address(access.span.region, *state.device) + access.span.offset_at(state.iteration));
    operation_->queue(state.stream->get(), arrays);
  }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    checks.add(state.device, [&](Verdict& into) {
      check_result(
          session, call_.traffic.back().span, element_, state.iteration, row_.samples,
          [&](u64 slice) { return reference(session, slice); }, into);
    });
  }

 private:
  [[nodiscard]] Reference reference(const CudaSession& session, u64 slice) const {
    Inputs inputs{element_, call_.shape, {}};
    for (std::size_t i = 0; i + 1 < call_.traffic.size(); ++i) {
      const auto input = numbers_of(session, call_.traffic[i].span, slice);
      if (!input) return {};
      inputs.arrays.push_back(*input);
    }
    return [inputs, expected = row_.expected](u64 at) { return expected(inputs, at); };
  }

  const Opaque& call_;
  const Operation& row_;
  Element element_;
  std::unique_ptr<CudnnOperation> operation_;
};

}  // namespace

std::string why_no_neural(const Opaque& call) {
  const auto& row = operation_of(call);
  const auto element = parse_element(call.element);
  if (element != Element::f32 && element != Element::f16 && element != Element::bf16)
    return call.library_call + " computes with f32, f16 and bf16, and not '" + call.element + "'";
  constexpr u64 longest = std::numeric_limits<int>::max();
  const auto fits = [](u64 length) { return length > 0 && length <= longest; };
  if (call.shape.size() != row.lengths || !std::all_of(call.shape.begin(), call.shape.end(), fits))
    return call.library_call + " has " + std::to_string(row.lengths) + " lengths";
  const auto lengths = row.arrays(call.shape);
  const auto right = [&](std::size_t i) {
    return call.traffic[i].span.bytes == lengths[i] * bytes_of(*element) &&
           (call.traffic[i].dir == Access::Dir::write) == (i + 1 == lengths.size());
  };
  bool all = call.traffic.size() == lengths.size();
  for (std::size_t i = 0; all && i < lengths.size(); ++i) all = right(i);
  if (!all) return call.library_call + " reads its arrays and writes the last one, of these lengths";
  return CudnnOperation::why_not();
}

std::unique_ptr<StepRunner> neural_runner(const Opaque& call) { return std::make_unique<NeuralRunner>(call); }

}  // namespace linkscope
