// Messages that one side puts or gets: where their words lie, and who moves the payload.
#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "benchmarks/case.hpp"
#include "doctest.h"

using namespace linkscope;

namespace {

Case message_case(const char* benchmark, Engine engine, const char* src, const char* dst,
                  std::map<std::string, std::string> params = {}) {
  const auto memory = [](const Place& at) { return at.kind == PlaceKind::gpu ? MemKind::device : MemKind::pinned; };
  const auto from = parse_place(src), to = parse_place(dst);
  return {benchmark, engine, from, to, memory(from), memory(to), 4096, 0, std::move(params)};
}

/// The places of the words that an actor waits for.
std::vector<Place> polled(const Program& program, u32 actor) {
  std::vector<Place> places;
  for (const auto& step : program.actors[actor].loop)
    if (const auto* wait = std::get_if<Wait>(&step)) places.push_back(program.regions[wait->word.region].at);
  return places;
}

std::size_t count(const Program& program, ActorKind kind) {
  return static_cast<std::size_t>(std::ranges::count(program.actors, kind, &Actor::kind));
}

const Move* move_of(const Actor& actor) {
  for (const auto& step : actor.loop)
    if (const auto* move = std::get_if<Move>(&step)) return move;
  return nullptr;
}

}  // namespace

TEST_CASE("a GPU polls its own memory for direct messages, and the host's for notified ones") {
  for (const char* benchmark : {"put", "get", "put_ping_pong", "get_ping_pong"}) {
    CAPTURE(benchmark);
    const auto direct = build_program(message_case(benchmark, Engine::sm, "gpu:0", "gpu:1"));
    const auto notified =
        build_program(message_case(benchmark, Engine::sm, "gpu:0", "gpu:1", {{"control", "notified"}}));
    for (u32 actor = 0; actor < 2; ++actor) {
      CHECK(polled(direct, actor) == std::vector{direct.actors[actor].place});
      CHECK(polled(notified, actor) == std::vector{parse_place("numa:0")});
    }
  }
}

TEST_CASE("the giver of a put writes the payload, and the receiver of a get reads it") {
  for (const auto& [benchmark, mover] : {std::pair{"put", "gpu:0"}, std::pair{"get", "gpu:1"}}) {
    CAPTURE(benchmark);
    const auto program = build_program(message_case(benchmark, Engine::sm, "gpu:0", "gpu:1"));
    for (const auto& actor : program.actors) {
      const Move* move = move_of(actor);
      CHECK((move != nullptr) == (actor.place == parse_place(mover)));
      if (!move) continue;
      CHECK(program.regions[move->from.region].at == parse_place("gpu:0"));
      CHECK(program.regions[move->to.region].at == parse_place("gpu:1"));
    }
  }
}

TEST_CASE(
    "two kernels of one GPU exchange messages in its memory, and those of two processes in memory that both see") {
  const auto within = build_program(message_case("put_ping_pong", Engine::sm, "gpu:0", "gpu:0"));
  validate(within);
  CHECK(leader_of(within, 1) == 1);  // a kernel of its own
  for (u32 actor = 0; actor < 2; ++actor) CHECK(polled(within, actor) == std::vector{parse_place("gpu:0")});
  auto of_two = message_case("put_ping_pong", Engine::sm, "gpu:0", "gpu:0");
  of_two.src_memory = of_two.dst_memory = MemKind::ipc;
  for (const bool mps : {true, false}) {
    of_two.params["way"] = mps ? "mps" : "processes";
    const auto program = build_program(of_two);
    validate(program);
    CHECK(program.mps == mps);
    for (u32 actor = 0; actor < 2; ++actor) {
      CHECK(program.actors[actor].process == actor);
      CHECK(program.actors[actor].clock == Clock::host);
      const Move& move = *move_of(program.actors[actor]);
      CHECK(program.regions[move.from.region].process == actor);
      CHECK(program.regions[move.to.region].process == 1 - actor);
      CHECK(program.regions[move.to.region].kind == MemKind::ipc);
    }
  }
}

