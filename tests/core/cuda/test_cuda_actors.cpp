// Actors that wait, samples of a duration and library calls on the cuda platform, with the fake driver (tests/fake_cuda)
// and its library.
#include <algorithm>
#include <chrono>

#include "benchmarks/case.hpp"
#include "cuda_testing.hpp"
#include "gpu/cublas.hpp"
#include "platform/cuda/durations.hpp"
#include "platform/cuda/supports.hpp"
#include "platform/cuda/turns.hpp"

using namespace linkscope;
using namespace linkscope::literals;

namespace {

constexpr u64 word = sizeof(u64), line = 256;

Actor block(u32 gpu_index, u32 threads, std::vector<Step> loop) {
  return {gpu(gpu_index), ActorKind::gpu_block, Clock::host, {}, 0, {}, std::move(loop), threads};
}

Actor thread(std::vector<Step> loop) {
  return {numa(0), ActorKind::cpu_thread, Clock::host, {}, 0, {}, std::move(loop)};
}

constexpr u64 before_reuse(u64 slots) { return 1 - slots; }

/// A block fills a ring of slots in pinned memory, and a CPU thread empties it.
Program block_posts_to_cpu_proxy(u64 bytes, u32 slots) {
  Program p;
  p.cache = CacheState::hot;
  p.regions = {{gpu(0), MemKind::device, 16 * bytes, Content::pattern},
               {numa(0), MemKind::pinned, slots * bytes, Content::poison},
               {numa(0), MemKind::pageable, 16 * bytes, Content::poison},
               {numa(0), MemKind::pinned, (slots + 1) * line, Content::zero}};
  const Span source{0, 0, bytes, bytes, 16}, slot{1, 0, bytes, bytes, slots}, target{2, 0, bytes, bytes, 16};
  const Span valid{3, 0, word, line, slots}, taken{3, slots * line, word};
  p.actors = {
      block(0, 128, {Wait{taken, before_reuse(slots), 1}, Move{source, slot, Engine::sm}, Fence{}, Set{valid, 1, 1}}),
      thread({Wait{valid, 1, 1}, Move{slot, target, Engine::cpu}, Set{taken, 1, 1}})};
  p.flows = {{1, gpu(0), numa(0), MemKind::device, MemKind::pageable, bytes}};
  return p;
}

/// A block that writes a span, and reads another one.
Program block_stores_and_loads(u64 bytes) {
  Program p;
  p.cache = CacheState::hot;
  p.regions = {{gpu(0), MemKind::device, 2 * bytes, Content::poison},
               {gpu(0), MemKind::device, 3 * bytes, Content::pattern}};
  using enum Access::Dir;
  p.actors = {block(0, 64,
                    {Kernel{KernelId::write, {}, 0, {{{0, 0, bytes, bytes, 2}, write}}},
                     Kernel{KernelId::read, {}, 0, {{{1, 0, bytes, bytes, 3}, read}}}})};
  p.flows = {{0, gpu(0), gpu(0), MemKind::device, MemKind::device, bytes}};
  return p;
}

Program gemm_beside_copies(u64 n) {
  const u64 bytes = n * n * 4;
  Program p;
  p.regions = {{gpu(0), MemKind::device, 2 * bytes, Content::pattern},
               {gpu(0), MemKind::device, bytes, Content::poison},
               {numa(0), MemKind::pinned, 1_MiB, Content::pattern},
               {gpu(0), MemKind::device, 1_MiB, Content::poison}};
  using enum Access::Dir;
  Actor gemm, copy;
  gemm.place = copy.place = gpu(0);
  gemm.loop = {Opaque{
      "cublas_gemm", "f32", {n, n, n}, {{{0, 0, bytes}, read}, {{0, bytes, bytes}, read}, {{1, 0, bytes}, write}}}};
  copy.loop = {Move{{2, 0, 1_MiB}, {3, 0, 1_MiB}, Engine::ce}};
  p.actors = {gemm, copy};
  p.flows = {{1, numa(0), gpu(0), MemKind::pinned, MemKind::device, 1_MiB}};
  return p;
}

/// Waits in vain would take 40 s otherwise, because tests multiply time-outs by 20.
void give_up_soon(Program& program) {
  for (auto& actor : program.actors)
    for (auto& step : actor.loop)
      if (auto* wait = std::get_if<Wait>(&step)) wait->timeout = Seconds{0.05};
}

Trace run_actors(const Program& program, const Order& order) {
  validate(program);
  const auto support = platform().supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  const auto session = platform().prepare(program, "test#0");
  return platform().run(*session, order);
}

}  // namespace

