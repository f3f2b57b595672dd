// Collectives: the programs, what each rank's output consists of, and the simulation against copies of the same model.
#include <doctest.h>

#include "base/error.hpp"
#include "error_of.hpp"
#include "nccl/library.hpp"
#include "program/processes.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

Case collective(const std::string& name, const std::string& ranks, u64 bytes,
                std::map<std::string, std::string> params = {}) {
  params["ranks"] = ranks;
  auto c = copy_case(name, "gpu:0", "device", "gpu:0", "device", bytes, std::move(params));
  c.engine = Engine::nccl;
  return c;
}

Case among_ranks(const std::string& name, Engine engine, const std::string& memory) {
  auto c = copy_case(name, "rank:0", memory, "rank:0", memory, 4096, {{"ranks", "2"}});
  c.engine = engine;
  c.ranks = {{numa(0), gpu(0)}, {numa(0), gpu(1)}};
  return c;
}

/// Seconds of a batched operation on a model of four H200s without noise.
double cost_of(const Case& c) {
  const auto sim = make_sim(exact(bundled("h200x4")), 1);
  const auto program = build_program(c);
  const auto support = sim->supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  return slope(*sim, program, 4);
}

double copy_by_sm(u64 bytes) {
  auto c = copy_case("d2d", "gpu:0", "device", "gpu:1", "device", bytes);
  c.engine = Engine::sm;
  return cost_of(c);
}

std::string error_after(void (*change)(Program&)) {
  auto program = build_program(collective("all_reduce", "2", 64));
  change(program);
  return error_of([&] { validate(program); });
}

Collective& first(Program& program) { return std::get<Collective>(program.actors[0].loop[0]); }

}  // namespace

TEST_CASE("each rank's output consists of the blocks, or of the sums, that the collective promises") {
  using enum CollectiveKind;
  const auto of = [](CollectiveKind kind, u32 rank) {
    std::string text;
    for (const auto& part : output_of(kind, 30, rank, 3))
      text += (part.rank == all_ranks ? "sum" : std::to_string(part.rank)) + ":" + std::to_string(part.from) + ">" +
              std::to_string(part.to) + "+" + std::to_string(part.bytes) + " ";
    return text;
  };
  CHECK(of(all_reduce, 1) == "sum:0>0+30 ");
  CHECK(of(all_gather, 1) == "0:0>0+10 1:0>10+10 2:0>20+10 ");
  CHECK(of(reduce_scatter, 1) == "sum:10>0+10 ");
  CHECK(of(broadcast, 2) == "0:0>0+30 ");
  CHECK(of(reduce, 0) == "sum:0>0+30 ");
  CHECK(of(reduce, 1) == "");
  CHECK(of(all_to_all, 1) == "0:10>0+10 1:10>10+10 2:10>20+10 ");
  CHECK(of(send_receive, 0) == "2:0>0+30 ");
}

TEST_CASE("a collective is one actor a rank, in one process over GPUs and in several over ranks") {
  const auto alone = build_program(collective("all_gather", "4", 4096));
  CHECK(alone.actors.size() == 4);
  CHECK(processes_of(alone) == 1);
  CHECK(in_step(alone));
  CHECK(alone.actors[3].place == gpu(3));
  CHECK(collective_of(alone.actors[3])->in.bytes == 1024);
  CHECK(collective_of(alone.actors[3])->out.bytes == 4096);
  const auto apart = build_program(among_ranks("all_reduce", Engine::nccl, "device"));
  CHECK(processes_of(apart) == 2);
  CHECK(apart.actors[1].kind == ActorKind::stream);
  CHECK(apart.actors[1].process == 1);
  const auto on_host = build_program(among_ranks("all_reduce", Engine::mpi, "pageable"));
  CHECK(on_host.actors[1].kind == ActorKind::cpu_thread);
  CHECK(on_host.cache == CacheState::hot);
  CHECK(build_program(collective("reduce", "2", 64, {{"mode", "single"}})).most_iterations == 1);
}

TEST_CASE("in place, a rank's block lies in the larger buffer, and sums change their inputs") {
  const auto gathered = build_program(collective("all_gather", "2", 128, {{"place", "in"}}));
  const auto* second = collective_of(gathered.actors[1]);
  CHECK(second->in_place());
  CHECK(second->in.offset == 64);
  CHECK_FALSE(changes_inputs(gathered));
  const auto scattered = build_program(collective("reduce_scatter", "2", 128, {{"place", "in"}}));
  CHECK(collective_of(scattered.actors[1])->out.offset == 64);
  CHECK(changes_inputs(scattered));
  CHECK_FALSE(changes_inputs(build_program(collective("reduce_scatter", "2", 128))));
}

