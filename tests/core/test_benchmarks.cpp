#include <doctest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

/// The source of such a row is the disk of the reads beside the work, which runs elsewhere.
bool only_reads_beside(const Benchmark& row) {
  return row.role == Role::contention && row.src == PlaceKind::disk && row.name != "contended_disk";
}

}  // namespace

TEST_CASE("every row of the benchmark table builds a valid program for every value of every parameter") {
  for (const auto& row : benchmarks())
    for (const auto& memories : row.memories)
      for (const auto& param : row.params)
        for (const auto value : param.values) {
          auto c = default_case(row);
          std::tie(c.src_memory, c.dst_memory) = memories;
          c = with_value(c, param.name, value);
          if (param.name == "bidirectional" && c.src == c.dst) c.dst.index = 1;  // one place has no second direction
          CAPTURE(row.name);
          CAPTURE(value);
          const auto program = build_program(c);
          for (u32 actor = 0; actor < program.actors.size(); ++actor)
            CHECK(std::any_of(program.flows.begin(), program.flows.end(),
                              [&](const Flow& flow) { return flow.actor == actor; }));
          const auto end = [&](const Place& place) { return place.index == all_places ? c.others.front() : place; };
          // Clients may copy from the GPU or stay within it, and message tasks alone stay on the node.
          if (only_reads_beside(row)) {
            CHECK(std::any_of(program.flows.begin(), program.flows.end(),
                              [&](const Flow& flow) { return flow.src == c.src && !flow.measured; }));
          } else if (row.name == "rank_tasks") {  // transfers within a rank come before messages between ranks
            CHECK(std::any_of(program.flows.begin(), program.flows.end(), [&](const Flow& flow) {
              return value == "transfers" ? flow.dst.kind == PlaceKind::gpu
                                          : flow.src.kind == PlaceKind::rank && flow.dst.kind == PlaceKind::rank;
            }));
          } else if (row.name != "shared_d2h" && row.name != "shared_launch" && value != "messages" &&
                     value != "cpu") {  // a CPU thread alone stays on the node
            CHECK(program.flows[0].src == end(c.src));
            CHECK(program.flows[0].dst == end(c.dst));
          }
          // A touched page moves as a whole.
          const bool all = (param.name != "stride" && param.name != "order") || value == param.values.front() ||
                           (row.name == "demand" && param.name == "order");
          u64 bytes = program.flows[0].bytes;
          // A split copy has one flow per part, and a ring of GPU blocks one per CPU thread.
          const bool in_parts = row.name == "split" || (row.name == "staged" && row.engine == Engine::sm);
          for (std::size_t i = 1; i < program.flows.size() && in_parts; ++i) bytes += program.flows[i].bytes;
          if (row.name == "relayed")  // those that end at the destination
            bytes = std::accumulate(program.flows.begin(), program.flows.end(), u64{0}, [&](u64 sum, const Flow& flow) {
              return sum + (flow.dst == c.dst ? flow.bytes : 0);
            });
          if (param.name == "at_once") bytes /= std::stoul(std::string{value});  // an operation is that many messages
          // Other flows count the requested bytes, not the gaps. Kinds of contention and computations have sizes of their
          // own.
          if (row.role != Role::contention && row.role != Role::computation) CHECK((bytes == c.bytes) == all);
        }
}

TEST_CASE("a CPU thread copies all requested slices; a stream copies at most as many as its queue holds") {
  const auto slices = [](const char* benchmark, const char* src, const char* src_memory, const char* dst,
                         const char* dst_memory) {
    auto c = copy_case(benchmark, src, src_memory, dst, dst_memory, 8);
    c.footprint_bytes = 256_KiB;
    return std::get<Move>(build_program(c).actors.front().loop.front()).from.slices;
  };
  CHECK(slices("h2h", "numa:0", "pageable", "numa:0", "pinned") == 32768);
  CHECK(slices("d2h", "gpu:0", "device", "numa:0", "pinned") == 512);
}