TEST_CASE("a GPU block posts messages to a CPU proxy over a ring, and every message arrives") {
  for (const u32 slots : {1u, 4u}) {
    const auto program = block_posts_to_cpu_proxy(512, slots);
    const auto session = platform().prepare(program, "proxy#0");
    for (const u32 count : {1u, 37u}) {
      const auto trace = platform().run(*session, {2, {{count, count}}, true});
      CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
      CHECK(trace.verdict->checked_bytes >= 512);
    }
  }
}

TEST_CASE("packed messages arrive between GPUs and at a CPU thread") {
  for (const char* benchmark : {"put", "put_ping_pong"})
    for (const char* dst : {"gpu:1", "numa:0"}) {
      const auto to = parse_place(dst);
      const auto memory = to.kind == PlaceKind::gpu ? MemKind::device : MemKind::pinned;
      const auto program = build_program({benchmark,
                                          Engine::sm,
                                          gpu(0),
                                          to,
                                          MemKind::device,
                                          memory,
                                          512,
                                          0,
                                          {{"word", "packed"}, {"threads", "32"}}});
      for (const u32 count : {1u, 5u, 40u}) {
        const auto trace = run_actors(program, {1, {{count, count}}, true});
        CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
        CHECK(trace.verdict->checked_bytes >= 512);
      }
    }
}

namespace {

Program message_program(const char* benchmark, Engine engine, const Place& src, const Place& dst,
                        std::map<std::string, std::string> params) {
  const auto memory = [](const Place& at) { return at.kind == PlaceKind::gpu ? MemKind::device : MemKind::pinned; };
  return build_program({benchmark, engine, src, dst, memory(src), memory(dst), 512, 0, std::move(params)});
}

void check_messages(const Program& program) {
  for (const u32 count : {1u, 40u}) {
    const auto trace = run_actors(program, {1, {std::vector<u32>(program.actors.size(), count)}, true});
    CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
    CHECK(trace.verdict->checked_bytes >= 512);
  }
}

}  // namespace

TEST_CASE("messages of several blocks arrive, by loads and stores and by TMA, wherever the words lie") {
  for (const Engine engine : {Engine::sm, Engine::tma})
    for (const char* control : {"direct", "own", "notified"})
      check_messages(message_program("put_ping_pong", engine, gpu(0), gpu(1), {{"blocks", "2"}, {"control", control}}));
  check_messages(message_program("put", Engine::tma, gpu(0), numa(0), {{"blocks", "4"}}));
}

TEST_CASE("puts that are sent at once arrive, also when all slots are taken, at a GPU and at a CPU thread") {
  for (const Engine engine : {Engine::sm, Engine::tma})
    for (const Place& dst : {gpu(1), numa(0)}) {
      check_messages(message_program("put", engine, gpu(0), dst, {{"blocks", "2"}, {"at_once", "4"}}));
      check_messages(message_program("put", engine, gpu(0), dst, {{"at_once", "8"}, {"connections", "2"}}));
    }
  check_messages(message_program("put", Engine::sm, gpu(0), gpu(1), {{"at_once", "16"}, {"word", "packed"}}));
}

TEST_CASE("puts that are sent at once to a receiver that has died end with what was waited for") {
  auto program = message_program("put", Engine::sm, gpu(0), gpu(1), {{"blocks", "2"}, {"at_once", "2"}});
  give_up_soon(program);
  program.actors.back().loop.pop_back();  // its answer
  CHECK_THROWS_WITH_AS((void)run_actors(program, {1, {std::vector<u32>(program.actors.size(), 40)}, false}),
                       doctest::Contains("gpu:0 waited"), Error);
}

