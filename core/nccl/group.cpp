#include "nccl/group.hpp"

#include <chrono>
#include <future>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr int in_progress = 7, sum = 0, root = 0;  // ncclInProgress, ncclSum

/// ncclDataType_t of a NumberType.
constexpr std::array<int, number_types> types{7, 8, 9, 3};

/// What the thread that meets the other ranks needs, also after a time-out.
struct Meeting {
  const Nccl& nccl;
  NcclId id;
  u32 ranks;
  std::vector<NcclGroup::Own> own;
  std::vector<NcclComm> comms;
  std::promise<void> done;

  void run() {
    try {
      const auto& calls = nccl.calls();
      nccl.check(calls.group_start(), "ncclGroupStart");
      for (std::size_t i = 0; i < own.size(); ++i) {
        own[i].use();
        nccl.check(calls.init_rank(&comms[i], static_cast<int>(ranks), id, static_cast<int>(own[i].rank)),
                   "ncclCommInitRank");
      }
      nccl.check(calls.group_end(), "ncclGroupEnd of ncclCommInitRank");
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  }
};

std::string seconds_text(Seconds limit) {
  auto text = std::to_string(limit.count());
  return text.substr(0, text.find('.') + 2) + " s";
}

}  // namespace

NcclGroup::NcclGroup(const Nccl& nccl, const NcclId& id, u32 ranks, const std::vector<Own>& own, Seconds limit)
    : nccl_{nccl}, ranks_{ranks} {
  const auto meeting = std::make_shared<Meeting>(Meeting{nccl, id, ranks, own, {}, {}});
  meeting->comms.resize(own.size());
  auto done = meeting->done.get_future();
  // ncclCommInitRank waits for ever, so it has a thread that can be left behind.
  std::thread{[meeting] { meeting->run(); }}.detach();
  if (done.wait_for(limit) != std::future_status::ready)
    throw Error{ErrorKind::timeout, "NCCL's ranks did not meet within " + seconds_text(limit) +
                                        " (ncclCommInitRank): another rank has failed"};
  done.get();
  for (std::size_t i = 0; i < own.size(); ++i) comms_[own[i].rank] = meeting->comms[i];
}

NcclGroup::~NcclGroup() {
  if (ended_) return;
  for (const auto& [rank, comm] : comms_) (void)nccl_.calls().destroy(comm);
}

void NcclGroup::abort(const std::string& why) noexcept {
  const std::lock_guard lock{guard_};
  if (ended_.exchange(true)) return;
  why_ = why;
  for (const auto& [rank, comm] : comms_) (void)nccl_.calls().abort(comm);
}

std::string NcclGroup::why_ended() const {
  if (!ended_) return "";
  const std::lock_guard lock{guard_};
  return why_;
}

std::string NcclGroup::background_error() const {
  for (const auto& [rank, comm] : comms_) {
    int error = 0;
    const int status = nccl_.calls().async_error(comm, &error);
    if (status == 0 && (error == 0 || error == in_progress)) continue;
    return "rank " + std::to_string(rank) + ": " + nccl_.calls().error_text(status ? status : error);
  }
  return "";
}

void NcclGroup::queue(u32 rank, const NcclCall& call_of, void* stream) {
  if (ended_) throw Error{ErrorKind::failed, "NCCL's ranks were ended: " + why_ended()};
  try {
    call(rank, call_of, stream);
  } catch (const Error& error) {
    abort(error.what());
    throw;
  }
}

void NcclGroup::call(u32 rank, const NcclCall& call, void* stream) const {
  using enum CollectiveKind;
  const auto& calls = nccl_.calls();
  const int type = types[static_cast<std::size_t>(call.type)];
  const u64 each = bytes_of(call.type);
  const NcclComm comm = comms_.at(rank);
  const u64 in = call.in_bytes / each, out = call.out_bytes / each;
  switch (call.kind) {
    case all_reduce:
      return nccl_.check(calls.all_reduce(call.in, call.out, in, type, sum, comm, stream), "ncclAllReduce", comm);
    case all_gather:
      return nccl_.check(calls.all_gather(call.in, call.out, in, type, comm, stream), "ncclAllGather", comm);
    case reduce_scatter:
      return nccl_.check(calls.reduce_scatter(call.in, call.out, out, type, sum, comm, stream), "ncclReduceScatter",
                         comm);
    case broadcast:
      return nccl_.check(calls.broadcast(call.in, call.out, in, type, root, comm, stream), "ncclBroadcast", comm);
    case reduce:
      return nccl_.check(calls.reduce(call.in, call.out, in, type, sum, root, comm, stream), "ncclReduce", comm);
    case all_to_all:
      if (!calls.all_to_all) break;
      return nccl_.check(calls.all_to_all(call.in, call.out, in / ranks_, type, comm, stream), "ncclAlltoAll", comm);
    case send_receive:
      break;
  }
  send_and_receive(rank, call, stream);
}

void NcclGroup::send_and_receive(u32 rank, const NcclCall& call, void* stream) const {
  const auto& calls = nccl_.calls();
  const int type = types[static_cast<std::size_t>(call.type)];
  const u64 each = bytes_of(call.type), in = call.in_bytes / each;
  const NcclComm comm = comms_.at(rank);
  nccl_.check(calls.group_start(), "ncclGroupStart", comm);
  const bool to_all = call.kind == CollectiveKind::all_to_all;
  const u32 messages = to_all ? ranks_ : 1;
  const u64 block = in / messages;
  for (u32 i = 0; i < messages; ++i) {
    const auto to = static_cast<int>(to_all ? i : (rank + 1) % ranks_),
               from = static_cast<int>(to_all ? i : (rank + ranks_ - 1) % ranks_);
    const u64 at = i * block * each;
    nccl_.check(calls.send(static_cast<const std::byte*>(call.in) + at, block, type, to, comm, stream), "ncclSend",
                comm);
    nccl_.check(calls.receive(static_cast<std::byte*>(call.out) + at, block, type, from, comm, stream), "ncclRecv",
                comm);
  }
  nccl_.check(calls.group_end(), "ncclGroupEnd", comm);
}

NcclWatch::NcclWatch(NcclGroup& group, Seconds limit)
    : group_{group}, thread_{[this, limit](const std::stop_token& stop) { run(stop, limit); }} {}

NcclWatch::~NcclWatch() = default;  // asks the thread to stop, and waits for it

void NcclWatch::run(const std::stop_token& stop, Seconds limit) {
  constexpr std::chrono::milliseconds interval{100};
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(limit);
  std::unique_lock lock{guard_};
  for (;;) {
    changed_.wait_until(lock, stop, std::min(end, std::chrono::steady_clock::now() + interval), [] { return false; });
    if (stop.stop_requested()) return;
    if (const auto error = group_.background_error(); !error.empty()) return group_.abort(error);
    if (std::chrono::steady_clock::now() < end) continue;
    return group_.abort("a collective did not end within " + seconds_text(limit) +
                        ": a rank hangs, or has not called it (ncclCommAbort ended the others)");
  }
}

}  // namespace linkscope
