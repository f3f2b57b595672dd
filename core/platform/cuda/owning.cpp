// The process that owns memory: its answers to requests. The requesting process is the only other end of its socket.
// Invalid requests are refused all the same, because a missing piece would end this process and everything it owns.
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>

#include "base/error.hpp"
#include "gpu/device.hpp"
#include "gpu/ipc.hpp"
#include "gpu/memory.hpp"
#include "gpu/vmm.hpp"
#include "host/shared_pages.hpp"
#include "host/topology.hpp"
#include "platform/cuda/device_code.hpp"
#include "platform/cuda/flags.hpp"
#include "platform/cuda/owner.hpp"
#include "platform/cuda/owner_messages.hpp"

namespace linkscope {
namespace {

Seconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

class Owning {
 public:
  /// Fills the answer; returns the descriptor that goes with it, or -1. A request may bring a descriptor.
  int answer(const OwnerRequest& request, const Descriptor& came, OwnerAnswer& answer) {
    switch (request.op) {
      case OwnerOp::allocate:
        return allocate(request, answer);
      case OwnerOp::share:
        return share(piece(request.piece), answer);
      case OwnerOp::touch:
        return touch(piece(request.piece), answer);
      case OwnerOp::look:
        return look(request, answer);
      case OwnerOp::free:
        return free(request, answer);
      case OwnerOp::exchange:
        return exchange(request, answer);
      case OwnerOp::open:
        return open(request, came, answer);
    }
    throw Error{ErrorKind::usage, "there is no request " + std::to_string(static_cast<u32>(request.op))};
  }

 private:
  struct Piece {
    MemKind kind = MemKind::ipc;
    Device* device = nullptr;  // the GPU that has or opened it
    u64 bytes = 0;
    DeviceMemory memory{};                // ipc
    std::unique_ptr<IpcOpened> opened{};  // ipc, memory of the other process
    PhysicalMemory physical{};            // posix_fd
    std::unique_ptr<Mapping> mapping{};   // posix_fd, after it was looked at or its words were set
    Descriptor descriptor{};              // posix_fd, the last descriptor that was sent
    SharedPages pages{};                  // shm
  };

  Piece& piece(u64 number) {
    const auto found = pieces_.find(number);
    if (found == pieces_.end()) throw Error{ErrorKind::usage, "there is no piece " + std::to_string(number)};
    return found->second;
  }

  Device& device(const OwnerRequest& request) {
    if (!driver_) {
      driver_ = std::make_unique<Driver>();
      if (!driver_->usable()) throw Error{ErrorKind::failed, driver_->why_not()};
      for (auto& facts : list_devices(*driver_)) gpus_.emplace(facts.uuid, facts);
    }
    const std::string name{request.gpu, strnlen(request.gpu, sizeof request.gpu)};
    const auto found = gpus_.find(name);
    if (found == gpus_.end()) throw Error{ErrorKind::usage, "there is no GPU '" + name + "'"};
    auto& device = devices_[name];
    if (!device) device = std::make_unique<Device>(*driver_, found->second, embedded_code());
    device->use();
    return *device;
  }

  /// Does one timed call.
  template <class Call>
  static void timed(OwnerAnswer& answer, Call call) {
    const Seconds start = now();
    call();
    answer.seconds = (now() - start).count();
    answer.enter_s = start.count();
  }

  int allocate(const OwnerRequest& request, OwnerAnswer& answer) {
    Piece made{.kind = static_cast<MemKind>(request.kind), .bytes = request.bytes};
    if (request.kind >= mem_kinds().size() || !is_shared(made.kind))
      throw Error{ErrorKind::usage, "memory kind " + std::to_string(request.kind) + " is not shared"};
    if (request.bytes == 0) throw Error{ErrorKind::usage, "a piece of 0 bytes"};
    if (made.kind == MemKind::shm) {
      if (request.node >= host_nodes().size())
        throw Error{ErrorKind::usage, "there is no NUMA node " + std::to_string(request.node)};
      timed(answer, [&] { made.pages = SharedPages{request.node, request.bytes}; });
    } else {
      made.device = &device(request);
      if (request.bytes > made.device->facts().memory_bytes)
        throw Error{ErrorKind::memory, bytes_text(request.bytes) + " are more than the GPU has"};
      if (made.kind == MemKind::ipc) {
        made.bytes = whole_blocks(made.bytes);
        timed(answer, [&] { made.memory = {*driver_, made.bytes}; });
      } else {
        const auto prop = exportable_on(made.device->facts().handle);
        timed(answer, [&] {
          made.bytes = whole_granules(*driver_, prop, made.bytes);
          made.physical = {*driver_, prop, made.bytes};
        });
      }
    }
    return keep(std::move(made), answer).pages.descriptor().get();
  }

