#include "gpu/green.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "gpu/context.hpp"

namespace linkscope {
namespace {

/// The largest valid number of SMs of a part. The driver rounds up, and GPUs from compute capability 9.0 have groups of 8.
u32 valid_part(u32 sms, u32 parts) {
  const u32 each = sms / parts;
  return each >= 8 ? each / 8 * 8 : each / 2 * 2;
}

}  // namespace

std::string why_no_green_context(const Driver& driver) {
  for (const char* symbol : {"cuDeviceGetDevResource", "cuDevSmResourceSplitByCount", "cuDevResourceGenerateDesc",
                             "cuGreenCtxCreate", "cuGreenCtxDestroy", "cuGreenCtxStreamCreate"})
    if (auto why = driver.why_no(symbol); !why.empty()) return "no green contexts: " + why;
  return "";
}

GreenContexts::GreenContexts(const Driver& driver, Device& device, u32 parts) : driver_{driver}, device_{device} {
  const CurrentContext current{driver_, device_.context()};
  CUdevResource all{};
  LINKSCOPE_CU(driver_, cuDeviceGetDevResource, device_.facts().handle, &all, CU_DEV_RESOURCE_TYPE_SM);
  sms_ = valid_part(all.sm.smCount, parts);
  const auto too_few = [&] {
    return Error{ErrorKind::unsupported, std::to_string(parts) + " green contexts do not fit the " +
                                             std::to_string(all.sm.smCount) + " SMs of the GPU at " +
                                             device_.facts().pci};
  };
  if (sms_ == 0) throw too_few();
  std::vector<CUdevResource> groups(parts);
  auto made = static_cast<unsigned>(parts);
  LINKSCOPE_CU(driver_, cuDevSmResourceSplitByCount, groups.data(), &made, &all, nullptr, 0, sms_);
  if (made < parts) throw too_few();
  try {
    for (auto& group : groups) {
      CUdevResourceDesc description{};
      LINKSCOPE_CU(driver_, cuDevResourceGenerateDesc, &description, &group, 1);
      CUgreenCtx context{};
      LINKSCOPE_CU(driver_, cuGreenCtxCreate, &context, description, device_.facts().handle,
                   CU_GREEN_CTX_DEFAULT_STREAM);
      contexts_.push_back(context);
      CUstream stream{};
      LINKSCOPE_CU(driver_, cuGreenCtxStreamCreate, &stream, context, CU_STREAM_NON_BLOCKING, 0);
      streams_.push_back(std::make_unique<Stream>(driver_, stream));
    }
  } catch (...) {
    end();
    throw;
  }
}

GreenContexts::~GreenContexts() {
  try {
    const CurrentContext current{driver_, device_.context()};
    end();
  } catch (const Error&) {
    return;  // the driver is shutting down, so nothing can be freed
  }
}

void GreenContexts::end() {
  streams_.clear();
  for (const CUgreenCtx context : contexts_) driver_.cuGreenCtxDestroy(context);
  contexts_.clear();
}

}  // namespace linkscope
