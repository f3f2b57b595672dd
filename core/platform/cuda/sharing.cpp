#include "platform/cuda/sharing.hpp"

#include <cstring>
#include <utility>

#include "program/allocation.hpp"
#include "program/processes.hpp"

namespace linkscope {
namespace {

/// The process that opens memory which calls allocate (why_another_process).
constexpr u32 opens_called = 0;

/// A share as it goes to another process, beside its descriptor.
struct ShareMessage {
  CUipcMemHandle handle{};
  u64 bytes = 0;
};

void give_share(CudaSession& session, u32 to, const Allocation& memory) {
  session.peers->give(to, ShareMessage{memory.shared().handle, memory.shared().bytes}, memory.descriptor());
}

Share take_share(CudaSession& session, u32 from) {
  Share share;
  const auto came = session.peers->take<ShareMessage>(from, "its memory", session.patience(), &share.descriptor);
  share.handle = came.handle;
  share.bytes = came.bytes;
  return share;
}

void end_turn(CudaSession& session, u32 next) { session.peers->give(next, u32{0}); }

void await_turn(CudaSession& session, u32 last, const char* what) {
  (void)session.peers->take<u32>(last, what, session.patience());
}

/// Words of memory as a GPU sees them, or for host memory a CPU.
struct View {
  const Driver& driver;
  std::byte* host;
  Device* by;
  CUdeviceptr at;

  [[nodiscard]] u64 read(u64 offset) const {
    u64 word = 0;
    if (host) {
      std::memcpy(&word, host + offset, sizeof word);
    } else {
      by->use();
      LINKSCOPE_CU(driver, cuMemcpyDtoH, &word, at + offset, sizeof word);
    }
    return word;
  }

  void write(u64 offset, u64 word) const {
    if (host) {
      *reinterpret_cast<volatile u64*>(host + offset) = word;
      return;
    }
    by->use();
    const auto& stream = by->stream(0);
    LINKSCOPE_CU(driver, cuMemcpyHtoDAsync, at + offset, &word, sizeof word, stream.get());
    stream.synchronize();
  }
};

/// Only a trial shows whether memory can be shared: containers, sandboxes and modes of GPUs forbid sharing with different
/// errors. Drivers also report forbidden calls as 'unknown error'; the loss of a GPU shows again.
template <class Call>
auto tried(const Region& region, const Opening& opening, bool own, Call call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::failed && error.kind() != ErrorKind::lost) throw;
    const auto where = to_string(region.at);
    throw Error{ErrorKind::unsupported,
                std::string{to_string(region.kind)} + " memory " +
                    (own ? "on " + where + " cannot be opened by another process"
                         : "of another process cannot be opened on " + where) +
                    (opening.gpu ? " by gpu:" + std::to_string(*opening.gpu) : "") + ": " + error.what() +
                    "; in a container, let the processes share IPC and PID namespaces (--ipc=host --pid=host)"};
  }
}

class Sharing {
 public:
  Sharing(CudaSession& session, Devices& devices) : session_{session}, devices_{devices} {}

  void give(const Opening& opening) {
    const auto& region = session_.whole.regions[opening.region];
    const bool called = session_.called.contains(opening.region);
    Device* const device = device_for(devices_, session_.program, opening.region);
    if (called) trial_ = std::make_unique<Buffer>(session_.driver, device, region, trial_bytes);
    auto& memory = (called ? *trial_ : *session_.buffers[opening.region]).memory();
    if (!opening.gpu) {
      tried(region, opening, true, [&] { memory.share(); });
      give_share(session_, opening.process, memory);
    }
    const u64 offset = session_.peers->take<u64>(opening.process, "memory to be opened", session_.patience());
    const View view{session_.driver, memory.host(), device, memory.address()};
    session_.peers->give(opening.process, tried(region, opening, true, [&] { return view.read(offset); }));
    if (called) await_turn(session_, opening.process, "memory to be closed");
    trial_.reset();
  }

  void open(const Opening& opening) {
    const auto& region = session_.whole.regions[opening.region];
    const bool called = session_.called.contains(opening.region);
    if (opening.gpu) return open_by_gpu(opening, devices_.at(*opening.gpu));
    Device* const device = device_for(devices_, called ? session_.whole : session_.program, opening.region);
    const u64 bytes = called ? trial_bytes : whole_grains(region.bytes);
    auto share = take_share(session_, region.process);
    auto opened = tried(region, opening, false, [&] {
      return std::make_unique<Buffer>(session_.driver, device, region, bytes, std::move(share));
    });
    prove(opening, {session_.driver, opened->host(), device, opened->address()}, opened->size());
    if (called) {
      opened.reset();
      return end_turn(session_, region.process);
    }
    session_.buffers[opening.region] = opened.get();
    session_.theirs.push_back(std::move(opened));
  }

