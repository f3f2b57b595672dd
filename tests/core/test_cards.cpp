// Puts that threads post to network cards, on the simulation: known times, the steps of each control mode, and what the model
// refuses (Klenk et al., KL-1 to KL-10).
#include <algorithm>

#include "base/error.hpp"
#include "doctest.h"
#include "error_of.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

// Two hosts, each with a NUMA node, a GPU and a card on one switch. From the switch to a card 0.25 us, to a GPU 0.5 us, to
// the host's memory 0; between the cards 2 us. A load of host memory takes 0.1 us, one of a GPU's memory 0.5 us.
nlohmann::json hosts_with_queues(const std::string& queues = "card", int descriptor = 24) {
  auto machine = toy();
  machine.erase("peer");
  machine["numa"][0]["places"] = {"host:0/numa:0", "host:1/numa:0"};
  machine["gpu"][0]["at"] = {{"host:0/numa:0", {"host:0/gpu:0"}}, {"host:1/numa:0", {"host:1/gpu:0"}}};
  machine["switch"] = {{{"places", {"host:0/switch:0", "host:1/switch:0"}}}};
  machine["nic"] = {{{"places", {"host:0/nic:0", "host:1/nic:0"}},
                     {"message_us", 1},
                     {"gpu_read_gbps", 1},
                     {"gpu_write_gbps", 4},
                     {"queues", queues},
                     {"descriptor_bytes", descriptor},
                     {"cpu_post_us", 0.125},
                     {"gpu_post_us", 3},
                     {"cpu_take_us", 0.25},
                     {"gpu_take_us", 4}}};
  machine["link"] = nlohmann::json::parse(R"([
    {"name": "chip", "between": [["host:0/numa:0", "host:0/switch:0"], ["host:1/numa:0", "host:1/switch:0"]], "gbps": 100, "efficiency": 1, "latency_us": 0},
    {"name": "bus", "between": [["host:0/switch:0", "host:0/gpu:0"], ["host:1/switch:0", "host:1/gpu:0"]], "gbps": 10, "efficiency": 1, "latency_us": 0.5},
    {"name": "slot", "between": [["host:0/switch:0", "host:0/nic:0"], ["host:1/switch:0", "host:1/nic:0"]], "gbps": 8, "efficiency": 1, "latency_us": 0.25},
    {"name": "net", "between": [["host:0/nic:0", "host:1/nic:0"]], "gbps": 4, "efficiency": 1, "latency_us": 2}])");
  return machine;
}

nlohmann::json with_rings() { return hosts_with_queues("memory", 64); }

constexpr double message = 1, net = 2, slot = 0.25, bus = 0.5, of_gpu = slot + bus, host_load = 0.1, gpu_load = 0.5;
constexpr double fetch = 2 * of_gpu + gpu_load;  // the card asks a GPU for a payload
constexpr double bytes_of_8 = 8e-3;              // us of 8 B at 1 GB/s

Program puts(const char* benchmark, Params params, u64 bytes = 8) {
  auto c =
      copy_case(benchmark, "host:0/gpu:0", "device", "host:1/gpu:0", "device", benchmark[1] == 'o' ? 0 : bytes, params);
  c.engine = Engine::nic;
  return build_program(c);
}

double slope_us(const nlohmann::json& machine, const Program& program) {
  const auto sim = make_sim(machine, 1);
  const auto support = sim->supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  return 1e6 * slope(*sim, program, 64);
}

double trip(const nlohmann::json& machine, const char* control, const char* queue = "card") {
  return slope_us(machine, puts("put_ping_pong", {{"control", control}, {"queue", queue}}));
}

}  // namespace

TEST_CASE("a host that posts needs the post, the card's message, the read of the payload, and the notification's way") {
  const double half = 0.125 + slot + message + bytes_of_8 + fetch + net + slot;
  // A thread sees a word within half a poll, and takes the notification that its own put is sent meanwhile.
  CHECK(trip(hosts_with_queues(), "host") == about(2 * (half + 0.25)).epsilon(2.1 * host_load / (2 * half)));
}

TEST_CASE("a GPU that polls the last word of a payload needs its own post and no notification") {
  const double half = 3 + of_gpu + message + bytes_of_8 + fetch + net + of_gpu;
  CHECK(trip(hosts_with_queues(), "direct") == about(2 * half + gpu_load).epsilon(1.1 * gpu_load / (2 * half)));
}

TEST_CASE("each notification costs a GPU that takes it, and those of its own puts hide behind the other side's put") {
  auto machine = hosts_with_queues();
  const double before = trip(machine, "notified");
  machine["nic"][0]["gpu_take_us"] = 2;
  const double polls = 2 * (2 * bus + host_load);  // both sides see it within half a poll
  CHECK(before - trip(machine, "notified") == about(2 * 2).epsilon(polls / 4));
}