  Piece& keep(Piece&& made, OwnerAnswer& answer) {
    answer.piece = ++made_;
    answer.bytes = made.bytes;
    return pieces_.emplace(answer.piece, std::move(made)).first->second;
  }

  /// Memory of the other process; its descriptor may be closed after the import.
  int open(const OwnerRequest& request, const Descriptor& came, OwnerAnswer& answer) {
    Piece made{.kind = static_cast<MemKind>(request.kind), .bytes = request.bytes};
    if (request.kind >= mem_kinds().size() || !is_shared(made.kind) || !is_gpu_memory(made.kind))
      throw Error{ErrorKind::usage, "memory kind " + std::to_string(request.kind) + " is opened by no GPU"};
    if (request.bytes == 0) throw Error{ErrorKind::usage, "a piece of 0 bytes"};
    made.device = &device(request);
    timed(answer, [&] {
      if (made.kind == MemKind::ipc) made.opened = std::make_unique<IpcOpened>(*driver_, *made.device, request.handle);
      else made.physical = {*driver_, came};
    });
    (void)keep(std::move(made), answer);
    return -1;
  }

  int share(Piece& piece, OwnerAnswer& answer) {
    if (piece.kind == MemKind::shm) throw Error{ErrorKind::usage, "host memory came with its descriptor"};
    if (piece.opened) throw Error{ErrorKind::usage, "it is the other process's to share"};
    piece.device->use();
    if (piece.kind == MemKind::ipc) {
      timed(answer, [&] { answer.handle = ipc_handle(*driver_, piece.memory.address()); });
      return -1;
    }
    Descriptor exported;
    timed(answer, [&] { exported = piece.physical.exported(); });
    piece.descriptor = std::move(exported);
    return piece.descriptor.get();
  }

  static int touch(Piece& piece, OwnerAnswer& answer) {
    if (piece.kind != MemKind::shm) throw Error{ErrorKind::usage, "the process that opens a GPU's memory touches it"};
    timed(answer, [&] { piece.pages.touch(); });
    return -1;
  }

  static void check_word(const Piece& piece, u64 offset) {
    if (piece.bytes < sizeof(u64) || offset > piece.bytes - sizeof(u64) || offset % sizeof(u64))
      throw Error{ErrorKind::usage,
                  "there is no word at byte " + std::to_string(offset) + " of " + bytes_text(piece.bytes)};
  }

  int exchange(const OwnerRequest& request, OwnerAnswer& answer) {
    const auto& words = request.exchange;
    Piece &set = piece(words.set_piece), &wait = piece(words.wait_piece);
    check_word(set, words.set_offset);
    check_word(wait, words.wait_offset);
    if (request.gpu[0]) exchange_by(device(request), set, wait, words, answer);
    else exchange_by_cpu(set, wait, words, answer);
    return -1;
  }

  static void exchange_by_cpu(Piece& set, Piece& wait, const OwnerExchange& words, OwnerAnswer& answer) {
    if (set.kind != MemKind::shm || wait.kind != MemKind::shm)
      throw Error{ErrorKind::usage, "a CPU thread sets words and waits for them in host memory"};
    if (words.node >= host_nodes().size())
      throw Error{ErrorKind::usage, "there is no NUMA node " + std::to_string(words.node)};
    bind_thread_to_node(words.node);
    const auto word = [](Piece& piece, u64 offset) { return reinterpret_cast<u64*>(piece.pages.data() + offset); };
    timed(answer, [&] {
      const auto in_vain = exchange_words(word(set, words.set_offset), word(wait, words.wait_offset), words.loop);
      answer.in_vain = in_vain.has_value();
      answer.word = in_vain.value_or(0);
    });
  }

