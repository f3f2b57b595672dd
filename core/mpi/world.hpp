// MPI as this process knows it: a library that is loaded at run time, and this process's place among the ranks that a
// launcher started. A process initializes MPI once.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mpi/binding.hpp"

namespace linkscope {

struct MpiFacts {
  u32 rank = 0, size = 1;
  std::string library;        // as it names itself, first line
  std::string standard;       // version of the standard, such as "4.1"
  std::string path;           // of the loaded file
  std::string why_not_gpu{};  // why buffers of GPUs cannot be passed to it; "" if they can
};

class MpiWorld {
 public:
  /// Loads a library, by its path or by a name that the loader finds, and initializes it, which waits for all ranks.
  /// Throws Error{unsupported} if it cannot be loaded or has an unknown binary interface.
  explicit MpiWorld(const std::string& library);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  [[nodiscard]] const MpiFacts& facts() const;

  // These throw Error{failed} with the library's text. None has a time-out: the worker's parent watches.

  /// The texts of all ranks, in order of rank. All ranks call this.
  [[nodiscard]] std::vector<std::string> share(const std::string& text);
  /// Messages of `count` iterations from `first`, each of which has all posts in order. `window`: messages under way
  /// (RankMessage); 0: blocking calls.
  void exchange(std::span<const RankPost>, u32 window, u64 first, u64 count) const;
  /// Starts a send of an iteration, and waits until no more than `ahead` of those that were started are under way.
  void send_ahead(const RankPost&, u64 iteration, u32 ahead) const;
  /// Waits until no more than `most` sends are under way.
  void finish_sends(u32 most) const;
  /// `count` iterations of a collective from `first`. All ranks call this.
  void run(const MpiCollective&, u64 first, u64 count) const;
  /// Leaves MPI. All ranks call this.
  void end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The largest message, in bytes: a count of MPI is an int.
inline constexpr u64 most_mpi_bytes = (u64{1} << 31) - 1;

}  // namespace linkscope
