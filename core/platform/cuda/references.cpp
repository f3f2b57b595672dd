#include "platform/cuda/references.hpp"

#include "host/own_memory.hpp"
#include "host/parallel.hpp"
#include "platform/cuda/contents.hpp"
#include "program/origin.hpp"

namespace linkscope {

std::optional<Input> input_of(const CudaSession& session, const Span& span, u64 slice) {
  const auto& program = session.program;
  const Span* from = has_pattern(program.regions[span.region].content) ? &span : filled_from(program, span);
  if (!from || !session.buffers[from->region]->seed()) return {};
  return Input{session.buffers[from->region]->seed(), from->offset_at(slice)};
}

namespace {

/// New memory whose pages several threads have brought in: page faults of one thread take longer than the copy of a
/// GiB from a GPU.
std::unique_ptr<std::byte[]> room_for(u64 bytes) {
  constexpr u64 page = 4096;
  auto room = std::make_unique_for_overwrite<std::byte[]>(bytes);
  request_huge_pages(room.get(), bytes);
  parallel_ranges(bytes, page, [&room](u64 begin, u64 end) {
    for (u64 at = begin; at < end; at += page) room[at] = std::byte{0};
  });
  return room;
}

}  // namespace

Contents::Contents(const CudaSession& session, const Span& span, u64 slice) {
  const Buffer& buffer = *session.buffers[span.region];
  const u64 offset = span.offset_at(slice);
  if (const auto* host = buffer.host()) {
    bytes_ = {host + offset, span.bytes};
    return;
  }
  copy_ = room_for(span.bytes);
  bytes_ = {copy_.get(), span.bytes};
  buffer.device()->use();
  LINKSCOPE_CU(session.driver, cuMemcpyDtoH, copy_.get(), buffer.address() + offset, span.bytes);
}

void check_copy_of_result(const CudaSession& session, const Span& from, const Span& to, u64 iterations,
                          Checks& checks) {
  checks.add(session.buffers[from.region]->device(), [&session, &from, &to, iterations](Verdict& into) {
    if (iterations == 0) return;
    const Contents expected{session, from}, found{session, to};
    const auto differ = difference(found.bytes(), expected.bytes());
    into.checked_bytes += to.bytes;
    add_wrong(into, differ.wrong, session, to, to.offset + differ.first, ", which differs from the result on the GPU");
  });
}

}  // namespace linkscope
