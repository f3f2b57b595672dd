#include "gpu/device.hpp"

#include <mutex>
#include <set>

#include "base/error.hpp"
#include "gpu/context.hpp"

namespace linkscope {

Device::Device(const Driver& driver, DeviceFacts facts, CodeSet code)
    : driver_{driver}, facts_{std::move(facts)}, code_{code} {
  LINKSCOPE_CU(driver_, cuDevicePrimaryCtxRetain, &context_, facts_.handle);
}

Device::~Device() {
  try {
    const CurrentContext current{driver_, context_};
    streams_.clear();
    flush_buffer_ = {};
    results_ = {};
    for (const auto& [name, module] : modules_) driver_.cuModuleUnload(module);
  } catch (const Error&) {
    return;  // the driver is shutting down, so nothing can be freed
  }
  driver_.cuDevicePrimaryCtxRelease(facts_.handle);
}

void Device::keep_context() const {
  static std::mutex guard;
  static std::set<CUdevice> kept;
  const std::lock_guard lock{guard};
  if (kept.contains(facts_.handle)) return;
  CUcontext same = nullptr;
  LINKSCOPE_CU(driver_, cuDevicePrimaryCtxRetain, &same, facts_.handle);
  kept.insert(facts_.handle);
}

void Device::use() const { LINKSCOPE_CU(driver_, cuCtxSetCurrent, context_); }

void Device::load_module(const std::string& module) {
  const auto& code = code_for(facts_, code_, module);
  LINKSCOPE_CU(driver_, cuModuleLoadData, &modules_[module], code.begin);
}

CUfunction Device::function(const std::string& module, const std::string& name) {
  auto& function = functions_[name];
  if (!function) {
    const CurrentContext current{driver_, context_};
    if (!modules_.contains(module)) load_module(module);
    LINKSCOPE_CU(driver_, cuModuleGetFunction, &function, modules_.at(module), name.c_str());
  }
  return function;
}

void Device::launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream, void** arguments,
                    unsigned shared_bytes) const {
  LINKSCOPE_CU(driver_, cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, arguments,
               nullptr);
}

unsigned Device::all_shared_bytes() const {
  constexpr int of_any = 48 << 10;
  return static_cast<unsigned>(facts_.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", of_any));
}

void Device::allow_all_shared(CUfunction function) const {
  const CurrentContext current{driver_, context_};
  LINKSCOPE_CU(driver_, cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
               static_cast<int>(all_shared_bytes()));
}

u64 Device::free_bytes() const {
  const CurrentContext current{driver_, context_};
  std::size_t free = 0, total = 0;
  LINKSCOPE_CU(driver_, cuMemGetInfo, &free, &total);
  return free;
}

Stream& Device::stream(std::size_t number, Priority priority) {
  auto& made = streams_[priority];
  while (made.size() <= number) {
    const CurrentContext current{driver_, context_};
    made.push_back(std::make_unique<Stream>(driver_, priority));
  }
  return *made[number];
}

CUdeviceptr Device::result(std::size_t number) {
  constexpr std::size_t bytes = 2 * sizeof(u64);
  if (!results_.address()) {
    const CurrentContext current{driver_, context_};
    results_ = {driver_, most_results * bytes};
  }
  return results_.address() + number * bytes;
}

void Device::flush_l2(CUstream stream) {
  const u64 bytes = 2 * static_cast<u64>(facts_.attribute("L2_CACHE_SIZE", 0));
  if (bytes == 0) return;
  try {
    if (!flush_buffer_.address()) flush_buffer_ = {driver_, bytes};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    throw Error{ErrorKind::memory, "no " + bytes_text(bytes) + " left on the GPU at " + facts_.pci +
                                       " to flush its L2 with (cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY); end what else "
                                       "holds memory of this GPU, or ask for smaller sizes (--only)"};
  }
  LINKSCOPE_CU(driver_, cuMemsetD8Async, flush_buffer_.address(), 0, bytes, stream);
}

}  // namespace linkscope
