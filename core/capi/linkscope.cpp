#include "capi/linkscope.h"

#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "base/error.hpp"
#include "transfer/asynchronous.hpp"
#include "transfer/transfers.hpp"

using namespace linkscope;

struct ls_prepared {
  Transfers::Prepared copy;
};

struct ls_transfer {
  AsynchronousCopy copy;
};

namespace {

thread_local std::string last_error, returned_text;

/// The library's state, made at the first call. It is never destroyed at the end of the process, when the driver may
/// already have ended: ls_close destroys it.
std::atomic<Transfers*> state{nullptr};

Transfers& made_now() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock{one_at_a_time};
  if (!state) state = new Transfers;
  return *state;
}

Transfers& transfers() {
  Transfers* made = state.load(std::memory_order_acquire);
  return made ? *made : made_now();
}

ls_status failed(ls_status status, const char* text) {
  try {
    last_error = text;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return status;
}

ls_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return LS_USAGE;
    case ErrorKind::failed:
    case ErrorKind::unsupported:
      return LS_FAILED;
    case ErrorKind::lost:
      return LS_LOST;
    case ErrorKind::timeout:
      return LS_TIMEOUT;
    case ErrorKind::memory:
      return LS_MEMORY;
  }
  return LS_FAILED;
}

/// Runs a call of the library; exceptions end here.
template <class Call>
ls_status guarded(Call call) {
  try {
    call();
    return LS_OK;
  } catch (const Cancelled& error) {
    return failed(LS_CANCELLED, error.what());
  } catch (const Error& error) {
    return failed(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(LS_MEMORY, "the host has no memory left");
  } catch (const std::exception& error) {
    return failed(LS_FAILED, error.what());
  }
}

CopyRequest request(void* dst, const void* src, size_t bytes, void* stream) {
  return {dst, src, bytes, static_cast<CUstream>(stream), false};
}

}  // namespace

const char* ls_last_error() { return last_error.c_str(); }

const char* ls_version() { return LINKSCOPE_VERSION; }

const char* ls_why_no_gpu() {
  const auto status = guarded([] { returned_text = transfers().driver().why_not(); });
  return status == LS_OK ? returned_text.c_str() : last_error.c_str();
}

ls_status ls_close() {
  return guarded([] {
    if (!Transfers::is_in_child_of_fork()) delete state.exchange(nullptr);
  });
}

ls_status ls_copy(void* dst, const void* src, size_t bytes, void* stream) {
  return guarded([&] { transfers().copy(request(dst, src, bytes, stream)); });
}

ls_status ls_copy_to_fresh(void* dst, const void* src, size_t bytes, void* stream) {
  return guarded([&] {
    auto fresh = request(dst, src, bytes, stream);
    fresh.fresh = true;
    transfers().copy(fresh);
  });
}

const char* ls_method_of(void* dst, const void* src, size_t bytes, void* stream) {
  const char* name = nullptr;
  guarded([&] { name = transfers().method_of(request(dst, src, bytes, stream)); });
  return name;
}

ls_status ls_prepare(ls_prepared** prepared, void* dst, const void* src, size_t bytes, void* stream) {
  return guarded([&] { *prepared = new ls_prepared{transfers().prepare(request(dst, src, bytes, stream))}; });
}

ls_status ls_run(ls_prepared* prepared) {
  return guarded([&] { prepared->copy.run(); });
}

void ls_release(ls_prepared* prepared) { delete prepared; }

ls_status ls_copy_blocks(void* const* dst, const void* const* src, const size_t* bytes, size_t count, void* stream) {
  return guarded([&] {
    std::vector<Block> blocks(count);
    for (size_t i = 0; i < count; ++i)
      blocks[i] = {reinterpret_cast<u64>(dst[i]), reinterpret_cast<u64>(src[i]), bytes[i]};
    transfers().copy_blocks(blocks, static_cast<CUstream>(stream));
  });
}

ls_status ls_read_file(const char* path, const ls_piece* pieces, size_t count, void* stream, ls_watch* watch) {
  return guarded([&] {
    std::vector<FilePiece> wanted(count);
    for (size_t i = 0; i < count; ++i) wanted[i] = {pieces[i].offset, pieces[i].bytes, pieces[i].dst};
    ReadCounts by;
    Progress progress;
    if (watch && watch->report)
      progress.report = [&](u64 done) {
        progress.cancelled = progress.cancelled || watch->report(done, watch->user) != 0;
      };
    transfers().read(FileReader{path}, wanted, static_cast<CUstream>(stream), by, progress);
    if (watch) watch->counts = {by.cached, by.direct, by.buffered};
  });
}

ls_status ls_set_block_method(const char* method, uint32_t sm_blocks, uint64_t loop_from) {
  return guarded([&] { transfers().set(BlockKnobs{block_method_named(method), sm_blocks, loop_from}); });
}

ls_status ls_transfer_start(ls_transfer** transfer, void* dst, const void* src, size_t bytes, void* stream) {
  return guarded([&] { *transfer = new ls_transfer{{transfers(), request(dst, src, bytes, stream)}}; });
}

ls_status ls_transfer_progress(const ls_transfer* transfer, size_t* done, int* ended) {
  *ended = transfer->copy.has_ended();
  *done = transfer->copy.done_bytes();
  return LS_OK;
}

ls_status ls_transfer_wait(ls_transfer* transfer) {
  return guarded([&] { transfer->copy.wait(); });
}

void ls_transfer_cancel(ls_transfer* transfer) { transfer->copy.cancel(); }

void ls_transfer_free(ls_transfer* transfer) { delete transfer; }

ls_status ls_get_knobs(const char* method, ls_knobs* knobs) {
  return guarded([&] {
    const auto& [from_bytes, threads, chunk, depth, piece, sm_blocks] = transfers().options().of(method_named(method).id);
    *knobs = {from_bytes, threads, chunk, depth, piece, sm_blocks};
  });
}

ls_status ls_set_knobs(const char* method, const ls_knobs* knobs) {
  return guarded([&] {
    transfers().set(method_named(method).id,
                    {knobs->from_bytes, knobs->threads, knobs->chunk, knobs->depth, knobs->piece,
                     knobs->sm_blocks});
  });
}

ls_status ls_count(const char* method, uint64_t* count) {
  return guarded([&] { *count = transfers().count_of(method_named(method).id); });
}

const char* ls_latest_fallback() {
  guarded([] { returned_text = transfers().latest_fallback(); });
  return returned_text.c_str();
}

ls_status ls_arena_bytes(uint64_t* bytes) {
  return guarded([&] { *bytes = transfers().arena_bytes(); });
}
