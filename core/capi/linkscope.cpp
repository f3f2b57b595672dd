#include "capi/linkscope.h"

#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "base/error.hpp"
#include "capi/guarded.hpp"
#include "transfer/asynchronous.hpp"
#include "transfer/transfers.hpp"
#include "transfer/trial.hpp"

using namespace linkscope;

struct ls_prepared {
  Transfers::Prepared copy;
};

struct ls_transfer {
  AsynchronousCopy copy;
};

struct ls_trial {
  Trial trial;
};

namespace {

thread_local std::string returned_text, other_text;

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

Towards direction(int to_gpu) { return to_gpu ? Towards::gpu : Towards::host; }

/// Passes the progress on to the caller's function, which may cancel.
template <class Watch>
void report_to(Watch& watch, Progress& progress) {
  if (!watch.report) return;
  progress.report = [&](u64 done) { progress.cancelled = progress.cancelled || watch.report(done, watch.user) != 0; };
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
    if (Transfers::is_in_child_of_fork()) return;
    delete state.exchange(nullptr);
    close_putget();
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

ls_status ls_register(void* start, size_t bytes) {
  return guarded([&] { transfers().register_memory(start, bytes); });
}

ls_status ls_unregister(void* start) {
  return guarded([&] { transfers().unregister_memory(start); });
}

ls_status ls_registered_bytes(uint64_t* bytes) {
  return guarded([&] { *bytes = transfers().registered_bytes(); });
}

ls_status ls_copy_blocks(void* const* dst, const void* const* src, const size_t* bytes, size_t count, void* stream) {
  return guarded([&] {
    const auto blocks = std::make_unique_for_overwrite<Block[]>(count);
    for (size_t i = 0; i < count; ++i)
      blocks[i] = {reinterpret_cast<u64>(dst[i]), reinterpret_cast<u64>(src[i]), bytes[i]};
    transfers().copy_blocks({blocks.get(), count}, static_cast<CUstream>(stream));
  });
}

ls_status ls_read_file(const char* path, const ls_piece* pieces, size_t count, void* stream, ls_watch* watch) {
  return guarded([&] {
    std::vector<FilePiece> wanted(count);
    for (size_t i = 0; i < count; ++i) wanted[i] = {pieces[i].offset, pieces[i].bytes, pieces[i].dst};
    ReadCounts by;
    Progress progress;
    if (watch) report_to(*watch, progress);
    transfers().read(FileReader{path}, wanted, static_cast<CUstream>(stream), by, progress);
    if (watch) watch->counts = {by.cached, by.direct, by.buffered, by.uring, by.cufile, by.mapped, by.uring_refused};
  });
}

ls_status ls_save_file(const char* path, const ls_source* sources, size_t count, ls_saving* saving) {
  return guarded([&] {
    std::vector<FileSource> wanted(count);
    for (size_t i = 0; i < count; ++i)
      wanted[i] = {sources[i].src, sources[i].bytes, static_cast<CUstream>(sources[i].stream)};
    WriteCounts by;
    Progress progress;
    if (saving) report_to(*saving, progress), saving->counts = {};
    transfers().save(path, wanted, saving && saving->durable, by, progress);
    if (saving) saving->counts = {by.direct, by.buffered, by.cufile, by.uring, by.uring_refused};
  });
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

const uint64_t* ls_size_classes(size_t* count) {
  *count = size_classes.size();
  return size_classes.data();
}

const uint64_t* ls_block_classes(size_t* count) {
  *count = block_classes.size();
  return block_classes.data();
}

const uint64_t* ls_packed_classes(size_t* count) {
  *count = packed_classes.size();
  return packed_classes.data();
}

const uint64_t* ls_file_classes(size_t* count) {
  *count = file_classes.size();
  return file_classes.data();
}

ls_status ls_get_knobs(const char* method, size_t bytes, ls_knobs* knobs) {
  return guarded([&] {
    const auto& of = transfers().knobs(method, bytes);
    *knobs = {of.plain,    of.threads, of.chunk,  of.depth, of.chunks_each, of.piece, of.sm_blocks,
              of.sm_chunk, of.links,   of.cufile, of.tma,   of.uring,       of.mapped};
  });
}

ls_status ls_set_knobs(const char* method, size_t bytes, const ls_knobs* knobs) {
  return guarded([&] {
    const auto& [plain, threads, chunk, depth, chunks_each, piece, sm_blocks, sm_chunk, links, cufile, tma, uring,
                 mapped] = *knobs;
    transfers().set(method, bytes,
                    {plain != 0, threads, chunk, depth, chunks_each, piece, sm_blocks, sm_chunk, links, cufile != 0,
                     tma != 0, uring, mapped != 0});
  });
}

ls_status ls_set_helpers(const uint32_t* gpus, size_t count) {
  return guarded([&] { transfers().set_helpers({gpus, gpus + count}); });
}

ls_status ls_get_block_knobs(int to_gpu, size_t mean_bytes, const char** method, uint32_t* sm_blocks) {
  return guarded([&] {
    const auto& of = transfers().options().of(direction(to_gpu), mean_bytes);
    *method = to_string(of.method);
    *sm_blocks = of.sm_blocks;
  });
}

ls_status ls_set_block_knobs(int to_gpu, size_t mean_bytes, const char* method, uint32_t sm_blocks) {
  return guarded([&] { transfers().set(direction(to_gpu), mean_bytes, {block_method_named(method), sm_blocks}); });
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

const char* ls_fingerprint() {
  const auto status = guarded([] { returned_text = transfers().fingerprint(); });
  return status == LS_OK ? returned_text.c_str() : last_error.c_str();
}

ls_status ls_tuning(const char** file, const char** note) {
  return guarded([&] {
    const auto tuning = transfers().tuning();
    returned_text = tuning.file;
    other_text = tuning.note;
    *file = returned_text.c_str();
    *note = other_text.c_str();
  });
}

ls_status ls_save_tuning(const char* path, const char** written) {
  return guarded([&] {
    returned_text = transfers().save_tuning(path ? path : "", LINKSCOPE_VERSION);
    *written = returned_text.c_str();
  });
}

ls_status ls_trial_open(ls_trial** trial, uint32_t gpu, size_t bytes) {
  return guarded([&] { *trial = new ls_trial{{transfers(), gpu, bytes}}; });
}

void ls_trial_close(ls_trial* trial) { delete trial; }

ls_status ls_trial_copy(ls_trial* trial, const char* method, ls_way way, size_t bytes, uint32_t repeats,
                        double* seconds) {
  return guarded(
      [&] { *seconds = trial->trial.copy(method_named(method).id, static_cast<Trial::Way>(way), bytes, repeats); });
}

ls_status ls_trial_blocks(ls_trial* trial, int to_gpu, size_t block_bytes, size_t count, uint32_t repeats,
                          double* seconds) {
  return guarded([&] { *seconds = trial->trial.blocks(direction(to_gpu), block_bytes, count, repeats); });
}

ls_status ls_trial_packed(ls_trial* trial, int to_gpu, size_t block_bytes, size_t count, uint32_t repeats,
                          double* seconds) {
  return guarded([&] { *seconds = trial->trial.packed(direction(to_gpu), block_bytes, count, repeats); });
}

ls_status ls_trial_add_gpu(ls_trial* trial, uint32_t gpu) {
  return guarded([&] { trial->trial.add_gpu(gpu); });
}

ls_status ls_trial_file(ls_trial* trial, const char* directory, int cold, size_t bytes, uint32_t repeats,
                        double* seconds) {
  return guarded([&] { *seconds = trial->trial.file(directory ? directory : "", cold != 0, bytes, repeats); });
}

ls_status ls_trial_save(ls_trial* trial, const char* directory, size_t bytes, uint32_t repeats, double* seconds) {
  return guarded([&] { *seconds = trial->trial.save(directory, bytes, repeats); });
}
