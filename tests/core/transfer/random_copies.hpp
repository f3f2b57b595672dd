// Random copies that go there and back between odd addresses.
#pragma once
#include <algorithm>
#include <bit>

#include "transfer_testing.hpp"

namespace linkscope {

inline constexpr u64 margin = 64;

/// A size from 0 B to `most`, mostly near a power of two.
inline u64 random_size(std::mt19937_64& random, u64 most) {
  const u64 exponent = random() % (1 + static_cast<u64>(std::bit_width(most)) - 1);
  const u64 near = (u64{1} << exponent) - 1 + random() % 3;
  return std::min(most, random() % 4 ? near : random() % (near + 1));
}

/// Whether the bytes around a copy keep their value.
inline bool margins_kept(const std::byte* start, u64 offset, u64 bytes) {
  const auto kept = [](std::byte one) { return one == std::byte{0x5A}; };
  return std::all_of(start, start + offset, kept) &&
         std::all_of(start + offset + bytes, start + bytes + 2 * margin, kept);
}

/// Where a round trip goes: from the source to the middle and back. Memory without an address is pageable, of each case.
struct Route {
  std::string name;
  Options options;
  std::byte *source, *middle, *back;
  std::vector<MethodId> methods;  // that must have made copies
  bool fresh = false;
};

/// Copies random data there and back between odd addresses. Returns whether all of it arrived.
inline bool round_trip(Transfers& transfers, const Route& route, CUstream stream, std::mt19937_64& random, u64 most) {
  const u64 bytes = random_size(random, most), from = random() % margin, at = random() % margin, to = random() % margin;
  auto sent = random_bytes(bytes, random());
  Bytes pageable(route.source ? 0 : bytes + from), pageable_back(route.back ? 0 : bytes + 2 * margin);
  std::byte *source = (route.source ? route.source : pageable.data()) + from,
            *back = route.back ? route.back : pageable_back.data();
  std::copy(sent.begin(), sent.end(), source);
  std::fill(back, back + bytes + 2 * margin, std::byte{0x5A});
  std::fill(route.middle, route.middle + bytes + 2 * margin, std::byte{0x5A});
  transfers.copy({route.middle + at, source, bytes, stream});
  if (route.source) LINKSCOPE_CU(the_driver(), cuStreamSynchronize, stream);
  std::fill(source, source + bytes, std::byte{0});
  transfers.copy({back + to, route.middle + at, bytes, stream, route.fresh});
  if (route.back) LINKSCOPE_CU(the_driver(), cuStreamSynchronize, stream);
  return same(back + to, sent.data(), bytes) && margins_kept(back, to, bytes) && margins_kept(route.middle, at, bytes);
}

/// Memory for all routes.
struct Everywhere {
  static constexpr u64 most = 64_MiB, space = most + 2 * margin;
  /// `shared`: memory of the GPU that belongs to another process, of twice the space; null: it has its own.
  explicit Everywhere(std::byte* shared = nullptr, u64 longest = most)
      : room{longest + 2 * margin}, gpu{shared ? shared : with.on_gpu()} {}
  const u64 room;
  const Application with{2 * room};
  std::byte* gpu;
  const PinnedMemory source{the_driver(), room, 0}, back{the_driver(), room, 0};
  const OnOther elsewhere{with, room};
  const GrantedMemory granted{the_driver(), with.other.facts().handle, with.gpu.facts().handle, room};
  Bytes on_host = Bytes(room);

  [[nodiscard]] std::vector<Route> routes() {
    using enum MethodId;
    auto* peer = reinterpret_cast<std::byte*>(granted.address());
    Options by_driver = small_chunks();
    by_driver.plain = true;
    return {{"copy engine", small_chunks(), nullptr, gpu, nullptr, {ring_to_gpu, ring_to_host}},
            {"kernel", small_chunks_by_kernel(), nullptr, gpu, nullptr, {ring_to_gpu, ring_to_host}},
            {"fresh", small_chunks(), nullptr, gpu, nullptr, {ring_to_fresh}, true},
            {"several links", with_links(), nullptr, gpu, nullptr, {ring_to_gpu, ring_to_host}},
            {"fresh over several links", with_links(), nullptr, gpu, nullptr, {ring_to_fresh}, true},
            {"helpers", with_helpers(), source.data(), gpu, back.data(), {relay_to_gpu, relay_to_host}},
            {"between GPUs", with_helpers(), gpu, elsewhere.at(), gpu + room, {between_gpus}},
            {"SMs within a GPU", by_kernels(false), gpu, gpu + room, back.data(), {within_gpu}},
            {"TMA within a GPU", by_kernels(true), gpu, gpu + room, back.data(), {within_gpu}},
            {"SMs between peers", by_kernels(false), gpu, peer, gpu + room, {between_peers}},
            {"TMA between peers", by_kernels(true), gpu, peer, gpu + room, {between_peers}},
            {"host", small_chunks(), nullptr, on_host.data(), nullptr, {host}},
            {"plain", by_driver, nullptr, gpu, nullptr, {}}};
  }
};

}  // namespace linkscope
