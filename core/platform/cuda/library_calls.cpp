#include "platform/cuda/library_calls.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

#include "base/sampled.hpp"
#include "gpu/cublas.hpp"
#include "gpu/cublas_lt.hpp"
#include "gpu/cufft.hpp"
#include "platform/cuda/computations.hpp"
#include "platform/cuda/contents.hpp"
#include "platform/cuda/lu.hpp"
#include "platform/cuda/references.hpp"

namespace linkscope {
namespace {

// --- products of matrices by cuBLAS ---------------------------------------------------------------------------------

std::string why_no_gemm(const Opaque& call) {
  const auto element = parse_element(call.element);
  if (!element) return "cublas_gemm multiplies f32, f64, bf16, tf32 and fp8, and not '" + call.element + "'";
  constexpr u64 longest = std::numeric_limits<int>::max();
  const auto& shape = call.shape;
  const auto fits = [](u64 length) { return length > 0 && length <= longest; };
  if (shape.size() != 3 || !std::all_of(shape.begin(), shape.end(), fits))
    return "cublas_gemm takes three lengths: m, n and k";
  const u64 m = shape[0], n = shape[1], k = shape[2], each = bytes_of(*element);
  const std::array<u64, 3> bytes{m * k * each, k * n * each, m * n * bytes_of_result(*element)};
  if (call.traffic.size() != bytes.size()) return "cublas_gemm states three accesses: it reads A and B and writes C";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const Access& access = call.traffic[i];
    if (access.span.bytes != bytes[i] || (access.dir == Access::Dir::write) != (i == 2))
      return "cublas_gemm of these lengths reads A (" + bytes_text(bytes[0]) + ") and B (" + bytes_text(bytes[1]) +
             ") and writes C (" + bytes_text(bytes[2]) + ")";
  }
  if (*element != Element::fp8) return Cublas::why_not();
  constexpr u64 whole = 16;  // lengths of fp8
  if ((m | n | k) % whole) return "cublas_gemm of fp8 takes lengths that are multiples of 16";
  return Fp8Product::why_not();
}

double number_at(const Input& input, Element element, u64 index) {
  switch (element) {
    case Element::f32:
    case Element::tf32:
      return input.at<float>(index);
    case Element::f64:
      return input.at<double>(index);
    case Element::bf16:
      return from_bf16(input.at<std::uint16_t>(index));
    case Element::fp8:  // any bits, which have no value to compare
      break;
  }
  return 0;
}

double number_in(const std::vector<std::byte>& bytes, Element element, u64 index) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return value;
  };
  return element == Element::f64    ? as(double{})
         : element == Element::bf16 ? from_bf16(as(std::uint16_t{}))
                                    : double{as(float{})};
}

/// Compares sampled elements of a product of numbers. An error is relative to the sum of the absolute products; the
/// result is also rounded.
void check_samples(const CudaSession& session, const Opaque& call, u64 slice, const std::vector<std::byte>& found,
                   Verdict& verdict) {
  const auto a = input_of(session, call.traffic[0].span, slice), b = input_of(session, call.traffic[1].span, slice);
  if (!a || !b || !(a->seed & b->seed & numbers_seed)) return;
  const auto element = *parse_element(call.element);
  const u64 m = call.shape[0], n = call.shape[1], k = call.shape[2];
  const double allowed = element == Element::f64    ? 1e-13
                         : element == Element::tf32 ? 1e-3
                                                    : 1e-5,
               rounding = element == Element::bf16 ? 1.0 / 128 : 0;
  for (u64 sample = 0; sample < most_sampled; ++sample) {
    const u64 at = sampled_at(sample, m * n), row = at % m, column = at / m;
    double sum = 0, size = 0;
    for (u64 p = 0; p < k; ++p) {
      const double product = number_at(*a, element, row + p * m) * number_at(*b, element, p + column * k);
      sum += product;
      size += std::abs(product);
    }
    if (std::abs(number_in(found, element, at) - sum) <= allowed * size + rounding * std::abs(sum)) continue;
    const Span& span = call.traffic[2].span;
    add_wrong(verdict, bytes_of(element), session, span, span.offset_at(slice) + at * bytes_of(element),
              ", by the reference on the host");
  }
}

/// A product whose operands are no numbers has no value to compare: a product that ran left no poison.
void check_result(const CudaSession& session, const Opaque& call, u64 iterations, Verdict& verdict) {
  const Span& span = call.traffic[2].span;
  for (u64 slice = 0; slice < std::min<u64>(span.slices, iterations); ++slice) {
    const auto found = contents_of(session, span, slice);
    verdict.checked_bytes += span.bytes;
    if (std::all_of(found.begin(), found.end(), [](std::byte one) { return one == poison; }))
      add_wrong(verdict, span.bytes, session, span, span.offset_at(slice),
                ", which a library call should have written");
    else check_samples(session, call, slice, found, verdict);
  }
}

class GemmRunner final : public StepRunner {
 public:
  explicit GemmRunner(const Opaque& call) : call_{call} {}

  void load_code(ActorState& state) override {
    state.device->use();
    if (fp8()) product_ = std::make_unique<Fp8Product>(call_.shape[0], call_.shape[1], call_.shape[2]);
    else library_ = std::make_unique<Cublas>();
  }
  void run(CudaSession& session, ActorState& state, u64) override {
    const auto at = [&](std::size_t access) {
      const Span& span = call_.traffic[access].span;
      return session.address(span.region, *state.device) + span.offset_at(state.iteration);
    };
    const auto length = [&](std::size_t i) { return static_cast<int>(call_.shape[i]); };
    if (product_) return product_->queue(state.stream->get(), at(0), at(1), at(2));
    library_->queue(state.stream->get(),
                    {*parse_element(call_.element), length(0), length(1), length(2), at(0), at(1), at(2)});
  }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    checks.add(state.device, [&](Verdict& into) { check_result(session, call_, state.iteration, into); });
  }

 private:
  [[nodiscard]] bool fp8() const { return parse_element(call_.element) == Element::fp8; }

  const Opaque& call_;
  std::unique_ptr<Cublas> library_;
  std::unique_ptr<Fp8Product> product_;
};

