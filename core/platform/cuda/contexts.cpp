#include "platform/cuda/contexts.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "gpu/memory.hpp"
#include "host/patience.hpp"
#include "platform/cuda/session.hpp"

namespace linkscope {
namespace {

// By operation_cost() the cheap contexts of an H200 are within 1 % of each other, and the expensive ones 6 % above
// them.
constexpr double alike = 1.02;
constexpr Seconds noise{20e-9};
constexpr std::array<u64, 2> sizes{4 << 10, 64 << 10};
constexpr std::size_t to_know = 8, most = 16;  // if three of five are expensive, one run of sixty sees no cheap one

}  // namespace

std::vector<std::vector<Seconds>> make_contexts_alike(const std::vector<ContextMaker>& makers, Floors floors) {
  std::vector<std::vector<Seconds>> costs(makers.size());
  std::vector<bool> failed(makers.size());
  std::map<std::string, std::size_t> wanted;  // of models without a known floor
  for (const auto& maker : makers)
    if (!maker.floor && !floors.contains(maker.model)) wanted[maker.model] = to_know;
  // A GPU that has slowed down no longer has such a context. After `to_know` contexts its own cheapest one is the
  // limit.
  const auto is_slow = [&](std::size_t gpu) {
    const auto& own = costs[gpu];
    if (own.size() >= most) return false;
    const Seconds least = own.size() >= to_know ? *std::min_element(own.begin(), own.end())
                                                : makers[gpu].floor.value_or(floors.at(makers[gpu].model));
    return own.back() > alike * least + noise;
  };
  const auto make = [&](std::size_t gpu) {
    if (auto& left = wanted[makers[gpu].model]; left > 0) --left;
    const auto cost = makers[gpu].anew();
    failed[gpu] = !cost;
    if (!cost) return costs[gpu].clear();
    costs[gpu].push_back(*cost);
    const auto [floor, first] = floors.emplace(makers[gpu].model, *cost);
    floor->second = std::min(floor->second, *cost);
  };
  for (std::size_t gpu = 0; gpu < makers.size(); ++gpu) make(gpu);
  // In turn, so that GPUs of a model share the effort of learning it.
  for (bool more = true; more;) {
    more = false;
    for (std::size_t gpu = 0; gpu < makers.size(); ++gpu) {
      if (failed[gpu] || (wanted[makers[gpu].model] == 0 && !is_slow(gpu))) continue;
      make(gpu);
      more = true;
    }
  }
  return costs;
}

Seconds mean_cost(const TimeBatch& time) {
  constexpr unsigned few = 32, many = 192;
  constexpr std::size_t streams = 3;
  constexpr int tries = 3;
  // A cost that is too low would be the floor of all contexts. An interrupted short batch gives one: it takes more than
  // half of the time of a long one, and both are timed again.
  const auto slope = [&](std::size_t stream, u64 bytes) {
    for (int number = 1;; ++number) {
      const Seconds short_s = time(stream, bytes, few), long_s = time(stream, bytes, many);
      if (short_s < long_s / 2 || number == tries) return (long_s - short_s) / (many - few);
    }
  };
  Seconds all{0};
  for (std::size_t stream = 0; stream < streams; ++stream) {
    (void)time(stream, sizes.back(), few);  // the first copies of a stream take longer, and clocks rise
    for (const u64 bytes : sizes) all += slope(stream, bytes);
  }
  return std::max(all / (streams * sizes.size()), noise);
}

Seconds operation_cost(const Driver& driver, Device& device) {
  const Seconds patience = patient(Seconds{0.1});
  constexpr int tries = 3;  // of a batch that the host took too long to queue
  device.use();
  const Gate gate{driver, device};
  const Event enter{driver}, exit{driver};
  const DeviceMemory memory{driver, 2 * sizes.back()};
  return mean_cost([&](std::size_t stream_number, u64 bytes, unsigned count) {
    const Stream& stream = device.stream(stream_number);
    for (int number = 0; number < tries; ++number) {
      {
        const GateKeeper keeper{gate, HeldBy::kernel, patience};
        gate.queue(device, stream.get(), HeldBy::kernel, patience);
        LINKSCOPE_CU(driver, cuEventRecord, enter.get(), stream.get());
        for (unsigned i = 0; i < count; ++i)
          LINKSCOPE_CU(driver, cuMemcpyDtoDAsync, memory.address() + sizes.back(), memory.address(), bytes,
                       stream.get());
        LINKSCOPE_CU(driver, cuEventRecord, exit.get(), stream.get());
      }
      stream.synchronize();
      if (gate.timed_out()) continue;
      float milliseconds = 0;
      LINKSCOPE_CU(driver, cuEventElapsedTime, &milliseconds, enter.get(), exit.get());
      return Seconds{milliseconds * 1e-3};
    }
    throw Error{ErrorKind::timeout, "the host did not finish queueing copies before the gate's time-out of " +
                                        std::to_string(patience.count()) + " s"};
  });
}

}  // namespace linkscope
