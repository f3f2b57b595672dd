// Copies on the small machine of sim_testing.hpp, against closed forms. All expected values are stated here, in us and
// GB/s.
#include <array>
#include <string>

#include "base/error.hpp"
#include "doctest.h"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

Program h2d(const std::string& memory, const std::string& gpu, u64 bytes, Params params = {}) {
  return build_program(copy_case("h2d", "numa:0", memory, gpu, "device", bytes, std::move(params)));
}
Program d2h(const std::string& memory, u64 bytes, Params params = {}) {
  return build_program(copy_case("d2h", "gpu:0", "device", "numa:0", memory, bytes, std::move(params)));
}
Program d2d(u64 bytes, Params params = {}) {
  return build_program(copy_case("d2d", "gpu:0", "device", "gpu:1", "device", bytes, std::move(params)));
}

void check_about_us(double seconds, double us) { CHECK(seconds * 1e6 == doctest::Approx(us).epsilon(0.01)); }

}  // namespace

TEST_CASE("zero copies cost the two events") {
  const auto sim = make_sim(toy(), 1);
  check_us(time_of(*sim, h2d("pinned", "gpu:0", 8), 0), 1);
}

TEST_CASE("a small copy to the GPU is inline in the command: latency, set-up, bytes at 1 GB/s, no change of channel") {
  const auto sim = make_sim(toy(), 1);
  check_us(slope(*sim, h2d("pinned", "gpu:0", 512)), 0.5 + 1 + 0.512);
  check_us(single(*sim, h2d("pinned", "gpu:0", 512)), 0.5 + 1 + 0.512);
}

TEST_CASE("a pushed copy between GPUs of no more bytes than an inline copy has a set-up of its own") {
  auto machine = toy();
  machine["copy"]["small_peer_us"] = 1.5;
  const auto sim = make_sim(machine, 1);
  check_us(slope(*sim, d2d(1024)), 0.25 + 1.5 + 1024 / 40e3);
  check_us(slope(*sim, d2d(1032)), 0.25 + 2.75 + 1032 / 40e3);
  check_us(slope(*sim, d2d(1024, {{"initiator", "dst"}})), 0.25 + 2.75 + 1024 / 40e3);
}

TEST_CASE("a larger copy costs latency, set-up and bytes; a single copy after a kernel adds the change of channel") {
  const auto sim = make_sim(toy(), 1);
  check_us(slope(*sim, h2d("pinned", "gpu:0", megabyte)), 0.5 + 2 + 100);
  check_us(single(*sim, h2d("pinned", "gpu:0", megabyte)), 0.5 + 2 + 100 + 6);
  check_us(single(*sim, h2d("pinned", "gpu:0", megabyte, {{"after", "wait"}})), 0.5 + 2 + 100);
  check_us(slope(*sim, h2d("registered", "gpu:0", megabyte)), 0.5 + 2 + 100);
  check_us(slope(*sim, h2d("pinned", "gpu:1", megabyte)), 0.75 + 2 + 100);  // one more link
  check_us(slope(*sim, d2h("pinned", megabyte)), 0.5 + 3 + 100);
  check_us(single(*sim, d2h("pinned", 8)), 0.5 + 3 + 0.0008 + 6);  // copies from the GPU are never inline
}

TEST_CASE("the parts of a split copy use the copy engine one after the other, each with its set-up") {
  auto machine = toy();
  for (const std::string turns : {"copy", "stream"}) {
    machine["copy"]["turns"] = turns;
    const auto sim = make_sim(machine, 1);
    const auto times_per_part = [&](const char* place, const char* memory) {
      const auto session = sim->prepare(
          build_program(copy_case("split", place, memory, "gpu:0", "device", megabyte, {{"streams", "2"}})), "key#0");
      const auto trace = sim->run(*session, {1, {{4, 4}, {8, 8}}, false});
      const auto lasted = [&](u32 batch, u32 part) {
        return trace.at(0, batch, part).exit_s - trace.at(0, batch, part).enter_s;
      };
      return std::array{lasted(1, 0) - lasted(0, 0), lasted(1, 1) - lasted(0, 1)};
    };
    const auto [first, second] = times_per_part("numa:0", "pinned");
    check_us(second / 4, 2 * (0.5 + 2 + 50));
    check_us(first / 4,
             (turns == "copy" ? 2 : 1) * (0.5 + 2 + 50));         // by stream: all of the first, then all of the second
    const auto [one, other] = times_per_part("gpu:0", "device");  // within a GPU always copy by copy
    CHECK(one == about(other));
  }
}

