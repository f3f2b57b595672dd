#include "platform/cuda/references.hpp"

#include "program/origin.hpp"

namespace linkscope {

std::optional<Input> input_of(const CudaSession& session, const Span& span, u64 slice) {
  const auto& program = session.program;
  const Span* from = has_pattern(program.regions[span.region].content) ? &span : filled_from(program, span);
  if (!from || !session.buffers[from->region]->seed()) return {};
  return Input{session.buffers[from->region]->seed(), from->offset_at(slice)};
}

std::vector<std::byte> contents_of(const CudaSession& session, const Span& span, u64 slice) {
  const Buffer& buffer = *session.buffers[span.region];
  std::vector<std::byte> found(span.bytes);
  if (const auto* host = buffer.host()) {
    std::memcpy(found.data(), host + span.offset_at(slice), span.bytes);
    return found;
  }
  buffer.device()->use();
  LINKSCOPE_CU(session.driver, cuMemcpyDtoH, found.data(), buffer.address() + span.offset_at(slice), span.bytes);
  return found;
}

void check_copy_of_result(const CudaSession& session, const Span& from, const Span& to, u64 iterations,
                          Checks& checks) {
  checks.add(session.buffers[from.region]->device(), [&session, &from, &to, iterations](Verdict& into) {
    if (iterations == 0) return;
    const auto expected = contents_of(session, from), found = contents_of(session, to);
    into.checked_bytes += found.size();
    const auto differ = std::mismatch(found.begin(), found.end(), expected.begin());
    if (differ.first == found.end()) return;
    u64 wrong = 0;
    for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] != expected[i];
    add_wrong(into, wrong, session, to, to.offset + static_cast<u64>(differ.first - found.begin()),
              ", which differs from the result on the GPU");
  });
}

}  // namespace linkscope
