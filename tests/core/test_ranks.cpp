// Messages between ranks: the programs, and the simulation against closed forms in us.
#include <doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.hpp"
#include "program/origin.hpp"
#include "program/processes.hpp"
#include "program/turns.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

constexpr double set_up_us = 0.5, copied_gbps = 2.5;  // two copies of 5 GB/s, one after the other
constexpr double bus_gbps = 10;                       // 80 % of 12.5 GB/s

nlohmann::json toy_with_messages() {
  auto with_messages = toy();
  with_messages["costs"]["message_shm_us"] = set_up_us;
  return with_messages;
}

Case rank_case(const std::string& benchmark, const std::string& memory, u64 bytes,
               std::map<std::string, std::string> params = {}) {
  auto c = copy_case(benchmark, "rank:0", memory, "rank:1", memory, bytes, std::move(params));
  c.engine = Engine::mpi;
  c.ranks = {{numa(0), gpu(0)}, {numa(0), gpu(1)}};
  return c;
}

double cost_us(const Case& c) {
  const auto sim = make_sim(toy_with_messages(), 1);
  return slope(*sim, build_program(c), 64) * 1e6;
}

std::string error_after(Program program, void (*change)(Program&)) {
  change(program);
  try {
    validate(program);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

RankMessage& message_of_first(Program& program) { return std::get<RankMessage>(program.actors[0].loop[0]); }

}  // namespace

TEST_CASE("a round trip between ranks is two set-ups and both copies of each message") {
  const auto trip = [](double bytes) { return 2 * (set_up_us + bytes / copied_gbps * 1e-3); };
  CHECK(cost_us(rank_case("rank_empty", "pageable", 0)) == about(trip(0)).epsilon(0.01));
  CHECK(cost_us(rank_case("rank_ping_pong", "pageable", 4096)) == about(trip(4096)).epsilon(0.01));
  CHECK(cost_us(rank_case("rank_ping_pong", "pinned", 1_MiB)) == about(trip(1_MiB)).epsilon(0.01));
}

TEST_CASE("a stream of messages on the model costs what the receiver does for each") {
  const double each = set_up_us + 65536 / copied_gbps * 1e-3;
  for (const char* window : {"1", "64"})
    CHECK(cost_us(rank_case("rank_rate", "pageable", 65536, {{"window", window}})) == about(each).epsilon(0.02));
}

TEST_CASE("double-buffered messages of GPUs are faster than whole ones on the model") {
  const double whole = cost_us(rank_case("rank_rate", "device", 16_MiB)),
               chunks = cost_us(rank_case("rank_rate", "device", 16_MiB, {{"way", "double"}, {"chunk", "1MiB"}}));
  CHECK(chunks < whole / 1.2);
}

TEST_CASE("a double buffer starts messages ahead, and then costs what the receiver does for each chunk") {
  const double chunk_us = set_up_us + 1048576 / copied_gbps * 1e-3;
  for (const char* slots : {"2", "4", "8"}) {
    const auto ahead = rank_case("rank_rate", "device", 16_MiB, {{"way", "double"}, {"slots", slots}});
    CHECK(cost_us(ahead) == about(16 * chunk_us).epsilon(0.01));
    const auto program = build_program(ahead);
    CHECK(std::get<RankMessage>(program.actors[1].loop[1]).ahead == std::stoul(slots) - 1);
    CHECK(to_text(program).find("before it under way") != std::string::npos);
  }
  const auto one = rank_case("rank_rate", "device", 16_MiB, {{"way", "double"}, {"sends", "one"}});
  CHECK(std::get<RankMessage>(build_program(one).actors[1].loop[1]).ahead == 0);
  CHECK(error_after(build_program(one), [](Program& program) {
          std::get<RankMessage>(program.actors[2].loop[1]).ahead = 1;
        }).find("only sends") != std::string::npos);
}

TEST_CASE(
    "one message alone in chunks costs its chunks and the copies of one chunk, and the answer waits for all of it") {
  const double message_us = set_up_us + 1048576 / copied_gbps * 1e-3, copy_us = 1048576 / bus_gbps * 1e-3;
  for (const char* slots : {"2", "4", "8"}) {
    const auto c = rank_case("rank_ping_pong", "device", 16_MiB, {{"way", "double"}, {"slots", slots}});
    CHECK(cost_us(c) == about(2 * (16 * message_us + 2 * copy_us)).epsilon(0.01));
  }
  const double whole = cost_us(rank_case("rank_ping_pong", "device", 16_MiB));
  CHECK(whole == about(2 * 16 * (message_us + 2 * copy_us)).epsilon(0.01));
}

TEST_CASE("an end in pinned memory sends and receives the chunks itself") {
  auto c = rank_case("rank_ping_pong", "pinned", 16_MiB, {{"way", "double"}, {"chunk", "4MiB"}});
  c.dst_memory = MemKind::device;
  const double message_us = set_up_us + 4194304 / copied_gbps * 1e-3, copy_us = 4194304 / bus_gbps * 1e-3;
  const auto program = build_program(c);
  CHECK(program.passes == 4);
  CHECK(program.actors[0].first_steps == 1);
  CHECK(to_text(program).find("  then receive") != std::string::npos);
  CHECK(cost_us(c) == about(2 * (4 * message_us + copy_us)).epsilon(0.01));
}

TEST_CASE("all passes of an iteration make the first part of a loop before any pass makes the second") {
  Actor actor;
  actor.loop.resize(3);
  using Turns = std::vector<std::array<u64, 3>>;  // pass, first step, end of the steps
  const auto turns = [&](u32 passes, u64 first, u64 count) {
    Turns found;
    for_each_turn(actor, passes, first, count,
                  [&](const Turn& turn) { found.push_back({turn.pass, turn.first_step, turn.end_step}); });
    return found;
  };
  CHECK(turns(2, 4, 2) == Turns{{4, 0, 3}, {5, 0, 3}});
  actor.first_steps = 1;
  CHECK(turns(2, 4, 4) ==
        Turns{{4, 0, 1}, {5, 0, 1}, {4, 1, 3}, {5, 1, 3}, {6, 0, 1}, {7, 0, 1}, {6, 1, 3}, {7, 1, 3}});
}

TEST_CASE("loops in two parts have steps in both, and messages in them") {
  const auto good = build_program(rank_case("rank_ping_pong", "device", 2_MiB, {{"way", "double"}}));
  CHECK(error_after(good, [](Program&) {}) == "");
  CHECK(error_after(good, [](Program& p) { p.actors[0].first_steps = 6; }).find("has no steps") != std::string::npos);
  CHECK(error_after(good, [](Program& p) {
          std::erase_if(p.actors[1].loop, [](const Step& s) { return std::holds_alternative<RankMessage>(s); });
          p.actors[1].first_steps = 1;
        }).find("only loops with messages") != std::string::npos);
}

TEST_CASE("writes of NIXL need a receiver whose memory is free again when they come") {
  auto c = rank_case("rank_rate", "pageable", 4096, {{"window", "16"}});
  c.engine = Engine::nixl;
  const auto good = build_program(c);
  CHECK(error_after(good, [](Program&) {}) == "");
  CHECK(to_text(good).find(" by nixl") != std::string::npos);
  CHECK(error_after(good, [](Program& p) { message_of_first(p).window = 0; }).find("memory is free") !=
        std::string::npos);
  CHECK(error_after(good, [](Program& p) {
          auto& message = message_of_first(p);
          *message.span = {message.span->region, 0, 8, 8, 2};
          message.theirs->bytes = 8;
        }).find("one place") != std::string::npos);
  c.src_memory = c.dst_memory = MemKind::device;
  c.params = {{"way", "staged"}};
  CHECK_THROWS_AS((void)build_program(c), Error);
}

TEST_CASE("a write of NIXL cannot start ahead of the answer to the one before it") {
  auto c = rank_case("rank_ping_pong", "pageable", 4096);
  c.engine = Engine::nixl;
  const auto good = build_program(c);
  CHECK(error_after(good, [](Program&) {}) == "");
  CHECK(error_after(good, [](Program& p) { message_of_first(p).ahead = 1; }).find("memory is free") !=
        std::string::npos);
}

TEST_CASE("staged messages of GPUs in both directions overlap on the model") {
  const double one = cost_us(rank_case("rank_rate", "device", 16_MiB)),
               both = cost_us(rank_case("rank_rate", "device", 16_MiB, {{"bidirectional", "true"}}));
  CHECK(both < 1.5 * one);
  const auto program = build_program(rank_case("rank_rate", "device", 2_MiB, {{"bidirectional", "true"}}));
  CHECK(std::count_if(program.flows.begin(), program.flows.end(), [](const Flow& flow) { return flow.measured; }) == 2);
}

TEST_CASE("messages of UCX are of two processes also without ranks, and cost what those of MPI cost on the model") {
  auto c = rank_case("rank_ping_pong", "pageable", 4096);
  const double by_mpi = cost_us(c);
  c.engine = Engine::ucx;
  CHECK(cost_us(c) == about(by_mpi));
  auto apart = copy_case("process_ping_pong", "numa:0", "pageable", "numa:0", "pageable", 4096);
  apart.engine = Engine::ucx;
  const auto program = build_program(apart);
  CHECK(processes_of(program) == 2);
  CHECK(in_lockstep(program));
  CHECK(to_text(program).find(" by ucx") != std::string::npos);
  CHECK(cost_us(apart) == about(by_mpi));
}

TEST_CASE("the model takes no buffers of GPUs in messages, and says what to use") {
  const auto support = make_sim(toy_with_messages(), 1)
                           ->supports(build_program(rank_case("rank_rate", "device", 8, {{"way", "aware"}})));
  CHECK(support.why_not.find("use way=staged") != std::string::npos);
}

TEST_CASE("every way of messages between ranks delivers the sender's bytes on the model") {
  const auto sim = make_sim(toy_with_messages(), 1);
  std::vector<Case> cases{rank_case("rank_ping_pong", "pinned", 4096), rank_case("rank_ping_pong", "device", 65536),
                          rank_case("rank_rate", "pinned", 4096, {{"bidirectional", "true"}}),
                          rank_case("rank_rate", "device", 2_MiB)};
  cases.push_back(rank_case("rank_rate", "device", 2_MiB, {{"way", "double"}, {"chunk", "256KiB"}, {"slots", "3"}}));
  cases.push_back(rank_case("rank_rate", "device", 2_MiB, {{"bidirectional", "true"}}));
  cases.push_back(rank_case("rank_rate", "device", 2_MiB, {{"way", "double"}, {"bidirectional", "true"}}));
  cases.push_back(rank_case("rank_rate", "device", 1_MiB, {{"way", "double"}, {"bidirectional", "true"}}));
  for (const char* slots : {"2", "3", "8"})
    cases.push_back(
        rank_case("rank_ping_pong", "device", 2_MiB, {{"way", "double"}, {"chunk", "256KiB"}, {"slots", slots}}));
  cases.push_back(rank_case("rank_ping_pong", "device", 4104, {{"way", "double"}}));
  cases.push_back(copy_case("process_rate", "numa:0", "pageable", "numa:0", "pageable", 4096));
  cases.back().engine = Engine::ucx;
  for (const auto& c : cases) {
    const auto program = build_program(c);
    CAPTURE(to_text(program));
    const auto session = sim->prepare(program, "key#0");
    for (const u32 count : {1, 5}) {
      const std::vector<u32> batch(program.actors.size(), count);
      const auto trace = sim->run(*session, {.samples = 2, .batches = {batch}, .verify = true});
      REQUIRE(trace.verdict);
      CHECK(trace.verdict->ok);
      CHECK(trace.verdict->checked_bytes >= c.bytes);
    }
  }
}

TEST_CASE("both ranks of a message belong to their processes and keep step") {
  const auto program = build_program(rank_case("rank_rate", "device", 2_MiB, {{"way", "double"}}));
  CHECK(processes_of(program) == 2);
  CHECK(in_lockstep(program));
  CHECK(in_step(program));
  CHECK(program.passes == 2);
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop)
      for (const auto& touch : touches(step)) CHECK(program.regions[touch.span.region].process == actor.process);
}

