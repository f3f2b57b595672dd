// The table of all benchmarks, and the checks that every case passes before its row builds a program.
#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "benchmarks/copies.hpp"

namespace linkscope {

// One row for each file of core/benchmarks, named after the function that makes the rows of the table.
#define LINKSCOPE_FILES(file)                                                                                          \
  file(kernel_copies) file(joint_copies) file(kernel_accesses) file(exchanges) file(latencies) file(demands)           \
      file(prefetches) file(fault_latencies) file(copies_together) file(split_copies) file(staged_copies)              \
          file(sm_rings) file(packed_pieces) file(fresh_copies) file(relayed_copies) file(pieces) file(strided_copies) \
              file(halos) file(calls) file(ping_pongs) file(atomics) file(shared_accesses) file(memory_kinds)          \
                  file(allocations) file(gemms) file(neural_operations) file(computations) file(lu_updates)            \
                      file(lu_over_gpus) file(contention) file(concurrent_copies) file(puts_and_gets)                  \
                          file(queued_puts) file(network_puts) file(messages) file(task_sets) file(shared_gpus)        \
                              file(file_reads) file(network_copies) file(ranks) file(bystanders) file(collectives)

#define LINKSCOPE_DECLARE(file) [[nodiscard]] std::vector<Benchmark> file();
LINKSCOPE_FILES(LINKSCOPE_DECLARE)
#undef LINKSCOPE_DECLARE

namespace {

const std::vector<Benchmark>& table() {
  // Built on first use, because the order in which globals of other files are constructed is undefined.
  static const std::vector<Benchmark> rows = [] {
    std::vector<Benchmark> all{host_to_host, host_to_device, device_to_host, device_to_device, device_local};
#define LINKSCOPE_APPEND(file) \
  for (auto& row : file()) all.push_back(std::move(row));
    LINKSCOPE_FILES(LINKSCOPE_APPEND)
#undef LINKSCOPE_APPEND
    return all;
  }();
  return rows;
}

[[noreturn]] void misfit(const Benchmark& row, const std::string& what) {
  throw Error{ErrorKind::usage, std::string{row.name} + ": " + what};
}

template <class Range, class Text>
std::string joined(const Range& range, Text text) {
  std::string all;
  for (const auto& item : range) all += (all.empty() ? "" : ", ") + std::string{text(item)};
  return all;
}

const Benchmark& find(const Case& c) {
  const auto& rows = table();
  const auto named = [&](const Benchmark& b) { return b.name == c.benchmark; };
  if (std::none_of(rows.begin(), rows.end(), named))
    throw Error{ErrorKind::usage,
                "there is no benchmark '" + c.benchmark + "'; there are " + joined(rows, [](const Benchmark& b) {
                  return std::string{b.name} + " by " + to_string(b.engine);
                })};
  const auto by_engine = [&](const Benchmark& b) { return named(b) && b.engine == c.engine; };
  const auto first = std::find_if(rows.begin(), rows.end(), by_engine);
  if (first == rows.end()) throw Error{ErrorKind::usage, c.benchmark + " has no engine " + to_string(c.engine)};
  const auto placed = [&](const Benchmark& b) { return by_engine(b) && b.src == c.src.kind && b.dst == c.dst.kind; };
  const auto near = std::find_if(first, rows.end(), placed);
  if (near == rows.end()) return *first;  // the first row names the mistake
  const auto of_memory = [&](const Benchmark& b) {
    return placed(b) &&
           std::find(b.memories.begin(), b.memories.end(), std::pair{c.src_memory, c.dst_memory}) != b.memories.end();
  };
  // Some operations have a row within a place and another one between places.
  const auto unfit = c.src == c.dst ? Relation::different : Relation::same;
  const auto exact =
      std::find_if(near, rows.end(), [&](const Benchmark& b) { return of_memory(b) && b.relation != unfit; });
  if (exact != rows.end()) return *exact;
  const auto row = std::find_if(near, rows.end(), of_memory);
  return row == rows.end() ? *near : *row;
}

void check(const Benchmark& row, const Case& c) {
  if (!row.sized && c.bytes != 0) misfit(row, "it moves no bytes: bytes is 0");
  if (row.sized && (c.bytes == 0 || c.bytes % 8 != 0))
    misfit(row, std::to_string(c.bytes) + " B is not a valid size: sizes are multiples of 8 B");
  if (c.src.kind != row.src || c.dst.kind != row.dst)
    misfit(row, to_string(c.src) + " -> " + to_string(c.dst) + " is not possible; it goes from " +
                    std::string{to_string(row.src)} + " to " + std::string{to_string(row.dst)});
  if (row.relation == Relation::same && c.src != c.dst) misfit(row, "source and destination must be the same place");
  if (row.relation == Relation::other_host && c.src.host == c.dst.host)
    misfit(row, "source and destination must be on different hosts, such as host:0/gpu:0 and host:1/gpu:0");
  if (row.relation == Relation::different && c.src == c.dst) misfit(row, "source and destination must differ");
  const bool all[] = {c.src.index == all_places, c.dst.index == all_places};
  if (all[0] != (row.relation == Relation::from_all) || all[1] != (row.relation == Relation::to_all))
    misfit(row, to_string(c.src) + " -> " + to_string(c.dst) + " is not possible; gpu:all is the " +
                    (row.relation == Relation::from_all ? "source"
                     : row.relation == Relation::to_all ? "destination"
                                                        : "end of copies to or from all GPUs only"));
  const bool in_sets =
      std::any_of(row.params.begin(), row.params.end(), [](const Param& p) { return p.name == "sets"; });
  if (!c.others.empty() && !all[0] && !all[1] && !in_sets)
    misfit(row, "`others` lists the GPUs of gpu:all, but neither end is gpu:all");
  if (std::find(row.memories.begin(), row.memories.end(), std::pair{c.src_memory, c.dst_memory}) == row.memories.end())
    misfit(row, std::string{"it does not go from "} + to_string(c.src_memory) + " to " + to_string(c.dst_memory) +
                    " memory");
  for (const auto& [name, value] : c.params) {
    const auto param =
        std::find_if(row.params.begin(), row.params.end(), [&](const Param& p) { return p.name == name; });
    if (param == row.params.end())
      misfit(row,
             "it has no parameter '" + name + "'; it has " + joined(row.params, [](const Param& p) { return p.name; }));
    if (!param->paths && std::find(param->values.begin(), param->values.end(), value) == param->values.end())
      misfit(row, name + " is " +
                      joined(param->told.empty() ? param->values : param->told, [](std::string_view v) { return v; }) +
                      ", not '" + value + "'");
  }
}

}  // namespace

std::span<const Benchmark> benchmarks() { return table(); }

Program build_program(const Case& c) {
  const auto& row = find(c);
  check(row, c);
  Program program = row.build(c);
  if (!c.held) program.held_by = HeldBy::nothing;
  set_clock(program, c);
  let_idle(program, c);
  validate(program);
  return program;
}

}  // namespace linkscope
