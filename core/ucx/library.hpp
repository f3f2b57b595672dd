// UCX, loaded at run time. Its functions, structures and constants are declared here from its documentation.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace linkscope {

/// A library to try, by path or by a name that the loader finds, and how it was found.
struct UcxSource {
  std::string name, found;
};

struct UcxFacts {
  std::string version;  // such as "1.22.0"
  std::string path;     // of the loaded file
  std::string found;
  std::string why_not;  // why no library can be used, with the cure; "" if one can
};

/// Leading fields of UCX's structures; `mask` says which of them are set. The padding has the size of the whole.
struct UcxParams {
  u64 mask, features;
  char rest[128];
};
struct UcxWorkerParams {
  u64 mask;
  int thread_mode;
  char rest[240];
};
struct UcxEndpointParams {
  u64 mask;
  const void* address;
  char rest[128];
};
struct UcxContextFacts {
  u64 mask;
  std::size_t request_size;
  int thread_mode;
  u64 memory_types;
  char rest[96];
};
struct UcxRequestParams {
  u32 mask;
  char before[44];
  int memory_type;
  char rest[92];
};
static_assert(offsetof(UcxRequestParams, memory_type) == 48 && sizeof(UcxRequestParams) == 144);

struct UcxCalls {
  void (*version)(unsigned*, unsigned*, unsigned*) = nullptr;
  int (*read_config)(const char*, const char*, void** config) = nullptr;
  void (*release_config)(void* config) = nullptr;
  int (*init)(unsigned, unsigned, const UcxParams*, const void* config, void** context) = nullptr;
  void (*clean_up)(void* context) = nullptr;
  int (*query)(void* context, UcxContextFacts*) = nullptr;
  int (*make_worker)(void* context, const UcxWorkerParams*, void** worker) = nullptr;
  void (*end_worker)(void* worker) = nullptr;
  int (*address)(void* worker, void** address, std::size_t* bytes) = nullptr;
  void (*release_address)(void* worker, void* address) = nullptr;
  int (*make_endpoint)(void* worker, const UcxEndpointParams*, void** endpoint) = nullptr;
  void* (*send)(void* endpoint, const void*, std::size_t, u64 tag, const UcxRequestParams*) = nullptr;
  void* (*receive)(void* worker, void*, std::size_t, u64 tag, u64 mask, const UcxRequestParams*) = nullptr;
  unsigned (*progress)(void* worker) = nullptr;
  int (*state)(void* request) = nullptr;
  void (*release)(void* request) = nullptr;
  const char* (*error_text)(int) = nullptr;
};

class Ucx {
 public:
  /// Loads the first library that can be used. Never throws: facts() says why there is none.
  explicit Ucx(const std::vector<UcxSource>&);

  [[nodiscard]] const UcxFacts& facts() const { return facts_; }
  /// Only if there is a library.
  [[nodiscard]] const UcxCalls& calls() const { return calls_; }
  /// Why the library has no CUDA, which it said of itself: its module is missing, is left out, or finds no driver.
  [[nodiscard]] std::string why_no_cuda() const;
  /// Throws Error{failed} with the library's text for a status other than success.
  void check(int status, const char* call) const;

 private:
  [[nodiscard]] std::string why_not(const UcxSource&);
  UcxFacts facts_;
  UcxCalls calls_;
};

/// 1.10, the first version whose requests all have the present form.
inline constexpr unsigned ucx_major = 1, least_ucx_minor = 10;

}  // namespace linkscope
