// Copies of rows and batched copies on the small machine of sim_testing.hpp, against closed forms. All expected times
// are stated here, in us.
#include <doctest.h>

#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::testing;

namespace {

using Params = std::map<std::string, std::string>;

nlohmann::json toy_with_batches() {
  auto made = toy();
  made["batch"] = {{"issue_us", 1.5}, {"host_us", 2.5}};
  made["graph"] = {{"launch_us", 5}, {"node_us", 0.5}};
  made["copy"]["row_us"] = 0.01;
  made["costs"]["stream_wait_us"] = 1.5;
  return made;
}

Program make_program(Engine engine, const std::string& benchmark, const std::string& src, const std::string& dst,
                     u64 bytes, Params params = {}) {
  const auto memory = [](const std::string& place) { return place.starts_with("numa") ? "pinned" : "device"; };
  auto c = copy_case(benchmark, src, memory(src), dst, memory(dst), bytes, std::move(params));
  c.engine = engine;
  return build_program(c);
}

}  // namespace

TEST_CASE("pieces that single calls queue cost one copy each") {
  const auto sim = make_sim(toy_with_batches(), 1);
  check_us(slope(*sim, make_program(Engine::ce, "pieces", "numa:0", "gpu:0", 409600), 5), 100 * (2 + 0.5 + 4.096 / 10));
  check_us(slope(*sim, make_program(Engine::ce, "pieces", "gpu:0", "numa:0", 409600), 5), 100 * (3 + 0.5 + 4.096 / 10));
  check_us(slope(*sim, make_program(Engine::ce, "pieces", "gpu:0", "gpu:1", 409600), 5),
           100 * (2.75 + 0.25 + 4.096 / 40));
  check_us(slope(*sim, make_program(Engine::ce, "pieces", "numa:0", "gpu:0", 6400, {{"piece", "64"}}), 5),
           100 * (1 + 0.5 + 0.064));  // inline in the command
}

TEST_CASE("one batched call overlaps the set-ups of its pieces with their bytes: the slower of the two counts") {
  const auto sim = make_sim(toy_with_batches(), 1);
  check_us(slope(*sim, make_program(Engine::batch, "pieces", "numa:0", "gpu:0", 409600)), 100 * 1.5);
  check_us(slope(*sim, make_program(Engine::batch, "pieces", "numa:0", "gpu:0", 6400, {{"piece", "64"}})), 100 * 1.5);
  check_us(slope(*sim, make_program(Engine::batch, "pieces", "numa:0", "gpu:0", 6553600, {{"piece", "65536"}})),
           100 * 6.5536);
  // A single call: the first copy's set-up and latency, the other set-ups, the last copy's bytes. They hide the change
  // of channel.
  check_us(single(*sim, make_program(Engine::batch, "pieces", "numa:0", "gpu:0", 409600)),
           2 + 0.5 + 100 * 1.5 + 0.4096);
  check_us(slope(*sim, make_program(Engine::batch, "h2d", "numa:0", "gpu:0", 4096), 100),
           1.5);  // many calls hide the change of channel
  check_us(slope(*sim, make_program(Engine::batch, "d2d", "gpu:0", "gpu:1", 409600)), 10.24);
  check_us(slope(*sim, make_program(Engine::batch, "local", "gpu:0", "gpu:0", 4096)),
           1 + 4.096 / 400);  // one after the other, like single calls
}

TEST_CASE("with the host's clock, calls count if they take longer than the work that they queue") {
  const auto sim = make_sim(toy_with_batches(), 1);
  const auto pieces = [](Engine engine, u64 piece, Params params = {}) {
    params.insert({{"clock", "host"}, {"piece", std::to_string(piece)}});
    return make_program(engine, "pieces", "numa:0", "gpu:0", 100 * piece, std::move(params));
  };
  const double call = 2, host = 2.5, copy = 2 + 0.5 + 0.4096, node = copy + 0.5;
  check_us(slope(*sim, pieces(Engine::ce, 4096)), 100 * copy);
  check_us(slope(*sim, pieces(Engine::ce, 64)), 100 * call);  // an inline copy takes 1.564
  check_us(slope(*sim, pieces(Engine::batch, 4096)), 100 * host);
  check_us(slope(*sim, pieces(Engine::batch, 65536)), 100 * 6.5536);
  check_us(slope(*sim, pieces(Engine::graph, 4096)), 100 * node);
  const double gathered = 2 + 1.1 + 409.6 / 5;
  check_us(slope(*sim, pieces(Engine::sm, 4096)), gathered);
  // A single iteration adds the time before the first copy and after the last call.
  check_us(single(*sim, pieces(Engine::ce, 4096)), call + 100 * copy);
  check_us(single(*sim, pieces(Engine::batch, 4096)), call + 100 * host + 1.5 + 0.4096);
  check_us(single(*sim, pieces(Engine::graph, 4096)), 4 + 0.125 + 5 + 100 * node);
  check_us(single(*sim, pieces(Engine::sm, 4096)), 3 + gathered);
}

