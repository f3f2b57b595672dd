#include "nixl/library.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.hpp"
#include "base/symbols.hpp"

namespace linkscope {
namespace {

void load_memory(Symbols& from, NixlCalls& calls) {
  from.get(calls.make_agent, "create_configured_agent");
  from.get(calls.end_agent, "destroy_agent");
  from.get(calls.params, "get_plugin_params");
  from.get(calls.release_memory_types, "destroy_mem_list");
  from.get(calls.release_params, "destroy_params");
  from.get(calls.make_backend, "create_backend");
  from.get(calls.release_backend, "destroy_backend");
  from.get(calls.make_registration, "create_reg_dlist");
  from.get(calls.add_registration, "reg_dlist_add_desc");
  from.get(calls.end_registration, "destroy_reg_dlist");
  from.get(calls.register_memory, "register_mem");
  from.get(calls.deregister_memory, "deregister_mem");
  from.get(calls.description, "get_local_md");
  from.get(calls.load_description, "load_remote_md");
  from.get(calls.forget_peer, "invalidate_remote_md");
}

void load_transfers(Symbols& from, NixlCalls& calls) {
  from.get(calls.make_list, "create_xfer_dlist");
  from.get(calls.add_to_list, "xfer_dlist_add_desc");
  from.get(calls.end_list, "destroy_xfer_dlist");
  from.get(calls.make_options, "create_opt_args");
  from.get(calls.end_options, "destroy_opt_args");
  from.get(calls.set_notification, "opt_args_set_notif_msg");
  from.get(calls.with_notification, "opt_args_set_has_notif");
  from.get(calls.make_request, "create_xfer_req");
  from.get(calls.post, "post_xfer_req");
  from.get(calls.state, "get_xfer_status");
  from.get(calls.release_request, "release_xfer_req");
  from.get(calls.end_request, "destroy_xfer_req");
  from.get(calls.notify, "gen_notif");
  from.get(calls.make_notifications, "create_notif_map");
  from.get(calls.end_notifications, "destroy_notif_map");
  from.get(calls.take_notifications, "get_notifs");
  from.get(calls.count_senders, "notif_map_size");
  from.get(calls.sender, "notif_map_get_agent_at");
  from.get(calls.count_notifications, "notif_map_get_notifs_size");
  from.get(calls.clear_notifications, "notif_map_clear");
}

}  // namespace

/// Loads the library. Returns why it cannot be used.
std::string Nixl::why_not(const NixlSource& source) {
  // NIXL's UCX would take memory of GPUs that was allocated before it was loaded for memory of the host, and NIXL would
  // then refuse to register it. UCX reads this as it is loaded. A user's own value stays.
  setenv("UCX_MEMTYPE_CACHE", "n", 0);
  void* library = dlopen(source.name.c_str(), RTLD_NOW | RTLD_LOCAL);  // never unloaded: its threads may still run
  if (!library) return dlerror();
  const auto path = path_of(library, source.name);
  Symbols symbols{library, "nixl_capi_"};
  NixlCalls calls;
  load_memory(symbols, calls);
  load_transfers(symbols, calls);
  if (!symbols.missing.empty()) return path + " has no " + symbols.missing;
  // A library without NIXL itself behind it, which builds of its bindings link.
  const auto is_stub = reinterpret_cast<bool (*)()>(dlsym(library, "nixl_capi_is_stub"));
  if (is_stub && is_stub()) return path + " is a stub";
  calls_ = calls;
  facts_.path = path;
  facts_.found = source.found;
  return "";
}

Nixl::Nixl(const std::vector<NixlSource>& sources) {
  std::string problem = "no library was found";
  for (const auto& source : sources) {
    problem = why_not(source);
    if (problem.empty()) return;
  }
  facts_.why_not = "NIXL cannot be used: " + problem +
                   "; `pip install nixl-cu12` (or -cu13) brings it, and LINKSCOPE_NIXL=/path/to/libnixl_capi.so names "
                   "another";
}

bool check_nixl(int status, const char* call) {
  constexpr int in_progress = 1;
  if (status < 0)
    throw Error{ErrorKind::failed,
                std::string{"nixl_capi_"} + call + ": status " + std::to_string(status) +
                    " (-1 invalid argument, -2 backend, -3 state, -4 exception; NIXL_LOG_LEVEL=debug prints more)"};
  return status == in_progress;
}

}  // namespace linkscope