TEST_CASE("a split copy has one stream per part, and every part holds at least one whole word") {
  const auto parts = [](u64 bytes, const char* streams) {
    std::vector<u64> found;
    const auto program =
        build_program(copy_case("split", "numa:0", "pinned", "gpu:0", "device", bytes, {{"streams", streams}}));
    CHECK(program.actors.size() == program.flows.size());
    for (const auto& flow : program.flows) {
      CHECK((flow.src == numa(0) && flow.dst == gpu(0)));
      CHECK(program.actors[flow.actor].place == flow.dst);
      found.push_back(flow.bytes);
    }
    return found;
  };
  CHECK(parts(1_MiB, "2") == std::vector<u64>{512_KiB, 512_KiB});
  CHECK(parts(48, "4") == std::vector<u64>{16, 16, 8, 8});
  CHECK(parts(32, "4") == std::vector<u64>{8, 8, 8, 8});
  CHECK_THROWS_WITH_AS(parts(24, "4"), doctest::Contains("24 B is too small for 4 parts"), Error);
  CHECK_THROWS_WITH_AS(parts(1_MiB, "3"), doctest::Contains("streams"), Error);
}

TEST_CASE("an access pattern states its number of accesses, the bytes requested and the bytes moved") {
  const auto stated = [](const char* width, const char* stride, const char* order, u64 bytes = 4096) {
    auto c = copy_case("read", "numa:0", "pinned", "gpu:0", "device", bytes,
                       {{"width", width}, {"stride", stride}, {"order", order}});
    c.engine = Engine::sm;
    const auto program = build_program(c);
    const auto& access = std::get<Kernel>(program.actors[0].loop[0]).traffic[0];
    CHECK(program.flows[0].bytes == asked_bytes(access));
    return std::tuple{access_count(access), asked_bytes(access), moved_bytes(access)};
  };
  using Counts = std::tuple<u64, u64, u64>;
  CHECK(stated("16", "none", "linear") == Counts{256, 4096, 4096});
  CHECK(stated("8", "none", "linear") == Counts{512, 4096, 4096});
  CHECK(stated("4", "none", "linear") == Counts{1024, 4096, 4096});
  CHECK(stated("4", "none", "linear", 24) == Counts{6, 24, 24});
  CHECK(stated("4", "128", "linear") == Counts{32, 128, 32 * 32});
  CHECK(stated("16", "64", "linear") == Counts{64, 1024, 64 * 32});
  CHECK(stated("16", "32", "linear") == Counts{128, 2048, 4096});    // every sector
  CHECK(stated("4", "none", "random") == Counts{32, 128, 32 * 32});  // a line of 128 B each
  CHECK(stated("8", "1024", "random") == Counts{4, 32, 4 * 32});
  CHECK(stated("16", "1024", "linear", 1032) == Counts{1, 16, 32});  // a second access would exceed the last byte
  CHECK(stated("8", "1024", "linear", 1032) == Counts{2, 16, 64});
  const auto written = [](const char* dst, const char* memory, const char* width, const char* order) {
    auto c = copy_case("write", "gpu:0", "device", dst, memory, 4096, {{"width", width}, {"order", order}});
    c.engine = Engine::sm;
    return moved_bytes(std::get<Kernel>(build_program(c).actors[0].loop[0]).traffic[0]);
  };
  CHECK(written("gpu:1", "device", "16", "random") ==
        32 * 16);  // a link carries the written bytes, local memory whole sectors
  CHECK(written("gpu:1", "device", "4", "random") == 32 * 16);
  CHECK(written("gpu:1", "device", "16", "linear") == 4096);
  CHECK(written("gpu:0", "device", "16", "random") == 32 * 32);
  CHECK(written("numa:0", "pinned", "16", "random") == 32 * 32);
  CHECK_THROWS_WITH_AS((void)stated("16", "128", "linear", 8),
                       doctest::Contains("hold no access of 16 B; ask for more bytes"), Error);
}

TEST_CASE("bidirectional: two GPUs access each other alike; with the host, one GPU both reads and writes") {
  const auto bidirectional = [](const char* benchmark, const char* src, const char* memory, const char* dst) {
    auto c = copy_case(benchmark, src, memory, dst, "device", 4096, {{"bidirectional", "true"}});
    c.engine = Engine::sm;
    return build_program(c);
  };
  for (const char* benchmark : {"read", "write"}) {
    const auto peers = bidirectional(benchmark, "gpu:0", "device", "gpu:1");
    REQUIRE(peers.actors.size() == 2);
    CHECK(peers.peer);
    CHECK(peers.actors[0].place != peers.actors[1].place);
    for (u32 actor : {0u, 1u}) {
      const auto& kernel = std::get<Kernel>(peers.actors[actor].loop[0]);
      CHECK(to_string(kernel.id) == std::string{benchmark});
      CHECK(peers.regions[kernel.traffic[0].span.region].at != peers.actors[actor].place);
      CHECK(peers.flows[actor].src == gpu(actor));
    }
    CHECK_THROWS_WITH_AS((void)bidirectional(benchmark, "gpu:0", "device", "gpu:0"),
                         doctest::Contains("bidirectional needs two different places"), Error);
  }
  const auto host = bidirectional("read", "numa:0", "pinned", "gpu:0");
  CHECK(std::get<Kernel>(host.actors[0].loop[0]).id == KernelId::read);
  CHECK(std::get<Kernel>(host.actors[1].loop[0]).id == KernelId::write);
  CHECK((host.actors[0].place == gpu(0) && host.actors[1].place == gpu(0)));
  CHECK((host.flows[1].src == gpu(0) && host.flows[1].dst == numa(0)));
}

