// Messages between processes of a host: ping-pong by shared memory, local sockets and TCP.
#include "benchmarks/messages.hpp"

#include "base/error.hpp"

namespace linkscope {

Param channel_param() {
  return {"channel",
          {channel_names.begin(), channel_names.end()},
          "shared memory that both processes poll, a Unix domain socket, or TCP on 127.0.0.1"};
}

Program message_program(const Case& c, u64 bytes, std::optional<u32> cpu, std::optional<u32> other_cpu) {
  Program program;
  Actor actor;
  actor.place = c.src;
  actor.kind = ActorKind::cpu_thread;
  actor.clock = Clock::host;
  actor.singly = true;
  actor.loop = {Message{*find_channel(c.param("channel", "shm")), bytes, c.dst, cpu, other_cpu}};
  program.actors = {std::move(actor)};
  program.flows = {{0, c.src, c.dst, MemKind::pageable, MemKind::pageable, bytes}};
  return program;
}

std::vector<Benchmark> messages() {
  const auto build = [](const Case& c) { return message_program(c, c.bytes, {}, {}); };
  return of_role(Role::latency, {{"message",
                                  "round trips of a message between two processes; bytes count in one direction",
                                  "Spafford 5 (SP-8)",
                                  Engine::cpu,
                                  PlaceKind::numa,
                                  PlaceKind::numa,
                                  Relation::any,
                                  {{MemKind::pageable, MemKind::pageable}},
                                  {channel_param()},
                                  build}});
}

}  // namespace linkscope