TEST_CASE("puts through descriptors arrive, by a kernel, a copy engine and a CPU thread, for every size and ring") {
  for (const char* bytes : {"16", "32", "64", "128"})
    for (const char* queue : {"host", "own", "peer"})
      check_messages(
          message_program("queued_put", Engine::sm, gpu(0), gpu(1), {{"descriptor", bytes}, {"queue", queue}}));
  check_messages(message_program("queued_put_ping_pong", Engine::sm, gpu(0), gpu(0), {}));
  check_messages(message_program("queued_put_ping_pong", Engine::sm, gpu(0), numa(0), {}));
  check_messages(message_program("queued_put_ping_pong", Engine::ce, gpu(0), gpu(1), {}));
  check_messages(message_program("queued_put", Engine::ce, gpu(0), numa(0), {{"descriptor", "16"}}));
  check_messages(message_program("queued_put", Engine::cpu, numa(0), numa(0), {{"descriptor", "128"}}));
}

TEST_CASE("messages by a kernel that is launched for each of them arrive") {
  for (const char* benchmark : {"put", "get", "put_ping_pong", "get_ping_pong"})
    check_messages(message_program(benchmark, Engine::sm, gpu(0), gpu(1), {{"kernel", "relaunched"}}));
  check_messages(message_program("put", Engine::tma, gpu(0), numa(0), {{"kernel", "relaunched"}, {"blocks", "2"}}));
}

TEST_CASE("a thread of the host serves more rings than a block has room for, and every message arrives") {
  const std::map<std::string, std::string> params{{"connections", "8"}, {"proxies", "1"}};
  check_messages(message_program("queued_put", Engine::cpu, numa(0), numa(0), params));
  check_messages(message_program("queued_put", Engine::ce, gpu(0), numa(0), params));
}

TEST_CASE("batches of those that exchange words grow while all of them are short, whatever others take") {
  constexpr double part = 1e-3;
  Turns turns{2, 0.25e-3, 0, part};  // an iteration of the slowest actor takes a quarter of a batch
  CHECK(turns.count(0) == 4);
  turns.took(0, 1e-5);
  CHECK(turns.count(1) == 4);  // the other one may be slow
  turns.took(0, 2e-5);
  CHECK(turns.count(2) == 8);
  CHECK(turns.count(3) == 8);  // nobody has ended batch 2
  for (u64 batch : {1, 2}) turns.took(batch, 4e-5), turns.took(batch, 4e-5);
  CHECK(turns.count(4) == 16);
  for (u64 batch : {3, 4}) turns.took(batch, 4e-5), turns.took(batch, part);
  CHECK(turns.count(5) == 16);  // long enough
  CHECK(turns.count(4) == 16);  // the same for who comes later
}

TEST_CASE("a program whose waiting CPU threads leave no CPU free is not supported, but 12 threads are") {
  const auto connections = [](const char* count) {
    return message_program("put", Engine::ce, gpu(0), gpu(1), {{"control", "assisted"}, {"connections", count}});
  };
  CHECK(why_too_many_waiting(connections("16"), 17) == "");
  CHECK(why_too_many_waiting(connections("16"), 16).find("16 CPU threads that wait for each other need") == 0);
  CHECK(why_too_many_waiting(connections("8"), 2) == "");
}

TEST_CASE("a post is compared with what its ring holds") {
  auto program = message_program("queued_put", Engine::sm, gpu(0), numa(0), {});
  Actor poster = program.actors[1];
  poster.loop = {poster.loop.back()};
  program.actors = {poster};
  program.flows = {{0, gpu(0), numa(0), MemKind::device, MemKind::pinned, 0}};
  const auto trace = run_actors(program, {1, {{21}}, true});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  CHECK(trace.verdict->checked_bytes == 32);
}

