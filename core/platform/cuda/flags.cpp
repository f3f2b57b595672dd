#include "platform/cuda/flags.hpp"

#include <algorithm>
#include <variant>
#include <vector>

#include "base/cpu_pairs.hpp"
#include "base/descriptor_ops.hpp"
#include "base/error.hpp"
#include "host/words.hpp"
#include "platform/cuda/files.hpp"
#include "platform/cuda/stamps.hpp"

namespace linkscope {
namespace {

// --- support --------------------------------------------------------------------------------------------------------

std::string why_out_of_reach(const Actor& actor, const Region& region) {
  if (region.kind == MemKind::managed) return "";
  if (actor.kind == ActorKind::cpu_thread && region.at.kind == PlaceKind::gpu)
    return "a CPU has no loads from and stores to the memory of " + to_string(region.at) +
           ": it is not mapped for the host (a coherent link such as NVLink-C2C would, or GDRCopy)";
  if (on_gpu(actor.kind) && is_pageable(region.kind))
    return "a GPU's threads do not reach pageable memory by its CPU address here";
  return "";
}

std::string why_no_word(const Program& program, const Actor& actor, const Span& word) {
  const auto& region = program.regions[word.region];
  if (region.content != Content::zero) return "words that are set and waited for begin at zero here";
  if (region.kind == MemKind::managed) return "";
  return why_out_of_reach(actor, region);
}

/// Data that is copied, read or written: GPU blocks access vectors of 16 bytes.
std::string why_no_data(const Program& program, const Actor& actor, const Span& span) {
  if (auto why = why_out_of_reach(actor, program.regions[span.region]); !why.empty()) return why;
  if (span.bytes % sizeof(u64)) return "ops copy, read and write whole words of 8 B here";
  const bool aligned = (span.offset | (span.slices > 1 ? span.stride : 0)) % 16 == 0;
  return aligned || !on_gpu(actor.kind) ? "" : "a GPU block's spans begin at multiples of 16 B here";
}

/// The largest number of threads that share a copy of the loop.
u32 threads_of_copies(const Actor& actor) {
  u32 threads = 1;
  for (const auto& step : actor.loop)
    if (const auto* move = std::get_if<Move>(&step)) threads = std::max(threads, move->shape.threads);
  return threads;
}

bool loads(const Step& step) {
  const auto* kernel = std::get_if<Kernel>(&step);
  return kernel && traits_of(kernel->id).proof == Proof::sum && kernel->traffic.front().dir == Access::Dir::read;
}

}  // namespace

std::string why_no_ops(const Program& program, const Actor& actor) {
  if (on_gpu(actor.kind) && actor.loop.size() > most_actor_ops)
    return "a GPU block's loop of ops has at most " + std::to_string(most_actor_ops) + " steps here";
  if (std::count_if(actor.loop.begin(), actor.loop.end(), loads) > 1)
    return "one step of a loop of ops reads here, because one sum proves what was read";
  if (actor.kind == ActorKind::cpu_thread)
    if (const auto cpus = host_nodes().at(actor.place.index).cpus.size(); threads_of_copies(actor) > cpus)
      return why_no_cpus(actor.place, threads_of_copies(actor), cpus);
  for (const auto& step : actor.loop) {
    if (auto why = why_no_op(actor, step); !why.empty()) return why;
    if ((payload_of(step) || job_of(step)) && !on_gpu(actor.kind) && !has_whole_pairs())
      return "this CPU does not load and store 16 bytes at once, as packed words and descriptors need";
    if (std::holds_alternative<RankMessage>(step)) continue;  // why_no_ranks()
    if (const auto* move = std::get_if<Move>(&step))
      if (auto why = why_no_file_copy(program, actor, *move); !why.empty()) return why;
    const Span* word = word_of(step);
    for (const auto& touch : touches(step)) {
      const bool is_word = word && touch.span.region == word->region;
      if (auto why = is_word ? why_no_word(program, actor, touch.span) : why_no_data(program, actor, touch.span);
          !why.empty())
        return why;
    }
  }
  return "";
}

// --- tables ---------------------------------------------------------------------------------------------------------

namespace {

std::byte* seen_by_cpu(const CudaSession& session, const Span& span) {
  const Buffer& buffer = *session.buffers[span.region];
  // Managed memory has one address for all processors.
  auto* start = buffer.host() ? buffer.host() : reinterpret_cast<std::byte*>(buffer.address());
  return start + span.offset;
}

ActorOp slot_op(OpKind kind, const Span& slot, const Job& job, Word start) {
  ActorOp op{};
  op.kind = kind;
  op.slots = {start, slot.stride, slot.slices};
  op.ring = start - slot.offset + job.ring;
  op.pairs = job.bytes / pair_bytes;
  return op;
}

}  // namespace

ActorOp post_op(const Set& set, Word start) {
  ActorOp op = slot_op(OpKind::post, set.word, *set.job, start);
  const auto offsets = [](const Span& span) { return OpSpan{0, span.stride, span.slices}; };
  if (set.job->to) {
    op.from = offsets(*set.job->from);
    op.to = offsets(*set.job->to);
    op.bytes = set.job->to->bytes;
  }
  op.signal = set.job->signal ? set.job->signal->offset : no_signal;
  op.value = set.value;
  op.step = set.step;
  return op;
}

namespace {

class Table {
 public:
  Table(const CudaSession& session, const ActorState& state) : session_{session}, state_{state} {}

