// Blocks of one kernel, and kernels that cannot run at once, on the cuda platform with the fake driver.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/actor_ops.hpp"
#include "benchmarks/case.hpp"
#include "cuda_testing.hpp"
#include "gpu/devices.hpp"
#include "gpu/queues.hpp"
#include "platform/cuda/device_code.hpp"
#include "platform/cuda/residency.hpp"

using namespace linkscope;

namespace {

Program program_of(const char* benchmark, Engine engine, const Place& src, const Place& dst,
                   std::map<std::string, std::string> params) {
  const auto memory = [](const Place& at) { return at.kind == PlaceKind::gpu ? MemKind::device : MemKind::pinned; };
  const u64 bytes = std::string{benchmark} == "bystander" ? 0 : 512;
  auto program = build_program({benchmark, engine, src, dst, memory(src), memory(dst), bytes, 0, std::move(params)});
  validate(program);
  return program;
}

Program pollers(const char* blocks) {
  auto program = program_of("bystander", Engine::sm, gpu(0), numa(0), {{"beside", "poll"}, {"blocks", blocks}});
  // The product of the fake library takes long, and is not what is tested.
  program.actors.erase(program.actors.begin());
  std::erase_if(program.flows, [](const Flow& flow) { return flow.actor == 0; });
  for (auto& flow : program.flows) --flow.actor;
  return program;
}

Trace run_grid(const Program& program, const Order& order) {
  const auto support = platform().supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  const auto session = platform().prepare(program, "grid#0");
  return platform().run(*session, order);
}

std::vector<u32> all_take(const Program& program, u32 count) { return std::vector<u32>(program.actors.size(), count); }

}  // namespace

TEST_CASE("more blocks than hardware queues poll one word as one kernel, in batches and for a duration") {
  REQUIRE(hardware_queues() < 32);
  const auto program = pollers("32");
  for (const u32 count : {1u, 7u}) {
    const auto trace = run_grid(program, {2, {all_take(program, count)}, true});
    CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
    for (u32 block = 1; block < 32; ++block) {
      CHECK(trace.at(1, 0, block).enter_s == trace.at(1, 0, 0).enter_s);
      CHECK(trace.at(1, 0, block).exit_s == trace.at(1, 0, 0).exit_s);
    }
  }
  const auto trace = run_grid(program, {1, {}, true, Duration{Seconds{0.05}, Seconds{0.01}}});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  for (const auto& series : trace.series)
    CHECK(series.marks.back().iterations == trace.series[0].marks.back().iterations);
}

TEST_CASE("each block of a kernel has its own ops, and all messages of more connections than queues arrive") {
  for (const auto& program :
       {program_of("queued_put", Engine::sm, gpu(0), gpu(1), {{"connections", "16"}}),
        program_of("queued_put", Engine::cpu, numa(0), numa(0), {{"connections", "64"}, {"proxies", "4"}}),
        program_of("put", Engine::tma, gpu(0), gpu(1), {{"connections", "16"}}),
        program_of("put_ping_pong", Engine::sm, gpu(0), gpu(1), {{"blocks", "4"}})}) {
    const auto trace = run_grid(program, {1, {all_take(program, 40)}, true});
    CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
    CHECK(trace.verdict->checked_bytes >= 512);
  }
}

TEST_CASE("a block that waits in vain is named, whichever block of its kernel it is") {
  auto program = pollers("4");
  auto& loop = program.actors[2].loop;
  auto& wait = std::get<Wait>(loop[0]);
  wait.timeout = Seconds{0.05};
  wait.value += 1000;
  std::swap(loop[0], loop[1]);  // the CPU thread gets its answer
  CHECK_THROWS_WITH_AS(run_grid(program, {1, {all_take(program, 1)}, false}), doctest::Contains("to become 1001"),
                       Error);
}

TEST_CASE("kernels that wait for words, and could be queued behind one another, are refused with a reason") {
  const auto refused = [](const Program& program, const char* words) {
    const auto why = platform().supports(program).why_not;
    CHECK_MESSAGE(why.find(words) != std::string::npos, why);
  };
  auto program = pollers("16");
  for (auto& actor : program.actors) actor.grid.reset();
  program.flows.clear();
  program.actors.erase(program.actors.begin(), program.actors.begin() + 8);
  CHECK(platform().supports(program));  // as many kernels as queues
  program.actors.insert(program.actors.begin(), program.actors.front());
  refused(program, "9 of 9 streams of gpu:0 have kernels that wait for words, and its work goes through 8 hardware");
  program = program_of("queued_put", Engine::ce, gpu(0), numa(0), {{"connections", "8"}});
  CHECK(why_not_resident(program, platform().facts().gpus).find("1 of 9 streams of gpu:0") == 0);
  refused(program_of("queued_put", Engine::sm, gpu(0), numa(0), {{"connections", "8"}, {"launch", "each"}}),
          "16 of 16 streams");
}