TEST_CASE("a stream's host thread refuses a descriptor that asks for something else") {
  auto program = message_program("queued_put", Engine::ce, gpu(0), numa(0), {});
  for (auto& step : program.actors[1].loop)
    if (auto* set = std::get_if<Set>(&step); set && set->job) set->job->signal->offset = 8;
  give_up_soon(program);
  CHECK_THROWS_WITH_AS(run_actors(program, {1, {{4, 4, 4}}, false}),
                       doctest::Contains("something else than its program"), Error);
}

TEST_CASE("a block stores and loads spans, and both are compared") {
  const auto trace = run_actors(block_stores_and_loads(4_KiB), {2, {{5}}, true});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  CHECK(trace.verdict->checked_bytes == 2 * 4_KiB + 10 * 4_KiB);
}

TEST_CASE("a CPU thread stores and loads spans between its words, and both are compared") {
  using enum Access::Dir;
  Program p;
  p.regions = {{numa(0), MemKind::pinned, 8_KiB, Content::poison},
               {numa(0), MemKind::pinned, 8_KiB, Content::pattern},
               {numa(0), MemKind::pinned, line, Content::zero}};
  p.actors = {thread({Kernel{KernelId::write, {}, 0, {{{0, 0, 4_KiB, 4_KiB, 2}, write}}}, Set{{2, 0, word}, 1, 1}}),
              thread({Wait{{2, 0, word}, 1, 1}, Kernel{KernelId::read, {}, 0, {{{1, 0, 4_KiB, 4_KiB, 2}, read}}}})};
  p.flows = {{0, numa(0), numa(0), MemKind::pinned, MemKind::pinned, 4_KiB}};
  const auto trace = run_actors(p, {1, {{3, 3}}, true});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  CHECK(trace.verdict->checked_bytes == 2 * 4_KiB + 3 * 4_KiB + word);
}

TEST_CASE("an actor that waits for what nobody sets gives up, and says what it waited for") {
  auto program = block_posts_to_cpu_proxy(512, 4);
  std::get<Wait>(program.actors[0].loop[0]).value = 1000;
  give_up_soon(program);
  CHECK_THROWS_WITH_AS(run_actors(program, {1, {{4, 4}}, false}),
                       doctest::Contains("for a word in numa:0.pinned to become"), Error);
}

TEST_CASE("an actor that gives up in a later iteration names the value of that iteration") {
  Program p;
  p.regions = {{numa(0), MemKind::pinned, line, Content::zero}};
  p.actors = {thread({Set{{0, 0, word}, 1, 1}}), thread({Wait{{0, 0, word}, 1, 2, Seconds{0.05}}})};
  CHECK_THROWS_WITH_AS(run_actors(p, {1, {{4, 4}}, false}), doctest::Contains("to become 5:"), Error);
}

TEST_CASE("steps that are no ops, and ops out of reach, are refused with a reason") {
  const auto refused = [](const Program& program, const char* words) {
    CHECK(platform().supports(program).why_not.find(words) != std::string::npos);
  };
  auto program = block_posts_to_cpu_proxy(512, 4);
  program.actors[0].loop.assign(17, Fence{});
  refused(program, "at most 16 steps");
  program = block_posts_to_cpu_proxy(512, 4);
  std::get<Move>(program.actors[1].loop[1]).engine = Engine::ce;
  refused(program, "copies by engine cpu, and not by ce");
  program = block_posts_to_cpu_proxy(512, 4);
  std::get<Move>(program.actors[0].loop[1]).from.region = 2;
  refused(program, "do not reach pageable memory");
  program = block_posts_to_cpu_proxy(500, 4);
  refused(program, "whole words");
  program = block_posts_to_cpu_proxy(512, 4);
  program.actors[0].process = 1;
  refused(program, "cannot be opened by process 1");
}

