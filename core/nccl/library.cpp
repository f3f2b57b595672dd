#include "nccl/library.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.hpp"
#include "base/symbols.hpp"

namespace linkscope {
namespace {

constexpr const char* nvls = "NCCL_NVLS_ENABLE";

/// The name of the first function that is missing; "" if none is.
std::string load(void* library, NcclCalls& calls) {
  Symbols from{library};
  from.get(calls.version, "ncclGetVersion");
  from.get(calls.unique_id, "ncclGetUniqueId");
  from.get(calls.init_rank, "ncclCommInitRank");
  from.get(calls.destroy, "ncclCommDestroy");
  from.get(calls.abort, "ncclCommAbort");
  from.get(calls.async_error, "ncclCommGetAsyncError");
  from.get(calls.error_text, "ncclGetErrorString");
  from.get(calls.last_error, "ncclGetLastError", false);
  from.get(calls.group_start, "ncclGroupStart");
  from.get(calls.group_end, "ncclGroupEnd");
  from.get(calls.all_reduce, "ncclAllReduce");
  from.get(calls.reduce_scatter, "ncclReduceScatter");
  from.get(calls.all_gather, "ncclAllGather");
  from.get(calls.all_to_all, "ncclAlltoAll", false);
  from.get(calls.broadcast, "ncclBroadcast");
  from.get(calls.reduce, "ncclReduce");
  from.get(calls.send, "ncclSend");
  from.get(calls.receive, "ncclRecv");
  return from.missing;
}

}  // namespace

std::string nccl_version_text(int version) {
  const int major = version < 10000 ? version / 1000 : version / 10000,
            minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

/// Loads the library. Returns why it cannot be used.
std::string Nccl::why_not(const NcclSource& source) {
  void* library = dlopen(source.name.c_str(), RTLD_NOW | RTLD_LOCAL);  // never unloaded: it has threads
  if (!library) return dlerror();
  const auto path = path_of(library, source.name);
  NcclCalls calls;
  const auto missing = load(library, calls);
  int version = 0;
  if (!calls.version || calls.version(&version) != 0) return path + " does not say its version";
  if (version < least_nccl)
    return path + " is NCCL " + nccl_version_text(version) + ", and " + nccl_version_text(least_nccl) +
           " or newer is needed";
  if (!missing.empty()) return path + " has no " + missing;
  calls_ = calls;
  facts_.version = nccl_version_text(version);
  facts_.path = path;
  facts_.found = source.found;
  return "";
}

Nccl::Nccl(const std::vector<NcclSource>& sources) {
  const char* given = std::getenv(nvls);
  facts_.nvls = given ? std::string{nvls} + "=" + given + ", from the environment"
                      : std::string{nvls} + "=0, set by linkscope: NVLink multicast stays off";
  if (!given) setenv(nvls, "0", 1);
  std::string problem = "no library was found";
  for (const auto& source : sources) {
    problem = why_not(source);
    if (problem.empty()) return;
  }
  facts_.why_not = "NCCL cannot be used: " + problem +
                   "; `pip install nvidia-nccl-cu13` (or -cu12) brings it, and LINKSCOPE_NCCL=/path/to/libnccl.so.2 "
                   "names another";
}

void Nccl::check(int status, const char* call, NcclComm comm) const {
  if (status == 0) return;
  std::string text = std::string{call} + ": " + calls_.error_text(status);
  if (calls_.last_error)
    if (const char* more = calls_.last_error(comm); more && *more) text += std::string{" ("} + more + ")";
  throw Error{ErrorKind::failed, text};
}

NcclId Nccl::new_id() const {
  NcclId id;
  check(calls_.unique_id(&id), "ncclGetUniqueId");
  return id;
}

}  // namespace linkscope