TEST_CASE("single copies, rows and halos can be timed by the host's clock too") {
  const auto sim = make_sim(toy_with_batches(), 1);
  const double call = 2, launch = 3;
  const Params host{{"clock", "host"}};
  check_us(single(*sim, make_program(Engine::ce, "h2d", "numa:0", "gpu:0", 4096, host)), call + 2 + 0.5 + 0.4096);
  check_us(single(*sim, make_program(Engine::sm, "h2d", "numa:0", "gpu:0", 4096, host)), launch + 2 + 1.1 + 4.096 / 5);
  check_us(slope(*sim, make_program(Engine::ce, "h2d", "numa:0", "gpu:0", 8, host)), call);
  check_us(single(*sim, make_program(Engine::ce, "strided", "gpu:0", "numa:0", 65536, host)), call + 3 + 0.5 + 6.5536);
  check_us(single(*sim, make_program(Engine::ce, "halo", "gpu:0", "gpu:1", 4096, host)), call + 2.75 + 0.25 + 0.1024);
}

TEST_CASE("the nodes of a graph run one after the other, and its launch is paid once") {
  const auto sim = make_sim(toy_with_batches(), 1);
  const double node = 2 + 0.5 + 0.5 + 0.4096;
  check_us(slope(*sim, make_program(Engine::graph, "h2d", "numa:0", "gpu:0", 4096)), node);
  check_us(single(*sim, make_program(Engine::graph, "h2d", "numa:0", "gpu:0", 4096)),
           5 + 6 + node);  // after a kernel: a change of channel
  check_us(slope(*sim, make_program(Engine::graph, "h2d", "numa:0", "gpu:0", 8)),
           2 + 0.5 + 0.5 + 0.0008);  // never inline
  check_us(slope(*sim, make_program(Engine::graph, "pieces", "numa:0", "gpu:0", 409600), 5), 100 * node);
  check_us(slope(*sim, make_program(Engine::graph, "local", "gpu:0", "gpu:0", 4096)), 1 + 0.5 + 4.096 / 400);
}

TEST_CASE(
    "a copy of rows costs one set-up plus the larger of its transfer without gaps and the engine's time per row") {
  const auto sim = make_sim(toy_with_batches(), 1);
  for (const std::string shape : {"2d", "3d"})
    for (const std::string gaps : {"both", "src", "dst"})
      check_us(slope(*sim,
                     make_program(Engine::ce, "strided", "numa:0", "gpu:0", 65536, {{"shape", shape}, {"gaps", gaps}})),
               2 + 0.5 + 6.5536);
  check_us(slope(*sim, make_program(Engine::ce, "strided", "numa:0", "gpu:0", 65536, {{"row", "8"}})),
           2 + 0.5 + 8192 * 0.01);
  check_us(slope(*sim, make_program(Engine::ce, "strided", "gpu:0", "gpu:0", 65536, {{"row", "64"}})), 1 + 1024 * 0.01);
  check_us(slope(*sim, make_program(Engine::ce, "strided", "gpu:0", "gpu:0", 65536, {{"row", "4096"}})),
           1 + 65.536 / 400);
}

TEST_CASE("SMs move whole sectors, and words of 8 bytes if rows are not whole vectors") {
  const auto sim = make_sim(toy_with_batches(), 1);
  const double setup = 2 + 0.5, bytes = 1048.576;  // us at 1 GB/s
  const auto strided = [&](Params params) {
    return slope(*sim, make_program(Engine::sm, "strided", "gpu:0", "gpu:0", 1048576, std::move(params)));
  };
  check_us(strided({{"row", "512"}}), setup + bytes / 250);
  check_us(strided({{"row", "8"}}), setup + bytes / 62.5);                  // 32 B for 8 B, read and written
  check_us(strided({{"row", "8"}, {"gaps", "dst"}}), setup + bytes / 100);  // 500 GB/s over 1 read and 4 written
  const double tile = 16.384 / (0.5 + 0.3);  // GB/s of one block with half a tile in flight
  check_us(strided({{"row", "8"}, {"blocks", "1"}}), setup + bytes / tile);
  check_us(slope(*sim, make_program(Engine::sm, "pieces", "numa:0", "gpu:0", 1024000, {{"piece", "512"}})),
           2 + 1.1 + 1024 / 5.0);
  check_us(slope(*sim, make_program(Engine::sm, "strided", "numa:0", "gpu:0", 1048576, {{"row", "8"}})),
           2 + 1.1 + bytes / (5.0 / 4));
}

