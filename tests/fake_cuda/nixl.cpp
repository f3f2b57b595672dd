// A NIXL whose transfers go through files: a sender appends to the receiver's file, and the receiver carries out what it
// finds when it polls. FAKE_NIXL_FOLDER holds the files. Refuses what NIXL refuses, and what no program should do.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using u64 = std::uint64_t;
constexpr int good = 0, in_progress = 1, wrong_argument = -1, refused = -2, wrong_state = -3;

/// Ranges of one type of memory, registered or to be written.
struct List {
  int type = 0;
  std::vector<std::pair<u64, u64>> ranges;  // addresses and bytes
};

struct Options {
  std::string notification;
  bool notifies = false;
};

/// What a sender tells a receiver; `bytes` follow.
struct Record {
  u64 address = 0, bytes = 0;
  bool notifies = false;
  char sender[120] = {};
};

struct Agent {
  std::string name;
  bool has_backend = false;
  std::vector<List> memory;
  std::map<std::string, std::vector<List>> peers;
  std::map<std::string, u64> notified;
};

struct Request {
  List from, to;
  std::string peer;
  bool notifies = false, active = false;
};

/// Whether UCX asks the driver what memory is. Otherwise UCX takes what was allocated before it was loaded for memory of
/// the host. As in UCX, the time of loading counts.
const bool asks_the_driver = [] {
  const char* cache = std::getenv("UCX_MEMTYPE_CACHE");
  return cache && *cache == 'n';
}();

std::string file_of(const std::string& agent) {
  const char* folder = std::getenv("FAKE_NIXL_FOLDER");
  return std::string{folder ? folder : "/tmp"} + "/" + agent;
}

/// An agent's file, which nobody else has open while this lives.
struct Locked {
  explicit Locked(const std::string& agent) : file{open(file_of(agent).c_str(), O_RDWR | O_APPEND | O_CREAT, 0600)} {
    flock(file, LOCK_EX);
  }
  ~Locked() { close(file); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  int file;
};

void put(int file, const void* from, u64 bytes) {
  for (u64 done = 0; done < bytes;) {
    const auto put = write(file, static_cast<const char*>(from) + done, bytes - done);
    if (put <= 0) std::abort();
    done += static_cast<u64>(put);
  }
}

void append(const std::string& sender, const std::string& receiver, Record record, const void* from) {
  const Locked locked{receiver};
  sender.copy(record.sender, sizeof record.sender - 1);
  put(locked.file, &record, sizeof record);
  put(locked.file, from, record.bytes);
}

/// Carries out what others have appended.
void progress(Agent& agent) {
  struct stat about{};
  if (stat(file_of(agent.name).c_str(), &about) != 0 || about.st_size == 0) return;
  const Locked locked{agent.name};
  lseek(locked.file, 0, SEEK_SET);
  Record record;
  while (read(locked.file, &record, sizeof record) == sizeof record) {
    for (u64 done = 0; done < record.bytes;) {
      const auto got = read(locked.file, reinterpret_cast<char*>(record.address) + done, record.bytes - done);
      if (got <= 0) std::abort();
      done += static_cast<u64>(got);
    }
    if (record.notifies) ++agent.notified[record.sender];
  }
  if (ftruncate(locked.file, 0) != 0) std::abort();
}

bool within(const List& list, const std::vector<List>& registered) {
  for (const auto& [address, bytes] : list.ranges) {
    bool found = false;
    for (const auto& one : registered)
      for (const auto& [start, length] : one.ranges)
        found |= one.type == list.type && address >= start && address + bytes <= start + length;
    if (!found) return false;
  }
  return true;
}

template <class Thing>
Thing& of(void* handle) {
  return *static_cast<Thing*>(handle);
}

}  // namespace

EXPORT int nixl_capi_create_configured_agent(const char* name, const void*, void** agent) {
  *agent = new Agent{name, false, {}, {}, {}};
  return good;
}
EXPORT int nixl_capi_destroy_agent(void* agent) {
  unlink(file_of(of<Agent>(agent).name).c_str());
  delete static_cast<Agent*>(agent);
  return good;
}
EXPORT int nixl_capi_get_plugin_params(void*, const char* plugin, void** types, void** params) {
  if (plugin != std::string{"UCX"}) return refused;
  *types = new int;
  *params = new int;
  return good;
}
EXPORT int nixl_capi_destroy_mem_list(void* types) {
  delete static_cast<int*>(types);
  return good;
}
EXPORT int nixl_capi_destroy_params(void* params) {
  delete static_cast<int*>(params);
  return good;
}
EXPORT int nixl_capi_create_backend(void* agent, const char*, void*, void** backend) {
  of<Agent>(agent).has_backend = true;
  *backend = new int;
  return good;
}
EXPORT int nixl_capi_destroy_backend(void* backend) {
  delete static_cast<int*>(backend);
  return good;
}

EXPORT int nixl_capi_create_reg_dlist(int type, void** list) {
  *list = new List{type, {}};
  return good;
}
EXPORT int nixl_capi_reg_dlist_add_desc(void* list, u64 address, std::size_t bytes, u64, const void*, std::size_t) {
  of<List>(list).ranges.emplace_back(address, bytes);
  return good;
}
EXPORT int nixl_capi_destroy_reg_dlist(void* list) {
  delete static_cast<List*>(list);
  return good;
}
EXPORT int nixl_capi_register_mem(void* agent, void* list, void*) {
  if (!of<Agent>(agent).has_backend) return wrong_state;
  if (of<List>(list).type == 1 && !(std::getenv("FAKE_NIXL_CUDA") && asks_the_driver)) return refused;
  of<Agent>(agent).memory.push_back(of<List>(list));
  return good;
}
EXPORT int nixl_capi_deregister_mem(void* agent, void* list, void*) {
  auto& memory = of<Agent>(agent).memory;
  for (auto one = memory.begin(); one != memory.end(); ++one)
    if (one->ranges == of<List>(list).ranges) {
      memory.erase(one);
      return good;
    }
  return refused;
}