TEST_CASE("the host's help costs the words between the GPU and its host beside the host's put") {
  const double host = trip(hosts_with_queues(), "host"), assisted = trip(hosts_with_queues(), "assisted");
  CHECK(assisted > host + 2 * (bus + bus));  // there and back on each host
  CHECK(assisted < host + 2 * (4 * bus + 2 * (2 * bus + host_load)));
}

TEST_CASE(
    "a card fetches descriptors from a ring in memory when its register is written, and not before they are there") {
  const auto machine = with_rings();
  const auto post = [&](const char* queue) { return slope_us(machine, puts("post", {{"queue", queue}})); };
  CHECK(post("own") == about(3).epsilon(0.001));
  CHECK(post("host") == about(3 + 2 * bus).epsilon(0.001));  // until the ring has the descriptor
  CHECK(slope_us(hosts_with_queues(), puts("post", {{"queue", "card"}})) == about(3).epsilon(0.001));

  auto far = machine;
  far["numa"][0]["load_us"] = 1.1;  // of the ring, and of the words that the host polls
  const double added = trip(far, "host", "host") - trip(machine, "host", "host");
  CHECK(added > 2 * 1.0);
  CHECK(added < 2 * 3.1);
}

TEST_CASE("a stream of puts goes on while earlier ones are under way: the card's own time bounds its rate") {
  const auto machine = hosts_with_queues();
  const auto stream = [&](const nlohmann::json& of, const char* control, u64 bytes, const char* connections = "1") {
    return slope_us(of, puts("put", {{"control", control}, {"connections", connections}}, bytes));
  };
  CHECK(stream(machine, "host", 8) == about(message + bytes_of_8).epsilon(0.01));
  CHECK(stream(machine, "host", 1000000) == about(message + 1000).epsilon(0.01));
  // A GPU's post and notification take longer than the card.
  CHECK(stream(machine, "direct", 8) > 3 + 4);
  // All connections of a host share its card.
  CHECK(stream(machine, "direct", 8, "32") == about(32 * (message + bytes_of_8)).epsilon(0.02));
}

TEST_CASE(
    "a message whose descriptor a GPU writes into registers takes the card its own time, and one of a CPU does not") {
  auto machine = hosts_with_queues();
  machine["nic"][0]["gpu_message_us"] = 5;
  const auto stream = [&](const char* control) {
    return slope_us(machine, puts("put", {{"control", control}, {"connections", "8"}}, 8));
  };
  CHECK(stream("direct") == about(8 * (5 + bytes_of_8)).epsilon(0.02));
  CHECK(stream("host") == about(8 * (message + bytes_of_8)).epsilon(0.02));
}

TEST_CASE("one thread that helps serves all connections in turn, so that more of them bring no higher rate") {
  auto machine = hosts_with_queues();
  machine["nic"][0]["message_us"] = 0.01;
  const auto each = [&](const char* count) {
    return slope_us(machine, puts("put", {{"control", "assisted"}, {"connections", count}}, 8)) / std::stod(count);
  };
  CHECK(each("32") == about(each("8")).epsilon(0.05));
}

TEST_CASE("payloads arrive whole and in order in every mode") {
  for (const char* control : {"direct", "notified", "host", "assisted"})
    for (const char* benchmark : {"put", "put_ping_pong", "get", "get_ping_pong"}) {
      const auto sim = make_sim(hosts_with_queues(), 1);
      const auto session = sim->prepare(puts(benchmark, {{"control", control}}, 4096), "key#0");
      Order order;
      order.batches = {std::vector<u32>(puts(benchmark, {{"control", control}}, 4096).actors.size(), 20)};
      order.samples = 1;
      order.verify = true;
      const auto verdict = sim->run(*session, order).verdict;
      REQUIRE(verdict);
      CHECK(verdict->ok);
      CHECK(verdict->checked_bytes > 0);
    }
}

TEST_CASE("a card takes the descriptors that its machine file names, and says which those are") {
  const auto in_memory = puts("put_ping_pong", {{"queue", "host"}});
  CHECK(refusal(hosts_with_queues(), in_memory) ==
        "host:0/nic:0 takes descriptors in its registers, and not from rings in memory");
  CHECK(refusal(with_rings(), puts("put_ping_pong", {{"queue", "card"}})) ==
        "host:0/nic:0 takes descriptors from rings in memory, and not in its registers");
  CHECK(refusal(hosts_with_queues("card", 32), puts("put_ping_pong", {})) ==
        "host:0/nic:0 takes descriptors of 32 B, and not of 24 B");
  auto silent = hosts_with_queues();
  silent["nic"][0].erase("queues");
  CHECK(refusal(silent, puts("put_ping_pong", {})) ==
        "the model toy does not say how host:0/nic:0 takes descriptors: queues of its [[nic]]");
  auto blind = hosts_with_queues();
  blind["nic"][0].erase("gpu_write_gbps");
  CHECK(refusal(blind, puts("put_ping_pong", {})).find("gpu_write_gbps") != std::string::npos);
}

