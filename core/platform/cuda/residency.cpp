#include "platform/cuda/residency.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "gpu/queues.hpp"

namespace linkscope {
namespace {

/// Parts of an SM of any GPU. A block of 1024 threads may take all of its registers, so each warp counts as one part.
constexpr u32 parts_of_sm = 32;

/// The parts that a block takes. An SM holds 16 blocks, and four that copy by TMA take all of its shared memory.
u32 parts_of(const Actor& actor) {
  constexpr u32 warp = 32, most_blocks = 16, most_with_tma = 4;
  const bool tma = std::ranges::any_of(actor.loop, [](const Step& step) {
    const auto* move = std::get_if<Move>(&step);
    return move && move->engine == Engine::tma;
  });
  return std::max((actor.threads + warp - 1) / warp, parts_of_sm / (tma ? most_with_tma : most_blocks));
}

/// What a process runs on a GPU at once. `waiting`: kernels that wait for words; `blocks`: the number of their blocks, by
/// parts of an SM.
struct Work {
  u32 streams = 0, waiting = 0;
  std::map<u32, u32> blocks;
};

/// Whether each block finds room on one of the SMs, wherever the others are: small blocks may lie on all SMs and leave none
/// for a large one.
bool all_fit(const std::map<u32, u32>& blocks, u32 sms) {
  u32 unit = 0;
  for (const auto& [parts, count] : blocks) unit = std::gcd(unit, parts);
  return std::ranges::all_of(blocks, [&](const auto& block) {
    const u32 least = (parts_of_sm - block.first) / unit * unit + unit;  // that others hold of an SM without room
    u32 full = 0, held = 0;                                              // SMs without room; parts by smaller blocks
    for (const auto& [parts, count] : blocks) {
      const u32 others = parts == block.first ? count - 1 : count;
      if (parts >= least) full += others;
      else held += others * parts;
    }
    return full + held / least < sms;
  });
}

std::map<std::pair<u32, u32>, Work> work_of(const Program& program) {
  std::map<std::pair<u32, u32>, Work> by_gpu;  // process, GPU
  for (u32 a = 0; a < program.actors.size(); ++a) {
    const Actor& actor = program.actors[a];
    const auto on = [&](const Place& gpu) -> Work& { return by_gpu[{actor.process, gpu.index}]; };
    const bool launches = leader_of(program, a) == a;
    if (on_gpu(actor.kind)) on(actor.place).streams += launches;
    for (const auto& step : actor.loop) {
      const auto* move = std::get_if<Move>(&step);
      if (move && move->by) ++on(*move->by).streams;
    }
    if (actor.kind != ActorKind::gpu_block || !waits_for_words(actor)) continue;
    auto& work = on(actor.place);
    work.waiting += launches;
    ++work.blocks[parts_of(actor)];
  }
  return by_gpu;
}

}  // namespace

std::string why_not_resident(const Program& program, const std::vector<DeviceFacts>& gpus) {
  for (const auto& [where, work] : work_of(program)) {
    const auto gpu = "gpu:" + std::to_string(where.second);
    const u32 queues = hardware_queues();
    if (work.waiting > 0 && work.streams > queues)
      return std::to_string(work.waiting) + " of " + std::to_string(work.streams) + " streams of " + gpu +
             " have kernels that wait for words, and its work goes through " + std::to_string(queues) +
             " hardware queues (CUDA_DEVICE_MAX_CONNECTIONS): what a kernel waits for may be queued behind it";
    const auto sms = static_cast<u32>(gpus[where.second].attribute("MULTIPROCESSOR_COUNT", 0));
    u32 blocks = 0;
    for (const auto& [parts, count] : work.blocks) blocks += count;
    if (!all_fit(work.blocks, sms))
      return std::to_string(blocks) + " blocks that wait for words need more room than the " + std::to_string(sms) +
             " SMs of " + gpu + " surely have at once";
  }
  return "";
}

}  // namespace linkscope