TEST_CASE("copies within a GPU stay in the compute channel") {
  const auto sim = make_sim(toy(), 1);
  const auto program = build_program(copy_case("local", "gpu:0", "device", "gpu:0", "device", megabyte));
  check_us(slope(*sim, program), 1 + 2.5);
  check_us(single(*sim, program), 1 + 2.5);
  auto machine = toy();
  machine["gpu"][0]["memory_gbps"] = 500;  // each byte is read and written: 250
  check_us(slope(*make_sim(machine, 1), program), 1 + 4);
}

TEST_CASE("each direction has its own copy engine, and the joint capacity of the link limits both") {
  const auto program = h2d("pinned", "gpu:0", 100 * megabyte, {{"bidirectional", "true"}});
  check_about_us(slope(*make_sim(toy(), 1), program, 2), 10000);
  auto machine = toy();
  machine["link"][0]["both_ways_gbps"] = 15;
  check_about_us(slope(*make_sim(machine, 1), program, 2), 200 * 1000 / 15.0);
  machine = toy();
  machine["gpu"][0]["copy_engines"] = 1;  // both directions share it
  check_about_us(slope(*make_sim(machine, 1), program, 2), 20000);
}

TEST_CASE("two streams into one GPU take turns at its one copy engine for that direction") {
  const auto sim = make_sim(toy(), 1);
  const auto program = together({h2d("pinned", "gpu:0", megabyte), h2d("pinned", "gpu:0", megabyte)});
  check_us(slope(*sim, program), 2 * (0.5 + 2 + 100));
}

TEST_CASE("flows over one link share its rate, and a shared uplink limits all of its flows") {
  auto machine = toy();
  machine["link"][1]["gbps"] = 8;  // numa:0 -> numa:1
  const auto remote = h2d("pinned", "gpu:1", 100 * megabyte), local = h2d("pinned", "gpu:0", 100 * megabyte);
  check_about_us(slope(*make_sim(machine, 1), together({remote, local}), 2),
                 12500);  // 8 and 10 GB/s: the slower one ends last

  machine = toy();
  machine["share"] = {{{"name", "root"}, {"links", {"bus numa:*->gpu:*"}}, {"gbps", 12}}};
  check_about_us(slope(*make_sim(machine, 1), together({remote, local}), 2), 100000 / 6.0);
}

TEST_CASE("peers copy directly; without peer access, chunks are staged through the host: fill + n * bottleneck") {
  const auto sim = make_sim(toy(), 1);
  check_us(slope(*sim, d2d(megabyte)), 0.25 + 2.75 + 25);
  check_us(slope(*sim, d2d(megabyte, {{"initiator", "dst"}})), 0.25 + 2.75 + 25);
  const double out = 0.5 + 5 + 10.24, in = 0.75 + 5 + 10.24;  // the stages of a chunk; the second crosses one link more
  check_us(single(*sim, d2d(ten_chunks, {{"peer", "off"}})), out + 10 * in);
  check_us(slope(*sim, d2d(ten_chunks, {{"peer", "off"}})), out + 10 * in);
  check_us(single(*sim, d2d(8, {{"peer", "off"}})), 0.5 + 5 + 0.75 + 5 + 2 * 0.0008);
  auto machine = toy();
  machine["staged_peer"]["slots"] = 1;  // no overlap
  check_us(single(*make_sim(machine, 1), d2d(ten_chunks, {{"peer", "off"}})), 10 * (out + in));
}

