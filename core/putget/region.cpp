#include "putget/region.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "base/error.hpp"
#include "gpu/context.hpp"
#include "host/own_memory.hpp"
#include "putget/device_code.hpp"
#include "putget/proxy.hpp"
#include "putget/tcp.hpp"

namespace linkscope {
namespace {

constexpr u64 least_pinned = 64 << 10;  // so that most blocks fit the next taker
constexpr const char *shared_kind = "shm", *gpu_kind = "ipc", *descriptor_kind = "fd", *tcp_kind = "tcp",
                     *card_kind = "card";

[[noreturn]] void no_handle(const std::string& text) {
  throw Error{ErrorKind::usage, "'" + text + "' is no handle of a region: pass the text that the other process made"};
}

std::vector<std::string> parts_of(const std::string& handle) {
  std::vector<std::string> parts;
  std::istringstream stream{handle};
  for (std::string part; std::getline(stream, part, ' ');) parts.push_back(part);
  return parts;
}

u64 number(const std::string& handle, const std::string& text) {
  u64 value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) no_handle(handle);
  return value;
}

Descriptor process_of(u64 pid) {
#ifdef SYS_pidfd_open
  Descriptor process{static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0))};
  if (!process && errno == ESRCH)
    throw Error{ErrorKind::lost, "process " + std::to_string(pid) + ", which has the region, has ended"};
  return process;
#else
  return {};
#endif
}

}  // namespace

// --- the GPUs ---------------------------------------------------------------------------------------------------------

PutGet::PutGet() : gpus_{std::make_unique<Devices>(driver_, putget_code())} {}

PutGet::~PutGet() {
  if (kept_.empty() && kept_on_gpus_.empty()) return;
  try {
    while (!kept_on_gpus_.empty()) {
      const CurrentContext current{driver_, gpus_->at(kept_on_gpus_.back().gpu).context()};
      kept_on_gpus_.pop_back();
    }
    const CurrentContext current{driver_, gpus_->any()->context()};
    kept_.clear();
  } catch (const Error&) {  // the driver is shutting down
  }
}

PinnedBlock PutGet::take_pinned(u64 bytes) {
  const std::lock_guard lock{mutex_};
  const auto fits = std::ranges::find_if(kept_, [&](const PinnedBlock& one) { return one.bytes >= bytes; });
  PinnedBlock taken;
  if (fits == kept_.end()) {
    const CurrentContext current{driver_, gpus_->any()->context()};
    bytes = std::max(bytes, least_pinned);
    taken = {{driver_, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP}, bytes};
  } else {
    taken = std::move(*fits);
    kept_.erase(fits);
  }
  std::memset(taken.memory.data(), 0, taken.bytes);
  return taken;
}

void PutGet::give_back(PinnedBlock block) {
  const std::lock_guard lock{mutex_};
  if (block.memory.data()) kept_.push_back(std::move(block));
}

DeviceBlock PutGet::take_device(u32 gpu, u64 bytes) {
  const std::lock_guard lock{mutex_};
  const CurrentContext current{driver_, gpus_->at(gpu).context()};
  const auto fits =
      std::ranges::find_if(kept_on_gpus_, [&](const DeviceBlock& one) { return one.gpu == gpu && one.bytes >= bytes; });
  DeviceBlock taken;
  if (fits == kept_on_gpus_.end()) {
    bytes = std::max(bytes, least_pinned);
    taken = {{driver_, bytes}, bytes, gpu};
  } else {
    taken = std::move(*fits);
    kept_on_gpus_.erase(fits);
  }
  const auto stream = gpus_->at(gpu).stream(0).get();
  LINKSCOPE_CU(driver_, cuMemsetD8Async, taken.memory.address(), 0, taken.bytes, stream);
  LINKSCOPE_CU(driver_, cuStreamSynchronize, stream);
  return taken;
}

std::shared_ptr<Proxy> PutGet::proxy(u32 number) {
  const std::lock_guard lock{mutex_};
  auto found = proxies_[number].lock();
  if (!found) proxies_[number] = found = std::make_shared<Proxy>();
  return found;
}