  /// Adds the op of a step of the actor's loop.
  void add_step(const Step& step) {
    of_job_ = is_of_job(*state_.actor, step);
    std::visit(*this, step);
    if (of_job_) ops_.back().pairs = pairs_;
  }

  void operator()(const Set& set) {
    if (set.job) {
      add(OpKind::post) = post_op(set, seen(set.word).start);
      return;
    }
    const auto kind = set.payload ? OpKind::send : set.adds ? OpKind::add : OpKind::set;
    ActorOp& op = word(of_job_ ? OpKind::set_taken : kind, set.word, set.value, set.step);
    if (of_job_) op.to.start -= set.word.offset;  // descriptors have offsets in the region
    if (!set.payload) return;
    op.from = seen(*set.payload);
    op.bytes = set.payload->bytes;
  }
  void operator()(const Wait& wait) {
    if (wait.job) {
      const ActorOp& op = add(OpKind::take) = take_op(wait, seen(wait.word).start);
      pairs_ = op.pairs;
      return;
    }
    ActorOp& op = word(wait.payload ? OpKind::receive : OpKind::wait, wait.word, wait.value, wait.step);
    op.timeout_ns = static_cast<Word>(wait.timeout.count() * 1e9);
    if (!wait.payload) return;
    op.to = seen(*wait.payload);
    op.bytes = wait.payload->bytes;
  }
  void operator()(const Fence&) { add(OpKind::fence); }
  void operator()(const Move& move) {
    ActorOp& op = add(of_job_ ? OpKind::copy_taken : move.engine == Engine::tma ? OpKind::copy_tma : OpKind::copy);
    op.from = seen(move.from);
    op.to = seen(move.to);
    op.bytes = move.from.bytes;
  }
  void operator()(const Kernel& kernel) {
    const Access& access = kernel.traffic.front();
    ActorOp& op = add(access.dir == Access::Dir::read ? OpKind::load : OpKind::store);
    (access.dir == Access::Dir::read ? op.from : op.to) = seen(access.span);
    op.bytes = access.span.bytes;
    op.seed = written_seed;
    op.origin = seen(access.span).start - access.span.offset;
  }
  // No ops: why_no_op().
  void operator()(const Opaque&) {}
  void operator()(const Call&) {}
  void operator()(const Prefetch&) {}
  void operator()(const Message&) {}
  void operator()(const RankMessage&) {}
  void operator()(const Collective&) {}

  [[nodiscard]] std::vector<ActorOp> take() { return std::move(ops_); }

 private:
  const CudaSession& session_;
  const ActorState& state_;
  std::vector<ActorOp> ops_;
  bool of_job_ = false;
  Word pairs_ = 0;  // of the latest descriptor

