// The functions of an MPI library that are used, with the constants of its binary interface. Handles are numbers (MPICH and
// its kin) or addresses (Open MPI, and the standard interface of MPI 5).
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"

namespace linkscope {

/// A message of a rank's loop. Iteration i has the `bytes` at start + i % slices * stride.
struct MpiPost {
  bool sends = false;
  u32 peer = 0;
  std::byte* start = nullptr;
  u64 bytes = 0, stride = 0, slices = 1;

  [[nodiscard]] std::byte* at(u64 iteration) const { return slices <= 1 ? start : start + iteration % slices * stride; }
};

template <class Handle>
struct MpiBinding {
  using Message = int (*)(void*, int, Handle, int, int, Handle, Handle*);  // MPI_Isend, MPI_Irecv
  int (*init_thread)(int*, char***, int, int*) = nullptr;
  int (*finalize)() = nullptr;
  int (*set_errhandler)(Handle, Handle) = nullptr;
  int (*rank)(Handle, int*) = nullptr;
  int (*size)(Handle, int*) = nullptr;
  int (*version)(int*, int*) = nullptr;
  int (*bcast)(void*, int, Handle, int, Handle) = nullptr;
  int (*send)(const void*, int, Handle, int, int, Handle) = nullptr;
  int (*receive)(void*, int, Handle, int, int, Handle, void* status) = nullptr;
  Message start_send = nullptr, start_receive = nullptr;
  int (*wait_all)(int, Handle*, void* statuses) = nullptr;
  int (*error_text)(int, char*, int*) = nullptr;
  int (*gpu_support)() = nullptr;  // null: the library has no such question
  Handle world{}, byte{}, errors_return{};
  void* no_status = nullptr;
  int serialized = 0;  // MPI_THREAD_SERIALIZED

  void check(int status, const char* call) const {
    if (status == 0) return;
    char text[8192] = "";
    int length = 0;
    (void)error_text(status, text, &length);
    throw Error{ErrorKind::failed, std::string{call} + ": " + text};
  }
  void send_one(const MpiPost& post, u64 iteration) const {
    check(send(post.at(iteration), static_cast<int>(post.bytes), byte, static_cast<int>(post.peer), 0, world),
          "MPI_Send");
  }
  void receive_one(const MpiPost& post, u64 iteration) const {
    check(receive(post.at(iteration), static_cast<int>(post.bytes), byte, static_cast<int>(post.peer), 0, world,
                  no_status),
          "MPI_Recv");
  }
  void exchange(std::span<const MpiPost> posts, u64 first, u64 count) const {
    for (u64 i = first; i < first + count; ++i)
      for (const auto& post : posts) {
        if (post.sends) send_one(post, i);
        else receive_one(post, i);
      }
  }
  void exchange_in_windows(std::span<const MpiPost> posts, u32 window, u64 first, u64 count) const {
    std::vector<Handle> under_way;
    under_way.reserve(posts.size() * window);
    for (u64 i = 0; i < count; ++i) {
      for (const auto& post : posts) {
        const auto start = post.sends ? start_send : start_receive;
        check(start(post.at(first + i), static_cast<int>(post.bytes), byte, static_cast<int>(post.peer), 0, world,
                    &under_way.emplace_back()),
              post.sends ? "MPI_Isend" : "MPI_Irecv");
      }
      if ((i + 1) % window != 0 && i + 1 != count) continue;
      check(wait_all(static_cast<int>(under_way.size()), under_way.data(), no_status), "MPI_Waitall");
      under_way.clear();
      if (posts.size() == 1) answer(posts.front());
    }
  }
  /// The receiver of a window tells the sender that all of it has come, so that messages do not pile up.
  void answer(const MpiPost& post) const {
    constexpr int tag = 1;
    const int peer = static_cast<int>(post.peer);
    if (post.sends) check(receive(nullptr, 0, byte, peer, tag, world, no_status), "MPI_Recv");
    else check(send(nullptr, 0, byte, peer, tag, world), "MPI_Send");
  }
};

}  // namespace linkscope