void PutGet::give_back(DeviceBlock block) {
  const std::lock_guard lock{mutex_};
  if (block.memory.address()) kept_on_gpus_.push_back(std::move(block));
}

u32 PutGet::index_of(CUdevice device) const {
  const auto& facts = gpus_->facts();
  for (u32 i = 0; i < facts.size(); ++i)
    if (facts[i].handle == device) return i;
  throw Error{ErrorKind::usage,
              "the driver's GPU " + std::to_string(device) + " is not among the GPUs of this process"};
}

Device& PutGet::gpu(u32 index) {
  if (index >= gpus_->facts().size())
    throw Error{ErrorKind::usage, "there is no GPU " + std::to_string(index) + "; this process has " +
                                      std::to_string(gpus_->facts().size())};
  return gpus_->at(index);
}

std::string PutGet::why_no_peer(u32 by, u32 owner) {
  if (by == owner) return "";
  const auto pair = "GPU " + std::to_string(by) + " and GPU " + std::to_string(owner);
  if (!driver_.cuDeviceCanAccessPeer || !driver_.cuCtxEnablePeerAccess) return "the driver has no peer access";
  int can = 0;
  LINKSCOPE_CU(driver_, cuDeviceCanAccessPeer, &can, gpu(by).facts().handle, gpu(owner).facts().handle);
  if (!can) return pair + " have no peer access";
  const CurrentContext current{driver_, gpu(by).context()};
  const CUresult status = driver_.cuCtxEnablePeerAccess(gpu(owner).context(), 0);
  if (status != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) driver_.check(status, "cuCtxEnablePeerAccess");
  return "";
}

// --- regions ----------------------------------------------------------------------------------------------------------

PutRegion::PutRegion(PutGet& all, void* start, u64 bytes)
    : all_{all}, start_{reinterpret_cast<u64>(start)}, bytes_{bytes}, location_{locate(all.driver(), start)} {
  if (!start || !bytes) throw Error{ErrorKind::usage, "a region needs memory: its start is NULL, or it has 0 B"};
  if (location_.memory == MemoryType::managed)
    throw Error{ErrorKind::usage, "managed memory cannot be registered: its pages move; use pinned memory or a GPU's"};
  allocation_ = bytes_from(all.driver(), start);
  if (allocation_ && allocation_ < bytes)
    throw Error{ErrorKind::usage, "the memory ends after " + bytes_text(allocation_) + ", before the region's end at " +
                                      bytes_text(bytes)};
  if (location_.on_host() && !can_write(start, bytes))
    throw Error{ErrorKind::usage, "this process cannot write the memory of the region; pass memory that is allocated"};
}

PutRegion::PutRegion(PutGet& all, u64 bytes) : all_{all}, bytes_{bytes} {
  if (!bytes) throw Error{ErrorKind::usage, "a region needs memory: 0 B were asked for"};
  pages_ = SharedPages{0, bytes};
  pages_.touch();
  std::memset(pages_.data(), 0, bytes);
  start_ = reinterpret_cast<u64>(pages_.data());
  pin();
}

PutRegion::PutRegion(PutGet& all, const std::string& handle, u32 by) : all_{all} {
  const auto parts = parts_of(handle);
  if (parts.empty()) no_handle(handle);
  if (parts[0] == shared_kind && parts.size() == 4) {
    import_shared(handle);
  } else if (parts[0] == gpu_kind && parts.size() == 5) {
    import_gpu(handle, by);
  } else if (parts[0] == descriptor_kind && parts.size() == 5) {
    import_descriptor(handle, by);
  } else if (parts[0] == tcp_kind && parts.size() == 4) {
    if (number(handle, parts[2]) > 65535) no_handle(handle);
    tcp_address_ = parts[1] + " " + parts[2];
    bytes_ = number(handle, parts[3]);
  } else if (parts[0] == card_kind && parts.size() == 4) {
    behind_card_ = true;
    card_address_ = number(handle, parts[1]);
    card_key_ = static_cast<u32>(number(handle, parts[2]));
    bytes_ = number(handle, parts[3]);
  } else {
    no_handle(handle);
  }
}

