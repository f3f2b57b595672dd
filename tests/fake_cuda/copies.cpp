// Copies and fills: calls queue them on a stream, and the stream's thread makes them.
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "calls.hpp"
#include "context.hpp"
#include "copies.hpp"
#include "faults.hpp"
#include "log.hpp"
#include "memory.hpp"
#include "settings.hpp"
#include "stream.hpp"

namespace fake {
namespace {

/// One side of a copy. A host side may be any memory; a device side must be an allocation of the driver.
struct Side {
  unsigned long long address;
  bool host;
  std::optional<Allocation> allocation;

  Side(unsigned long long at, bool is_host, size_t bytes) : address{at}, host{is_host}, allocation{find(at, bytes)} {}
  /// Memory that begins in an allocation must end in it. The driver knows the addresses of GPUs.
  [[nodiscard]] bool invalid() const {
    return !allocation && (!host || !address || find(address, 1) || was_freed(address));
  }
  [[nodiscard]] bool pageable() const { return host && !allocation; }
  [[nodiscard]] bool on_gpu() const {
    return allocation && (allocation->of_gpu() || allocation->kind == Allocation::Kind::granted);
  }
};

struct Copy {
  Side dst, src;
  size_t bytes;
  [[nodiscard]] bool within(CUdevice by) const {
    return dst.on_gpu() && src.on_gpu() && dst.allocation->device == by && src.allocation->device == by;
  }
  [[nodiscard]] bool between_gpus() const {
    return dst.on_gpu() && src.on_gpu() && dst.allocation->device != src.allocation->device;
  }
  /// True if a side was opened for a GPU other than the one that copies.
  [[nodiscard]] bool foreign(CUdevice by) const {
    const auto is_foreign = [by](const Side& side) {
      return side.allocation && side.allocation->kind == Allocation::Kind::opened && side.allocation->by != by;
    };
    return is_foreign(dst) || is_foreign(src);
  }
  [[nodiscard]] bool by_peer(CUdevice by) const {
    if (!between_gpus() || foreign(by)) return false;
    const auto opened = [by](const Allocation& one) {
      return one.kind == Allocation::Kind::opened && one.device != by;
    };
    if (opened(*dst.allocation) || opened(*src.allocation)) return true;
    const auto grants = [](const Allocation& to, const Allocation& who) {
      return to.granted && to.granted->contains(who.device);
    };
    return peers(dst.allocation->device, src.allocation->device) || grants(*dst.allocation, *src.allocation) ||
           grants(*src.allocation, *dst.allocation);
  }
};

void make(const Copy& copy, bool garbled) {
  if (lost() != CUDA_SUCCESS) return;
  auto* to = reinterpret_cast<unsigned char*>(copy.dst.address);
  const auto delivers = begin_copy();
  if (garbled) std::memset(to, 0xA5, copy.bytes);
  else if (delivers != Delivers::nothing) std::memmove(to, reinterpret_cast<const void*>(copy.src.address), copy.bytes);
  if (delivers == Delivers::one_byte_more) to[copy.bytes] ^= 1;
  if (delivers == Delivers::one_wrong_byte) to[copy.bytes / 2] ^= 1;
  end_copy();
}

/// Without peer access the driver stages data in its own buffers. The caller waits while they are full.
void wait_for_staging(CUstream_st& stream, size_t bytes) {
  if (stream.staged_bytes == 0 || stream.staged_bytes + bytes <= settings().staging_bytes) return;
  if (const auto& when = settings().staging_while; when.empty() || std::filesystem::exists(when)) stream.wait();
}

CUresult queue(const Copy& copy, CUstream handle) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (copy.bytes == 0) return CUDA_SUCCESS;
  if (copy.dst.invalid() || copy.src.invalid()) return CUDA_ERROR_INVALID_VALUE;
  if (copy.dst.allocation && copy.dst.allocation->is_read_only) lose(CUDA_ERROR_ILLEGAL_ADDRESS);
  const CUdevice by = stream->context->device;
  const bool by_peer = copy.by_peer(by), staged = copy.foreign(by) || (copy.between_gpus() && !by_peer);
  if (staged) {
    log("staged", stream->context, std::to_string(copy.bytes));
    wait_for_staging(*stream, copy.bytes);
    stream->staged_bytes += copy.bytes;
  }
  const auto extra_us = copy.within(by) ? stream->context->extra_us : 0;
  const auto number =
      stream->submit([copy, staged, garbled = by_peer && settings().lying_peer, extra_us, &at = *stream] {
        if (extra_us) std::this_thread::sleep_for(std::chrono::microseconds{extra_us});
        make(copy, garbled);
        if (staged) at.staged_bytes -= copy.bytes;
      });
  // The driver copies pageable memory on the host in stream order, and the caller waits for it.
  if (!copy.dst.pageable() && !copy.src.pageable()) return CUDA_SUCCESS;
  stream->wait(number);
  return lost();
}

/// A synchronous copy. The fault settings do not count it, because they concern measured copies.
CUresult copy_now(const Copy& copy) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (copy.bytes == 0) return CUDA_SUCCESS;
  if (copy.dst.invalid() || copy.src.invalid()) return CUDA_ERROR_INVALID_VALUE;
  drain_blocking(current());
  const auto stream = stream_of(nullptr);
  stream->wait(stream->submit([copy] {
    if (lost() == CUDA_SUCCESS)
      std::memmove(reinterpret_cast<void*>(copy.dst.address), reinterpret_cast<const void*>(copy.src.address),
                   copy.bytes);
  }));
  return lost();
}

}  // namespace