TEST_CASE("what a rank receives through slots of both sides is the pattern of the sender's GPU") {
  const auto program = build_program(rank_case("rank_rate", "device", 2_MiB, {{"way", "double"}}));
  const auto& last = program.actors.back();
  const auto& span = pattern_of(program, last, std::get<Move>(last.loop[1]));
  CHECK(program.regions[span.region].content == Content::pattern);
  CHECK(program.regions[span.region].process == 0);
}

TEST_CASE("messages between ranks that cannot be exchanged are refused") {
  const auto good = build_program(rank_case("rank_ping_pong", "pageable", 64));
  CHECK(error_after(good, [](Program&) {}) == "");
  CHECK(error_after(good, [](Program& p) { p.actors[0].kind = ActorKind::stream; }).find("only CPU threads") !=
        std::string::npos);
  CHECK(error_after(good, [](Program& p) { message_of_first(p).peer = 0; }).find("to itself") != std::string::npos);
  CHECK(error_after(good, [](Program& p) { message_of_first(p).theirs.reset(); }).find("on both sides") !=
        std::string::npos);
  CHECK(error_after(good, [](Program& p) { message_of_first(p).theirs->bytes = 8; }).find("unequal lengths") !=
        std::string::npos);
  CHECK(error_after(good, [](Program& p) {
          p.actors[0].loop.push_back(p.actors[0].loop[0]);
        }).find("sends one message") != std::string::npos);
  CHECK(error_after(good, [](Program& p) {
          message_of_first(p).window = 4;
          p.actors[0].loop.emplace_back(Fence{});
        }).find("are the whole loop") != std::string::npos);
  CHECK(error_after(good, [](Program& p) { message_of_first(p).by = Engine::cpu; }).find("of MPI, UCX or NIXL") !=
        std::string::npos);
  CHECK(error_after(good, [](Program& p) { p.actors[0].tenths = 5; }).find("cannot rest") != std::string::npos);
}