PutRegion::~PutRegion() {
  server_.reset();
  unmap();
  if (!pinned_here_) return;
  try {
    const CurrentContext current{all_.driver(), all_.gpus().any()->context()};
    all_.driver().cuMemHostUnregister(pages_.data());
  } catch (const Error&) {  // the driver is shutting down
  }
}

PutRegion::PutRegion(PutGet& all, u64 bytes, OnGpu on) : all_{all}, bytes_{bytes}, by_{on.gpu} {
  if (!bytes) throw Error{ErrorKind::usage, "a region needs memory: 0 B were asked for"};
  auto& gpu = all.gpu(on.gpu);
  for (const char* call : {"cuMemCreate", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"})
    if (const auto why = all.driver().why_no(call); !why.empty()) throw Error{ErrorKind::unsupported, why};
  const CurrentContext current{all.driver(), gpu.context()};
  const auto device = gpu.facts().handle;
  const auto what = exportable_on(device);
  mapped_bytes_ = whole_granules(all.driver(), what, bytes);
  physical_ = {all.driver(), what, mapped_bytes_};
  mapping_ = std::make_unique<Mapping>(all.driver(), physical_, mapped_bytes_, device);
  handles_ = std::make_unique<HandleServer>(physical_.exported());
  start_ = mapping_->address();
  location_ = {MemoryType::device, device};
  for (u32 other = 0; other < all.gpus().facts().size(); ++other)
    if (other != on.gpu && all.why_no_peer(other, on.gpu).empty()) mapping_->allow(all.gpu(other).facts().handle);
  LINKSCOPE_CU(all.driver(), cuMemsetD8Async, start_, 0, mapped_bytes_, nullptr);
  LINKSCOPE_CU(all.driver(), cuStreamSynchronize, nullptr);
}

void PutRegion::import_descriptor(const std::string& handle, u32 by) {
  const auto parts = parts_of(handle);
  process_ = process_of(number(handle, parts[1]));
  bytes_ = number(handle, parts[3]);
  mapped_bytes_ = number(handle, parts[4]);
  by_ = by;
  auto& gpu = all_.gpu(by);
  const CurrentContext current{all_.driver(), gpu.context()};
  physical_ = {all_.driver(), ask_for_descriptor(parts[2])};
  mapping_ = std::make_unique<Mapping>(all_.driver(), physical_, mapped_bytes_, gpu.facts().handle);
  start_ = mapping_->address();
  location_ = locate(all_.driver(), reinterpret_cast<void*>(start_));
}

/// Frees memory that was created or imported by a file descriptor.
void PutRegion::unmap() {
  handles_.reset();
  if (!mapping_) return;
  try {
    const CurrentContext current{all_.driver(), all_.gpu(by_).context()};
    mapping_.reset();
    physical_ = {};
  } catch (const Error&) {  // the driver is shutting down
  }
}

void PutRegion::import_shared(const std::string& handle) {
  const auto parts = parts_of(handle);
  const u64 pid = number(handle, parts[1]);
  process_ = process_of(pid);
  const auto path = "/proc/" + parts[1] + "/fd/" + std::to_string(number(handle, parts[2]));
  const Descriptor file{open(path.c_str(), O_RDWR | O_CLOEXEC)};
  if (!file)
    throw Error{errno == ENOENT ? ErrorKind::lost : ErrorKind::failed,
                "process " + parts[1] + " does not give its memory: " + std::strerror(errno)};
  bytes_ = number(handle, parts[3]);
  pages_ = SharedPages{file, bytes_};
  start_ = reinterpret_cast<u64>(pages_.data());
  pin();
}

void PutRegion::import_gpu(const std::string& handle, u32 by) {
  const auto parts = parts_of(handle);
  process_ = process_of(number(handle, parts[1]));
  bytes_ = number(handle, parts[2]);
  const u64 offset = number(handle, parts[3]);
  CUipcMemHandle memory{};
  if (parts[4].size() != 2 * sizeof memory.reserved) no_handle(handle);
  for (std::size_t i = 0; i < sizeof memory.reserved; ++i) {
    const char* digits = parts[4].data() + 2 * i;
    unsigned char byte = 0;
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) no_handle(handle);
    memory.reserved[i] = static_cast<char>(byte);
  }
  by_ = by;
  opened_ = std::make_unique<IpcOpened>(all_.driver(), all_.gpu(by), memory);
  start_ = opened_->address() + offset;
  location_ = locate(all_.driver(), reinterpret_cast<void*>(start_));
}

/// Lets GPUs reach shared pages. A machine without GPUs uses them all the same.
void PutRegion::pin() {
  auto& driver = all_.driver();
  if (!driver.usable() || !driver.cuMemHostRegister || !all_.gpus().any()) return;
  const CurrentContext current{driver, all_.gpus().any()->context()};
  LINKSCOPE_CU(driver, cuMemHostRegister, pages_.data(), bytes_,
               CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  pinned_here_ = true;
  location_ = {MemoryType::pinned, -1};
}

std::string PutRegion::handle() const {
  std::ostringstream text;
  if (pages_.descriptor()) {
    text << shared_kind << ' ' << getpid() << ' ' << pages_.descriptor().get() << ' ' << bytes_;
    return text.str();
  }
  if (handles_) {
    text << descriptor_kind << ' ' << getpid() << ' ' << handles_->name() << ' ' << bytes_ << ' ' << mapped_bytes_;
    return text.str();
  }
  if (location_.memory != MemoryType::device || is_imported())
    throw Error{ErrorKind::usage,
                "no other process can map this region: share memory that the library allocated, or "
                "memory of a GPU of this process"};
  const CurrentContext current{all_.driver(), all_.gpus().at(all_.index_of(location_.device)).context()};
  CUdeviceptr base = 0;
  const auto attribute = CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
  std::array asked{attribute};
  std::array<void*, 1> answers{&base};
  LINKSCOPE_CU(all_.driver(), cuPointerGetAttributes, 1, asked.data(), answers.data(), start_);
  const auto memory = ipc_handle(all_.driver(), base);  // a handle is of a whole allocation
  text << gpu_kind << ' ' << getpid() << ' ' << bytes_ << ' ' << start_ - base << ' ';
  for (const char byte : memory.reserved) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(byte));
    text << digits.data();
  }
  return text.str();
}

