// The functions of an MPI library that are used, with the constants of its binary interface. Handles are numbers (MPICH and
// its kin) or addresses (Open MPI, and the standard interface of MPI 5).
#pragma once
#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/collective.hpp"
#include "base/error.hpp"
#include "base/rank_post.hpp"
#include "base/units.hpp"

namespace linkscope {

/// A rank's part of a collective. Iteration i has the bytes at in + i % slices * in_stride, and likewise the result.
struct MpiCollective {
  CollectiveKind kind{};
  NumberType type{};
  std::byte *in = nullptr, *out = nullptr;
  u64 in_bytes = 0, out_bytes = 0, in_stride = 0, out_stride = 0, slices = 1;
  bool in_place = false, is_root = false;
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
  int (*all_reduce)(const void*, void*, int, Handle, Handle, Handle) = nullptr;
  int (*all_gather)(const void*, int, Handle, void*, int, Handle, Handle) = nullptr;
  int (*reduce_scatter)(const void*, void*, int, Handle, Handle, Handle) = nullptr;
  int (*reduce)(const void*, void*, int, Handle, Handle, int, Handle) = nullptr;
  int (*all_to_all)(const void*, int, Handle, void*, int, Handle, Handle) = nullptr;
  int (*send)(const void*, int, Handle, int, int, Handle) = nullptr;
  int (*receive)(void*, int, Handle, int, int, Handle, void* status) = nullptr;
  Message start_send = nullptr, start_receive = nullptr;
  int (*wait_all)(int, Handle*, void* statuses) = nullptr;
  int (*error_text)(int, char*, int*) = nullptr;
  int (*gpu_support)() = nullptr;  // null: the library has no such question
  Handle world{}, byte{}, errors_return{}, sum{}, float32{}, float64{}, unsigned32{};
  const void* in_place = nullptr;
  void* no_status = nullptr;
  int serialized = 0;              // MPI_THREAD_SERIALIZED
  std::deque<Handle> under_way{};  // sends, the oldest first

  void check(int status, const char* call) const {
    if (status == 0) return;
    char text[8192] = "";
    int length = 0;
    (void)error_text(status, text, &length);
    throw Error{ErrorKind::failed, std::string{call} + ": " + text};
  }
  void send_one(const RankPost& post, u64 iteration) const {
    check(send(post.at(iteration), static_cast<int>(post.bytes), byte, static_cast<int>(post.peer), 0, world),
          "MPI_Send");
  }
  void receive_one(const RankPost& post, u64 iteration) const {
    check(receive(post.at(iteration), static_cast<int>(post.bytes), byte, static_cast<int>(post.peer), 0, world,
                  no_status),
          "MPI_Recv");
  }
  void exchange(std::span<const RankPost> posts, u64 first, u64 count) const {
    for (u64 i = first; i < first + count; ++i)
      for (const auto& post : posts) {
        if (post.sends) send_one(post, i);
        else receive_one(post, i);
      }
  }
  void exchange_in_windows(std::span<const RankPost> posts, u32 window, u64 first, u64 count) const {
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
      for (const bool sends : {false, true})  // in a ring of ranks each answers before it waits for its own answer
        for (const auto& post : posts)
          if (post.sends == sends && !is_bidirectional(posts, post)) answer(post);
    }
  }
  void send_ahead(const RankPost& post, u64 iteration, u32 ahead) {
    check(start_send(post.at(iteration), static_cast<int>(post.bytes), byte, static_cast<int>(post.peer), 0, world,
                     &under_way.emplace_back()),
          "MPI_Isend");
    finish_sends(ahead);
  }
  void finish_sends(u32 most) {
    for (; under_way.size() > most; under_way.pop_front())
      check(wait_all(1, &under_way.front(), no_status), "MPI_Waitall");
  }
  void run(const MpiCollective& of, int size, u64 iteration) const {
    const u64 slice = iteration % of.slices, each = bytes_of(of.type);
    std::byte *in = of.in + slice * of.in_stride, *out = of.out + slice * of.out_stride;
    const Handle type = of.type == NumberType::f64 ? float64 : of.type == NumberType::f32 ? float32 : unsigned32;
    const int in_count = static_cast<int>(of.in_bytes / each), out_count = static_cast<int>(of.out_bytes / each);
    const bool reduces = of.kind == CollectiveKind::reduce;
    const void* from = of.in_place && (!reduces || of.is_root) ? in_place : in;
    std::byte* to = reduces && !of.is_root ? nullptr : out;
    switch (of.kind) {
      case CollectiveKind::all_reduce:
        return check(all_reduce(from, to, in_count, type, sum, world), "MPI_Allreduce");
      case CollectiveKind::all_gather:
        return check(all_gather(from, in_count, type, to, in_count, type, world), "MPI_Allgather");
      case CollectiveKind::reduce_scatter:
        return check(reduce_scatter(from, to, out_count, type, sum, world), "MPI_Reduce_scatter_block");
      case CollectiveKind::broadcast:
        return check(bcast(in, in_count, type, 0, world), "MPI_Bcast");
      case CollectiveKind::reduce:
        return check(reduce(from, to, in_count, type, sum, 0, world), "MPI_Reduce");
      case CollectiveKind::all_to_all:
        return check(all_to_all(from, in_count / size, type, to, in_count / size, type, world), "MPI_Alltoall");
      case CollectiveKind::send_receive:
        break;
    }
  }
  /// The receiver of a window tells the sender that all of it has come, so that messages do not pile up.
  void answer(const RankPost& post) const {
    constexpr int tag = 1;
    const int peer = static_cast<int>(post.peer);
    if (post.sends) check(receive(nullptr, 0, byte, peer, tag, world, no_status), "MPI_Recv");
    else check(send(nullptr, 0, byte, peer, tag, world), "MPI_Send");
  }
};

}  // namespace linkscope