 private:
  static constexpr u64 trial_bytes = u64{2} << 20;

  void open_by_gpu(const Opening& opening, Device& device) {
    const auto& buffer = *session_.buffers[opening.region];
    auto opened = tried(session_.whole.regions[opening.region], opening, false,
                        [&] { return buffer.memory().opened_by(device); });
    prove(opening, {session_.driver, nullptr, &device, opened->address()}, buffer.size());
    session_.opened[{opening.region, &device}] = std::move(opened);
  }

  /// Writes a word, lets the owner read it, and restores the old contents.
  void prove(const Opening& opening, const View& view, u64 bytes) {
    const auto& region = session_.whole.regions[opening.region];
    const u64 offset = bytes - sizeof(u64), word = 0x6C696E6B53000000ull + ++proofs_;
    const u64 before = tried(region, opening, false, [&] {
      const u64 found = view.read(offset);
      view.write(offset, word);
      return found;
    });
    session_.peers->give(region.process, offset);
    const u64 seen = session_.peers->take<u64>(region.process, "it to read its memory", session_.patience());
    tried(region, opening, false, [&] {
      view.write(offset, before);
      if (seen != word)
        throw Error{ErrorKind::failed, "data written to " + to_string(region.at) + "." + to_string(region.kind) +
                                           " does not arrive in the memory of the other process"};
    });
  }

  CudaSession& session_;
  Devices& devices_;
  std::unique_ptr<Buffer> trial_;  // stands for memory that calls allocate
  u64 proofs_ = 0;
};

}  // namespace

Device* device_for(Devices& devices, const Program& program, u32 region) {
  const auto& [place, kind] = std::tie(program.regions[region].at, program.regions[region].kind);
  if (place.kind == PlaceKind::gpu) return &devices.at(place.index);
  if (is_pageable(kind) || devices.facts().empty()) return nullptr;
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop) {
      const auto* call = std::get_if<Call>(&step);
      if (call && call->span && call->span->region == region && actor.place.kind == PlaceKind::gpu)
        return &devices.at(actor.place.index);
      for (const auto& touch : touches(step))
        if (touch.span.region == region) {
          const Place& by = call && call->on ? *call->on : actor.place;
          if (by.kind == PlaceKind::gpu) return &devices.at(by.index);
        }
    }
  return is_shared(kind) ? nullptr : devices.any();
}

void share_memory(CudaSession& session, Devices& devices) {
  Sharing sharing{session, devices};
  for (const auto& opening : openings(session.whole)) {
    if (session.whole.regions[opening.region].process == session.process) sharing.give(opening);
    else if (opening.process == session.process) sharing.open(opening);
  }
}

void close_memory_of_others(CudaSession& session) noexcept {
  try {
    session.opened.clear();
    session.theirs.clear();
    std::erase_if(session.called,
                  [&](const auto& one) { return session.whole.regions[one.first].process != session.process; });
    // The driver must not free memory that another process has opened.
    if (session.peers && !session.peers->ended()) session.peers->meet("its memory to be closed", session.patience());
  } catch (...) {  // a process that has ended keeps nothing open
  }
}

void bring_shared_to(CudaSession& session, u32 region, std::string_view phase) {
  const auto& wanted = session.whole.regions[region];
  const auto phases = phases_of(wanted.kind);
  auto& pieces = session.called.at(region);
  const bool own = wanted.process == session.process;
  const u32 other = own ? opens_called : wanted.process;
  // Frees all before any is made again, because both may not fit at once; closed by the other process before.
  if (own) await_turn(session, other, "its memory to be closed");
  for (auto& one : pieces) one->bring_to(phases.front());
  if (!own) end_turn(session, other);
  bool owners_turn = true;
  for (std::size_t i = 0; i <= phase_index(wanted.kind, phase); ++i) {
    const bool by_owner_now = by_owner(wanted.kind, phases[i]);
    if (by_owner_now != std::exchange(owners_turn, by_owner_now)) {
      if (by_owner_now) {
        if (own) await_turn(session, other, "its memory to be closed");
        else end_turn(session, other);
      } else {
        for (auto& one : pieces) {
          if (own) give_share(session, other, *one);
          else one->receive(take_share(session, other));
        }
      }
    }
    if (by_owner_now == own && phases[i] != phase)
      for (auto& one : pieces) one->advance(phases[i]);
  }
}

}  // namespace linkscope