TEST_CASE("a case names ranks that exist, and GPUs that they have") {
  auto c = rank_case("rank_ping_pong", "device", 64);
  c.ranks.pop_back();
  CHECK_THROWS_WITH_AS((void)build_program(c), "rank_ping_pong: there is no rank:1; there are 1 ranks", Error);
  c.ranks.push_back({numa(0), {}});
  CHECK_THROWS_WITH_AS((void)build_program(c), "rank:1 has no GPU", Error);
}

namespace {

Case nodes_case(const std::string& benchmark, const std::string& dst, const std::string& with) {
  auto c = rank_case(benchmark, "pageable", 65536, {{"with", with}});
  c.dst = parse_place(dst);
  c.ranks.assign(4, {numa(0), {}});
  return c;
}

}  // namespace

TEST_CASE("messages of pairs of ranks at once deliver the bytes of every pair, also in a ring and from many to one") {
  const auto sim = make_sim(toy_with_messages(), 1);
  for (const auto& c : {nodes_case("node_rate", "rank:1", "rank:2->rank:3"),
                        nodes_case("node_rate", "rank:1", "rank:1->rank:2,rank:2->rank:3,rank:3->rank:0"),
                        nodes_case("node_rate", "rank:3", "rank:1->rank:3,rank:2->rank:3"),
                        nodes_case("node_ping_pong", "rank:2", "rank:1->rank:3")}) {
    const auto program = build_program(c);
    CAPTURE(to_text(program));
    CHECK(processes_of(program) == 4);
    CHECK(program.actors.size() == 4);
    const auto session = sim->prepare(program, "key#0");
    const auto trace = sim->run(*session, {.samples = 2, .batches = {{5, 5, 5, 5}}, .verify = true});
    REQUIRE(trace.verdict);
    CHECK(trace.verdict->ok);
    CHECK(trace.verdict->checked_bytes >= 65536 * std::count_if(program.flows.begin(), program.flows.end(),
                                                                [](const Flow& flow) { return flow.measured; }));
  }
}

