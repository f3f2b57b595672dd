#include "platform/cuda/library_calls.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "gpu/cublas.hpp"
#include "platform/cuda/contents.hpp"
#include "platform/cuda/verification.hpp"

namespace linkscope {
namespace {

// --- products of matrices by cuBLAS ---------------------------------------------------------------------------------

std::string why_no_gemm(const Opaque& call) {
  const auto element = parse_element(call.element);
  if (!element) return "cublas_gemm multiplies f32, f64 and bf16, and not '" + call.element + "'";
  constexpr u64 longest = std::numeric_limits<int>::max();
  const auto& shape = call.shape;
  const auto fits = [](u64 length) { return length > 0 && length <= longest; };
  if (shape.size() != 3 || !std::all_of(shape.begin(), shape.end(), fits))
    return "cublas_gemm takes three lengths: m, n and k";
  const u64 m = shape[0], n = shape[1], k = shape[2], each = bytes_of(*element);
  const std::array<u64, 3> bytes{m * k * each, k * n * each, m * n * each};
  if (call.traffic.size() != bytes.size()) return "cublas_gemm states three accesses: it reads A and B and writes C";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const Access& access = call.traffic[i];
    if (access.span.bytes != bytes[i] || (access.dir == Access::Dir::write) != (i == 2))
      return "cublas_gemm of these lengths reads A (" + bytes_text(bytes[0]) + ") and B (" + bytes_text(bytes[1]) +
             ") and writes C (" + bytes_text(bytes[2]) + ")";
  }
  return Cublas::why_not();
}

/// A product whose operands are patterns has no closed form: a product that ran left no poison.
void check_result(const CudaSession& session, const Span& span, u64 iterations, Verdict& verdict) {
  const Buffer& buffer = *session.buffers[span.region];
  buffer.device()->use();
  std::vector<std::byte> found(span.bytes);
  for (u64 slice = 0; slice < std::min<u64>(span.slices, iterations); ++slice) {
    LINKSCOPE_CU(session.driver, cuMemcpyDtoH, found.data(), buffer.address() + span.offset_at(slice), span.bytes);
    verdict.checked_bytes += span.bytes;
    if (std::all_of(found.begin(), found.end(), [](std::byte one) { return one == poison; }))
      add_wrong(verdict, span.bytes, session, span, span.offset_at(slice),
                ", which a library call should have written");
  }
}

class GemmRunner final : public StepRunner {
 public:
  explicit GemmRunner(const Opaque& call) : call_{call} {}

  void load_code(ActorState& state) override {
    state.device->use();
    library_ = std::make_unique<Cublas>();
  }
  void run(CudaSession& session, ActorState& state, u64) override {
    const auto at = [&](std::size_t access) {
      const Span& span = call_.traffic[access].span;
      return session.address(span.region, *state.device) + span.offset_at(state.iteration);
    };
    const auto length = [&](std::size_t i) { return static_cast<int>(call_.shape[i]); };
    library_->queue(state.stream->get(),
                    {*parse_element(call_.element), length(0), length(1), length(2), at(0), at(1), at(2)});
  }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    const Span& result = call_.traffic[2].span;
    checks.add(state.device, [&](Verdict& into) { check_result(session, result, state.iteration, into); });
  }

 private:
  const Opaque& call_;
  std::unique_ptr<Cublas> library_;
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
  if (!row) return "the library call '" + call.library_call + "' is not known here; cublas_gemm is";
  for (const auto& access : call.traffic)
    if (program.regions[access.span.region].at != actor.place ||
        !is_gpu_memory(program.regions[access.span.region].kind))
      return "library calls work in the memory of " + to_string(actor.place) + " here";
  return row->why_not(call);
}

std::unique_ptr<StepRunner> library_runner(const Opaque& call) { return find(call)->runner(call); }

}  // namespace linkscope
