// A fake NCCL on the fake driver. Ranks of one process and of several meet in shared memory: each writes its input there,
// waits for all, and computes its result. Settings: README.md.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "environment.hpp"
#include "library.hpp"

namespace {

using u32 = std::uint32_t;
using u64 = unsigned long long;
enum Status : int { success = 0, system_error = 2, invalid_argument = 4, invalid_usage = 5, remote_error = 6 };
enum Kind { all_reduce, all_gather, reduce_scatter, broadcast, reduce, messages };

#ifdef FAKE_NCCL_2_27
constexpr int own_version = 22707;
#else
constexpr int own_version = 22809;
#endif
constexpr u64 slot_bytes = 64ull << 20;  // of a file with holes: only written pages take memory

struct Header {
  std::atomic<u64> joined, arrivals;
};

struct Message {
  bool sends;
  char* at;
  u64 bytes;
  u32 peer;
};

struct Work {
  Kind kind = messages;
  const char* in = nullptr;
  char* out = nullptr;
  u64 count = 0;  // as in the call
  int type = 7, root = 0;
  std::vector<Message> list;
};

u64 bytes_of(int type) { return type == 8 ? 8 : type == 9 ? 2 : type == 7 || type == 3 ? 4 : 0; }

/// "rank:value" of a setting.
std::pair<u64, u64> rank_of(const char* name, u64 fallback) {
  const auto value = fake::text(name);
  if (value.empty()) return {~0ull, fallback};
  const auto [rank, number] = fake::with_number(name, value, fallback);
  return {fake::to_number(name, rank), number};
}

struct Comm {
  u32 rank = 0, ranks = 1;
  Header* header = nullptr;
  std::atomic<bool> aborted{false};
  std::atomic<u64> queued{0}, ended{0};
  u64 barriers = 0;

  [[nodiscard]] char* slot(u32 of) const { return reinterpret_cast<char*>(header) + 4096 + of * slot_bytes; }
  /// False after an abort.
  bool meet() {
    header->arrivals.fetch_add(1);
    const u64 wanted = ++barriers * ranks;
    for (u64 polls = 0; header->arrivals.load() < wanted; ++polls) {
      if (aborted) return false;
      if (polls < 100) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds{20});
    }
    return true;
  }
  /// Of the ranks' slots, which begin at byte `from`.
  void sum(char* out, u64 from, u64 count, int type) const {
    const auto add = [&]<class T>(T, auto load, auto store) {
      for (u64 i = 0; i < count; ++i) {
        auto total = load(slot(0) + from, i);
        for (u32 other = 1; other < ranks; ++other) total += load(slot(other) + from, i);
        store(i, total);
      }
    };
    const auto plain = [&]<class T>(T zero) {
      add(
          zero,
          [](const char* at, u64 i) {
            T value;
            std::memcpy(&value, at + i * sizeof value, sizeof value);
            return value;
          },
          [&](u64 i, T value) { std::memcpy(out + i * sizeof value, &value, sizeof value); });
    };
    if (type == 7) return plain(float{});
    if (type == 8) return plain(double{});
    if (type == 3) return plain(u32{});
    add(
        float{},
        [](const char* at, u64 i) {
          std::uint16_t bits;
          std::memcpy(&bits, at + i * sizeof bits, sizeof bits);
          return std::bit_cast<float>(u32{bits} << 16);
        },
        [&](u64 i, float value) {
          const auto bits = static_cast<std::uint16_t>(std::bit_cast<u32>(value) >> 16);
          std::memcpy(out + i * sizeof bits, &bits, sizeof bits);
        });
  }
  void put(const Work& work) const {
    if (work.kind != messages) {
      const u64 bytes = work.count * bytes_of(work.type);
      std::memcpy(slot(rank), work.in, work.kind == reduce_scatter ? bytes * ranks : bytes);
      return;
    }
    u64 at = 0;  // the k-th message to a peer is the k-th from here in its order: messages lie one after another
    for (const auto& message : work.list) {
      if (!message.sends) continue;
      const std::array<u64, 2> head{message.peer, message.bytes};
      std::memcpy(slot(rank) + at, head.data(), sizeof head);
      std::memcpy(slot(rank) + at + sizeof head, message.at, message.bytes);
      at += sizeof head + message.bytes;
    }
    const std::array<u64, 2> end{~0ull, 0};
    std::memcpy(slot(rank) + at, end.data(), sizeof end);
  }
  void receive(const Message& message) const {
    const char* at = slot(message.peer);
    for (;;) {
      std::array<u64, 2> head{};
      std::memcpy(head.data(), at, sizeof head);
      if (head[0] == ~0ull) return;
      if (head[0] == rank) std::memcpy(message.at, at + sizeof head, std::min(head[1], message.bytes));
      at += sizeof head + head[1];
    }
  }
  void take(const Work& work, bool damaged) const {
    const u64 bytes = work.count * bytes_of(work.type);
    if (work.kind == all_reduce || (work.kind == reduce && rank == static_cast<u32>(work.root)))
      sum(work.out, 0, work.count, work.type);
    if (work.kind == reduce_scatter) sum(work.out, rank * bytes, work.count, work.type);
    if (work.kind == broadcast) std::memmove(work.out, slot(static_cast<u32>(work.root)), bytes);
    if (work.kind == all_gather)
      for (u32 other = 0; other < ranks; ++other) std::memcpy(work.out + other * bytes, slot(other), bytes);
    for (const auto& message : work.list)
      if (!message.sends) receive(message);
    if ((damaged || fake::flag("FAKE_NCCL_WRONG")) && work.out && bytes)
      work.out[0] = static_cast<char>(work.out[0] ^ 0x40);
  }
  void run(const Work& work, bool damaged) {
    const auto [hung, from] = rank_of("FAKE_NCCL_HANG", 0);
    const auto [slow, us] = rank_of("FAKE_NCCL_SLOW", 100);
    if (rank == hung && ended >= from)
      while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    if (aborted) return;
    put(work);
    if (!meet()) return;
    take(work, damaged);
    if (!meet()) return;
    // It is late at the end: the others have gone on.
    if (rank == slow) std::this_thread::sleep_for(std::chrono::microseconds{us});
  }
};