std::string PutRegion::serve_tcp(const std::string& address, unsigned short port) {
  if (!on_host())
    throw Error{ErrorKind::usage,
                "only host memory of this process is served by TCP; the region is " + to_string(location_)};
  if (!server_) server_ = std::make_unique<TcpServer>(TcpMemory{start_, bytes_}, address, port);
  std::ostringstream text;
  text << tcp_kind << ' ' << address << ' ' << server_->port() << ' ' << bytes_;
  return text.str();
}

std::string PutRegion::card_handle(u64 address, u32 key) const {
  if (address % sizeof(u64) != 0)
    throw Error{ErrorKind::usage, "the region's address for network cards must be a multiple of 8 B"};
  std::ostringstream text;
  text << card_kind << ' ' << address << ' ' << key << ' ' << bytes_;
  return text.str();
}

std::string PutRegion::why_gone() const {
  if (!process_) return "";
  pollfd ended{process_.get(), POLLIN, 0};
  return poll(&ended, 1, 0) > 0 ? "the process that has the region has ended" : "";
}

std::string PutRegion::why_freed() const {
  if (!allocation_ || opened_) return "";
  return bytes_from(all_.driver(), reinterpret_cast<const void*>(start_)) == allocation_
             ? ""
             : "memory of a region was freed while a channel used it";
}

}  // namespace linkscope
