// Registered memory: what puts and gets move data between. A region of another process is imported by its handle, a text.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/devices.hpp"
#include "gpu/ipc.hpp"
#include "gpu/vmm.hpp"
#include "host/descriptor.hpp"
#include "host/shared_pages.hpp"
#include "putget/handles.hpp"
#include "transfer/location.hpp"

namespace linkscope {

class Proxy;
class TcpServer;

/// Page-locked memory that GPUs reach, zero at first.
struct PinnedBlock {
  PinnedMemory memory;
  u64 bytes = 0;
};

/// Memory of a GPU for the words of a channel, zero at first.
struct DeviceBlock {
  DeviceMemory memory;
  u64 bytes = 0;
  u32 gpu = 0;
};

/// The GPUs of this process and the code that they run, for regions and channels.
class PutGet {
 public:
  PutGet();
  ~PutGet();
  PutGet(const PutGet&) = delete;
  PutGet& operator=(const PutGet&) = delete;
  [[nodiscard]] const Driver& driver() const { return driver_; }
  [[nodiscard]] Devices& gpus() { return *gpus_; }
  /// The index of a GPU by the driver's number. Throws Error{usage} if it is not here.
  [[nodiscard]] u32 index_of(CUdevice) const;
  /// Throws Error{usage} that names a GPU that is not here.
  [[nodiscard]] Device& gpu(u32 index);
  /// "", or why kernels of a GPU cannot reach memory of another. Enables the access.
  [[nodiscard]] std::string why_no_peer(u32 by, u32 owner);
  /// Memory of at least this size. The driver allocates and frees memory only when no kernel runs, and a kernel that serves a
  /// channel runs for long; so blocks are kept until the end.
  [[nodiscard]] PinnedBlock take_pinned(u64 bytes);
  void give_back(PinnedBlock);
  [[nodiscard]] DeviceBlock take_device(u32 gpu, u64 bytes);
  void give_back(DeviceBlock);
  /// The proxy thread of that number, which lives while a channel has it.
  [[nodiscard]] std::shared_ptr<Proxy> proxy(u32 number);

 private:
  std::mutex mutex_;
  std::map<u32, std::weak_ptr<Proxy>> proxies_;
  std::vector<PinnedBlock> kept_;
  std::vector<DeviceBlock> kept_on_gpus_;
  Driver driver_;
  std::unique_ptr<Devices> gpus_;
};

struct OnGpu {
  u32 gpu = 0;
};

class PutRegion {
 public:
  /// Memory of this process: pageable, pinned, or a GPU's. It stays allocated while the region lives. Throws Error{usage}
  /// for memory that this process cannot write or that is shorter.
  PutRegion(PutGet&, void* start, u64 bytes);
  /// New host memory that other processes may import. GPUs reach it if this machine has any.
  PutRegion(PutGet&, u64 bytes);
  /// New memory of a GPU, zero, which other processes import by a POSIX file descriptor. All GPUs of this process that have
  /// peer access to it reach it. Throws Error{unsupported} where the driver does not export memory.
  PutRegion(PutGet&, u64 bytes, OnGpu);
  /// Memory of another process by its handle(); memory of a GPU is mapped for GPU `by`. Throws Error{usage} for a text that
  /// is no handle, Error{lost} if that process has ended.
  PutRegion(PutGet&, const std::string& handle, u32 by);
  ~PutRegion();
  PutRegion(const PutRegion&) = delete;
  PutRegion& operator=(const PutRegion&) = delete;

  /// A text by which another process of this host imports the region. Throws Error{usage} for memory that no other process
  /// can map.
  [[nodiscard]] std::string handle() const;
  /// The same for processes anywhere: a thread serves the region at an address and a port (0: any free one). Only host
  /// memory.
  [[nodiscard]] std::string serve_tcp(const std::string& address, unsigned short port);
  /// The same for processes whose network card is connected to one that knows this region by an address and a remote key.
  /// Throws Error{usage} for an address that is no multiple of 8, since no card adds to its words.
  [[nodiscard]] std::string card_handle(u64 address, u32 key) const;

  [[nodiscard]] u64 start() const { return start_; }  // 0: this process cannot map it
  [[nodiscard]] u64 bytes() const { return bytes_; }
  [[nodiscard]] const Location& location() const { return location_; }
  [[nodiscard]] bool on_host() const { return start_ != 0 && location_.on_host(); }
  /// The only GPU for which an imported GPU's memory is mapped; none: all that reach its owner.
  [[nodiscard]] bool is_imported() const { return opened_ || (mapping_ && !handles_); }
  [[nodiscard]] u32 mapped_for() const { return by_; }
  /// Where a TCP server has it; "" for other regions.
  [[nodiscard]] const std::string& tcp_address() const { return tcp_address_; }
  /// Only a network card reaches it, at an address and by a key.
  [[nodiscard]] bool behind_card() const { return behind_card_; }
  [[nodiscard]] u64 card_address() const { return card_address_; }
  [[nodiscard]] u32 card_key() const { return card_key_; }
  /// "", or that the process that has the memory has ended.
  [[nodiscard]] std::string why_gone() const;
  /// The channels that use it.
  [[nodiscard]] std::atomic<u32>& users() { return users_; }
  /// "", or why the memory is no longer what was registered: its owner freed it.
  [[nodiscard]] std::string why_freed() const;

 private:
  void import_shared(const std::string& handle);
  void import_gpu(const std::string& handle, u32 by);
  void import_descriptor(const std::string& handle, u32 by);
  void unmap();
  void pin();
  PutGet& all_;
  u64 start_ = 0, bytes_ = 0, allocation_ = 0;
  Location location_;
  SharedPages pages_;
  bool pinned_here_ = false;
  std::unique_ptr<IpcOpened> opened_;
  PhysicalMemory physical_;
  std::unique_ptr<Mapping> mapping_;
  u64 mapped_bytes_ = 0;
  std::unique_ptr<HandleServer> handles_;  // of memory that this process created
  u32 by_ = 0;
  Descriptor process_;
  std::string tcp_address_;
  bool behind_card_ = false;
  u64 card_address_ = 0;
  u32 card_key_ = 0;
  std::atomic<u32> users_{0};
  std::unique_ptr<TcpServer> server_;
};

}  // namespace linkscope
