#include "worker/json.hpp"

#include <utility>

#include "base/error.hpp"

namespace linkscope {
namespace {

const char* relation_name(Relation relation) {
  switch (relation) {
    case Relation::same:
      return "same";
    case Relation::different:
      return "different";
    case Relation::to_all:
      return "to_all";
    case Relation::from_all:
      return "from_all";
    case Relation::other_host:
      return "other_host";
    case Relation::any:
      break;
  }
  return "any";
}

const char* role_name(Role role) {
  switch (role) {
    case Role::access:
      return "access";
    case Role::migration:
      return "migration";
    case Role::latency:
      return "latency";
    case Role::atomic:
      return "atomic";
    case Role::call:
      return "call";
    case Role::computation:
      return "computation";
    case Role::contention:
      return "contention";
    case Role::message:
      return "message";
    case Role::collective:
      return "collective";
    case Role::copy:
      break;
  }
  return "copy";
}

const char* taken_name(Taken taken) {
  switch (taken) {
    case Taken::unasked:
      return "unasked";
    case Taken::by_memory:
      return "by_memory";
    case Taken::by_name:
      break;
  }
  return "by_name";
}

u32 slices_of(const Program& program) {
  u32 slices = 1;
  for (const auto& actor : program.actors)
    for (const auto& step : actor.loop)
      for (const auto& touch : touches(step)) slices = std::max(slices, touch.span.slices);
  return (slices + program.passes - 1) / program.passes;
}

}  // namespace

Case parse_case(const Json& json) {
  Case c;
  c.benchmark = json.at("benchmark").get<std::string>();
  c.engine = parse_engine(json.at("engine").get_ref<const std::string&>());
  c.src = parse_place(json.at("src").get_ref<const std::string&>());
  c.dst = parse_place(json.at("dst").get_ref<const std::string&>());
  c.src_memory = parse_mem_kind(json.at("src_memory").get_ref<const std::string&>());
  c.dst_memory = parse_mem_kind(json.at("dst_memory").get_ref<const std::string&>());
  c.bytes = json.at("bytes").get<u64>();
  c.footprint_bytes = json.value("footprint_bytes", u64{0});
  c.cpus = json.value("cpus", std::vector<u32>{});
  c.held = json.value("held", true);
  if (json.contains("ranks"))
    for (const auto& rank : json.at("ranks")) {
      auto& at = c.ranks.emplace_back();
      at.numa = parse_place(rank.at("numa").get_ref<const std::string&>());
      if (rank.contains("gpu")) at.gpu = parse_place(rank.at("gpu").get_ref<const std::string&>());
    }
  if (json.contains("others"))
    for (const auto& other : json.at("others")) c.others.push_back(parse_place(other.get_ref<const std::string&>()));
  if (json.contains("params")) c.params = json.at("params").get<std::map<std::string, std::string>>();
  return c;
}

Order parse_order(const Json& json, std::size_t actors) {
  Order order;
  order.samples = json.at("samples").get<u32>();
  order.verify = json.value("verify", false);
  if (json.contains("duration_s")) {
    if (json.contains("batches")) throw Error{ErrorKind::usage, "'run' has batches or a duration, and not both"};
    order.lasts = Duration{.length = Seconds{json.at("duration_s").get<double>()}};
    if (json.contains("interval_s")) order.lasts->interval = Seconds{json.at("interval_s").get<double>()};
    return order;
  }
  order.stamped = json.value("stamped", false);
  order.batches = json.at("batches").get<std::vector<std::vector<u32>>>();
  for (const auto& batch : order.batches)
    if (batch.size() != actors)
      throw Error{ErrorKind::usage,
                  "a batch of " + std::to_string(batch.size()) + " counts for " + std::to_string(actors) + " actors"};
  return order;
}

std::vector<Wanted> parse_wanted(const Json& json) {
  std::vector<Wanted> most;
  if (!json.contains("most")) return most;
  for (const auto& one : json.at("most"))
    most.push_back({parse_place(one.at("at").get_ref<const std::string&>()),
                    parse_mem_kind(one.at("memory").get_ref<const std::string&>()), one.at("bytes").get<u64>()});
  return most;
}

namespace {

template <class Source>
std::vector<Source> sources_of(const Json& json, const char* library) {
  std::vector<Source> sources;
  if (json.contains(library))
    for (const auto& one : json.at(library))
      sources.push_back({one.at("name").get<std::string>(), one.at("found").get<std::string>()});
  return sources;
}

}  // namespace

std::vector<NcclSource> parse_nccl(const Json& json) { return sources_of<NcclSource>(json, "nccl"); }
std::vector<UcxSource> parse_ucx(const Json& json) { return sources_of<UcxSource>(json, "ucx"); }
std::vector<NixlSource> parse_nixl(const Json& json) { return sources_of<NixlSource>(json, "nixl"); }

std::map<u32, Seconds> parse_own_floors(const Json& json) {
  std::map<u32, Seconds> floors;
  const Json none = Json::array(), &given = json.contains("own_floors_s") ? json.at("own_floors_s") : none;
  for (const auto& of : given) floors[of.at("gpu").get<u32>()] = Seconds{of.at("operation_s").get<double>()};
  return floors;
}

Floors parse_floors(const Json& json) {
  Floors floors;
  for (const auto& [model, seconds] : json.items()) floors[model] = Seconds{seconds.get<double>()};
  return floors;
}

Json to_json(const std::vector<ContextsMade>& made, const DriverFacts& facts) {
  Json list = Json::array();
  for (const auto& of : made) {
    Json costs = Json::array();
    for (const Seconds cost : of.costs) costs.push_back(cost.count());
    list.push_back({{"gpu", of.gpu}, {"model", facts.gpus[of.gpu].name}, {"operation_s", std::move(costs)}});
  }
  return list;
}

Json to_json(const Benchmark& row) {
  Json memories = Json::array(), params = Json::array(), suites = Json::array();
  for (const auto& [src, dst] : row.memories) memories.push_back({to_string(src), to_string(dst)});
  for (const auto& param : row.params)
    params.push_back({{"name", param.name},
                      {"values", param.values},
                      {"help", param.help},
                      {"default_in_id", param.default_in_id},
                      {"paths", param.paths},
                      {"told", param.told}});
  for (const auto& of : row.suites) suites.push_back({{"suite", of.suite}, {"sizes", of.sizes}});
  return {{"name", row.name},
          {"summary", row.summary},
          {"source", row.source},
          {"engine", to_string(row.engine)},
          {"src", to_string(row.src)},
          {"dst", to_string(row.dst)},
          {"relation", relation_name(row.relation)},
          {"memories", std::move(memories)},
          {"params", std::move(params)},
          {"sized", row.sized},
          {"taken", taken_name(row.taken)},
          {"role", role_name(row.role)},
          {"suites", std::move(suites)}};
}

Json to_json(const Program& program) {
  Json flows = Json::array();
  for (const auto& flow : program.flows) {
    flows.push_back({{"actor", flow.actor},
                     {"src", to_string(flow.src)},
                     {"dst", to_string(flow.dst)},
                     {"src_memory", to_string(flow.src_memory)},
                     {"dst_memory", to_string(flow.dst_memory)},
                     {"bytes", flow.bytes},
                     {"role", flow.measured ? "measured" : "background"}});
    if (flow.operations > 0) flows.back()["operations"] = flow.operations;
  }
  u64 memory_bytes = 0;
  for (const auto& region : program.regions) memory_bytes += region.bytes;
  return {{"actors", program.actors.size()}, {"flows", std::move(flows)},
          {"slices", slices_of(program)},    {"most_iterations", program.most_iterations},
          {"in_step", in_step(program)},     {"may_stamp", may_stamp(program)},
          {"memory_bytes", memory_bytes},    {"program", to_text(program)}};
}

Json to_json(const DriverFacts& facts) {
  Json gpus = Json::array(), peers = Json::array();
  for (const auto& gpu : facts.gpus) {
    Json attributes = Json::object();
    for (const auto& [name, value] : gpu.attributes) attributes[name] = value;
    gpus.push_back({{"uuid", gpu.uuid},
                    {"name", gpu.name},
                    {"pci", gpu.pci},
                    {"memory_bytes", gpu.memory_bytes},
                    {"attributes", std::move(attributes)}});
  }
  for (const auto& peer : facts.peers)
    peers.push_back({{"from", peer.from},
                     {"to", peer.to},
                     {"access", peer.access},
                     {"native_atomics", peer.native_atomics},
                     {"performance_rank", peer.performance_rank}});
  return {{"driver_present", facts.present}, {"version", facts.version}, {"why_not", facts.why_not},
          {"missing", facts.missing},        {"gpus", std::move(gpus)},  {"peers", std::move(peers)}};
}

Json to_json(const MpiFacts& facts) {
  return {{"rank", facts.rank},         {"size", facts.size}, {"library", facts.library},
          {"standard", facts.standard}, {"path", facts.path}, {"why_not_gpu", facts.why_not_gpu}};
}

Json to_json(const NcclFacts& facts) {
  return {{"version", facts.version},
          {"path", facts.path},
          {"found", facts.found},
          {"nvls", facts.nvls},
          {"why_not", facts.why_not}};
}

Json to_json(const Spent& spent) {
  return {{"memory_s", spent.memory.count()},
          {"rehearsals_s", spent.rehearsals.count()},
          {"caches_s", spent.caches.count()},
          {"samples_s", spent.samples.count()},
          {"comparing_s", spent.comparing.count()}};
}

namespace {

/// Null without durations.
Json to_json(const Latencies& of) {
  if (of.count() == 0) return {};
  return {{"count", of.count()}, {"mean_s", *of.mean()}, {"p50_s", *of.quantile(0.5)}, {"p99_s", *of.quantile(0.99)}};
}

}  // namespace

Json to_json(const Trace& trace) {
  Json links = Json::array(), notes = Json::object();
  for (const auto& link : trace.links) links.push_back({{"link", link.link}, {"bytes", link.bytes}});
  for (const auto& [name, value] : trace.notes) notes[name] = value;
  Json verdict;
  if (trace.verdict)
    verdict = {{"ok", trace.verdict->ok},
               {"checked_bytes", trace.verdict->checked_bytes},
               {"wrong_bytes", trace.verdict->wrong_bytes},
               {"first_wrong", trace.verdict->first_wrong}};
  Json answer{{"samples", trace.samples},     {"batches", trace.batches},  {"actors", trace.actors},
              {"timing", trace.timing},       {"links", std::move(links)}, {"notes", std::move(notes)},
              {"verdict", std::move(verdict)}};
  for (u32 sample = 0; sample < trace.windows.size(); ++sample) {
    Json actors = Json::array();
    for (u32 actor = 0; actor < trace.actors; ++actor) {
      const auto& series = trace.series[std::size_t{sample} * trace.actors + actor];
      actors.push_back({{"iterations", series.marks.back().iterations},
                        {"interval_bytes", series.interval_bytes},
                        {"interval_iterations", series.interval_iterations}});
      if (const auto median = series.latencies.quantile(0.5)) {
        actors.back()["p50_s"] = *median;
        actors.back()["p99_s"] = *series.latencies.quantile(0.99);
      }
    }
    const auto& window = trace.windows[sample];
    answer["series"].push_back({{"start_s", window.start_s}, {"end_s", window.end_s}, {"actors", std::move(actors)}});
  }
  for (const auto& of : trace.latencies) answer["latencies"].push_back(to_json(of));
  return answer;
}

}  // namespace linkscope