  void exchange_by(Device& by, Piece& set, Piece& wait, const OwnerExchange& words, OwnerAnswer& answer) {
    if (set.device != &by || wait.device != &by)
      throw Error{ErrorKind::usage,
                  "a GPU's thread sets words and waits for them in memory that its GPU has or has opened"};
    by.use();
    (void)block_code(by);
    const auto& stream = by.stream(0);
    const CUdeviceptr result = by.result(first_actor_result), to = address(set) + words.set_offset,
                      from = address(wait) + words.wait_offset;
    LINKSCOPE_CU(*driver_, cuMemsetD8Async, result, 0, 2 * sizeof(u64), stream.get());
    stream.synchronize();
    timed(answer, [&] {
      queue_block(by, stream.get(), {ops_of(to, from, words.loop), 0, words.loop.count, 1, result});
      stream.synchronize();
    });
    WaitedInVain in_vain = 0;
    LINKSCOPE_CU(*driver_, cuMemcpyDtoH, &in_vain, result + sizeof(u64), sizeof in_vain);
    answer.in_vain = in_vain != 0;
    answer.word = value_in_vain(words.loop, in_vain).value_or(0);
  }

  /// The address of GPU memory for the GPU that has or opened it.
  CUdeviceptr address(Piece& piece) {
    if (piece.opened) return piece.opened->address();
    if (piece.kind == MemKind::ipc) return piece.memory.address();
    if (!piece.mapping)
      piece.mapping = std::make_unique<Mapping>(*driver_, piece.physical, piece.bytes, piece.device->facts().handle);
    return piece.mapping->address();
  }

  int look(const OwnerRequest& request, OwnerAnswer& answer) {
    Piece& seen = piece(request.piece);
    check_word(seen, request.offset);
    if (seen.kind == MemKind::shm) {
      std::memcpy(&answer.word, seen.pages.data() + request.offset, sizeof answer.word);
      return -1;
    }
    seen.device->use();
    LINKSCOPE_CU(*driver_, cuMemcpyDtoH, &answer.word, address(seen) + request.offset, sizeof answer.word);
    return -1;
  }

  int free(const OwnerRequest& request, OwnerAnswer& answer) {
    Piece& gone = piece(request.piece);
    if (gone.device) gone.device->use();
    if (gone.mapping) gone.mapping->unmap();
    timed(answer, [&] {
      if (gone.opened) gone.opened->close();
      gone.memory.free();
      gone.physical.release();
      gone.pages = SharedPages{};
    });
    pieces_.erase(request.piece);
    return -1;
  }

  std::unique_ptr<Driver> driver_;  // opened when a GPU is first named
  std::map<std::string, DeviceFacts> gpus_;
  std::map<std::string, std::unique_ptr<Device>> devices_;
  std::map<u64, Piece> pieces_;
  u64 made_ = 0;
};

void tell(OwnerAnswer& answer, ErrorKind kind, const char* message) {
  answer = {};
  answer.failed = 1 + static_cast<u32>(kind);
  std::strncpy(answer.message, message, sizeof answer.message - 1);
}

}  // namespace

void own_memory(int socket) {
  Owning owning;
  Descriptor came;
  for (OwnerRequest request; take_message(socket, &request, sizeof request, came);) {
    OwnerAnswer answer;
    int descriptor = -1;
    try {
      descriptor = owning.answer(request, came, answer);
    } catch (const Error& error) {
      tell(answer, error.kind(), error.what());
    } catch (const std::exception& error) {
      tell(answer, ErrorKind::failed, error.what());
    }
    if (!give_message(socket, &answer, sizeof answer, descriptor)) break;
  }
  // Its memory ends with it: the driver frees it, even if calls to do so would hang.
  _exit(0);
}

}  // namespace linkscope