EXPORT int nixl_capi_get_local_md(void* agent, void** bytes, std::size_t* count) {
  std::ostringstream text;
  text << of<Agent>(agent).name;
  for (const auto& list : of<Agent>(agent).memory)
    for (const auto& [address, length] : list.ranges) text << ' ' << list.type << ' ' << address << ' ' << length;
  *bytes = strdup(text.str().c_str());
  *count = text.str().size();
  return good;
}
EXPORT int nixl_capi_load_remote_md(void* agent, const void* bytes, std::size_t count, char** peer) {
  std::istringstream text{std::string{static_cast<const char*>(bytes), count}};
  std::string name;
  text >> name;
  auto& lists = of<Agent>(agent).peers[name];
  if (!lists.empty()) return refused;  // NIXL refuses other keys of memory that it knows
  int type = 0;
  for (u64 address = 0, length = 0; text >> type >> address >> length;) lists.push_back({type, {{address, length}}});
  *peer = strdup(name.c_str());
  return good;
}
EXPORT int nixl_capi_invalidate_remote_md(void* agent, const char* peer) {
  return of<Agent>(agent).peers.erase(peer) ? good : refused;
}

EXPORT int nixl_capi_create_xfer_dlist(int type, void** list) { return nixl_capi_create_reg_dlist(type, list); }
EXPORT int nixl_capi_xfer_dlist_add_desc(void* list, u64 address, std::size_t bytes, u64) {
  of<List>(list).ranges.emplace_back(address, bytes);
  return good;
}
EXPORT int nixl_capi_destroy_xfer_dlist(void* list) { return nixl_capi_destroy_reg_dlist(list); }

EXPORT int nixl_capi_create_opt_args(void** options) {
  *options = new Options;
  return good;
}
EXPORT int nixl_capi_destroy_opt_args(void* options) {
  delete static_cast<Options*>(options);
  return good;
}
EXPORT int nixl_capi_opt_args_set_notif_msg(void* options, const void* bytes, std::size_t count) {
  of<Options>(options).notification.assign(static_cast<const char*>(bytes), count);
  return good;
}
EXPORT int nixl_capi_opt_args_set_has_notif(void* options, bool notifies) {
  of<Options>(options).notifies = notifies;
  return good;
}

EXPORT int nixl_capi_create_xfer_req(void* agent, int operation, void* from, void* to, const char* peer, void** request,
                                     void* options) {
  const auto known = of<Agent>(agent).peers.find(peer);
  if (operation != 1 || known == of<Agent>(agent).peers.end()) return wrong_argument;
  if (!within(of<List>(from), of<Agent>(agent).memory) || !within(of<List>(to), known->second)) return refused;
  *request = new Request{of<List>(from), of<List>(to), peer, options && of<Options>(options).notifies, false};
  return good;
}
/// The bytes go when somebody asks for the end of the request. FAKE_NIXL_LOSES=1: they do not, without an error.
EXPORT int nixl_capi_post_xfer_req(void*, void* request, void*) {
  if (std::exchange(of<Request>(request).active, true)) return wrong_state;
  return in_progress;
}
EXPORT int nixl_capi_get_xfer_status(void* agent, void* request) {
  auto& one = of<Request>(request);
  progress(of<Agent>(agent));
  if (!std::exchange(one.active, false)) return good;
  const auto [address, bytes] = one.from.ranges.front();
  const Record record{one.to.ranges.front().first, std::getenv("FAKE_NIXL_LOSES") ? 0 : bytes, one.notifies};
  append(of<Agent>(agent).name, one.peer, record, reinterpret_cast<const void*>(address));
  return good;
}
EXPORT int nixl_capi_release_xfer_req(void*, void* request) { return of<Request>(request).active ? wrong_state : good; }
EXPORT int nixl_capi_destroy_xfer_req(void* request) {
  delete static_cast<Request*>(request);
  return good;
}

EXPORT int nixl_capi_gen_notif(void* agent, const char* peer, const void*, std::size_t, void*) {
  if (!of<Agent>(agent).peers.contains(peer)) return wrong_argument;
  append(of<Agent>(agent).name, peer, Record{0, 0, true}, nullptr);
  return good;
}
EXPORT int nixl_capi_create_notif_map(void** map) {
  *map = new std::map<std::string, u64>;
  return good;
}
EXPORT int nixl_capi_destroy_notif_map(void* map) {
  delete static_cast<std::map<std::string, u64>*>(map);
  return good;
}
EXPORT int nixl_capi_get_notifs(void* agent, void* map, void*) {
  progress(of<Agent>(agent));
  for (const auto& [peer, count] : std::exchange(of<Agent>(agent).notified, {}))
    of<std::map<std::string, u64>>(map)[peer] += count;
  return good;
}
EXPORT int nixl_capi_notif_map_size(void* map, std::size_t* count) {
  *count = of<std::map<std::string, u64>>(map).size();
  return good;
}
EXPORT int nixl_capi_notif_map_get_agent_at(void* map, std::size_t index, const char** peer) {
  auto at = of<std::map<std::string, u64>>(map).begin();
  std::advance(at, index);
  *peer = at->first.c_str();
  return good;
}
EXPORT int nixl_capi_notif_map_get_notifs_size(void* map, const char* peer, std::size_t* count) {
  *count = of<std::map<std::string, u64>>(map).at(peer);
  return good;
}
EXPORT int nixl_capi_notif_map_clear(void* map) {
  of<std::map<std::string, u64>>(map).clear();
  return good;
}