TEST_CASE("all actors run to a common end, with rates in each interval") {
  Program program;
  program.regions = {{numa(0), MemKind::pinned, 1_MiB, Content::pattern},
                     {gpu(0), MemKind::device, 1_MiB, Content::poison},
                     {gpu(1), MemKind::device, 1_MiB, Content::poison}};
  for (const u32 to : {0u, 1u}) {
    Actor copy;
    copy.place = gpu(to);
    copy.loop = {Move{{0, 0, 64_KiB, 64_KiB, 16}, {1 + to, 0, 64_KiB, 64_KiB, 16}, Engine::ce}};
    program.actors.push_back(copy);
    program.flows.push_back({to, numa(0), gpu(to), MemKind::pinned, MemKind::device, 64_KiB});
  }
  const auto trace = run_actors(program, {1, {}, true, Duration{Seconds{0.2}, Seconds{0.02}}});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  REQUIRE(trace.windows.size() == 1);
  for (u32 actor = 0; actor < 2; ++actor) {
    const auto& series = trace.series[actor];
    const auto& stamp = trace.at(0, 0, actor);
    CHECK(stamp.exit_s - stamp.enter_s > 0.15);
    CHECK(trace.windows[0].start_s >= stamp.enter_s);
    CHECK(trace.windows[0].end_s <= stamp.exit_s + 1e-9);
    CHECK(series.marks.back().iterations > 10);
    CHECK(series.interval_bytes.size() >= 5);
    CHECK(series.interval_bytes.size() == trace.series[0].interval_bytes.size());
  }
}

TEST_CASE("actors that rest after each iteration do less in a duration, on a stream and on a CPU thread") {
  Program program;
  program.regions = {{numa(0), MemKind::pinned, 1_MiB, Content::pattern}};
  for (u32 number = 0; number < 4; ++number) {
    const bool on_stream = number < 2;
    program.regions.push_back(
        {on_stream ? gpu(number) : numa(0), on_stream ? MemKind::device : MemKind::pinned, 1_MiB, Content::poison});
    Actor copy;
    copy.place = on_stream ? gpu(number) : numa(0);
    if (!on_stream) {
      copy.kind = ActorKind::cpu_thread;
      copy.clock = Clock::host;
    }
    copy.tenths = number % 2 == 0 ? all_tenths : 1;
    copy.loop = {
        Move{{0, 0, 64_KiB, 64_KiB, 16}, {1 + number, 0, 64_KiB, 64_KiB, 16}, on_stream ? Engine::ce : Engine::cpu}};
    program.actors.push_back(copy);
    program.flows.push_back({number, numa(0), copy.place, MemKind::pinned, program.regions.back().kind, 64_KiB});
  }
  constexpr u32 samples = 5;  // in one of them, a busy machine may let an actor wait
  const auto trace = run_actors(program, {samples, {}, true, Duration{Seconds{0.1}, Seconds{0.02}}});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  const auto done = [&](u32 actor) {
    u64 all = 0;
    for (u32 sample = 0; sample < samples; ++sample) all += trace.series[4 * sample + actor].marks.back().iterations;
    return all;
  };
  for (const u32 steady : {0U, 2U}) {
    CHECK(done(steady + 1) > 0);
    CHECK(done(steady + 1) < done(steady));
  }
}

TEST_CASE("a rest of a CPU thread follows from the work since the last one, and not from all work so far") {
  Program program;
  program.regions = {{numa(0), MemKind::pinned, 1_MiB, Content::pattern},
                     {numa(0), MemKind::pinned, 1_MiB, Content::poison}};
  Actor copy;
  copy.place = numa(0);
  copy.kind = ActorKind::cpu_thread;
  copy.clock = Clock::host;
  copy.tenths = 1;
  copy.loop = {Move{{0, 0, 64_KiB, 64_KiB, 16}, {1, 0, 64_KiB, 64_KiB, 16}, Engine::cpu}};
  program.actors = {copy};
  program.flows = {{0, numa(0), numa(0), MemKind::pinned, MemKind::pinned, 64_KiB}};
  u64 most = 0;  // of many samples, since other programs may delay a copy, and a long copy has a long rest
  for (u32 attempt = 0; attempt < 40 && most <= 12; ++attempt) {
    const auto trace = run_actors(program, {5, {}, false, Duration{Seconds{0.05}, Seconds{0.01}}});
    for (const auto& series : trace.series) most = std::max<u64>(most, series.marks.back().iterations);
  }
  CHECK(most > 12);  // after nine times all work, at most six copies of a microsecond or more would fit
}