TEST_CASE("the host thread runs on the node that the case names; the default is the node of the memory") {
  for (const auto& [benchmark, there] : {std::pair{"h2d", true}, std::pair{"d2h", false},
                                         std::pair{"host_to_all", true}, std::pair{"all_to_host", false}}) {
    CAPTURE(benchmark);
    auto c = copy_case(benchmark, there ? "numa:0" : "gpu:0", there ? "pinned" : "device", there ? "gpu:0" : "numa:0",
                       there ? "device" : "pinned", 4096);
    if (std::string{benchmark}.size() > 3) {
      (there ? c.dst : c.src).index = all_places;
      c.others = {gpu(0), gpu(1)};
    }
    CHECK(build_program(c).actors[0].cpu == numa(0));
    c.params["cpu"] = "numa:3";
    for (const auto& actor : build_program(c).actors) CHECK(actor.cpu == numa(3));
  }
}

TEST_CASE("cache=dirty and cache=written allow one copy per slice, because a copy changes the cache state") {
  auto c = copy_case("h2h", "numa:0", "pageable", "numa:0", "pinned", 4096, {{"cache", "dirty"}});
  c.footprint_bytes = 64_KiB;
  CHECK(build_program(c).cache == CacheState::dirty);
  CHECK(build_program(c).most_iterations == 16);
  c.params["cache"] = "written";
  CHECK(build_program(c).cache == CacheState::written);
  CHECK(build_program(c).most_iterations == 16);
  c.params["cache"] = "cold";
  CHECK(build_program(c).most_iterations == 0);
}

TEST_CASE("a prefetch is split into whole pages: at most the requested number of ranges, and they cover all bytes") {
  for (const u64 bytes : {8_KiB, 64_KiB, 1_MiB, 1_MiB + 8, u64{8}, u64{4104}})
    for (const u32 ranges : {0u, 1u, 3u, 8u, 512u}) {
      CAPTURE(bytes);
      CAPTURE(ranges);
      const auto made = ranges_of(Prefetch{{0, 0, bytes, bytes, 1}, gpu(0), ranges});
      CHECK(made.size() <= std::max(1u, ranges));
      CHECK(made.size() == std::min<u64>(made.size(), (bytes + 4095) / 4096));
      u64 end = 0;
      for (const auto& range : made) {
        CHECK(range.offset == end);
        CHECK(range.offset % 4096 == 0);
        CHECK(range.bytes > 0);
        end += range.bytes;
      }
      CHECK(end == bytes);
    }
  CHECK(ranges_of(Prefetch{{0, 0, 1_MiB, 1_MiB, 1}, gpu(0), 64}).size() == 64);
}

TEST_CASE(
    "each combination of name, engine, places and memory kinds occurs in one row within a place and one between "
    "places; "
    "each row has a source and parameter values") {
  std::set<std::tuple<std::string_view, Engine, PlaceKind, PlaceKind, MemKind, MemKind, Relation>> names;
  for (const auto& row : benchmarks()) {
    for (const auto& [src, dst] : row.memories)
      for (const auto unfit : {Relation::same, Relation::different})
        if (row.relation != unfit)
          CHECK(names.insert({row.name, row.engine, row.src, row.dst, src, dst, unfit}).second);
    CHECK_FALSE(row.source.empty());
    for (const auto& param : row.params) CHECK((param.values.size() >= 2 || param.paths || only_reads_beside(row)));
  }
}

TEST_CASE("a bidirectional copy makes two real transfers in opposite directions") {
  auto c = default_case(host_to_device);
  c.params["bidirectional"] = "true";
  const auto program = build_program(c);
  REQUIRE(program.flows.size() == 2);
  CHECK(program.flows[1].src == program.flows[0].dst);
  CHECK(program.flows[1].dst == program.flows[0].src);
  const auto& there = std::get<Move>(program.actors[0].loop[0]);
  const auto& back = std::get<Move>(program.actors[1].loop[0]);
  CHECK(program.regions[there.from.region].at == program.regions[back.to.region].at);
  CHECK(there.from.region != back.to.region);
}