CUresult memcpy_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return queue({{dst, true, bytes}, {src, true, bytes}, bytes}, stream);
}

CUresult memcpy_htod_async(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  return queue({{dst, false, bytes}, {address_of(src), true, bytes}, bytes}, stream);
}

CUresult memcpy_dtoh_async(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return queue({{address_of(dst), true, bytes}, {src, false, bytes}, bytes}, stream);
}

CUresult memcpy_dtod_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return queue({{dst, false, bytes}, {src, false, bytes}, bytes}, stream);
}

CUresult memcpy_peer_async(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
                           CUstream stream) {
  if (!is_context(dst_context) || !is_context(src_context)) return CUDA_ERROR_INVALID_CONTEXT;
  return queue({{dst, false, bytes}, {src, false, bytes}, bytes}, stream);
}

CUresult memcpy_htod(CUdeviceptr dst, const void* src, size_t bytes) {
  return copy_now({{dst, false, bytes}, {address_of(src), true, bytes}, bytes});
}

CUresult memcpy_dtoh(void* dst, CUdeviceptr src, size_t bytes) {
  return copy_now({{address_of(dst), true, bytes}, {src, false, bytes}, bytes});
}

namespace {

/// A copy of rows. Faults change a byte in its middle or after its first row.
struct Pitched {
  size_t bytes, rows, planes;
  Side dst, src;
  size_t dst_pitch, dst_plane, src_pitch, src_plane;

