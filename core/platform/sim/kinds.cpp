// Memory kinds: which a place has, how fast CPUs and GPUs access them, and what their allocation costs.
#include <algorithm>

#include "base/error.hpp"
#include "platform/sim/lanes.hpp"
#include "platform/sim/machine_table.hpp"
#include "program/allocation.hpp"

namespace linkscope::sim {
namespace {

u64 parts(u64 bytes, u64 each) { return (bytes + each - 1) / each; }

}  // namespace

MemoryCosts memory_costs(const Table& table) {
  const auto time = [&](const char* key) { return table.number(key) * micro; };
  MemoryCosts costs{.page_bytes = table.bytes("page_kib"),
                    .block_bytes = table.bytes("block_kib"),
                    .call = time("map_us"),
                    .fault = time("fault_us"),
                    .clear = table.rate("clear_gbps"),
                    .free_page = time("free_page_us"),
                    .pin = time("pin_us"),
                    .pin_page = time("pin_page_us"),
                    .unpin_page = time("unpin_page_us"),
                    .made_page = time("pinned_page_us"),
                    .unmade_page = time("free_pinned_page_us"),
                    .host_pointer = time("host_pointer_us"),
                    .device = time("device_us"),
                    .device_block = time("device_block_us"),
                    .free_block = time("free_block_us"),
                    .pool = time("pool_us"),
                    .map = time("device_map_us"),
                    .map_block = time("map_block_us"),
                    .wc_read = table.rate("wc_read_gbps"),
                    .wc_write = table.rate("wc_write_gbps")};
  if (table.has("export_us") || table.has("open_us") || table.has("import_us"))
    costs.sharing = SharingCosts{.make = time("export_us"), .open = time("open_us"), .import = time("import_us")};
  return costs;
}

Support Compiler::supports_kind(const Region& region) const {
  const Node at = node(region.at);
  const auto place = to_string(region.at);
  if (region.kind == MemKind::managed) return {};
  if (machine_.nic(at))
    return region.kind == MemKind::device ? Support{} : Support::no(place + " has registers only: memory kind device");
  if (region.kind == MemKind::file || machine_.is_gpu(at) != is_gpu_memory(region.kind))
    return Support::no(std::string{"the model has no "} + to_string(region.kind) + " memory on " + place + " yet");
  if (!traits_of(region.kind).huge_pages || region.transparent) return {};
  const auto& numa = machine_.numa[at];
  const bool large = region.page_bytes > u64{2} << 20;
  const u64 reserved = large ? numa.huge_1gib : numa.huge_2mib, needed = parts(region.bytes, region.page_bytes);
  if (needed <= reserved) return {};
  return Support::no(std::to_string(reserved) + " huge pages of " + bytes_text(region.page_bytes) +
                     " are reserved on " + place + " of the model " + machine_.name + ", and " +
                     std::to_string(needed) + " are needed: " + (large ? "huge_1gib_pages" : "huge_2mib_pages") +
                     " of its [[numa]]");
}

Support Compiler::supports_phase(const Program& program, const Actor& actor, const Call& call) const {
  if (!call.span) return Support::no("the call '" + call.api + "' is made for no GPU, and is about no memory");
  const auto& region = program.regions[call.span->region];
  try {
    (void)phase_index(region.kind, call.api);
  } catch (const Error& error) {
    return Support::no(error.what());
  }
  if (!machine_.memory)
    return Support::no("the model " + machine_.name +
                       " does not say what allocating memory costs: its file has no [memory]");
  if (is_shared(region.kind) && is_gpu_memory(region.kind) && !machine_.memory->sharing)
    return Support::no("the model " + machine_.name +
                       " does not say what sharing memory costs: export_us, open_us and import_us of [memory]");
  if (auto why = why_another_process(program, actor, call); !why.empty()) return Support::no(why);
  if (actor.clock != Clock::host) return Support::no("calls can be timed only by the host's clock");
  return {};
}

/// The highest rate of one CPU thread on write-combined memory, which has no cache.
double Compiler::cpu_cap(const Region& region, bool writes) const {
  if (region.kind != MemKind::wc) return never;
  return writes ? machine_.memory->wc_write : machine_.memory->wc_read;
}

/// Bytes of host memory that one translation covers: a huge page has one.
double Compiler::translated_by_page(const Region& region) const {
  return std::max(machine_.kernel->host_page,
                  traits_of(region.kind).huge_pages ? static_cast<double>(region.page_bytes) : 0.0);
}

Op Compiler::phase(const Program& program, const Call& call) const {
  const auto& region = program.regions[call.span->region];
  const auto& costs = *machine_.memory;
  const auto phases = phases_of(region.kind);
  const auto index = phase_index(region.kind, call.api);
  Op op;
  op.phase = Phase{*call.span, call.until, call.until ? index > 0 : index + 1 < phases.size()};
  op.waits = true;  // the caller waits for the whole cost of the call
  op.stages.push_back({.by = Stage::By::thread, .path = {}});
  if (call.until) return op;

  Stage& stage = op.stages[0];
  const u64 bytes = call.span->bytes;
  const auto& traits = traits_of(region.kind);
  const bool gpu = is_gpu_memory(region.kind), by_driver = traits.by_driver;
  const auto pages = static_cast<double>(parts(bytes, traits.huge_pages ? region.page_bytes : costs.page_bytes));
  const auto blocks = static_cast<double>(parts(bytes, costs.block_bytes));
  const auto& phase = call.api;
  if (phase == "touch") {
    op.bytes = op.chunk_bytes = bytes;
    const Node at = node(region.at);
    if (gpu) {  // a fill by the GPU, waited for
      stage.setup = machine_.costs.launch + machine_.costs.sync;
      stage.path.uses.push_back({at, 1});
    } else if (by_driver) {  // its pages exist: a word of each is written
      stage.setup = pages * machine_.numa[at].load;
      op.bytes = op.chunk_bytes = 0;
    } else {
      stage.setup = pages * costs.fault;
      stage.path.uses.push_back({at, 1});
      stage.path.cap = costs.clear;
      op.bytes = op.chunk_bytes = static_cast<u64>(pages) * (traits.huge_pages ? region.page_bytes : costs.page_bytes);
    }
  } else if (region.kind == MemKind::pool) {
    stage.setup = costs.pool + (phase == "grow" ? costs.device + blocks * costs.device_block : 0);
  } else if (phase == "export") {
    stage.setup = costs.sharing->make;
  } else if (phase == "import") {
    stage.setup = costs.sharing->import;
  } else if (gpu && (phase == "open" || phase == "close")) {
    stage.setup = costs.sharing->open + blocks * costs.map_block;
  } else if (gpu && (phase == "map" || phase == "unmap")) {
    stage.setup = costs.map + blocks * costs.map_block;
  } else if (gpu) {
    stage.setup = costs.device + blocks * (phase == "free" ? costs.free_block : costs.device_block);
  } else if (by_driver && phase != "map") {
    stage.setup = costs.pin + pages * (phase == "free" ? costs.unmade_page : costs.made_page);
  } else if (phase == "map") {
    stage.setup = costs.host_pointer;
  } else if (phase == "register" || phase == "unregister") {
    stage.setup = costs.pin + pages * (phase == "register" ? costs.pin_page : costs.unpin_page);
  } else {
    stage.setup = costs.call + (phase == "free" ? pages * costs.free_page : 0);
  }
  return op;
}

}  // namespace linkscope::sim