TEST_CASE("a block and its proxy end a duration after the same number of iterations") {
  const auto trace =
      run_actors(block_posts_to_cpu_proxy(512, 4), {2, {}, true, Duration{Seconds{0.05}, Seconds{0.01}}});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  for (u32 sample = 0; sample < 2; ++sample)
    CHECK(trace.series[2 * sample].marks.back().iterations == trace.series[2 * sample + 1].marks.back().iterations);
}

TEST_CASE("copies that are issued together run in batches, and not for a duration") {
  Program program;
  program.regions = {{numa(0), MemKind::pinned, 1_MiB, Content::pattern},
                     {gpu(0), MemKind::device, 1_MiB, Content::poison}};
  Actor copy;
  copy.place = gpu(0);
  copy.loop = {Move{{0, 0, 64_KiB, 64_KiB, 16}, {1, 0, 64_KiB, 64_KiB, 16}, Engine::graph}};
  program.actors = {copy};
  program.flows = {{0, numa(0), gpu(0), MemKind::pinned, MemKind::device, 64_KiB}};
  CHECK_THROWS_WITH_AS(run_actors(program, {1, {}, false, Duration{Seconds{0.1}, Seconds{0.01}}}),
                       doctest::Contains("issued together"), Error);
}

TEST_CASE("a GEMM by a library that is found at run time runs beside copies") {
  REQUIRE_MESSAGE(Cublas::why_not().empty(), Cublas::why_not());
  const auto trace = run_actors(gemm_beside_copies(256), {2, {{3, 5}}, true});
  CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
  CHECK(trace.verdict->checked_bytes == 256 * 256 * 4 + 1_MiB);
}

TEST_CASE("a library call that does not fit its traffic, or is not known, is refused with a reason") {
  const auto refused = [](auto change, const char* words) {
    auto program = gemm_beside_copies(256);
    change(std::get<Opaque>(program.actors[0].loop[0]));
    const auto support = platform().supports(program);
    CHECK_MESSAGE(support.why_not.find(words) != std::string::npos, support.why_not);
  };
  refused([](Opaque& o) { o.library_call = "cusolver"; }, "'cusolver' is not known here");
  refused([](Opaque& o) { o.element = "f8"; }, "f32, f64, bf16, f16, tf32 and fp8");
  refused([](Opaque& o) { o.shape = {256}; }, "three lengths");
  refused([](Opaque& o) { o.shape = {256, 256, 128}; }, "reads A (128 KiB)");
  refused([](Opaque& o) { o.traffic.clear(); }, "states three accesses");
}

TEST_CASE("streams that share a copy engine queue one batch, so that none of them waits for another's queue to end") {
  const auto copy = [](u32 from, u32 to, Engine engine = Engine::ce) {
    Actor actor;
    actor.place = gpu(0);
    actor.loop = {Move{{from, 0, 4_KiB}, {to, 0, 4_KiB}, engine}};
    return actor;
  };
  Program p;
  p.regions = {{numa(0), MemKind::pinned, 4_KiB, Content::pattern}, {gpu(0), MemKind::device, 4_KiB, Content::poison}};
  p.actors = {copy(0, 1), copy(1, 0)};
  CHECK(batches_ahead(p, 0) == 3);
  CHECK(batches_ahead(p, 1) == 3);
  p.actors = {copy(0, 1), copy(0, 1), copy(1, 0)};
  CHECK(batches_ahead(p, 0) == 1);
  CHECK(batches_ahead(p, 1) == 1);
  CHECK(batches_ahead(p, 2) == 3);
  p.actors = {copy(0, 1), copy(0, 1, Engine::sm)};
  CHECK(batches_ahead(p, 0) == 3);
  p.actors = {copy(0, 1), copy(0, 1)};
  p.actors[1].place = gpu(1);
  CHECK(batches_ahead(p, 0) == 3);
  std::get<Move>(p.actors[1].loop[0]).by = gpu(0);  // whose engine it uses from its own stream
  CHECK(batches_ahead(p, 0) == 1);
}