TEST_CASE("sixteen messages of a connection may be under way before the giver waits") {
  for (const char* benchmark : {"put", "get"}) {
    CAPTURE(benchmark);
    const auto program = build_program(message_case(benchmark, Engine::sm, "gpu:0", "gpu:1"));
    const auto& wait = std::get<Wait>(program.actors[0].loop.front());
    CHECK(wait.value + 15 == 0);  // message 16, of number 0 to 15 before it, is the first that waits for 1
    CHECK(wait.step == 1);
    const auto mover = std::ranges::find_if(program.actors, [](const Actor& actor) { return move_of(actor); });
    CHECK(move_of(*mover)->from.slices == 16);
    CHECK(move_of(*mover)->to.slices == 16);
  }
}

TEST_CASE("a message by the host needs no kernel, and one that a GPU requests has a stream that serves it") {
  const auto by_host = build_program(message_case("put_ping_pong", Engine::ce, "gpu:0", "gpu:1"));
  CHECK(count(by_host, ActorKind::stream) == 2);
  CHECK(count(by_host, ActorKind::gpu_block) == 0);
  const auto assisted =
      build_program(message_case("put_ping_pong", Engine::ce, "gpu:0", "gpu:1", {{"control", "assisted"}}));
  CHECK(count(assisted, ActorKind::stream) == 2);
  CHECK(count(assisted, ActorKind::gpu_block) == 2);
  for (const auto& actor : assisted.actors) CHECK((move_of(actor) != nullptr) == (actor.kind == ActorKind::stream));
}

TEST_CASE("within one GPU a message has the actors of its control mode, and words in the memory of that mode") {
  const auto gpu = parse_place("gpu:0"), host = parse_place("numa:0");
  for (const char* benchmark : {"put", "get", "put_ping_pong", "get_ping_pong"})
    for (const auto& [engine, control, blocks, words] :
         {std::tuple{Engine::sm, "direct", 2u, gpu}, std::tuple{Engine::sm, "notified", 2u, host},
          std::tuple{Engine::ce, "host", 0u, host}, std::tuple{Engine::ce, "assisted", 2u, host}}) {
      CAPTURE(benchmark);
      CAPTURE(control);
      const auto program = build_program(message_case(benchmark, engine, "gpu:0", "gpu:0", {{"control", control}}));
      validate(program);
      CHECK(count(program, ActorKind::gpu_block) == blocks);
      CHECK(count(program, ActorKind::stream) == program.actors.size() - blocks);
      for (u32 actor = 0; actor < program.actors.size(); ++actor)
        for (const auto& at : polled(program, actor)) CHECK(at == words);
    }
}

TEST_CASE("each connection has memory, words and actors of its own") {
  const auto program = build_program(message_case("put", Engine::sm, "gpu:0", "numa:0", {{"connections", "4"}}));
  CHECK(count(program, ActorKind::gpu_block) == 4);
  CHECK(count(program, ActorKind::cpu_thread) == 4);
  std::vector<u32> targets;
  for (const auto& actor : program.actors)
    if (const Move* move = move_of(actor)) targets.push_back(move->to.region);
  std::ranges::sort(targets);
  CHECK(targets.size() == 4);
  CHECK(std::ranges::adjacent_find(targets) == targets.end());
}

TEST_CASE("a packed message has its payload in the words that its receiver polls, and no copy and no other word") {
  const auto program = build_program(message_case("put", Engine::sm, "gpu:0", "gpu:1", {{"word", "packed"}}));
  validate(program);
  for (const auto& actor : program.actors) {
    CHECK(move_of(actor) == nullptr);
    for (const auto& step : actor.loop) CHECK(payload_of(step) != nullptr);
  }
  const auto& sent = std::get<Set>(program.actors[0].loop.back());
  const auto& received = std::get<Wait>(program.actors[1].loop.front());
  CHECK(program.regions[sent.word.region].at == parse_place("gpu:1"));
  CHECK(sent.word.bytes == 2 * 4096);
  CHECK(sent.word.slices == 16);
  CHECK(sent.payload->bytes == 4096);
  CHECK(received.word.region == sent.word.region);
  CHECK(program.flows.front().bytes == 4096);
}