TEST_CASE("streams whose kernels wait for nobody may share a queue") {
  auto program = program_of("bystander", Engine::sm, gpu(0), numa(0), {{"beside", "post"}, {"blocks", "16"}});
  for (auto& actor : program.actors) actor.grid.reset();
  CHECK(why_not_resident(program, platform().facts().gpus) == "");
}

TEST_CASE("more blocks that wait for words than the SMs hold are refused with a reason") {
  auto program = pollers("32");
  const auto why = [&](u32 threads, u32 blocks) {
    while (program.actors.size() < blocks + 1) program.actors.insert(program.actors.begin(), program.actors.front());
    for (auto& actor : program.actors)
      if (actor.kind == ActorKind::gpu_block) actor.threads = threads;
    return why_not_resident(program, platform().facts().gpus);
  };
  CHECK(why(1024, 132) == "");
  CHECK(why(1024, 133).find("133 blocks that wait for words need more room than the 132 SMs of gpu:0") == 0);
  CHECK(why(256, 4 * 132) == "");
  CHECK(why(256, 4 * 132 + 1) != "");
  CHECK(why(1, 16 * 132) == "");
  CHECK(why(1, 16 * 132 + 1) != "");
  // A block of 1024 threads needs an SM without any other block, and small ones may lie on all SMs.
  const auto beside = [](const char* connections, const Place& dst) {
    const std::map<std::string, std::string> params{{"connections", connections}, {"threads", "1024"}};
    return why_not_resident(program_of("queued_put", Engine::sm, gpu(0), dst, params), platform().facts().gpus);
  };
  CHECK(beside("64", gpu(1)) == "");
  CHECK(beside("32", gpu(0)) == "");
  CHECK(beside("64", gpu(0)).find("192 blocks that wait for words") == 0);
}

TEST_CASE("the fake driver runs as many kernels at once as it has hardware queues") {
  const Driver driver;
  Devices devices{driver, embedded_code()};
  Device& device = devices.at(0);
  device.use();
  const u32 queues = hardware_queues(), count = queues + 1;
  const PinnedMemory words{driver, (1 + 2 * count) * sizeof(u64), CU_MEMHOSTALLOC_DEVICEMAP};
  auto* const at = reinterpret_cast<u64*>(words.data());
  std::fill_n(at, 1 + 2 * count, 0);
  const auto address = [](const u64* word) { return OpSpan{reinterpret_cast<Word>(word), 0, 1}; };
  // Each kernel says that it has begun, and waits for one word.
  std::vector<std::unique_ptr<Stream>> streams;
  for (u32 kernel = 0; kernel < count; ++kernel) {
    ActorOps table{2, {}};
    table.ops[0].kind = OpKind::set;
    table.ops[0].to = address(at + 1 + kernel);
    table.ops[1].kind = OpKind::wait;
    table.ops[1].from = address(at);
    for (auto* op : {&table.ops[0], &table.ops[1]}) op->bytes = sizeof(u64), op->value = 1;
    table.ops[1].timeout_ns = 300'000'000'000;
    const u64* further = nullptr;
    auto* result = words.data() + (1 + count) * sizeof(u64);
    u64 first = 0, iterations = 1;
    void* arguments[] = {&table, &first, &iterations, &result, &further};
    streams.push_back(std::make_unique<Stream>(driver));
    device.launch(device.function("block", "linkscope_block"), 1, 1, streams.back()->get(), arguments);
  }
  const auto begun = [&] {
    u32 sum = 0;
    for (u32 kernel = 0; kernel < count; ++kernel) sum += static_cast<u32>(std::atomic_ref{at[1 + kernel]}.load());
    return sum;
  };
  while (begun() < queues) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  CHECK(begun() == queues);
  std::atomic_ref{at[0]} = 1;
  for (const auto& stream : streams) stream->synchronize();
  CHECK(begun() == count);
}