TEST_CASE("a copy that the destination queues takes extra time, which shrinks with the size down to a minimum") {
  auto machine = toy();
  machine["pull"] = {{"extra_us", 10}, {"overlap", 0.5}, {"least_us", 4}};
  const auto sim = make_sim(machine, 1);
  const Params pulled{{"initiator", "dst"}};
  check_us(slope(*sim, d2d(320'000, pulled)), 0.25 + 2.75 + (10 - 0.5 * 8) + 8);
  check_us(slope(*sim, d2d(megabyte, pulled)), 0.25 + 2.75 + 4 + 25);
  check_us(slope(*sim, d2d(megabyte)), 0.25 + 2.75 + 25);
  const Params staged{{"initiator", "dst"}, {"peer", "off"}};
  check_us(single(*sim, d2d(ten_chunks, staged)), single(*make_sim(toy(), 1), d2d(ten_chunks, staged)) * 1e6);
}

TEST_CASE("the source's engine does what the destination queues: three sources copy concurrently, one in turns") {
  auto machine = exact(bundled("h200x4"));
  const auto times_of_one = [&](const char* benchmark, const char* src, const char* dst) {
    const auto sim = make_sim(machine, 1);
    auto c = copy_case(benchmark, src, "device", dst, "device", 8, {{"initiator", "dst"}});
    c.others = {gpu(1), gpu(2), gpu(3)};
    return slope(*sim, build_program(c)) / slope(*sim, d2d(8, {{"initiator", "dst"}}));
  };
  CHECK(times_of_one("all_to_one", "gpu:all", "gpu:0") == doctest::Approx(1));
  CHECK(times_of_one("one_to_all", "gpu:0", "gpu:all") == doctest::Approx(3));
  machine.erase("pull");  // then it has no extra cost, and the destination's engine does it
  CHECK(times_of_one("all_to_one", "gpu:all", "gpu:0") == doctest::Approx(3));
  CHECK(times_of_one("one_to_all", "gpu:0", "gpu:all") == doctest::Approx(1));
}

TEST_CASE("pageable copy to the GPU: the copying thread is the bottleneck, the last chunk's transfer is the fill") {
  const auto sim = make_sim(toy(), 1);
  const double call = 2, thread = 2 + 25.6, transfer = 0.5 + 2 + 10.24;
  check_us(single(*sim, h2d("pageable", "gpu:0", ten_chunks)), call + 10 * thread + transfer);
  check_us(slope(*sim, h2d("pageable", "gpu:0", ten_chunks)),
           call + 10 * thread);  // the next call starts when the source has been read
  check_us(time_of(*sim, h2d("pageable", "gpu:0", ten_chunks), 0), 4);  // an idle synchronization
}

TEST_CASE("pageable copy from the GPU: the call returns when the bytes have arrived") {
  const auto sim = make_sim(toy(), 1);
  const double call = 2, thread = 2 + 20.48, transfer = 0.5 + 3 + 10.24;
  check_us(single(*sim, d2h("pageable", ten_chunks)), call + transfer + 10 * thread);
  check_us(slope(*sim, d2h("pageable", ten_chunks)), call + transfer + 10 * thread);
}

TEST_CASE("a slow link makes the transfer the bottleneck of a pageable copy") {
  auto machine = toy();
  machine["link"][0]["efficiency"] = 0.08;  // 1 GB/s: 102.4 us a chunk
  check_us(single(*make_sim(machine, 1), h2d("pageable", "gpu:0", ten_chunks)), 2 + 2 + 25.6 + 10 * (0.5 + 2 + 102.4));
}

TEST_CASE("bidirectional pageable copies take turns at the driver's copying thread") {
  const auto sim = make_sim(toy(), 1);
  const auto bidirectional = h2d("pageable", "gpu:0", 10 * ten_chunks, {{"bidirectional", "true"}});
  check_about_us(single(*sim, bidirectional), 100 * (25.6 + 20.48));
}

TEST_CASE("if the caller copies pageable memory, both directions run concurrently") {
  auto machine = toy();
  machine["pageable"]["copied_by"] = "caller";
  const auto bidirectional = h2d("pageable", "gpu:0", 10 * ten_chunks, {{"bidirectional", "true"}});
  check_about_us(single(*make_sim(machine, 1), bidirectional), 100 * (2 + 25.6));  // as the slower direction alone
}

TEST_CASE("the machine file can give calls that copy pageable memory a cost of their own") {
  auto machine = toy();
  machine["pageable"]["to_device_us"] = 7;
  machine["pageable"]["from_device_us"] = 0;
  const auto sim = make_sim(machine, 1);
  check_us(single(*sim, h2d("pageable", "gpu:0", ten_chunks)), 7 + 10 * (2 + 25.6) + (0.5 + 2 + 10.24));
  check_us(slope(*sim, d2h("pageable", ten_chunks)), 0 + (0.5 + 3 + 10.24) + 10 * (2 + 20.48));
}

TEST_CASE("a CPU thread copies between host memories, at a lower rate across nodes") {
  const auto sim = make_sim(toy(), 1);
  const auto program = [](const char* to, Params params = {}) {
    return build_program(copy_case("h2h", "numa:0", "pageable", to, "pinned", megabyte, std::move(params)));
  };
  check_us(slope(*sim, program("numa:0")), 0.1 + 200);
  check_us(slope(*sim, program("numa:1")), 0.1 + 250);
  check_us(slope(*sim, program("numa:1", {{"initiator", "dst"}})), 0.1 + 250);
  auto machine = toy();
  machine["numa"][0]["memcpy_gbps"] = 80;  // the memory reads 50 and writes 50 GB/s
  check_us(slope(*make_sim(machine, 1), program("numa:0")), 0.1 + 20);
}

TEST_CASE("a copy engine's set-up takes longer while the other direction's engine works; inline copies are exempt") {
  auto machine = toy();
  machine["copy"]["both_ways_us"] = 1.5;
  machine["copy"]["from_device_us"] = 2;  // so that both directions take the same time
  const auto sim = make_sim(machine, 1);
  const Params bidirectional{{"bidirectional", "true"}};
  check_us(slope(*sim, h2d("pinned", "gpu:0", megabyte, bidirectional)), 0.5 + 2 + 1.5 + 100);
  check_us(slope(*sim, h2d("pinned", "gpu:0", megabyte)), 0.5 + 2 + 100);
  check_us(slope(*sim, d2h("pinned", megabyte)), 0.5 + 2 + 100);
  check_us(slope(*sim, together({h2d("pinned", "gpu:0", megabyte), h2d("pinned", "gpu:1", megabyte)})),
           0.75 + 2 + 100);  // two GPUs
  check_us(slope(*sim, h2d("pinned", "gpu:0", 8, bidirectional)),
           0.5 + 2 + 0.0008);             // the other direction does not slow inline copies
  machine["gpu"][0]["copy_engines"] = 1;  // the directions take turns, so they do not overlap
  check_us(slope(*make_sim(machine, 1), h2d("pinned", "gpu:0", megabyte, bidirectional)), 2 * (0.5 + 2 + 100));
}

TEST_CASE("copies after the end of the other direction have the unidirectional set-up") {
  auto machine = toy();
  machine["copy"]["both_ways_us"] = 1;
  machine["copy"]["from_device_us"] = 2;
  const auto sim = make_sim(machine, 1);
  const auto session = sim->prepare(h2d("pinned", "gpu:0", megabyte, {{"bidirectional", "true"}}), "key#0");
  const auto trace = sim->run(*session, {1, {{2, 4}, {2, 8}, {4, 8}}, false});  // iterations per direction
  const auto lasted = [&](u32 batch) { return trace.at(0, batch, 1).exit_s - trace.at(0, batch, 1).enter_s; };
  check_us(lasted(1) - lasted(0), 4 * (0.5 + 2 + 100));
  check_us(lasted(2) - lasted(1), 2 * 1);  // two more copies overlap the other direction
}

TEST_CASE(
    "a copy to the host ends when its last bytes are known to have arrived; the next copy does not wait for that") {
  auto machine = toy();
  machine["copy"]["arrive_us"] = 0.75;
  const auto sim = make_sim(machine, 1);
  check_us(slope(*sim, d2h("pinned", megabyte)), 0.5 + 3 + 100);
  check_us(single(*sim, d2h("pinned", megabyte, {{"after", "wait"}})), 0.5 + 3 + 100 + 0.75);
  check_us(single(*sim, h2d("pinned", "gpu:0", megabyte, {{"after", "wait"}})), 0.5 + 2 + 100);
}

TEST_CASE("a copy ends later by a constant for each doubling of its number of 4 KiB parts") {
  auto machine = toy();
  machine["copy"]["local_late_us"] = 0.25;
  machine["copy"]["from_device_late_us"] = 0.5;
  const auto sim = make_sim(machine, 1);
  const auto local = [](u64 bytes) {
    return build_program(copy_case("local", "gpu:0", "device", "gpu:0", "device", bytes));
  };
  check_us(slope(*sim, local(4096)), 1 + 4096 / 400e3 + 0.25 * 1);
  check_us(slope(*sim, local(15 * 4096)), 1 + 15 * 4096 / 400e3 + 0.25 * 4);
  check_us(slope(*sim, d2h("pinned", 15 * 4096)), 0.5 + 3 + 6.144 + 0.5 * 4);
  check_us(slope(*sim, h2d("pinned", "gpu:0", 15 * 4096)), 0.5 + 2 + 6.144);
  // Pageable: each chunk of 25 parts is a copy.
  check_us(slope(*sim, d2h("pageable", ten_chunks)), 2 + (0.5 + 3 + 0.5 * std::log2(26) + 10.24) + 10 * (2 + 20.48));
}

TEST_CASE(
    "pageable copies to the GPU of up to 64 KiB are inline, with their own rate and set-up; a single copy adds its "
    "end") {
  auto machine = toy();
  machine["pageable"]["small_gbps"] = 2;
  machine["pageable"]["small_us"] = 0.25;
  machine["pageable"]["end_us"] = 1.25;
  const auto sim = make_sim(machine, 1);
  const double call = 4;  // includes queueing the copy
  check_us(slope(*sim, h2d("pageable", "gpu:0", 65536)), call + 32.768);
  check_us(single(*sim, h2d("pageable", "gpu:0", 65536)), call + 32.768 + 0.5 + 0.25 + 6.5536 + 1.25);
  check_us(slope(*sim, h2d("pageable", "gpu:0", 65544)), call + 16.386);
  check_us(single(*sim, h2d("pageable", "gpu:0", 65544)), call + 16.386 + 0.5 + 2 + 6.5544 + 1.25);
}

TEST_CASE("memcpy bypasses the caches from 3/4 of the last-level cache; a single copy waits for its first load") {
  auto machine = toy();
  machine["numa"][0]["llc_mib"] = 4;
  machine["numa"][0]["memcpy_stream_gbps"] = 8;
  const auto sim = make_sim(machine, 1);
  const auto copy = [](const char* to, u64 bytes) {
    return build_program(copy_case("h2h", "numa:0", "pageable", to, "pinned", bytes));
  };
  check_us(slope(*sim, copy("numa:0", (3 << 20) - 8)), 0.1 + ((3 << 20) - 8) / 5e3);
  check_us(slope(*sim, copy("numa:0", 3 << 20)), 0.1 + (3 << 20) / 8e3);
  check_us(slope(*sim, copy("numa:1", 3 << 20)),
           0.1 + (3 << 20) / 6.4e3);  // the ratio across nodes is the same as for smaller copies
  check_us(slope(*sim, copy("numa:0", 40)), 0.1 + 0.008);
  check_us(single(*sim, copy("numa:0", 40)), 0.1 + 0.1);  // the bytes follow immediately
  check_us(single(*sim, copy("numa:0", 5000)), 0.1 + 1);
}

TEST_CASE("a single copy by a thread of another node waits for its first load to cross the link and return") {
  auto program = build_program(copy_case("h2h", "numa:0", "pageable", "numa:0", "pinned", 40));
  program.actors[0].place = numa(1);
  check_us(single(*make_sim(toy(), 1), program), 0.1 + 0.1 + 2 * 0.25);
}

TEST_CASE("with the host's clock, a stream waits for slow calls") {
  auto machine = toy();
  machine["costs"]["call_us"] = 10;
  auto program = h2d("pinned", "gpu:0", 512);
  program.actors[0].clock = Clock::host;
  const auto sim = make_sim(machine, 1);
  check_us(slope(*sim, program), 10);
  check_us(time_of(*sim, program, 1), 10 + 2.012 + 4);
}

TEST_CASE("without a gate, the time between a stream's events includes the calls that the host makes between them") {
  const double call = 2, event = 1;
  const auto without_gate = [](Case c) {
    c.held = false;
    return build_program(c);
  };
  const auto to_gpu = [&](const std::string& memory, u64 bytes, Params params = {}) {
    return without_gate(copy_case("h2d", "numa:0", memory, "gpu:0", "device", bytes, std::move(params)));
  };
  const auto sim = make_sim(toy(), 1);
  check_us(time_of(*sim, to_gpu("pinned", 512), 1), call + 2.012 + event);
  check_us(time_of(*sim, to_gpu("pinned", megabyte), 1),
           call + 102.5 + event);  // no kernel before the copy, so no change of channel
  check_us(time_of(*sim, to_gpu("pinned", 512), 3), call + 3 * 2.012 + event);
  auto slow = toy();
  slow["costs"]["call_us"] = 10;  // calls are slower than copies; the last event is a call too
  check_us(time_of(*make_sim(slow, 1), to_gpu("pinned", 512), 3), 4 * 10 + event);
  check_us(time_of(*sim, to_gpu("pinned", 512), 0), call + event);
  check_us(time_of(*sim, to_gpu("pageable", ten_chunks), 1),
           2 + 10 * (2 + 25.6) + (0.5 + 2 + 10.24) + event);  // the events include the whole call

  // The host queues the streams in turn: event, copy, event of the first, then event and copy of the second.
  const Params bidirectional{{"bidirectional", "true"}};
  check_us(time_of(*sim, to_gpu("pinned", megabyte, bidirectional), 1), 3 * call + call + 0.5 + 3 + 100 + event);
  // A pageable copy blocks the host until the copy is done.
  const double to_gpu_us = 2 + 10 * (2 + 25.6) + (0.5 + 2 + 10.24),
               from_gpu_us = 2 + (0.5 + 3 + 10.24) + 10 * (2 + 20.48);
  check_us(time_of(*sim, to_gpu("pageable", ten_chunks, bidirectional), 1), to_gpu_us + 2 * call + from_gpu_us + event);
}

TEST_CASE("the links carry the bytes that the program states") {
  const auto sim = make_sim(toy(), 1);
  const auto carried = [&](const Program& program, u32 n) {
    const auto session = sim->prepare(program, "k#0");
    const auto trace = sim->run(*session, {3, {std::vector<u32>(program.actors.size(), n)}, false});
    std::map<std::string, u64> bytes;
    for (const auto& link : trace.links) bytes[link.link] = link.bytes;
    return bytes;
  };
  using Bytes = std::map<std::string, u64>;
  const u64 all = 3 * ten_chunks;
  CHECK(carried(h2d("pinned", "gpu:1", 4096), 5) ==
        Bytes{{"smp numa:0->numa:1", 15 * 4096}, {"bus numa:1->gpu:1", 15 * 4096}});
  CHECK(carried(h2d("pageable", "gpu:0", ten_chunks), 2) == Bytes{{"bus numa:0->gpu:0", 2 * all}});
  CHECK(carried(d2d(4096, {{"bidirectional", "true"}}), 1) ==
        Bytes{{"bridge gpu:0->gpu:1", 3 * 4096}, {"bridge gpu:1->gpu:0", 3 * 4096}});
  CHECK(carried(d2d(ten_chunks, {{"peer", "off"}}), 1) ==
        Bytes{{"bus gpu:0->numa:0", all}, {"smp numa:0->numa:1", all}, {"bus numa:1->gpu:1", all}});
  CHECK(carried(h2d("pinned", "gpu:0", 4096), 0).empty());
}

TEST_CASE("a route is the shortest, then the widest, never through a GPU, unless the machine file gives another") {
  const auto route = [](const nlohmann::json& machine) {
    const auto sim = make_sim(machine, 1);
    const auto session = sim->prepare(h2d("pinned", "gpu:1", 4096), "k#0");
    return sim->run(*session, {1, {{1}}, false}).notes.at(0).second;
  };
  CHECK(route(toy()) == "smp numa:0->numa:1, bus numa:1->gpu:1");
  auto machine = toy();
  machine["link"].push_back(machine["link"][1]);
  machine["link"][3]["name"] = "wide";
  machine["link"][3]["gbps"] = 21;
  CHECK(route(machine) == "wide numa:0->numa:1, bus numa:1->gpu:1");
  machine["route"] = {{{"from", "numa:0"}, {"to", "gpu:1"}, {"via", {"gpu:0"}}}};
  CHECK(route(machine) == "bus numa:0->gpu:0, bridge gpu:0->gpu:1");

  machine = toy();  // a route can pass a switch
  machine["switch"] = {{{"places", {"switch:0"}}}};
  machine["link"][2]["between"] = nlohmann::json::parse(R"([["gpu:0", "switch:0"], ["gpu:1", "switch:0"]])");
  const auto sim = make_sim(machine, 1);
  check_us(slope(*sim, d2d(megabyte)), 2 * 0.25 + 2.75 + 25);
}