  ActorOp& add(OpKind kind) {
    ActorOp& op = ops_.emplace_back();
    op.kind = kind;
    return op;
  }
  ActorOp& word(OpKind kind, const Span& word, u64 value, u64 step) {
    ActorOp& op = add(kind);
    (kind == OpKind::wait || kind == OpKind::receive ? op.from : op.to) = seen(word);
    op.bytes = word.bytes;
    op.value = value;
    op.step = step;
    return op;
  }
  [[nodiscard]] OpSpan seen(const Span& span) const {
    const Word start = state_.device ? session_.address(span.region, *state_.device) + span.offset
                                     : reinterpret_cast<Word>(seen_by_cpu(session_, span));
    return {start, span.stride, span.slices};
  }
};

}  // namespace

ActorOp take_op(const Wait& wait, Word start) {
  ActorOp op = slot_op(OpKind::take, wait.word, *wait.job, start);
  op.timeout_ns = static_cast<Word>(wait.timeout.count() * 1e9);
  return op;
}

namespace {

// --- words that do not arrive ---------------------------------------------------------------------------------------

}  // namespace

void throw_in_vain(const CudaSession& session, const Actor& actor, const Wait& wait, u64 value) {
  const auto& region = session.program.regions[wait.word.region];
  throw Error{ErrorKind::timeout, to_string(actor.place) + " waited " + std::to_string(wait.timeout.count()) +
                                      " s for " + (wait.job ? "a descriptor with a word" : "a word") + " in " +
                                      to_string(region.at) + "." + to_string(region.kind) + " to become " +
                                      std::to_string(value) + ": the value that the other side sets does not arrive"};
}

namespace {

[[noreturn]] void gave_up(const CudaSession& session, const Actor& actor, WaitedInVain in_vain) {
  const u64 iteration = (in_vain - 1) / actor.loop.size();
  const auto& wait = std::get<Wait>(actor.loop[(in_vain - 1) % actor.loop.size()]);
  throw_in_vain(session, actor, wait, wait.value + iteration * wait.step);
}

}  // namespace

// --- run ------------------------------------------------------------------------------------------------------------

namespace {

bool copies_by_tma(std::span<const ActorOp> ops) {
  return std::any_of(ops.begin(), ops.end(), [](const ActorOp& op) { return op.kind == OpKind::copy_tma; });
}

}  // namespace

CUfunction block_code(Device& device, bool tma) {
  return device.function("block", tma ? "linkscope_block_tma" : "linkscope_block");
}

CUfunction stamped_block_code(Device& device, bool tma) {
  return device.function("block", tma ? "linkscope_block_tma_stamped" : "linkscope_block_stamped");
}

namespace {

ActorOps as_table(std::span<const ActorOp> ops) {
  ActorOps table{static_cast<unsigned>(ops.size()), {}};
  std::copy(ops.begin(), ops.end(), table.ops);
  return table;
}

/// Queues `count` iterations from `first` of all blocks of a grid.
void queue_blocks(const ActorState& state, u64 first, u64 count) {
  ActorOps table = as_table(state.ops);
  CUdeviceptr result = state.result, further = state.grid.further.address(), stamps = state.stamps;
  void* arguments[] = {&table, &first, &count, &result, &further, &stamps};  // only the stamped code takes the last
  const auto code = stamps ? stamped_block_code : block_code;
  state.device->launch(code(*state.device, state.grid.tma), state.grid.blocks, state.actor->threads,
                       state.stream->get(), arguments);
}

}  // namespace

void prepare_grids(CudaSession& session) {
  for (u32 first = 0; first < session.actors.size(); ++first) {
    auto& state = session.actors[first];
    if (!state.stream || !performs_ops(*state.actor) || state.leader) continue;
    std::vector<BlockTable> further;
    state.grid.tma = copies_by_tma(state.ops);
    for (const auto& other : session.actors) {
      if (other.leader != first) continue;
      further.push_back({as_table(other.ops), reinterpret_cast<Word*>(other.result)});
      state.grid.tma |= copies_by_tma(other.ops);
    }
    if (further.empty()) continue;
    const u64 bytes = further.size() * sizeof further.front();
    const auto& stream = state.device->stream(0);
    state.device->use();
    state.grid.blocks = static_cast<u32>(1 + further.size());
    state.grid.further = {session.driver, bytes};
    LINKSCOPE_CU(session.driver, cuMemcpyHtoDAsync, state.grid.further.address(), further.data(), bytes, stream.get());
    stream.synchronize();
  }
}

void free_grids(CudaSession& session) noexcept {
  for (auto& state : session.actors) {
    if (!state.grid.further.address()) continue;
    // If the driver is shutting down or a GPU is lost, nothing can be freed.
    if (session.driver.cuCtxSetCurrent(state.device->context()) == CUDA_SUCCESS) state.grid.further = {};
  }
}

namespace {

/// The memory in rows that a CPU thread's copies read or write. A region has one kind of rows.
std::vector<RowMemory> rows_of(const CudaSession& session, const Actor& actor) {
  std::vector<RowMemory> found;
  for (const auto& step : actor.loop) {
    const auto* move = std::get_if<Move>(&step);
    if (!move || on_gpu(actor.kind)) continue;
    for (const Span* span : {&move->from, &move->to})
      if (span->rows.bytes)
        found.push_back({reinterpret_cast<Word>(session.buffers[span->region]->host()),
                         session.program.regions[span->region].bytes, span->rows.bytes, span->rows.pitch});
  }
  return found;
}

}  // namespace

void prepare_ops(const CudaSession& session, ActorState& state) {
  prepare_files(session, state);
  if (!performs_ops(*state.actor)) return;
  state.rows = rows_of(session, *state.actor);
  Table table{session, state};
  for (const auto& step : state.actor->loop) table.add_step(step);
  state.ops = table.take();
  if (const u32 threads = threads_of_copies(*state.actor); !state.stream && threads > 1)
    state.crew = std::make_unique<Crew>(state.node, threads);
}

void perform_ops(const CudaSession& session, ActorState& state, u64 passes) {
  const u64 first = state.iteration;
  state.iteration += passes;
  if (passes == 0) return;
  if (state.stream) return queue_blocks(state, first, passes);
  CpuMemory memory{0, state.crew.get(), state.files, state.rows};
  const auto perform = [&](u64 from, u64 count) {
    if (const auto in_vain = perform_on_cpu(state.ops, from, count, memory)) gave_up(session, *state.actor, in_vain);
  };
  if (state.latencies) stamp_on_host(*state.latencies, passes, [&](u64 i) { perform(first + i, 1); });
  else perform(first, passes);
  state.sum += memory.sum;
}

void check_waits(const CudaSession& session) {
  for (const auto& state : session.actors) {
    if (!state.stream || !performs_ops(*state.actor)) continue;
    WaitedInVain in_vain = 0;
    state.device->use();
    LINKSCOPE_CU(session.driver, cuMemcpyDtoH, &in_vain, state.result + sizeof(u64), sizeof in_vain);
    if (in_vain) gave_up(session, *state.actor, in_vain);
  }
}

}  // namespace linkscope
