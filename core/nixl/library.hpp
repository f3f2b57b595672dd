// NIXL, loaded at run time by its C interface. Its functions and constants are declared here from its documentation.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace linkscope {

/// A library to try, by path or by a name that the loader finds, and how it was found.
struct NixlSource {
  std::string name, found;
};

struct NixlFacts {
  std::string path;  // of the loaded file
  std::string found;
  std::string why_not;  // why no library can be used, with the cure; "" if one can
};

/// How an agent works. Without a thread for progress, the caller's polls are what moves data.
struct NixlAgentConfig {
  bool progress_thread, listen_thread;
  int listen_port, synchronization;
  unsigned workers;
  u64 progress_delay_us, listen_delay_us;
  bool telemetry;
};
static_assert(sizeof(NixlAgentConfig) == 40);

struct NixlCalls {
  int (*make_agent)(const char* name, const NixlAgentConfig*, void** agent) = nullptr;
  int (*end_agent)(void* agent) = nullptr;
  int (*params)(void* agent, const char* plugin, void** memory_types, void** params) = nullptr;
  int (*release_memory_types)(void* types) = nullptr;
  int (*release_params)(void* params) = nullptr;
  int (*make_backend)(void* agent, const char* plugin, void* params, void** backend) = nullptr;
  int (*release_backend)(void* backend) = nullptr;
  int (*make_registration)(int type, void** list, bool sorted) = nullptr;
  int (*add_registration)(void* list, std::size_t address, std::size_t bytes, u64 device, const void* about,
                          std::size_t about_bytes) = nullptr;
  int (*end_registration)(void* list) = nullptr;
  int (*register_memory)(void* agent, void* list, void* options) = nullptr;
  int (*deregister_memory)(void* agent, void* list, void* options) = nullptr;
  int (*description)(void* agent, void** bytes, std::size_t* count) = nullptr;
  int (*load_description)(void* agent, const void* bytes, std::size_t count, char** peer) = nullptr;
  int (*forget_peer)(void* agent, const char* peer) = nullptr;
  int (*make_list)(int type, void** list, bool sorted) = nullptr;
  int (*add_to_list)(void* list, std::size_t address, std::size_t bytes, u64 device) = nullptr;
  int (*end_list)(void* list) = nullptr;
  int (*make_options)(void** options) = nullptr;
  int (*end_options)(void* options) = nullptr;
  int (*set_notification)(void* options, const void* bytes, std::size_t count) = nullptr;
  int (*with_notification)(void* options, bool) = nullptr;
  int (*make_request)(void* agent, int operation, void* local, void* remote, const char* peer, void** request,
                      void* options) = nullptr;
  int (*post)(void* agent, void* request, void* options) = nullptr;
  int (*state)(void* agent, void* request) = nullptr;
  int (*release_request)(void* agent, void* request) = nullptr;
  int (*end_request)(void* request) = nullptr;
  int (*notify)(void* agent, const char* peer, const void* bytes, std::size_t count, void* options) = nullptr;
  int (*make_notifications)(void** map) = nullptr;
  int (*end_notifications)(void* map) = nullptr;
  int (*take_notifications)(void* agent, void* map, void* options) = nullptr;
  int (*count_senders)(void* map, std::size_t*) = nullptr;
  int (*sender)(void* map, std::size_t index, const char** peer) = nullptr;
  int (*count_notifications)(void* map, const char* peer, std::size_t*) = nullptr;
  int (*clear_notifications)(void* map) = nullptr;
};

class Nixl {
 public:
  /// Loads the first library that can be used. Never throws: facts() says why there is none.
  explicit Nixl(const std::vector<NixlSource>&);

  [[nodiscard]] const NixlFacts& facts() const { return facts_; }
  /// Only if there is a library.
  [[nodiscard]] const NixlCalls& calls() const { return calls_; }

 private:
  [[nodiscard]] std::string why_not(const NixlSource&);
  NixlFacts facts_;
  NixlCalls calls_;
};

/// Throws Error{failed} that names the call, for a status other than success. Returns true while a transfer goes on.
bool check_nixl(int status, const char* call);

}  // namespace linkscope
