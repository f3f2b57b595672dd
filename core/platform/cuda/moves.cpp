#include "platform/cuda/moves.hpp"

#include <cstring>
#include <utility>

#include "platform/cuda/files.hpp"

namespace linkscope {
namespace {

/// Source and destination of one iteration of a move.
struct Ends {
  const Buffer &from, &to;
  CUdeviceptr from_start, to_start;  // addresses for the GPU that makes the move
  u64 from_offset, to_offset;

  Ends(const CudaSession& session, const Move& move, const Device& by, u64 iteration)
      : from{*session.buffers[move.from.region]},
        to{*session.buffers[move.to.region]},
        from_start{session.address(move.from.region, by)},
        to_start{session.address(move.to.region, by)},
        from_offset{move.from.offset_at(iteration)},
        to_offset{move.to.offset_at(iteration)} {}
  /// The address of a byte for any call; for pinned host memory its CPU address.
  static CUdeviceptr any(const Buffer& buffer, CUdeviceptr start) {
    return buffer.host() ? reinterpret_cast<CUdeviceptr>(buffer.host()) : start;
  }
  [[nodiscard]] CUdeviceptr any_from() const { return any(from, from_start) + from_offset; }
  [[nodiscard]] CUdeviceptr any_to() const { return any(to, to_start) + to_offset; }
};

CUDA_MEMCPY3D described(const Ends& ends, const RowCopy& rows) {
  CUDA_MEMCPY3D copy{};
  const u64 in_plane = rows.from.in_plane ? rows.from.in_plane : rows.count;
  copy.WidthInBytes = rows.bytes;
  copy.Height = in_plane;
  copy.Depth = rows.count / in_plane;
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;  // the driver knows the owner of an address
  copy.srcDevice = ends.any_from();
  copy.dstDevice = ends.any_to();
  copy.srcPitch = rows.from.pitch;
  copy.dstPitch = rows.to.pitch;
  copy.srcHeight = rows.from.in_plane ? rows.from.plane_pitch / rows.from.pitch : in_plane;
  copy.dstHeight = rows.to.in_plane ? rows.to.plane_pitch / rows.to.pitch : in_plane;
  return copy;
}

/// One copy of contiguous bytes.
void queue_piece(const Driver& driver, const Ends& ends, bool peer_call, u64 from_row, u64 to_row, u64 bytes,
                 CUstream stream) {
  const u64 from = ends.from_offset + from_row, to = ends.to_offset + to_row;
  if (ends.from.host())
    LINKSCOPE_CU(driver, cuMemcpyHtoDAsync, ends.to_start + to, ends.from.host() + from, bytes, stream);
  else if (ends.to.host())
    LINKSCOPE_CU(driver, cuMemcpyDtoHAsync, ends.to.host() + to, ends.from_start + from, bytes, stream);
  else if (!peer_call)
    LINKSCOPE_CU(driver, cuMemcpyDtoDAsync, ends.to_start + to, ends.from_start + from, bytes, stream);
  else
    LINKSCOPE_CU(driver, cuMemcpyPeerAsync, ends.to_start + to, ends.to.device()->context(), ends.from_start + from,
                 ends.from.device()->context(), bytes, stream);
}

/// All rows by one call.
void queue_pitched(const Driver& driver, const Ends& ends, const RowCopy& rows, CUstream stream) {
  const auto copy = described(ends, rows);
  if (rows.from.in_plane) {
    LINKSCOPE_CU(driver, cuMemcpy3DAsync, &copy, stream);
    return;
  }
  CUDA_MEMCPY2D flat{};
  flat.WidthInBytes = copy.WidthInBytes;
  flat.Height = copy.Height;
  flat.srcMemoryType = flat.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  flat.srcDevice = copy.srcDevice;
  flat.dstDevice = copy.dstDevice;
  flat.srcPitch = copy.srcPitch;
  flat.dstPitch = copy.dstPitch;
  LINKSCOPE_CU(driver, cuMemcpy2DAsync, &flat, stream);
}

void queue_kernel_copy(const Device& device, CUfunction code, const Move& move, const Ends& ends, CUstream stream) {
  CUdeviceptr to = ends.to_start + ends.to_offset, from = ends.from_start + ends.from_offset;
  u64 bytes = move.from.bytes;
  auto rows = in_rows(move);
  if (rows.count == 1) {
    void* arguments[] = {&to, &from, &bytes};
    device.launch(code, blocks_of(device, move.shape), move.shape.threads, stream, arguments);
    return;
  }
  u64 in_plane = rows.from.in_plane ? rows.from.in_plane : rows.count;
  void* arguments[] = {&to,
                       &from,
                       &rows.bytes,
                       &rows.count,
                       &rows.to.pitch,
                       &rows.from.pitch,
                       &in_plane,
                       &rows.to.plane_pitch,
                       &rows.from.plane_pitch};
  device.launch(code, blocks_of(device, move.shape), move.shape.threads, stream, arguments);
}

/// By a stream of any GPU.
void queue_on(const CudaSession& session, const Move& move, const Device& device, CUfunction code, CUstream stream,
              u64 iteration) {
  const Ends ends{session, move, device, iteration};
  if (move.engine != Engine::ce) return queue_kernel_copy(device, code, move, ends, stream);
  const auto rows = in_rows(move);
  if (rows.count > 1 && !move.row_by_row) return queue_pitched(session.driver, ends, rows, stream);
  for (u64 row = 0; row < rows.count; ++row)
    queue_piece(session.driver, ends, move.peer_call, rows.from.offset_of(row), rows.to.offset_of(row), rows.bytes,
                stream);
}

}  // namespace

std::string why_no_call(const Driver& driver, const Program& program, const Move& move) {
  const auto lacks = [&](std::initializer_list<const char*> symbols) {
    for (const char* symbol : symbols)
      if (auto why = driver.why_no(symbol); !why.empty()) return why;
    return std::string{};
  };
  const auto rows = in_rows(move);
  const bool pitched = rows.count > 1 && !move.row_by_row;
  const Region &from = program.regions[move.from.region], &to = program.regions[move.to.region];
  for (const Region* region : {&from, &to})
    if (is_pageable(region->kind) && (rows.count > 1 || move.engine == Engine::batch || move.engine == Engine::graph))
      return "pageable memory is copied in one piece by single calls only here: others may wait for the host";
  if (move.by)
    if (auto why = lacks({"cuStreamWaitEvent"}); !why.empty()) return why;
  switch (move.engine) {
    case Engine::ce:
      if (pitched) return lacks({rows.from.in_plane ? "cuMemcpy3DAsync" : "cuMemcpy2DAsync"});
      return move.peer_call && from.at != to.at ? lacks({"cuMemcpyPeerAsync"}) : "";
    case Engine::batch:
      if (pitched) return "batched copies are of pieces: rows are copied one by one";
      if (auto why = lacks({"cuMemcpyBatchAsync"}); !why.empty())
        return why + " as CUDA 13.0 has it: batched copies need driver 580 or newer";
      return "";
    case Engine::graph:
      if (pitched)
        return "a graph copies contiguous pieces only, because a node of rows cannot be identified: rows are copied "
               "one by "
               "one";
      return lacks({"cuGraphCreate", "cuGraphAddMemcpyNode", "cuGraphInstantiateWithFlags",
                    "cuGraphExecMemcpyNodeSetParams", "cuGraphUpload", "cuGraphLaunch", "cuGraphExecDestroy",
                    "cuGraphDestroy"});
    case Engine::tma:
      return pitched ? "TMA copies one contiguous piece here" : "";
    case Engine::cpu:
      return rows.count > 1 ? "CPU threads copy one piece at a time here" : "";
    default:
      return "";
  }
}

unsigned blocks_of(const Device& device, const Shape& shape) {
  return shape.blocks ? shape.blocks : static_cast<unsigned>(device.facts().attribute("MULTIPROCESSOR_COUNT", 1));
}

CUfunction copy_code(Device& device, const Move& move) {
  if (move.engine == Engine::tma) return device.function("copy", "linkscope_copy_tma");
  if (move.engine == Engine::sm)
    return device.function("copy", in_rows(move).count > 1 ? "linkscope_copy_rows" : "linkscope_copy");
  return nullptr;
}

const Move* made_together(const Actor& actor) {
  const auto* move = std::get_if<Move>(&actor.loop.front());
  return move && (move->engine == Engine::batch || move->engine == Engine::graph) ? move : nullptr;
}

// --- a whole batch at once ----------------------------------------------------------------------------------------

namespace {

/// Calls `copy` with the ends of each iteration, and of each of its rows if rows are copied one by one.
template <class Copy>
void each_copy(const CudaSession& session, const ActorState& state, const Move& move, u32 count, Copy copy) {
  const auto rows = in_rows(move);
  for (u64 iteration = state.iteration; iteration < state.iteration + count; ++iteration) {
    const Ends ends{session, move, *state.device, iteration};
    if (!move.row_by_row) {
      copy(ends, rows);
      continue;
    }
    for (u64 row = 0; row < rows.count; ++row) {
      Ends of_row = ends;
      of_row.from_offset += rows.from.offset_of(row);
      of_row.to_offset += rows.to.offset_of(row);
      copy(of_row, RowCopy{rows.bytes, 1, {rows.bytes, rows.bytes}, {rows.bytes, rows.bytes}});
    }
  }
}

}  // namespace

void prepare_together(const CudaSession& session, ActorState& state, u32 count) {
  const Move* move = made_together(*state.actor);
  if (!move || count == 0) return;
  state.device->use();
  if (move->engine == Engine::graph) {
    std::vector<CUDA_MEMCPY3D> copies;
    each_copy(session, state, *move, count,
              [&](const Ends& ends, const RowCopy& rows) { copies.push_back(described(ends, rows)); });
    auto& graph = state.graphs[count];
    if (!graph) graph = std::make_unique<CopyGraph>(session.driver);
    graph->set(copies, state.device->context());
    graph->upload(state.stream->get());
    state.stream->synchronize();
    return;
  }
  state.pieces = {};
  each_copy(session, state, *move, count, [&](const Ends& ends, const RowCopy& rows) {
    state.pieces.to.push_back(ends.any_to());
    state.pieces.from.push_back(ends.any_from());
    state.pieces.bytes.push_back(rows.bytes);
  });
}

void queue_together(const CudaSession& session, ActorState& state, const Move& move, u32 count) {
  const CUstream stream = state.stream->get();
  if (move.engine == Engine::graph) {
    state.graphs.at(count)->launch(stream);
    state.iteration += count;
    return;
  }
  CUmemcpyAttributes how{};
  how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t from_first = 0;
  auto& pieces = state.pieces;
  LINKSCOPE_CU(session.driver, cuMemcpyBatchAsync, pieces.to.data(), pieces.from.data(), pieces.bytes.data(),
               pieces.bytes.size(), &how, &from_first, 1, stream);
  state.iteration += count;
}

void queue_move(const CudaSession& session, ActorState& state, const Move& move, CUfunction code) {
  if (!state.stream) {
    const auto at = [&](const Span& span) {
      return session.buffers[span.region]->host() + span.offset_at(state.iteration);
    };
    if (is_by_cufile(session.program, move)) return move_by_cufile(session, state, move);
    if (is_by_mapping(session.program, move)) return move_by_mapping(session, state, move);
    if (move.engine == Engine::file) {
      CpuMemory memory{0, nullptr, state.files};
      return memory.copy(reinterpret_cast<Word>(at(move.to)), reinterpret_cast<Word>(at(move.from)), move.from.bytes);
    }
    std::memcpy(at(move.to), at(move.from), move.from.bytes);
    return;
  }
  if (!move.by) return queue_on(session, move, *state.device, code, state.stream->get(), state.iteration);
  auto& helper = state.helpers.at(move.by->index);
  const auto& driver = session.driver;
  LINKSCOPE_CU(driver, cuEventRecord, helper.before->get(), state.stream->get());
  helper.device->use();
  LINKSCOPE_CU(driver, cuStreamWaitEvent, helper.stream->get(), helper.before->get(), CU_EVENT_WAIT_DEFAULT);
  queue_on(session, move, *helper.device, code, helper.stream->get(), state.iteration);
  LINKSCOPE_CU(driver, cuEventRecord, helper.after->get(), helper.stream->get());
  state.device->use();
  LINKSCOPE_CU(driver, cuStreamWaitEvent, state.stream->get(), helper.after->get(), CU_EVENT_WAIT_DEFAULT);
}

}  // namespace linkscope
