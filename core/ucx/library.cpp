#include "ucx/library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/symbols.hpp"

namespace linkscope {
namespace {

constexpr const char* usual_name = "libucp.so.0";

/// The name of the first function that is missing; "" if none is.
std::string load(void* library, UcxCalls& calls) {
  Symbols from{library};
  from.get(calls.version, "ucp_get_version");
  from.get(calls.read_config, "ucp_config_read");
  from.get(calls.release_config, "ucp_config_release");
  from.get(calls.init, "ucp_init_version");
  from.get(calls.clean_up, "ucp_cleanup");
  from.get(calls.query, "ucp_context_query");
  from.get(calls.make_worker, "ucp_worker_create");
  from.get(calls.end_worker, "ucp_worker_destroy");
  from.get(calls.address, "ucp_worker_get_address");
  from.get(calls.release_address, "ucp_worker_release_address");
  from.get(calls.make_endpoint, "ucp_ep_create");
  from.get(calls.send, "ucp_tag_send_nbx");
  from.get(calls.receive, "ucp_tag_recv_nbx");
  from.get(calls.progress, "ucp_worker_progress");
  from.get(calls.state, "ucp_request_check_status");
  from.get(calls.release, "ucp_request_free");
  from.get(calls.error_text, "ucs_status_string");
  return from.missing;
}

/// How linkscope found the UCX that it has loaded into this process; "" if it has loaded none.
std::string& own_source() {
  static std::string found;
  return found;
}

}  // namespace

/// Loads the library. Returns why it cannot be used.
std::string Ucx::why_not(const UcxSource& source) {
  void* library = dlopen(source.name.c_str(), RTLD_NOW | RTLD_LOCAL);  // never unloaded: it hooks the allocator
  if (!library) return dlerror();
  const auto path = path_of(library, source.name);
  UcxCalls calls;
  const auto missing = load(library, calls);
  if (!calls.version) return path + " has no ucp_get_version";
  unsigned major = 0, minor = 0, release = 0;
  calls.version(&major, &minor, &release);
  const auto version = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
  if (major != ucx_major || minor < least_ucx_minor)
    return path + " is UCX " + version + ", and " + std::to_string(ucx_major) + "." + std::to_string(least_ucx_minor) +
           " or newer of this major version is needed";
  if (!missing.empty()) return path + " has no " + missing;
  calls_ = calls;
  facts_.version = version;
  facts_.path = path;
  facts_.found = source.found;
  return "";
}

Ucx::Ucx(const std::vector<UcxSource>& sources) {
  std::string problem = "no library was found";
  auto candidates = sources;
  // A second UCX in a process would call functions of the first one.
  const bool is_loaded = dlopen(usual_name, RTLD_NOW | RTLD_NOLOAD);
  if (is_loaded) candidates = {{usual_name, own_source().empty() ? "the MPI library has loaded it" : own_source()}};
  for (const auto& source : candidates) {
    problem = why_not(source);
    if (!problem.empty()) continue;
    if (!is_loaded) own_source() = source.found;
    return;
  }
  facts_.why_not = "UCX cannot be used: " + problem +
                   "; `pip install libucx-cu12` (or -cu13) brings it, and LINKSCOPE_UCX=/path/to/libucp.so.0 names "
                   "another";
}

std::string Ucx::why_no_cuda() const {
  const char* named = std::getenv("UCX_MODULE_DIR");
  const auto folder = named ? std::filesystem::path{named} : std::filesystem::path{facts_.path}.parent_path() / "ucx";
  const auto module = folder / "libuct_cuda.so";
  std::error_code unreadable;
  if (!std::filesystem::exists(module, unreadable))
    return "its module for CUDA is missing (" + module.string() +
           "); `pip install libucx-cu12` (or -cu13) brings a UCX "
           "with it, which MPI must not have loaded another UCX before (Open MPI: --mca pml ob1 --mca osc ^ucx)";
  for (const char* name : {"UCX_MODULES", "UCX_TLS"})
    if (const char* value = std::getenv(name)) return std::string{name} + "=" + value + " leaves out its CUDA";
  return module.string() + " does not work here: UCX_LOG_LEVEL=diag prints why, such as a driver that is missing";
}

void Ucx::check(int status, const char* call) const {
  if (status != 0) throw Error{ErrorKind::failed, std::string{call} + ": " + calls_.error_text(status)};
}

}  // namespace linkscope
