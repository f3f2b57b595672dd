// One GPU as this process uses it: its context, code, streams, and events that stamp time.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "platform/cuda/driver.hpp"
#include "program/program.hpp"

namespace linkscope {

/// Owns a non-blocking stream, so that the legacy default stream orders nothing.
class Stream {
 public:
  explicit Stream(const Driver&);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] CUstream get() const { return stream_; }
  void synchronize() const;

 private:
  const Driver& driver_;
  CUstream stream_ = nullptr;
};

/// Owns an event that records time, or that only orders work.
class Event {
 public:
  explicit Event(const Driver&, unsigned flags = CU_EVENT_DEFAULT);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] CUevent get() const { return event_; }

 private:
  const Driver& driver_;
  CUevent event_ = nullptr;
};

/// Facts that need no context.
struct DeviceFacts {
  CUdevice handle = 0;
  std::string name, uuid, pci;
  u64 memory_bytes = 0;
  std::vector<std::pair<std::string, int>> attributes;  // those that the driver knows
  [[nodiscard]] int attribute(const std::string& name, int otherwise) const;
};

class Device {
 public:
  Device(const Driver&, DeviceFacts);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const DeviceFacts& facts() const { return facts_; }
  [[nodiscard]] CUcontext context() const { return context_; }
  /// Makes this device's context the calling thread's.
  void use() const;
  [[nodiscard]] CUfunction function(const std::string& module, const std::string& name);
  void launch(CUfunction, unsigned blocks, unsigned threads, CUstream, void** arguments,
              unsigned shared_bytes = 0) const;
  /// The largest shared memory of a block: from compute capability 7.0 no second such block fits on an SM.
  [[nodiscard]] unsigned all_shared_bytes() const;
  /// Must precede the launch of a function with that much shared memory.
  void allow_all_shared(CUfunction) const;
  /// Blocks of a launch: as the shape states, or one on each multiprocessor.
  [[nodiscard]] unsigned blocks_of(const Shape&) const;
  /// Streams by number, created at first use and kept.
  [[nodiscard]] Stream& stream(std::size_t number);
  /// Two words of this GPU's memory for the result of a comparison, and two for each actor of a session.
  [[nodiscard]] CUdeviceptr scratch();
  [[nodiscard]] CUdeviceptr result(std::size_t actor);
  /// Queues a write of twice the L2's size elsewhere, which evicts everything from the L2.
  void flush_l2(CUstream);

 private:
  void load_module(const std::string& module);
  const Driver& driver_;
  DeviceFacts facts_;
  CUcontext context_ = nullptr;
  std::map<std::string, CUmodule> modules_;
  std::map<std::string, CUfunction> functions_;
  std::vector<std::unique_ptr<Stream>> streams_;
  CUdeviceptr flush_buffer_ = 0, scratch_ = 0;
};

/// All GPUs that the driver shows, in PCI bus order.
[[nodiscard]] std::vector<DeviceFacts> list_devices(const Driver&);

}  // namespace linkscope