struct Group {
  int depth = 0;
  std::vector<Comm*> meeting;
  std::vector<std::tuple<Comm*, CUstream, Work>> works;
};
thread_local Group group;

int submit(Comm* comm, CUstream stream, Work work) {
  if (comm->aborted) return invalid_usage;
  u64 sent = sizeof(std::array<u64, 2>);  // each message has a head, and the last one an end
  for (const auto& message : work.list)
    if (message.sends) sent += sizeof(std::array<u64, 2>) + message.bytes;
  if (sent > slot_bytes) return invalid_argument;
  comm->queued.fetch_add(1);
  const bool queued = fake_library::submit(stream, [comm, work = std::move(work)](bool damaged) {
    comm->run(work, damaged);
    comm->ended.fetch_add(1);
  });
  return queued ? success : system_error;
}

void wait_for_all(const Comm& comm) {
  while (comm.header->joined.load() < comm.ranks) std::this_thread::sleep_for(std::chrono::milliseconds{1});
}

/// FAKE_NCCL_FAIL=function:number: it fails after that number of calls.
bool fails(const char* function) {
  const auto wanted = fake::with_number("FAKE_NCCL_FAIL", fake::text("FAKE_NCCL_FAIL"), 0);
  static std::atomic<u64> calls{0};
  return wanted.first == function && calls.fetch_add(1) >= wanted.second;
}

int call(const char* function, void* comm, CUstream stream, Work work) {
  if (fails(function)) return system_error;
  if (!comm || bytes_of(work.type) == 0) return invalid_argument;
  auto* of = static_cast<Comm*>(comm);
  if (work.count * bytes_of(work.type) * of->ranks > slot_bytes) return invalid_argument;
  if (group.depth == 0) return submit(of, stream, std::move(work));
  if (work.kind == messages)
    for (auto& [other, its_stream, its_work] : group.works)
      if (other == of && its_work.kind == messages) {
        its_work.list.insert(its_work.list.end(), work.list.begin(), work.list.end());
        return success;
      }
  group.works.emplace_back(of, stream, std::move(work));
  return success;
}

}  // namespace

FAKE_EXPORT int ncclGetVersion(int* version) {
  *version = static_cast<int>(fake::number("FAKE_NCCL_VERSION", own_version));
  return success;
}

FAKE_EXPORT const char* ncclGetErrorString(int status) {
  return status == success ? "no error" : status == remote_error ? "remote process exited" : "unhandled system error";
}

FAKE_EXPORT const char* ncclGetLastError(void*) { return "a test wants it"; }

FAKE_EXPORT int ncclGetUniqueId(std::array<char, 128>* id) {
  // Random: the numbers of processes come again, and memory of killed ranks stays. Ranks that found the counts of
  // earlier ones there would not wait for each other.
  std::random_device random;
  id->fill(0);
  std::snprintf(id->data(), id->size(), "/fake-nccl-%08x%08x%08x%08x", random(), random(), random(), random());
  return success;
}