TEST_CASE("a card with registers notifies in host memory only") {
  auto program = puts("put_ping_pong", {{"control", "notified"}});
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop)
      if (pointer_of(step)) {
        auto& region = program.regions[word_of(step)->region];
        region = {Place{PlaceKind::gpu, 0, region.at.host, {}}, MemKind::device, region.bytes, Content::zero};
      }
  CHECK(refusal(hosts_with_queues(), program) == "host:0/nic:0 notifies in host memory, and not in host:0/gpu:0");
}

TEST_CASE(
    "a program states what a mode writes and reads: registers, notifications, and the words between GPU and host") {
  const auto count = [](const Program& program, ActorKind kind, PlaceKind at, bool writes) {
    u64 found = 0;
    for (const auto& actor : program.actors)
      for (const auto& step : actor.loop)
        if (actor.kind == kind && word_of(step))
          for (const auto& touch : touches(step))
            found += program.regions[touch.span.region].at.kind == at && touch.writes == writes;
    return found;
  };
  const auto direct = puts("put_ping_pong", {{"control", "direct"}});
  CHECK(count(direct, ActorKind::gpu_block, PlaceKind::nic, true) == 2);  // a descriptor of each side
  CHECK(count(direct, ActorKind::gpu_block, PlaceKind::numa, false) == 0);
  const auto notified = puts("put_ping_pong", {{"control", "notified"}});
  CHECK(count(notified, ActorKind::gpu_block, PlaceKind::numa, false) == 4);  // sent and arrived, on each side
  CHECK(count(notified, ActorKind::gpu_block, PlaceKind::numa, true) == 4);   // freed
  CHECK(count(notified, ActorKind::gpu_block, PlaceKind::nic, true) == 2 + 4);
}

TEST_CASE("only a network card's word is a notification, and a card is the actor of its own place") {
  auto program = puts("put_ping_pong", {{"control", "notified"}});
  auto wrong = program;
  std::erase_if(wrong.actors.front().loop, [](const Step& step) { return std::holds_alternative<Set>(step); });
  CHECK(error_of([&] { validate(wrong); }).find("is no notification: no network card of the program sets it") !=
        std::string::npos);
  wrong = program;
  wrong.actors.front().place = Place{PlaceKind::numa, 0, 0, {}};
  CHECK(error_of([&] { validate(wrong); }).find("a nic is not at host:0/numa:0") != std::string::npos);
}

TEST_CASE("a machine file with impossible queues is refused by its key") {
  const auto read_error = [](const char* key, const nlohmann::json& value) {
    auto machine = hosts_with_queues();
    machine["nic"][0][key] = value;
    return error_of([&] { (void)make_sim(machine, 1); });
  };
  CHECK(read_error("queues", "disk").find("nic[0].queues: it is card or memory") != std::string::npos);
  for (const int size : {4, 136})
    CHECK(read_error("descriptor_bytes", size).find("nic[0].descriptor_bytes: it is a multiple of 8") !=
          std::string::npos);
  CHECK(read_error("gpu_post_us", -1).find("nic[0].gpu_post_us") != std::string::npos);
}

TEST_CASE("a get needs its post, the request's way, the read by the other card and the way back, and no actor there") {
  const double asked = message + 2 * (net + of_gpu) + gpu_load;  // the other card has a message, too
  const auto get = [&](const char* control) {
    return slope_us(hosts_with_queues(), puts("get_ping_pong", {{"control", control}, {"queue", "card"}}));
  };
  const double direct = 3 + of_gpu + message + bytes_of_8 + asked + of_gpu;
  CHECK(get("direct") == about(direct + gpu_load).epsilon(1.1 * gpu_load / direct));
  const double host = 0.125 + slot + message + bytes_of_8 + asked + slot + 0.25;
  CHECK(get("host") == about(host).epsilon(1.1 * host_load / host));
  CHECK(get("assisted") > get("host") + bus + bus);
  const auto program = puts("get_ping_pong", {{"control", "notified"}});
  for (const auto& actor : program.actors) CHECK(actor.place.host == 1);
}

TEST_CASE("gets go on while earlier ones are under way until sixteen wait for their payloads") {
  auto machine = hosts_with_queues();
  const auto stream = [&](const char* control, u64 bytes, const char* connections = "1") {
    return slope_us(machine, puts("get", {{"control", control}, {"connections", connections}}, bytes));
  };
  CHECK(stream("host", 8) == about(message + bytes_of_8).epsilon(0.01));
  CHECK(stream("host", 1000000) == about(message + 1000).epsilon(0.01));
  CHECK(stream("direct", 8, "32") == about(32 * (message + bytes_of_8)).epsilon(0.02));
  machine["link"][3]["latency_us"] = 1000;  // there and back
  CHECK(stream("host", 8) == about(2 * 1000 / 16.0).epsilon(0.02));
}