TEST_CASE("a halo is copied in place, or packed, copied and unpacked by the other GPU") {
  const auto sim = make_sim(toy_with_batches(), 1);
  const auto halo = [&](Params params) {
    return slope(*sim, make_program(Engine::ce, "halo", "gpu:0", "gpu:1", 4096, std::move(params)));
  };
  const double copy = 2.75 + 0.25 + 0.1024;
  check_us(halo({{"face", "z"}}), copy);
  check_us(halo({{"face", "y"}}), 2.75 + 0.25 + 16 * 0.01);  // 16 rows of 16 cells of 16 B
  check_us(halo({{"face", "x"}}), 2.75 + 0.25 + 256 * 0.01);
  const double kernel = 2 + 0.5 + 4.096 / (500.0 / 3);  // one side moves 32 B for a cell of 16 B
  check_us(halo({{"face", "x"}, {"way", "packed"}}), 6 + kernel + 6 + copy + 2 * 1.5 + kernel);
}

TEST_CASE("the links carry exactly the bytes of the copy, and verification compares all of them") {
  const auto sim = make_sim(toy_with_batches(), 1);
  for (const auto& program : {make_program(Engine::ce, "strided", "numa:0", "gpu:0", 65536),
                              make_program(Engine::batch, "pieces", "numa:0", "gpu:0", 65536),
                              make_program(Engine::graph, "pieces", "numa:0", "gpu:0", 65536),
                              make_program(Engine::sm, "strided", "numa:0", "gpu:0", 65536, {{"row", "8"}})}) {
    CAPTURE(to_text(program));
    const auto session = sim->prepare(program, "key#0");
    const auto trace = sim->run(*session, {2, {{3}}, true});
    REQUIRE(trace.links.size() == 1);
    CHECK(trace.links[0].bytes == 2 * 3 * 65536);
    CHECK(trace.verdict->ok);
    CHECK(trace.verdict->checked_bytes % 65536 == 0);
    CHECK(trace.verdict->checked_bytes > 0);
  }
  const auto packed = make_program(Engine::ce, "halo", "gpu:0", "gpu:1", 4096, {{"face", "x"}, {"way", "packed"}});
  const auto session = sim->prepare(packed, "key#0");
  const auto verdict = sim->run(*session, {1, {{1}}, true}).verdict;
  CHECK(verdict->ok);
  CHECK(verdict->checked_bytes == 3 * 4096);
}

TEST_CASE("rows that come from another slice of the source each time are those that verification expects") {
  auto program = make_program(Engine::ce, "strided", "numa:0", "gpu:0", 65536);
  auto& move = std::get<Move>(program.actors[0].loop[0]);
  REQUIRE(move.from.slices > 1);
  move.to.slices = 1;
  const auto sim = make_sim(toy_with_batches(), 1);
  const auto session = sim->prepare(program, "key#0");
  CHECK(sim->run(*session, {1, {{2}}, true}).verdict->ok);
}

TEST_CASE("verification finds a wrong byte in a row, and rows that a lying peer did not deliver") {
  auto broken = toy_with_batches();
  broken["fault"] = {{{"kind", "corrupt"}}};
  const auto corrupt = make_sim(broken, 1);
  for (const auto& program : {make_program(Engine::ce, "strided", "numa:0", "gpu:0", 65536, {{"row", "8"}}),
                              make_program(Engine::batch, "pieces", "numa:0", "gpu:0", 65536)}) {
    const auto session = corrupt->prepare(program, "key#0");
    const auto verdict = corrupt->run(*session, {1, {{2}}, true}).verdict;
    CHECK_FALSE(verdict->ok);
    CHECK(verdict->wrong_bytes == 1);
  }
  broken["fault"] = {{{"kind", "lie"}}};
  const auto lying = make_sim(broken, 1);
  const auto session = lying->prepare(
      make_program(Engine::ce, "halo", "gpu:0", "gpu:1", 4096, {{"face", "y"}, {"way", "packed"}}), "key#0");
  const auto verdict = lying->run(*session, {1, {{1}}, true}).verdict;
  CHECK(verdict->wrong_bytes == 2 * 4096);  // the bytes that did not arrive, and their unpacked copy
}