FAKE_EXPORT int ncclCommInitRank(void** into, int ranks, std::array<char, 128> id, int rank) {
  if (fails("ncclCommInitRank")) return system_error;
  if (fake::text("NCCL_NVLS_ENABLE") != "0") return invalid_usage;  // the fake has no multicast
  const u64 bytes = 4096 + static_cast<u64>(ranks) * slot_bytes;
  const int file = shm_open(id.data(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return system_error;
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (map == MAP_FAILED) return system_error;
  auto* comm = new Comm;  // never freed: work may still end after an abort
  comm->rank = static_cast<u32>(rank);
  comm->ranks = static_cast<u32>(ranks);
  comm->header = static_cast<Header*>(map);
  // The last one removes the name. The memory lives as long as a rank maps it.
  if (comm->header->joined.fetch_add(1) + 1 == comm->ranks) shm_unlink(id.data());
  *into = comm;
  group.meeting.push_back(comm);
  if (group.depth > 0) return success;
  wait_for_all(*comm);
  group.meeting.clear();
  return success;
}

FAKE_EXPORT int ncclGroupStart() {
  ++group.depth;
  return success;
}

FAKE_EXPORT int ncclGroupEnd() {
  if (group.depth == 0) return invalid_usage;
  if (--group.depth > 0) return success;
  for (Comm* comm : group.meeting) wait_for_all(*comm);
  group.meeting.clear();
  int status = success;
  for (auto& [comm, stream, work] : group.works)
    if (const int one = submit(comm, stream, std::move(work)); one != success) status = one;
  group.works.clear();
  return status;
}

FAKE_EXPORT int ncclCommDestroy(void* comm) {
  auto* of = static_cast<Comm*>(comm);
  while (of->ended.load() < of->queued.load()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  return success;
}

FAKE_EXPORT int ncclCommAbort(void* comm) {
  static_cast<Comm*>(comm)->aborted = true;
  return ncclCommDestroy(comm);
}

FAKE_EXPORT int ncclCommGetAsyncError(void* comm, int* error) {
  const auto noticed = rank_of("FAKE_NCCL_NOTICE", 0).first;
  *error = static_cast<Comm*>(comm)->rank == noticed ? remote_error : success;
  return success;
}

FAKE_EXPORT int ncclAllReduce(const char* in, char* out, std::size_t count, int type, int, void* comm,
                              CUstream stream) {
  return call("ncclAllReduce", comm, stream, {all_reduce, in, out, count, type, 0, {}});
}

FAKE_EXPORT int ncclReduceScatter(const char* in, char* out, std::size_t count, int type, int, void* comm,
                                  CUstream stream) {
  return call("ncclReduceScatter", comm, stream, {reduce_scatter, in, out, count, type, 0, {}});
}

FAKE_EXPORT int ncclAllGather(const char* in, char* out, std::size_t count, int type, void* comm, CUstream stream) {
  return call("ncclAllGather", comm, stream, {all_gather, in, out, count, type, 0, {}});
}

#ifndef FAKE_NCCL_2_27
FAKE_EXPORT int ncclAlltoAll(char* in, char* out, std::size_t count, int type, void* comm, CUstream stream) {
  const u64 bytes = count * bytes_of(type);
  Work work{messages, nullptr, nullptr, 0, type, 0, {}};
  for (u32 other = 0; comm && other < static_cast<Comm*>(comm)->ranks; ++other) {
    work.list.push_back({true, in + other * bytes, bytes, other});
    work.list.push_back({false, out + other * bytes, bytes, other});
  }
  return call("ncclAlltoAll", comm, stream, std::move(work));
}
#endif

FAKE_EXPORT int ncclBroadcast(const char* in, char* out, std::size_t count, int type, int root, void* comm,
                              CUstream stream) {
  return call("ncclBroadcast", comm, stream, {broadcast, in, out, count, type, root, {}});
}

FAKE_EXPORT int ncclReduce(const char* in, char* out, std::size_t count, int type, int, int root, void* comm,
                           CUstream stream) {
  return call("ncclReduce", comm, stream, {reduce, in, out, count, type, root, {}});
}

FAKE_EXPORT int ncclSend(char* at, std::size_t count, int type, int peer, void* comm, CUstream stream) {
  return call("ncclSend", comm, stream,
              {messages, nullptr, nullptr, 0, type, 0, {{true, at, count * bytes_of(type), static_cast<u32>(peer)}}});
}

FAKE_EXPORT int ncclRecv(char* at, std::size_t count, int type, int peer, void* comm, CUstream stream) {
  return call("ncclRecv", comm, stream,
              {messages, nullptr, nullptr, 0, type, 0, {{false, at, count * bytes_of(type), static_cast<u32>(peer)}}});
}
