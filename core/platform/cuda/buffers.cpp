#include "platform/cuda/buffers.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "platform/cuda/contents.hpp"
#include "program/chain.hpp"

namespace linkscope {

Buffer::Buffer(const Driver& driver, Device* device, const Region& region, u64 bytes)
    : driver_{driver}, device_{device}, kind_{region.kind}, bytes_{bytes}, memory_{driver, device, region, bytes} {
  memory_.make();
}

Buffer::Buffer(const Driver& driver, Device* device, const Region& region, u64 bytes, Share share)
    : driver_{driver},
      device_{device},
      kind_{region.kind},
      bytes_{bytes},
      memory_{driver, device, region, bytes, false} {
  memory_.receive(std::move(share));
  memory_.make();
}

void Buffer::fill_with_pattern(u64 seed) {
  seed_ = seed;
  if (!reachable()) return fill_pattern(host(), bytes_, seed);
  u64 words = bytes_ / 8, first = 0;
  CUdeviceptr address = this->address();
  void* arguments[] = {&address, &words, &seed, &first};
  device_->use();
  const auto& stream = device_->stream(0);
  device_->launch(device_->function("pattern", "linkscope_fill"), 1024, 256, stream.get(), arguments);
  stream.synchronize();
}

void Buffer::fill_with(std::byte with, u64 bytes) {
  if (!reachable()) return linkscope::fill(host(), std::min(bytes, bytes_), with);
  device_->use();
  const auto& stream = device_->stream(0);
  LINKSCOPE_CU(driver_, cuMemsetD8Async, address(), static_cast<unsigned char>(with), std::min(bytes, bytes_),
               stream.get());
  stream.synchronize();
}

void Buffer::fill_with_chain(u64 bytes) {
  u64 lines = bytes / linkscope_chain_line;
  if (!reachable()) {
    for (u64 i = 0; i < lines; ++i)
      *reinterpret_cast<std::byte**>(host() + i * linkscope_chain_line) =
          host() + linkscope_chain_next(i, lines) * linkscope_chain_line;
    return;
  }
  CUdeviceptr address = this->address();
  void* arguments[] = {&address, &lines};
  device_->use();
  const auto& stream = device_->stream(0);
  device_->launch(device_->function("access", "linkscope_fill_chain"), 256, 256, stream.get(), arguments);
  stream.synchronize();
}

Buffers::Buffers(const Driver& driver, const std::vector<Wanted>& most) : driver_{driver} {
  for (const auto& [at, kind, bytes] : most) most_[{at, kind}] = bytes;
}

Buffer& Buffers::get(const Region& region, u32 number, Device* device) {
  auto& [kept, program] =
      kept_[{region.at, region.kind, region.page_bytes, region.transparent, region.bound, region.content, number}];
  program = program_;
  if (!kept || kept->size() < region.bytes) {
    kept.reset();  // before allocating the larger one: both might not fit
    const u64 most = most_of(region, number);
    std::unique_ptr<Buffer> fresh;
    try {
      fresh = made(region, std::max(region.bytes, most), device);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::memory || most <= region.bytes) throw;
      fresh = made(region, region.bytes, device);  // the program that needs more will report it
    }
    if (has_pattern(region.content))
      fresh->fill_with_pattern((0x6C696E6B73636F70ull + ++made_) | seed_bits(region.content));
    kept = std::move(fresh);  // filled first: a buffer whose fill fails is not kept
  }
  kept->reach_from(device);
  return *kept;
}

std::unique_ptr<Buffer> Buffers::made(const Region& region, u64 bytes, Device* device) {
  return with_room(*this, [&] { return std::make_unique<Buffer>(driver_, device, region, whole_grains(bytes)); });
}

u64 Buffers::most_of(const Region& region, u32 number) const {
  if (number || region.page_bytes || !region.bound || region.content != Content::pattern) return 0;
  const auto found = most_.find({region.at, region.kind});
  return found == most_.end() ? 0 : found->second;
}

bool Buffers::drop_unused() {
  bool any = false;
  for (auto& [what, kept] : kept_) {
    if (kept.program == program_ || !kept.buffer) continue;
    kept.buffer.reset();
    any = true;
  }
  return any;
}

namespace {

/// Launches a kernel with its arguments and the place of its result.
template <class... A>
Mismatch compared_by(const Driver& driver, const Buffer& checked, CUfunction kernel, A... arguments) {
  auto& device = *checked.device();
  device.use();
  CUdeviceptr result = device.result(comparison_result);
  const auto& stream = device.stream(0);
  LINKSCOPE_CU(driver, cuMemsetD8Async, result, 0, sizeof(u64), stream.get());
  LINKSCOPE_CU(driver, cuMemsetD8Async, result + sizeof(u64), 0xFF, sizeof(u64), stream.get());
  void* pointers[] = {&arguments..., &result};
  device.launch(kernel, 1024, 256, stream.get(), pointers);
  stream.synchronize();
  u64 found[2] = {0, 0};
  LINKSCOPE_CU(driver, cuMemcpyDtoH, found, result, sizeof found);
  return {found[0], found[1]};
}

}  // namespace

Mismatch compare(const Driver& driver, const Buffer& checked, u64 offset, u64 bytes, u64 seed, u64 pattern_offset) {
  if (!checked.reachable()) return check_pattern(checked.host() + offset, bytes, seed, pattern_offset);
  const CUfunction kernel = checked.device()->function("pattern", "linkscope_check");
  return compared_by(driver, checked, kernel, checked.address() + offset, bytes / 8, seed, pattern_offset / 8);
}

Mismatch compare_rows(const Driver& driver, const Buffer& checked, u64 offset, u64 bytes,
                      const linkscope_row_copy& copy) {
  if (!checked.reachable()) return check_rows(checked.host() + offset, bytes, copy);
  return compared_by(driver, checked, checked.device()->function("pattern", "linkscope_check_rows"),
                     checked.address() + offset, bytes / 8, copy);
}

Mismatch compare_lines(const Driver& driver, const Buffer& checked, u64 offset, const Access& access, u64 seed) {
  const CUfunction kernel = checked.device()->function("access", "linkscope_check_lines");
  return compared_by(driver, checked, kernel, checked.address() + offset, access.span.bytes / 8, access_count(access),
                     access.stride, u64{access.width}, seed, offset, poison_word);
}

}  // namespace linkscope