  [[nodiscard]] bool rows_overlap() const { return bytes > dst_pitch || bytes > src_pitch; }
};

Side side(CUmemorytype type, const void* host, CUdeviceptr device, size_t first, size_t bytes) {
  return {(type == CU_MEMORYTYPE_HOST ? address_of(host) : device) + first, type == CU_MEMORYTYPE_HOST, bytes};
}

Pitched pitched(const CUDA_MEMCPY3D& c) {
  const size_t src_plane = c.srcPitch * c.srcHeight, dst_plane = c.dstPitch * c.dstHeight;
  const auto span = [&](size_t pitch, size_t plane) {
    return c.Depth && c.Height ? (c.Depth - 1) * plane + (c.Height - 1) * pitch + c.WidthInBytes : 0;
  };
  return {c.WidthInBytes,
          c.Height,
          c.Depth,
          side(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes + c.dstY * c.dstPitch + c.dstZ * dst_plane,
               span(c.dstPitch, dst_plane)),
          side(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes + c.srcY * c.srcPitch + c.srcZ * src_plane,
               span(c.srcPitch, src_plane)),
          c.dstPitch,
          dst_plane,
          c.srcPitch,
          src_plane};
}

void make(const Pitched& copy) {
  if (lost() != CUDA_SUCCESS) return;
  const auto delivers = begin_copy();
  const auto to = [&](size_t plane, size_t row) {
    return reinterpret_cast<unsigned char*>(copy.dst.address + plane * copy.dst_plane + row * copy.dst_pitch);
  };
  for (size_t plane = 0; plane < copy.planes && delivers != Delivers::nothing; ++plane)
    for (size_t row = 0; row < copy.rows; ++row)
      std::memmove(to(plane, row),
                   reinterpret_cast<const void*>(copy.src.address + plane * copy.src_plane + row * copy.src_pitch),
                   copy.bytes);
  if (delivers == Delivers::one_byte_more) to(0, 0)[copy.bytes] ^= 1;
  if (delivers == Delivers::one_wrong_byte) to(copy.planes / 2, copy.rows / 2)[copy.bytes / 2] ^= 1;
  end_copy();
}

CUresult status_of(const Pitched& copy) {
  const bool pageable = copy.dst.pageable() || copy.src.pageable();  // the fake has no staging for rows
  return copy.rows_overlap() || copy.dst.invalid() || copy.src.invalid() || pageable ? CUDA_ERROR_INVALID_VALUE
                                                                                     : CUDA_SUCCESS;
}

CUDA_MEMCPY3D flat(const CUDA_MEMCPY2D& c) {
  CUDA_MEMCPY3D all{};
  all.srcMemoryType = c.srcMemoryType, all.srcHost = c.srcHost, all.srcDevice = c.srcDevice, all.srcPitch = c.srcPitch;
  all.dstMemoryType = c.dstMemoryType, all.dstHost = c.dstHost, all.dstDevice = c.dstDevice, all.dstPitch = c.dstPitch;
  all.srcXInBytes = c.srcXInBytes, all.srcY = c.srcY, all.dstXInBytes = c.dstXInBytes, all.dstY = c.dstY;
  all.srcHeight = all.dstHeight = all.Height = c.Height;
  all.WidthInBytes = c.WidthInBytes, all.Depth = 1;
  return all;
}

}  // namespace

CUresult memcpy_2d_async(const CUDA_MEMCPY2D* copy, CUstream stream) {
  const auto all = flat(*copy);
  return memcpy_3d_async(&all, stream);
}

CUresult memcpy_3d_async(const CUDA_MEMCPY3D* requested, CUstream handle) {
  std::function<void()> work;
  if (const CUresult status = work_of(*requested, work); status != CUDA_SUCCESS) return status;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  stream->submit(std::move(work));
  return CUDA_SUCCESS;
}

CUresult work_of(const CUDA_MEMCPY3D& requested, std::function<void()>& work) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto copy = pitched(requested);
  if (const CUresult status = status_of(copy); status != CUDA_SUCCESS) return status;
  work = [copy] { make(copy); };
  return CUDA_SUCCESS;
}

CUresult memcpy_batch_async(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* attribute_of, size_t attribute_count,
                            CUstream stream) {
  if (!stream || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0 || attribute_count == 0 || attribute_count > count || attribute_of[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < attribute_count; ++i)
    if (attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
        attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
      return CUDA_ERROR_INVALID_VALUE;
  log("batch", current(), std::to_string(count));
  for (size_t i = 0; i < count; ++i)
    if (const CUresult status = memcpy_async(dsts[i], srcs[i], sizes[i], stream); status != CUDA_SUCCESS) return status;
  return CUDA_SUCCESS;
}

CUresult memcpy_batch_async_of_12_8(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                    CUmemcpyAttributes* attributes, size_t* attribute_of, size_t attribute_count,
                                    size_t* failed, CUstream stream) {
  const CUresult status =
      memcpy_batch_async(dsts, srcs, sizes, count, attributes, attribute_of, attribute_count, stream);
  if (status != CUDA_SUCCESS && failed) *failed = ~size_t{0};
  return status;
}

CUresult memset_d8_async(CUdeviceptr dst, unsigned char value, size_t bytes, CUstream handle) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  if (!find(dst, bytes)) return CUDA_ERROR_INVALID_VALUE;
  log("fill", stream->context, std::to_string(bytes) + ' ' + std::to_string(value));
  stream->submit([=] {
    if (lost() == CUDA_SUCCESS) std::memset(reinterpret_cast<void*>(dst), value, bytes);
  });
  return CUDA_SUCCESS;
}

}  // namespace fake