TEST_CASE("a packed message is answered by a packed message of the same size, and by 8 bytes of a CPU thread") {
  for (const auto& [dst, bytes] : {std::pair{"gpu:1", 4096u}, std::pair{"numa:0", 8u}}) {
    const auto program = build_program(message_case("put_ping_pong", Engine::sm, "gpu:0", dst, {{"word", "packed"}}));
    validate(program);
    CHECK(std::get<Wait>(program.actors[0].loop.back()).payload->bytes == bytes);
    CHECK(std::get<Wait>(program.actors[1].loop.front()).payload->bytes == 4096);
  }
}

TEST_CASE("packed words have 16 bytes for each 8 of their payload") {
  auto program = build_program(message_case("put_ping_pong", Engine::sm, "gpu:0", "gpu:1", {{"word", "packed"}}));
  std::get<Set>(program.actors[0].loop.front()).word.bytes = 4096;
  CHECK_THROWS_WITH_AS(validate(program), doctest::Contains("does not have 16 B for each 8 B"), Error);
}

TEST_CASE("the words of mode own lie with the GPU that sets them") {
  for (const char* benchmark : {"put", "get_ping_pong"}) {
    const auto program = build_program(message_case(benchmark, Engine::sm, "gpu:0", "gpu:1", {{"control", "own"}}));
    for (u32 actor = 0; actor < 2; ++actor)
      CHECK(polled(program, actor) == std::vector{program.actors[1 - actor].place});
  }
}

TEST_CASE(
    "each block of a side moves a part of its message and sets a word of its own, and the other side waits for all") {
  for (const Engine engine : {Engine::sm, Engine::tma}) {
    const auto program = build_program(message_case("put_ping_pong", engine, "gpu:0", "gpu:1", {{"blocks", "8"}}));
    validate(program);
    CHECK(count(program, ActorKind::gpu_block) == 16);
    u64 moved = 0, next = 0;
    std::set<u64> words;
    for (const auto& actor : program.actors) {
      const Move* move = move_of(actor);
      REQUIRE(move);
      CHECK(move->engine == engine);
      for (const auto& step : actor.loop) {
        const auto* set = std::get_if<Set>(&step);
        if (set) CHECK_FALSE(set->adds);
        if (set && actor.place == parse_place("gpu:0")) words.insert(set->word.offset);
        if (const auto* wait = std::get_if<Wait>(&step)) CHECK(wait->word.bytes == 8 * sizeof(u64));
      }
      if (actor.place != parse_place("gpu:0")) continue;
      CHECK(move->to.offset >= next);
      next = move->to.offset + move->to.bytes;
      moved += move->to.bytes;
    }
    CHECK(moved == 4096);
    const auto& wait = std::get<Wait>(program.actors.back().loop.front());  // of the other side
    REQUIRE(words.size() == 8);
    CHECK(*words.begin() == wait.word.offset);
    CHECK(*words.rbegin() == wait.word.offset + 7 * sizeof(u64));
  }
}

TEST_CASE(
    "puts that are sent at once have blocks and slots of their own, and the receiver waits for all and answers once") {
  for (const auto& [at_once, slots] : {std::pair{2u, 8u}, std::pair{8u, 4u}}) {
    CAPTURE(at_once);
    const auto program = build_program(
        message_case("put", Engine::sm, "gpu:0", "gpu:1", {{"at_once", std::to_string(at_once)}, {"blocks", "4"}}));
    validate(program);
    REQUIRE(count(program, ActorKind::gpu_block) == at_once * 4 + 1);
    std::set<std::pair<u64, u64>> parts;  // beginnings and ends
    for (const auto& actor : program.actors) {
      const Move* move = move_of(actor);
      if (!move) continue;
      CHECK(move->to.slices == slots);
      CHECK(move->to.bytes == 1024);
      CHECK(std::get<Wait>(actor.loop.front()).value == u64{1} - slots);
      for (u32 slot = 0; slot < slots; ++slot) parts.emplace(move->to.offset_at(slot), move->to.offset_at(slot) + 1024);
    }
    CHECK(parts.size() == at_once * 4 * slots);
    u64 end = 0;
    for (const auto& [from, to] : parts) {
      CHECK(from >= end);
      end = to;
    }
    const auto& receiver = program.actors.back();
    CHECK(std::get<Wait>(receiver.loop.front()).word.bytes == at_once * 4 * sizeof(u64));
    CHECK(receiver.loop.size() == 2);
    CHECK(program.flows.front().bytes == at_once * 4096);
    CHECK(std::ranges::count(program.flows, true, &Flow::measured) == 1);
  }
}