TEST_CASE("a copy between one place and all GPUs has one flow per GPU; exchange_all has a second, opposite flow") {
  for (const auto& row : benchmarks()) {
    if (row.relation != Relation::to_all && row.relation != Relation::from_all) continue;
    CAPTURE(row.name);
    auto c = default_case(row);
    const auto program = build_program(c);
    const bool both = row.name == "exchange_all";
    REQUIRE(program.flows.size() == (both ? 2 : 1) * c.others.size());
    for (std::size_t i = 0; i < c.others.size(); ++i) {
      const auto& flow = program.flows[both ? 2 * i : i];
      CHECK((row.relation == Relation::to_all ? flow.dst : flow.src) == c.others[i]);
    }
    c.others.clear();
    CHECK_THROWS_AS((void)build_program(c), Error);
    c = default_case(row);
    (row.relation == Relation::to_all ? c.dst : c.src).index = 1;
    CHECK_THROWS_AS((void)build_program(c), Error);
  }
  auto c = default_case(host_to_device);
  c.dst.index = all_places;
  CHECK_THROWS_AS((void)build_program(c), Error);
}

TEST_CASE("operations without a size refuse bytes; operations with a size require bytes") {
  for (const auto& row : benchmarks()) {
    auto c = default_case(row);
    c.bytes = row.sized ? 0 : 8;
    CAPTURE(row.name);
    CHECK_THROWS_AS((void)build_program(c), Error);
  }
}

TEST_CASE("the initiator decides which GPU's stream queues a copy between GPUs") {
  auto c = default_case(device_to_device);
  CHECK(build_program(c).actors[0].place == c.src);
  c.params["initiator"] = "dst";
  CHECK(build_program(c).actors[0].place == c.dst);
}

TEST_CASE("slices do not share a line and cover the footprint; a copy engine uses at most 512 slices") {
  CHECK(slice_stride(8) == 256);
  CHECK(slice_stride(256) == 256);
  CHECK(slice_stride(264) == 512);
  CHECK(slice_count(1_MiB, 180_MiB, Engine::ce) == 180);
  CHECK(slice_count(1_MiB, 180_MiB + 1, Engine::ce) == 181);
  CHECK(slice_count(8, 180_MiB, Engine::ce) == 512);
  CHECK(slice_count(8, 180_MiB, Engine::cpu) == 32768);  // a CPU has no queue
  CHECK(slice_count(1_MiB, 64_MiB, Engine::cpu) == 64);
  CHECK(slice_count(1_GiB, 180_MiB, Engine::ce) == 1);
  CHECK(slice_count(8, 0, Engine::ce) == 1);
}

TEST_CASE("an invalid case is refused, and the message states what is valid") {
  const auto refused = [](auto change, const char* words) {
    auto c = default_case(device_to_device);
    change(c);
    CHECK_THROWS_WITH_AS(build_program(c), doctest::Contains(words), Error);
  };
  refused([](Case& c) { c.benchmark = "d3d"; }, "there is no benchmark 'd3d'; there are h2h by cpu, h2d by ce");
  refused([](Case& c) { c.engine = Engine::cpu; }, "d2d has no engine cpu");
  refused([](Case& c) { c.dst = c.src; }, "source and destination must differ");
  refused([](Case& c) { c.src = numa(0); }, "it goes from gpu to gpu");
  refused([](Case& c) { c.bytes = 12; }, "sizes are multiples of 8 B");
  refused([](Case& c) { c.bytes = 0; }, "sizes are multiples of 8 B");
  refused([](Case& c) { c.src_memory = MemKind::managed; }, "it does not go from managed to device memory");
  refused([](Case& c) { c.params["colour"] = "red"; }, "it has no parameter 'colour'; it has mode");
  refused([](Case& c) { c.params["peer"] = "perhaps"; }, "peer is on, off, not 'perhaps'");
}

TEST_CASE("SM and TMA copies run on the GPU that reads or writes, with the requested launch shape") {
  for (const auto& row : kernel_copies()) {
    auto c = default_case(row);
    c.params["blocks"] = "16";
    CAPTURE(row.name);
    const auto program = build_program(c);
    const auto& move = std::get<Move>(program.actors[0].loop[0]);
    CHECK(move.engine == row.engine);
    CHECK(move.shape.blocks == 16);
    CHECK(move.shape.threads == (row.engine == Engine::sm ? 512 : 32));
    CHECK(program.actors[0].place == (c.src.kind == PlaceKind::gpu ? c.src : c.dst));
    CHECK(program.peer == (row.name == "d2d"));
    if (row.name != "d2d") continue;
    c.params["initiator"] = "dst";
    CHECK(build_program(c).actors[0].place == c.dst);
  }
}

