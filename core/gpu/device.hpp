// One GPU as this process uses it: its primary context, code and streams.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "gpu/code.hpp"
#include "gpu/driver.hpp"
#include "gpu/facts.hpp"
#include "gpu/memory.hpp"
#include "gpu/stream.hpp"

namespace linkscope {

/// All functions but use() leave the caller's context as it was.
class Device {
 public:
  /// `code` is what function() loads from.
  Device(const Driver&, DeviceFacts, CodeSet code);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const DeviceFacts& facts() const { return facts_; }
  [[nodiscard]] CUcontext context() const { return context_; }
  [[nodiscard]] const Driver& driver() const { return driver_; }
  /// Lets the context live until the process ends. A library that got this GPU's memory may keep streams, events and
  /// mappings of other processes' memory: UCX before 1.22 keeps mappings after its context has ended.
  void keep_context() const;
  /// Makes this device's context the calling thread's.
  void use() const;
  [[nodiscard]] CUfunction function(const std::string& module, const std::string& name);
  /// This device's context is current, as for flush_l2().
  void launch(CUfunction, unsigned blocks, unsigned threads, CUstream, void** arguments,
              unsigned shared_bytes = 0) const;
  /// The largest shared memory of a block: from compute capability 7.0 no second such block fits on an SM.
  [[nodiscard]] unsigned all_shared_bytes() const;
  /// Must precede the launch of a function with that much shared memory.
  void allow_all_shared(CUfunction) const;
  /// The memory that is free on this GPU.
  [[nodiscard]] u64 free_bytes() const;
  /// Streams by number, created at first use and kept. Each priority has numbers of its own.
  [[nodiscard]] Stream& stream(std::size_t number, Priority = Priority::usual);
  /// Two words of this GPU's memory for a result, by its number below `most_results`.
  static constexpr std::size_t most_results = 1025;
  [[nodiscard]] CUdeviceptr result(std::size_t number);
  /// Queues a write of twice the L2's size elsewhere, which evicts everything from the L2.
  void flush_l2(CUstream);

 private:
  void load_module(const std::string& module);
  const Driver& driver_;
  DeviceFacts facts_;
  CodeSet code_;
  CUcontext context_ = nullptr;
  std::map<std::string, CUmodule> modules_;
  std::map<std::string, CUfunction> functions_;
  std::map<Priority, std::vector<std::unique_ptr<Stream>>> streams_;
  DeviceMemory flush_buffer_, results_;
};

}  // namespace linkscope