TEST_CASE("packed messages that are sent at once come from one block, whose threads have words of their own") {
  auto c =
      message_case("put", Engine::sm, "gpu:0", "gpu:1", {{"at_once", "16"}, {"word", "packed"}, {"connections", "4"}});
  c.bytes = 64;
  const auto program = build_program(c);
  validate(program);
  CHECK(count(program, ActorKind::gpu_block) == 2 * 4);
  CHECK(std::get<Set>(program.actors[0].loop.back()).payload->bytes == 16 * 64);
  CHECK(std::get<Wait>(program.actors[1].loop.front()).payload->bytes == 16 * 64);
  CHECK(program.flows.front().bytes == 16 * 64);
}

TEST_CASE("a message has at most a block for each 128 bytes, and packed words have one block") {
  auto c = message_case("put", Engine::sm, "gpu:0", "numa:0", {{"blocks", "32"}});
  c.bytes = 200;
  CHECK(count(build_program(c), ActorKind::gpu_block) == 2);
  CHECK_THROWS_WITH_AS(
      build_program(message_case("put", Engine::sm, "gpu:0", "gpu:1", {{"blocks", "2"}, {"word", "packed"}})),
      doctest::Contains("packed words come from one block"), Error);
}

TEST_CASE("a relaunched kernel moves the message from a stream, whose host thread exchanges the words") {
  for (const char* benchmark : {"put", "get", "put_ping_pong", "get_ping_pong"})
    for (const auto& [engine, threads] : {std::pair{Engine::sm, 1024u}, std::pair{Engine::tma, 32u}}) {
      CAPTURE(benchmark);
      const auto program =
          build_program(message_case(benchmark, engine, "gpu:0", "gpu:1", {{"kernel", "relaunched"}, {"blocks", "4"}}));
      validate(program);
      CHECK(program.held_by == HeldBy::nothing);
      CHECK(count(program, ActorKind::stream) == program.actors.size());
      for (u32 actor = 0; actor < program.actors.size(); ++actor) {
        CHECK(polled(program, actor) == std::vector{parse_place("numa:0")});
        const Move* move = move_of(program.actors[actor]);
        if (!move) continue;
        CHECK(move->engine == engine);
        CHECK((move->shape.blocks == 4 && move->shape.threads == threads));
        CHECK(move->from.bytes == 4096);
      }
    }
}

TEST_CASE("the words of a relaunched kernel are in host memory alone") {
  for (const auto& [param, value] :
       {std::pair{"word", "packed"}, std::pair{"control", "own"}, std::pair{"at_once", "4"}})
    CHECK_THROWS_WITH_AS(
        build_program(message_case("put", Engine::sm, "gpu:0", "gpu:1", {{"kernel", "relaunched"}, {param, value}})),
        doctest::Contains("exchanges words in its own memory"), Error);
}

TEST_CASE("a bystander is a product of matrices alone, or beside blocks that post or poll") {
  const auto bystander = [](std::map<std::string, std::string> params) {
    auto c = message_case("bystander", Engine::sm, "gpu:0", "numa:0", std::move(params));
    c.bytes = 0;
    auto program = build_program(c);
    validate(program);
    CHECK(program.flows.front().operations == 2.0 * 4096 * 4096 * 4096);
    CHECK(std::ranges::count(program.flows, true, &Flow::measured) == 1);
    return program;
  };
  CHECK(bystander({}).actors.size() == 1);
  const auto posting = bystander({{"beside", "post"}, {"blocks", "16"}});
  CHECK(count(posting, ActorKind::gpu_block) == 16);
  for (u32 actor = 1; actor < posting.actors.size(); ++actor) CHECK(job_of(posting.actors[actor].loop.front()));
  const auto polling = bystander({{"beside", "poll"}, {"blocks", "4"}});
  CHECK(count(polling, ActorKind::gpu_block) == 4);
  CHECK(count(polling, ActorKind::cpu_thread) == 1);
  CHECK(polled(polling, 1) == std::vector{parse_place("numa:0")});
}
