// Comm|Scope 3.4 (CS-9, CS-13, CS-14): unified memory on demand. An access to one byte of a remote page faults, and the
// page moves. A GPU uses one warp per page, a host the requested number of CPU threads. Accessing all bytes shows the
// effect of advice: pages then move, or are accessed in place.
#include "base/error.hpp"
#include "benchmarks/managed.hpp"

namespace linkscope {
namespace {

void add_touch(Program& program, const Case& c, const Place& home, const Place& by) {
  const bool on_cpu = by.kind == PlaceKind::numa;
  const auto dir = c.param("access", "write") == "write" ? Access::Dir::write : Access::Dir::read;
  const auto threads = c.param("threads", "1");
  const auto blocks = c.param("blocks", "256");
  const Shape shape =
      on_cpu ? Shape{1, threads == "all" ? all_cpus : static_cast<u32>(std::stoul(threads))}
             : Shape{blocks == "sms" ? 0 : static_cast<u32>(std::stoul(blocks)), c.number("block_threads", "256")};
  const Span span{0, 0, c.bytes, c.bytes, 1};
  const bool random = c.param("order", "linear") == "random";
  const auto stride = c.param("stride", "page");
  Kernel kernel{KernelId::touch,
                shape,
                0,
                {{span, dir, random ? Access::Pattern::random : Access::Pattern::strided, 1,
                  stride == "page" ? 0 : std::stoul(stride)}}};
  // An access in place moves only 32 bytes per page for one byte, which leaves no basis for a comparison.
  const bool all = c.param("touch", "page") == "all" || c.param("advice", "none") != "none";
  if (all && (random || stride != "page"))
    throw Error{ErrorKind::usage,
                "demand: order and stride are of touched pages; touch=all and advice access all bytes"};
  if (all && on_cpu) kernel.traffic = {{span, dir, Access::Pattern::linear, sizeof(u64)}};
  else if (all) kernel = {dir == Access::Dir::write ? KernelId::write : KernelId::read, {0, 512}, 0, {{span, dir}}};
  add_migration(program, c, {.home = home, .to = by, .by = by, .bytes = c.bytes}, std::move(kernel));
  constexpr u64 small_page = 4096;  // nobody says how much of the range between the touched bytes moves, too
  if (stride != "page") program.flows.back().bytes = c.bytes / std::stoul(stride) * small_page;
}

Program build_demand(const Case& c) { return migrations(c, add_touch); }

}  // namespace

std::vector<Benchmark> demands() {
  using enum PlaceKind;
  const Param access{"access", {"write", "read"}, "what is done to the first byte of each page"};
  const Param threads{"threads",
                      {"1", "2", "4", "8", "16", "all"},
                      "CPU threads that touch pages, each its part of them; all: one on each CPU of the node"};
  const Param touch{"touch", {"page", "all"}, "the first byte of each page, or all bytes, as with any advice", false};
  constexpr bool default_in_id = false;
  const Param blocks{"blocks", {"256", "sms", "1", "16", "64"}, "thread blocks that touch pages", default_in_id};
  const Param in_block{
      "block_threads", {"256", "32", "1024"}, "threads in a block; a warp of them touches a page", default_in_id};
  const Param order{"order",
                    {"linear", "random"},
                    "linear: neighbouring warps touch neighbouring pages; random: in a seeded random order",
                    default_in_id};
  const Param stride{"stride",
                     {"page", "131072", "2097152"},
                     "bytes from one touched byte to the next; the rate then counts 4 KiB for each",
                     default_in_id};
  const auto row = [](const char* summary, PlaceKind src, PlaceKind dst, Relation relation, std::vector<Param> params) {
    const auto& memories = relation == Relation::any ? moving_memory : managed_memory;
    return Benchmark{"demand",      summary,  "Comm|Scope 3.4, 4.5 (CS-9, CS-13, CS-14)",
                     Engine::fault, src,      dst,
                     relation,      memories, std::move(params),
                     build_demand};
  };
  return of_role(Role::migration,
                 {
                     row("a GPU touches managed pages that are on the host", numa, gpu, Relation::any,
                         {access, touch, advice_param(), blocks, in_block, order, stride}),
                     row("CPU threads touch managed pages that are on a GPU", gpu, numa, Relation::any,
                         {access, touch, advice_param(), threads, bidirectional_param()}),
                     row("a GPU touches managed pages that are on another", gpu, gpu, Relation::different,
                         {access, touch, advice_param(), managed_peer_param(), bidirectional_param()}),
                 });
}

}  // namespace linkscope