TEST_CASE("a collective that cannot be run is refused with a reason") {
  CHECK(error_of([] { (void)build_program(collective("all_gather", "3", 256)); }).find("choose a multiple of 24 B") !=
        std::string::npos);
  CHECK(error_of([] { (void)build_program(collective("all_reduce", "9", 256)); }).find("ranks is 2, 1,") !=
        std::string::npos);
  auto c = among_ranks("all_reduce", Engine::nccl, "device");
  c.ranks[1].gpu.reset();
  CHECK(error_of([&] { (void)build_program(c); }) == "rank:1 has no GPU");
  c.ranks.pop_back();
  CHECK(error_of([&] { (void)build_program(c); }) == "all_reduce: there is no rank:1; there are 1 ranks");
  const auto contains = [](const std::string& text, const char* words) {
    CAPTURE(text);
    return text.find(words) != std::string::npos;
  };
  CHECK(error_after([](Program&) {}) == "");
  CHECK(contains(error_after([](Program& p) { p.actors[0].loop.emplace_back(Fence{}); }), "is the whole loop"));
  CHECK(
      contains(error_after([](Program& p) { p.actors.pop_back(), p.flows.pop_back(); }), "each rank of a collective"));
  CHECK(contains(error_after([](Program& p) { first(p).rank = 7; }), "no such rank"));
  CHECK(contains(error_after([](Program& p) { p.actors[0].tenths = 5; }), "cannot rest"));
  CHECK(contains(error_after([](Program& p) { first(p).in.bytes = 8; }), "do not fit"));
}

TEST_CASE("on a model, large collectives take as long as the bytes that a rank sends, by SMs") {
  const u64 bytes = 256_MiB;
  const double copy = copy_by_sm(bytes);
  CHECK(cost_of(collective("all_reduce", "4", bytes)) == about(1.5 * copy).epsilon(0.02));
  CHECK(cost_of(collective("all_reduce", "2", bytes)) == about(copy).epsilon(0.02));
  CHECK(cost_of(collective("all_gather", "4", bytes)) == about(0.75 * copy).epsilon(0.02));
  CHECK(cost_of(collective("reduce_scatter", "4", bytes)) == about(0.75 * copy).epsilon(0.02));
  CHECK(cost_of(collective("all_to_all", "4", bytes)) == about(0.75 * copy).epsilon(0.02));
  CHECK(cost_of(collective("send_receive", "4", bytes)) == about(copy).epsilon(0.02));
  // A chain of 16 chunks: batches overlap, so each takes as long as one link needs.
  CHECK(cost_of(collective("broadcast", "4", bytes)) == about(copy).epsilon(0.1));
  CHECK(cost_of(collective("reduce", "4", bytes)) == about(copy).epsilon(0.1));
}

TEST_CASE("on a model, small collectives take a step for each block on its way around the ring") {
  const double two = cost_of(collective("all_reduce", "2", 8)), four = cost_of(collective("all_reduce", "4", 8));
  CHECK(four > 1.5 * two);
  CHECK(cost_of(collective("all_gather", "4", 256)) < four);
}

TEST_CASE("a model has collectives of its GPUs alone") {
  const auto sim = make_sim(bundled("h200x4"), 1);
  CHECK(sim->supports(build_program(among_ranks("all_reduce", Engine::mpi, "pageable")))
            .why_not.find("no collectives of MPI") != std::string::npos);
  CHECK(sim->supports(build_program(collective("all_reduce", "8", 64))).why_not.find("has no gpu:4") !=
        std::string::npos);
  auto twice = among_ranks("all_reduce", Engine::nccl, "device");
  twice.ranks[1].gpu = gpu(0);
  CHECK(sim->supports(build_program(twice)).why_not.find("one rank per GPU") != std::string::npos);
}

TEST_CASE("versions of NCCL are read in both of their forms") {
  CHECK(nccl_version_text(22809) == "2.28.9");
  CHECK(nccl_version_text(2804) == "2.8.4");
  CHECK(nccl_version_text(21003) == "2.10.3");
}
