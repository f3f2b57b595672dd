#include "platform/cuda/library_calls.hpp"

#include <algorithm>
#include <array>
#include <complex>
#include <limits>
#include <numbers>

#include "gpu/cufft.hpp"
#include "platform/cuda/computations.hpp"
#include "platform/cuda/lu.hpp"
#include "platform/cuda/neural.hpp"
#include "platform/cuda/products.hpp"
#include "platform/cuda/references.hpp"

namespace linkscope {
namespace {

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
  const Contents contents{session, span};
  const auto found = contents.as<T>();
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
  int capability = 0;  // the major number of the lowest compute capability
};

constexpr auto library_call_table = std::to_array<LibraryCall>({
    {"cublas_gemm", why_no_gemm, gemm_runner},
    {"tensor_gemm", why_no_tensor_gemm, tensor_gemm_runner, 8},
    {"cudnn_convolution", why_no_neural, neural_runner},
    {"cudnn_attention", why_no_neural, neural_runner, 8},
    {"cudnn_softmax", why_no_neural, neural_runner},
    {"cufft", why_no_fft,
     [](const Opaque& call) -> std::unique_ptr<StepRunner> { return std::make_unique<FftRunner>(call); }},
    {"lu", why_no_lu, lu_runner},
    {"lu_panel", why_no_lu_part, lu_panel_runner},
    {"lu_columns", why_no_lu_part, lu_columns_runner},
});

const LibraryCall* find(const Opaque& call) {
  const auto* found = std::find_if(library_call_table.begin(), library_call_table.end(),
                                   [&](const LibraryCall& row) { return call.library_call == row.name; });
  return found == library_call_table.end() ? nullptr : found;
}

}  // namespace

std::string why_no_library_call(const Program& program, const Actor& actor, const std::vector<DeviceFacts>& gpus,
                                const Opaque& call) {
  if (actor.kind != ActorKind::stream) return "library calls are queued on streams";
  const auto* row = find(call);
  if (!row && !is_computation(call.library_call))
    return "the computation '" + call.library_call + "' is not known here; cublas_gemm is";
  for (const auto& access : call.traffic)
    if (program.regions[access.span.region].at != actor.place ||
        !is_gpu_memory(program.regions[access.span.region].kind))
      return "library calls work in the memory of " + to_string(actor.place) + " here";
  if (row && gpus[actor.place.index].attribute("COMPUTE_CAPABILITY_MAJOR", 0) < row->capability)
    return call.library_call + " needs compute capability " + std::to_string(row->capability) + ".0, which " +
           to_string(actor.place) + " lacks";
  return row ? row->why_not(call) : why_no_computation(call);
}

std::unique_ptr<StepRunner> library_runner(const Opaque& call) {
  const auto* row = find(call);
  return row ? row->runner(call) : computation_runner(call);
}

}  // namespace linkscope