// --- Fourier transforms by cuFFT ------------------------------------------------------------------------------------

std::string why_no_fft(const Opaque& call) {
  if (call.element != "f32" && call.element != "f64")
    return "cufft transforms f32 and f64, and not '" + call.element + "'";
  constexpr u64 most = std::numeric_limits<int>::max();
  const auto& shape = call.shape;
  if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0 || shape[0] > most || shape[1] > most)
    return "cufft takes two lengths: points, and transforms";
  const u64 bytes = shape[0] * shape[1] * (call.element == "f64" ? 16 : 8);
  if (call.traffic.size() != 2 || call.traffic[0].span.bytes != bytes || call.traffic[1].span.bytes != bytes)
    return "cufft of these lengths reads " + bytes_text(bytes) + " and writes as many";
  return Cufft::why_not();
}

/// Compares all points of a few transforms.
template <class T>
void check_transforms(const CudaSession& session, const Opaque& call, Verdict& verdict) {
  using Complex = std::complex<double>;
  const Span& span = call.traffic[1].span;
  const auto found = contents_as<T>(session, span);
  const auto in = input_of(session, call.traffic[0].span);
  const u64 points = call.shape[0];
  std::vector<Complex> turns(points);
  for (u64 i = 0; i < points; ++i)
    turns[i] = std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(points));
  look_at(call.shape[1], 8, [&](u64 transform) {
    for (u64 point = 0; point < points; ++point) {
      Complex sum;
      const u64 first = 2 * transform * points;
      for (u64 i = 0; in && i < points; ++i)
        sum += turns[i * point % points] * Complex{in->at<T>(first + 2 * i), in->at<T>(first + 2 * i + 1)};
      const u64 at = first + 2 * point;
      verdict.checked_bytes += 2 * sizeof(T);
      const double allowed = (sizeof(T) == 8 ? 1e-13 : 1e-5) * static_cast<double>(points);
      if (std::abs(Complex{found[at], found[at + 1]} - sum) > allowed)
        add_wrong(verdict, 2 * sizeof(T), session, span, span.offset + at * sizeof(T),
                  ", by the reference on the host");
    }
  });
}

class FftRunner final : public StepRunner {
 public:
  explicit FftRunner(const Opaque& call) : call_{call} {}

  void load_code(ActorState& state) override {
    state.device->use();
    plan_ = std::make_unique<Cufft>(static_cast<int>(call_.shape[0]), static_cast<int>(call_.shape[1]), wide());
  }
  void run(CudaSession& session, ActorState& state, u64) override {
    const auto at = [&](std::size_t access) {
      const Span& span = call_.traffic[access].span;
      return session.address(span.region, *state.device) + span.offset_at(state.iteration);
    };
    plan_->queue(state.stream->get(), at(0), at(1));
  }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    if (state.iteration == 0) return;
    checks.add(state.device, [&](Verdict& into) {
      if (wide()) check_transforms<double>(session, call_, into);
      else check_transforms<float>(session, call_, into);
    });
  }

 private:
  [[nodiscard]] bool wide() const { return call_.element == "f64"; }
  const Opaque& call_;
  std::unique_ptr<Cufft> plan_;
};

// --- table ----------------------------------------------------------------------------------------------------------

struct LibraryCall {
  const char* name;
  std::string (*why_not)(const Opaque&);
  std::unique_ptr<StepRunner> (*runner)(const Opaque&);
};

constexpr auto table = std::to_array<LibraryCall>({
    {"cublas_gemm", why_no_gemm,
     [](const Opaque& call) -> std::unique_ptr<StepRunner> { return std::make_unique<GemmRunner>(call); }},
    {"cufft", why_no_fft,
     [](const Opaque& call) -> std::unique_ptr<StepRunner> { return std::make_unique<FftRunner>(call); }},
    {"lu", why_no_lu, lu_runner},
    {"lu_panel", why_no_lu_part, lu_panel_runner},
    {"lu_columns", why_no_lu_part, lu_columns_runner},
});

const LibraryCall* find(const Opaque& call) {
  const auto* found =
      std::find_if(table.begin(), table.end(), [&](const LibraryCall& row) { return call.library_call == row.name; });
  return found == table.end() ? nullptr : found;
}

}  // namespace

std::string why_no_library_call(const Program& program, const Actor& actor, const Opaque& call) {
  if (actor.kind != ActorKind::stream) return "library calls are queued on streams";
  const auto* row = find(call);
  if (!row && !is_computation(call.library_call))
    return "the computation '" + call.library_call + "' is not known here; cublas_gemm is";
  for (const auto& access : call.traffic)
    if (program.regions[access.span.region].at != actor.place ||
        !is_gpu_memory(program.regions[access.span.region].kind))
      return "library calls work in the memory of " + to_string(actor.place) + " here";
  return row ? row->why_not(call) : why_no_computation(call);
}

std::unique_ptr<StepRunner> library_runner(const Opaque& call) {
  const auto* row = find(call);
  return row ? row->runner(call) : computation_runner(call);
}

}  // namespace linkscope