TEST_CASE("pairs of ranks that are named twice, or wait for each other, are refused") {
  CHECK_THROWS_WITH_AS((void)build_program(nodes_case("node_rate", "rank:1", "rank:0->rank:1")),
                       "node_rate: the pair rank:0->rank:1 is named twice; name each pair once", Error);
  CHECK_THROWS_WITH_AS((void)build_program(nodes_case("node_rate", "rank:1", "numa:0->rank:1")),
                       "node_rate: with=numa:0->rank:1 is no pair of ranks; name two, as in with=rank:2->rank:3",
                       Error);
  CHECK_THROWS_WITH_AS(
      (void)build_program(nodes_case("node_ping_pong", "rank:1", "rank:1->rank:2")),
      "node_ping_pong: rank:1 is in two pairs; round trips wait for each other, so name each rank once", Error);
}

// --- tasks of ranks (suites sp-9 and sp-11) --------------------------------------------------------------------------

namespace {

Case tasks_case(std::map<std::string, std::string> params) {
  auto c = rank_case("rank_tasks", "pinned", 1_MiB, std::move(params));
  c.dst_memory = MemKind::device;
  c.ranks = {{numa(0), gpu(0)}, {numa(0), gpu(0)}, {numa(0), gpu(1)}, {numa(0), gpu(1)}};
  return c;
}

/// Samples of a duration: what each actor did.
std::vector<Series> series_of(const Program& program) {
  const auto sim = make_sim(toy_with_messages(), 1);
  const auto session = sim->prepare(program, "key#0");
  const auto trace =
      sim->run(*session, {.samples = 1, .batches = {}, .verify = true, .lasts = Duration{.length = Seconds{0.02}}});
  CHECK(trace.verdict);
  CHECK(trace.verdict->ok);
  return trace.series;
}

}  // namespace

