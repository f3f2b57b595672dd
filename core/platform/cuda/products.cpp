#include "platform/cuda/products.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/sampled.hpp"
#include "gpu/cublas.hpp"
#include "gpu/cublas_lt.hpp"
#include "platform/cuda/moves.hpp"
#include "platform/cuda/numbers.hpp"
#include "program/tensor_tiles.hpp"

namespace linkscope {
namespace {

/// How a product stores its matrices, column by column, and how exact it is.
struct Form {
  bool transposed_a = false;  // A (k x m), and C = A^T B
  Element result = Element::f32;
  double allowed = 0;  // error, relative to the sum of the absolute products; the result is also rounded
};

/// Tensor cores sum up e4m3 with about 14 bits; tf32 has 10 bits of each factor.
double allowed_error(Element element) {
  switch (element) {
    case Element::f64:
      return 1e-13;
    case Element::tf32:
      return 1e-3;
    case Element::fp8:
      return 2e-3;
    default:
      return 1e-5;
  }
}

Form form_of_library(Element element) {
  const bool fp8 = element == Element::fp8;
  const Element result = fp8 ? Element::bf16 : element;
  return {fp8, result, allowed_error(element)};
}

Form form_of_kernel(Element element) { return {true, Element::f32, allowed_error(element)}; }

std::string why_no_shape(const Opaque& call, Element element, const Form& form) {
  constexpr u64 longest = std::numeric_limits<int>::max();
  const auto& shape = call.shape;
  const auto fits = [](u64 length) { return length > 0 && length <= longest; };
  if (shape.size() != 3 || !std::all_of(shape.begin(), shape.end(), fits))
    return call.library_call + " takes three lengths: m, n and k";
  const u64 m = shape[0], n = shape[1], k = shape[2], each = bytes_of(element);
  const std::array<u64, 3> bytes{m * k * each, k * n * each, m * n * bytes_of(form.result)};
  if (call.traffic.size() != bytes.size())
    return call.library_call + " states three accesses: it reads A and B and writes C";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const Access& access = call.traffic[i];
    if (access.span.bytes != bytes[i] || (access.dir == Access::Dir::write) != (i == 2))
      return call.library_call + " of these lengths reads A (" + bytes_text(bytes[0]) + ") and B (" +
             bytes_text(bytes[1]) + ") and writes C (" + bytes_text(bytes[2]) + ")";
  }
  return "";
}

/// A product whose operands are no numbers has no value to compare.
void check_product(const CudaSession& session, const Opaque& call, const Form& form, u64 iterations, Verdict& verdict) {
  const auto element = *parse_element(call.element);
  const u64 m = call.shape[0], k = call.shape[2];
  const auto reference_of = [&](u64 slice) -> Reference {
    const auto a = numbers_of(session, call.traffic[0].span, slice),
               b = numbers_of(session, call.traffic[1].span, slice);
    if (!a || !b) return {};
    return [=](u64 at) {
      const u64 row = at % m, column = at / m;
      double sum = 0, size = 0;
      for (u64 p = 0; p < k; ++p) {
        const double product = number_at(*a, element, form.transposed_a ? p + row * k : row + p * m) *
                               number_at(*b, element, p + column * k);
        sum += product;
        size += std::abs(product);
      }
      return Expected{sum, form.allowed * size + rounding_of(form.result) * std::abs(sum)};
    };
  };
  check_result(session, call.traffic[2].span, form.result, iterations, most_sampled, reference_of, verdict);
}

CUdeviceptr address_of(const CudaSession& session, const ActorState& state, const Opaque& call, std::size_t access) {
  const Span& span = call.traffic[access].span;
  return session.address(span.region, *state.device) + span.offset_at(state.iteration);
}

class GemmRunner final : public StepRunner {
 public:
  explicit GemmRunner(const Opaque& call) : call_{call}, element_{*parse_element(call.element)} {}

  void load_code(ActorState& state) override {
    state.device->use();
    if (element_ == Element::fp8)
      product_ = std::make_unique<Fp8Product>(call_.shape[0], call_.shape[1], call_.shape[2]);
    else library_ = std::make_unique<Cublas>();
  }
  void run(CudaSession& session, ActorState& state, u64) override {
    const auto at = [&](std::size_t access) { return address_of(session, state, call_, access); };
    const auto length = [&](std::size_t i) { return static_cast<int>(call_.shape[i]); };
    if (product_) return product_->queue(state.stream->get(), at(0), at(1), at(2));
    library_->queue(state.stream->get(), {element_, length(0), length(1), length(2), at(0), at(1), at(2)});
  }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    checks.add(state.device,
               [&](Verdict& into) { check_product(session, call_, form_of_library(element_), state.iteration, into); });
  }

 private:
  const Opaque& call_;
  Element element_;
  std::unique_ptr<Cublas> library_;
  std::unique_ptr<Fp8Product> product_;
};

class TensorGemmRunner final : public StepRunner {
 public:
  explicit TensorGemmRunner(const Opaque& call) : call_{call}, element_{*parse_element(call.element)} {}

  void load_code(ActorState& state) override {
    function_ = state.device->function("tensor", "linkscope_product_" + call_.element);
  }
  void run(CudaSession& session, ActorState& state, u64) override {
    CUdeviceptr a = address_of(session, state, call_, 0), b = address_of(session, state, call_, 1),
                c = address_of(session, state, call_, 2);
    auto m = static_cast<u32>(call_.shape[0]), n = static_cast<u32>(call_.shape[1]);
    u64 pitch = call_.shape[2] * bytes_of(element_);
    const auto blocks = m / tensor_tile * (n / tensor_tile);
    void* arguments[] = {&a, &b, &c, &m, &n, &pitch};
    state.device->launch(function_, blocks, tensor_threads, state.stream->get(), arguments);
  }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    checks.add(state.device,
               [&](Verdict& into) { check_product(session, call_, form_of_kernel(element_), state.iteration, into); });
  }

 private:
  const Opaque& call_;
  Element element_;
  CUfunction function_ = nullptr;
};

}  // namespace

std::string why_no_gemm(const Opaque& call) {
  const auto element = parse_element(call.element);
  if (!element) return "cublas_gemm multiplies f32, f64, bf16, f16, tf32 and fp8, and not '" + call.element + "'";
  if (auto why = why_no_shape(call, *element, form_of_library(*element)); !why.empty()) return why;
  if (*element != Element::fp8) return Cublas::why_not();
  constexpr u64 whole = 16;  // lengths of fp8
  if ((call.shape[0] | call.shape[1] | call.shape[2]) % whole)
    return "cublas_gemm of fp8 takes lengths that are multiples of 16";
  return Fp8Product::why_not();
}

std::string why_no_tensor_gemm(const Opaque& call) {
  const auto element = parse_element(call.element);
  if (element != Element::bf16 && element != Element::f16 && element != Element::tf32)
    return "tensor_gemm multiplies bf16, f16 and tf32, and not '" + call.element + "'";
  if (auto why = why_no_shape(call, *element, form_of_kernel(*element)); !why.empty()) return why;
  if (call.shape[0] % tensor_tile || call.shape[1] % tensor_tile || call.shape[2] % tensor_tile)
    return "tensor_gemm takes lengths that are multiples of 128";
  return "";
}

std::unique_ptr<StepRunner> gemm_runner(const Opaque& call) { return std::make_unique<GemmRunner>(call); }
std::unique_ptr<StepRunner> tensor_gemm_runner(const Opaque& call) { return std::make_unique<TensorGemmRunner>(call); }

}  // namespace linkscope