TEST_CASE("pieces and rows that the model lacks are not supported, with the reason") {
  const auto without = [](const char* table, const char* key, const Program& program) {
    auto made = toy_with_batches();
    if (*key) made[table].erase(key);
    else made.erase(table);
    return make_sim(made, 1)->supports(program).why_not;
  };
  CHECK(without("batch", "", make_program(Engine::batch, "h2d", "numa:0", "gpu:0", 8)).find("[batch]") !=
        std::string::npos);
  CHECK(without("graph", "", make_program(Engine::graph, "h2d", "numa:0", "gpu:0", 8)).find("[graph]") !=
        std::string::npos);
  CHECK(without("copy", "row_us", make_program(Engine::ce, "strided", "numa:0", "gpu:0", 65536))
            .find("row_us of [copy]") != std::string::npos);
  const Params packed{{"way", "packed"}};
  CHECK(without("costs", "stream_wait_us", make_program(Engine::ce, "halo", "gpu:0", "gpu:1", 4096, packed))
            .find("stream_wait_us of [costs]") != std::string::npos);
  CHECK(without("costs", "stream_wait_us", make_program(Engine::ce, "halo", "gpu:0", "gpu:0", 4096, packed)).empty());
  CHECK(without("batch", "", make_program(Engine::ce, "pieces", "numa:0", "gpu:0", 65536)).empty());
}

TEST_CASE("1000 pieces from pinned memory on one H200 match the measured times of the GPU and of the host") {
  const auto sim = make_sim(exact(bundled("h200x2")), 1);
  const auto us = [&](Engine engine, u64 piece, const std::string& clock, const std::string& dst = "gpu:0",
                      const std::string& src = "numa:0") {
    const auto program =
        make_program(engine, "pieces", src, dst, 1000 * piece, {{"piece", std::to_string(piece)}, {"clock", clock}});
    return 1e6 * (program.most_iterations == 1 ? single(*sim, program) : slope(*sim, program, 2));
  };
  const auto approx = [](double measured) { return doctest::Approx(measured).epsilon(0.04); };
  CHECK(us(Engine::ce, 64, "event") == approx(2314));
  CHECK(us(Engine::ce, 4096, "event") == approx(2552));
  CHECK(us(Engine::ce, 65536, "event") == doctest::Approx(3822).epsilon(0.06));
  CHECK(us(Engine::graph, 4096, "event") == approx(2579));
  CHECK(us(Engine::graph, 65536, "event") == doctest::Approx(3819).epsilon(0.06));
  CHECK(us(Engine::batch, 4096, "event") == approx(74.9));
  CHECK(us(Engine::batch, 4096, "event", "numa:0", "gpu:0") == approx(74.1));
  CHECK(us(Engine::batch, 65536, "event") == approx(1184));
  CHECK(us(Engine::sm, 4096, "event") == doctest::Approx(84.8).epsilon(0.06));
  CHECK(us(Engine::ce, 4096, "host") == approx(2552));
  CHECK(us(Engine::graph, 4096, "host") == approx(2567));
  for (const u64 piece : {64, 4096}) {  // 0.6 to 1.3 ms, depending on the run
    CHECK(us(Engine::batch, piece, "host") > 600);
    CHECK(us(Engine::batch, piece, "host") < 1300);
  }
  CHECK(us(Engine::batch, 4096, "host", "gpu:1", "gpu:0") == doctest::Approx(602).epsilon(0.5));
  CHECK(us(Engine::sm, 4096, "host") == doctest::Approx(us(Engine::sm, 4096, "event")));
}

TEST_CASE("1 MiB in rows to an H200 matches the measurement") {
  const auto sim = make_sim(exact(bundled("h200x2")), 1);
  const auto us = [&](const std::string& row) {
    return 1e6 * slope(*sim, make_program(Engine::ce, "strided", "numa:0", "gpu:0", 1 << 20, {{"row", row}}));
  };
  const auto approx = [](double measured) { return doctest::Approx(measured).epsilon(0.1); };
  CHECK(us("8") == approx(239.7));
  CHECK(us("64") == approx(30.0));
  CHECK(us("512") == approx(21.7));
  CHECK(us("4096") == approx(21.7));
}