TEST_CASE("each GPU has one transfer task, and all pairs or those beside a transfer exchange messages") {
  const auto flows = [](const Case& c) {
    const auto program = build_program(c);
    const auto to = [&](PlaceKind kind) {
      return std::count_if(program.flows.begin(), program.flows.end(),
                           [&](const Flow& flow) { return flow.measured && flow.dst.kind == kind; });
    };
    return std::pair{to(PlaceKind::gpu), to(PlaceKind::rank)};
  };
  CHECK(flows(tasks_case({})) == std::pair<std::ptrdiff_t, std::ptrdiff_t>{2, 2});
  CHECK(flows(tasks_case({{"sets", "1"}})) == std::pair<std::ptrdiff_t, std::ptrdiff_t>{1, 1});
  CHECK(flows(tasks_case({{"sets", "1"}, {"messages", "all"}})) == std::pair<std::ptrdiff_t, std::ptrdiff_t>{1, 2});
  CHECK(flows(tasks_case({{"at", "transfers"}})) == std::pair<std::ptrdiff_t, std::ptrdiff_t>{2, 0});
  CHECK(flows(tasks_case({{"at", "messages"}})) == std::pair<std::ptrdiff_t, std::ptrdiff_t>{0, 2});
  CHECK_THROWS_WITH_AS((void)build_program(tasks_case({{"sets", "3"}})),
                       "each transfer task needs a rank with a GPU of its own: 3 wanted, and there are 2", Error);
}

TEST_CASE("messages of ranks beside transfers keep step for a duration on the model, and have latencies") {
  const auto program = build_program(tasks_case({{"message", "64KiB"}}));
  const auto series = series_of(program);
  for (u32 first = 2; first < program.actors.size(); first += 2) {
    CHECK(series[first].marks.back().iterations == series[first + 1].marks.back().iterations);
    CHECK(series[first].latencies.quantile(0.5).value_or(0) > 1e-6);
  }
  CHECK(series[0].marks.back().iterations > 1);
}

TEST_CASE("a pair of slow ranks ends with the sample, however many round trips a faster pair has made") {
  auto c = tasks_case({{"message", "64KiB"}, {"at", "messages"}});
  c.ranks[1].numa = numa(1);  // copies between the nodes are slower
  const auto series = series_of(build_program(c));
  const auto &slow = series[0].marks.back(), &fast = series[2].marks.back();
  CHECK(fast.iterations > slow.iterations);
  CHECK(slow.at_s < fast.at_s + 1e-3);
}

TEST_CASE("one thread of a rank for transfer and messages makes messages slower on the model") {
  const auto two = build_program(tasks_case({{"sets", "1"}})),
             one = build_program(tasks_case({{"sets", "1"}, {"threads", "one"}}));
  CHECK(one.actors[1].thread_of == 0);
  CHECK_FALSE(one.actors[2].thread_of);
  CHECK(series_of(one)[1].latencies.quantile(0.5).value_or(0) > series_of(two)[1].latencies.quantile(0.5).value_or(1));
}

TEST_CASE("the part of a process counts the stream whose thread its messages share among its own actors") {
  const auto part = part_of(build_program(tasks_case({{"threads", "one"}})), 2);
  REQUIRE(part.actors.size() == 2);
  CHECK(part.actors[1].thread_of == 0);
}
