// NCCL, loaded at run time. Its functions and constants are declared here from its documentation.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace linkscope {

/// A library to try, by path or by a name that the loader finds, and how it was found.
struct NcclSource {
  std::string name, found;
};

struct NcclFacts {
  std::string version;  // such as "2.28.9"
  std::string path;     // of the loaded file
  std::string found;
  std::string nvls;     // NCCL_NVLS_ENABLE, and who set it
  std::string why_not;  // why no library can be used, with the cure; "" if one can
};

using NcclComm = void*;
/// What the ranks of a group share before they meet (ncclUniqueId).
struct NcclId {
  std::array<char, 128> bytes{};
};

struct NcclCalls {
  using ToAll = int (*)(const void* in, void* out, std::size_t, int type, NcclComm, void* stream);
  using Adding = int (*)(const void* in, void* out, std::size_t, int type, int op, NcclComm, void* stream);
  int (*version)(int*) = nullptr;
  int (*unique_id)(NcclId*) = nullptr;
  int (*init_rank)(NcclComm*, int ranks, NcclId, int rank) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  int (*abort)(NcclComm) = nullptr;
  int (*async_error)(NcclComm, int*) = nullptr;
  const char* (*error_text)(int) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;  // null: the library is older than 2.13
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  Adding all_reduce = nullptr, reduce_scatter = nullptr;
  ToAll all_gather = nullptr;
  ToAll all_to_all = nullptr;  // null: the library is older than 2.28
  int (*broadcast)(const void* in, void* out, std::size_t, int type, int root, NcclComm, void* stream) = nullptr;
  int (*reduce)(const void* in, void* out, std::size_t, int type, int op, int root, NcclComm, void* stream) = nullptr;
  int (*send)(const void*, std::size_t, int type, int peer, NcclComm, void* stream) = nullptr;
  int (*receive)(void*, std::size_t, int type, int peer, NcclComm, void* stream) = nullptr;
};

class Nccl {
 public:
  /// Loads the first library that can be used. Sets NCCL_NVLS_ENABLE=0 unless the variable is set: NVLink multicast
  /// stays off. Never throws: facts() says why there is none.
  explicit Nccl(const std::vector<NcclSource>&);

  [[nodiscard]] const NcclFacts& facts() const { return facts_; }
  /// Only if there is a library.
  [[nodiscard]] const NcclCalls& calls() const { return calls_; }
  /// Throws Error{failed} with the library's text for a status other than success. `comm`: null if there is none.
  void check(int status, const char* call, NcclComm comm = nullptr) const;
  /// A new id. Throws Error{failed}.
  [[nodiscard]] NcclId new_id() const;

 private:
  [[nodiscard]] std::string why_not(const NcclSource&);
  NcclFacts facts_;
  NcclCalls calls_;
};

/// 2.10.0, the first version with bf16, as NCCL counts: versions have five digits since 2.9.
inline constexpr int least_nccl = 21000;
[[nodiscard]] std::string nccl_version_text(int version);

}  // namespace linkscope
