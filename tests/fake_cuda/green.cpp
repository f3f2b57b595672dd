// Green contexts: counts of SMs, and streams of the primary context. The fake's kernels use no SMs.
#include <algorithm>

#include "calls.hpp"
#include "context.hpp"
#include "leaks.hpp"
#include "stream.hpp"

struct CUdevResourceDesc_st {
  unsigned sms = 0;
};
struct CUgreenCtx_st {
  CUcontext primary = nullptr;
};

namespace fake {
namespace {

constexpr unsigned group = 8;  // SMs of a part come in multiples of it, as from compute capability 9.0

Live<CUgreenCtx_st>& green_contexts() {
  static auto* live = new Live<CUgreenCtx_st>;
  return *live;
}

}  // namespace

void count_green_contexts(LeakCounts& counts) { counts["green contexts"] += green_contexts().size(); }

CUresult device_get_dev_resource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  if (!resource || type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_VALUE;
  int sms = 0;
  if (const CUresult status = device_get_attribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device))
    return status;
  resource->type = type;
  resource->sm.smCount = static_cast<unsigned>(sms);
  return CUDA_SUCCESS;
}

CUresult dev_sm_resource_split_by_count(CUdevResource* parts, unsigned* count, const CUdevResource* from,
                                        CUdevResource* remaining, unsigned, unsigned least) {
  if (!count || !from || from->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_VALUE;
  const unsigned each = std::max(group, (least + group - 1) / group * group), most = from->sm.smCount / each;
  if (most == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const unsigned made = parts ? std::min(*count, most) : most;
  for (unsigned i = 0; parts && i < made; ++i) {
    parts[i] = *from;
    parts[i].sm.smCount = each;
  }
  if (remaining) {
    *remaining = *from;
    remaining->sm.smCount -= made * each;
  }
  *count = made;
  return CUDA_SUCCESS;
}

CUresult dev_resource_generate_desc(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) {
  if (!description || !resources || count != 1) return CUDA_ERROR_INVALID_VALUE;
  thread_local CUdevResourceDesc_st latest;
  latest.sms = resources->sm.smCount;
  *description = &latest;
  return CUDA_SUCCESS;
}

CUresult green_ctx_create(CUgreenCtx* made, CUdevResourceDesc description, CUdevice device, unsigned flags) {
  if (!made || !description || description->sms == 0 || flags != CU_GREEN_CTX_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  auto context = std::make_shared<CUgreenCtx_st>();
  if (const CUresult status = device_primary_ctx_retain(&context->primary, device)) return status;
  *made = context.get();
  green_contexts().add(std::move(context));
  return CUDA_SUCCESS;
}

CUresult green_ctx_destroy(CUgreenCtx context) {
  const auto found = green_contexts().remove(context);
  return found ? device_primary_ctx_release(found->primary->device) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult green_ctx_stream_create(CUstream* stream, CUgreenCtx context, unsigned flags, int) {
  const auto found = green_contexts().find(context);
  if (!found || !stream) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != CU_STREAM_NON_BLOCKING)
    return CUDA_ERROR_INVALID_VALUE;  // green streams never synchronize with legacy ones
  auto made = make_stream(found->primary, flags);
  *stream = made.get();
  streams().add(std::move(made));
  return CUDA_SUCCESS;
}

}  // namespace fake