TEST_CASE("call benchmarks use the requested number of threads and queue at most 512 calls") {
  for (const auto& row : rows_of({"launch", "launch_to_end", "synchronize", "event", "stream", "graph", "copy_call"})) {
    CAPTURE(row.name);
    auto c = default_case(row);
    if (c.params.contains("threads")) c.params["threads"] = "4";
    const auto program = build_program(c);
    CHECK(program.actors.size() == (row.name == "launch" ? 4 : 1));
    const bool queues = row.name == "launch" || row.name == "copy_call" || row.name == "graph" || row.name == "event";
    CHECK((program.most_iterations > 0) == queues);
    CHECK(program.most_iterations <= 512);
    for (const auto& actor : program.actors) {
      CHECK(actor.kind == ActorKind::cpu_thread);
      CHECK(actor.clock == Clock::host);
      for (const auto& step : actor.loop) CHECK(std::get<Call>(step).on == gpu(0));
    }
  }
  auto c = default_case(rows_of({"graph"}).front());
  REQUIRE(c.benchmark == "graph");
  u32 before = 513;
  for (const char* nodes : {"1", "10", "100", "1000"}) {
    c.params["nodes"] = nodes;
    const auto program = build_program(c);
    CHECK(std::get<Call>(program.actors[0].loop[0]).amount == std::stoul(nodes));
    CHECK(program.most_iterations < before + (before == 512));  // more nodes, fewer graphs
    CHECK(program.most_iterations >= 8);
    before = program.most_iterations;
  }
}

TEST_CASE("each side of a ping-pong sets the word that the other side waits for, in the memory that the case names") {
  for (const auto& row : rows_of({"ping_pong"}))
    for (const auto& memories : row.memories)
      for (const char* word : {"waiter", "setter"}) {
        auto c = default_case(row);
        std::tie(c.src_memory, c.dst_memory) = memories;
        if (c.params.contains("word")) c.params["word"] = word;
        const auto program = build_program(c);
        CAPTURE(to_text(program));
        REQUIRE(program.actors.size() == 2);
        CHECK(in_step(program));
        const auto &ping = std::get<Set>(program.actors[0].loop[0]).word,
                   &pong = std::get<Wait>(program.actors[0].loop[1]).word;
        const auto &seen = std::get<Wait>(program.actors[1].loop[0]).word,
                   &answered = std::get<Set>(program.actors[1].loop[1]).word;
        CHECK((ping.region == seen.region && ping.offset == seen.offset));
        CHECK((pong.region == answered.region && pong.offset == answered.offset));
        CHECK((ping.region != pong.region || ping.offset != pong.offset));
        for (const auto& region : program.regions) {
          CHECK(region.kind == memories.first);
          CHECK(region.content == Content::zero);
          const bool on_host = memories.first == MemKind::pinned || memories.first == MemKind::shm;
          CHECK(on_host == (region.at == numa(0) && memories.first != MemKind::managed));
        }
        // Two processes have one actor each; if both own memory, they have one region each.
        CHECK(program.actors[0].process + program.actors[1].process == (is_shared(memories.first) ? 1u : 0u));
        if (memories.first == MemKind::ipc || memories.first == MemKind::posix_fd)
          for (u32 actor = 0; actor < 2; ++actor)
            CHECK(
                (program.regions[actor].process == actor && program.regions[actor].at == program.actors[actor].place));
        const bool in_gpus =
            memories.first == MemKind::device || memories.first == MemKind::ipc || memories.first == MemKind::posix_fd;
        if (row.src != PlaceKind::gpu || !in_gpus) continue;
        const bool at_waiter = c.params["word"] == "waiter";
        CHECK(program.regions[ping.region].at == (at_waiter ? c.dst : c.src));
        CHECK(program.regions[pong.region].at == (at_waiter ? c.src : c.dst));
      }
}

TEST_CASE("bytes_text uses the largest unit that gives at least 1") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1536) == "1.5 KiB");
  CHECK(bytes_text(32_MiB) == "32 MiB");
  CHECK(bytes_text(150'323'855'360) == "140 GiB");
}
