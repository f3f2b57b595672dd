// One operation as the user names it, and the rows of the table that build a Program from it.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/program.hpp"

namespace linkscope {

/// The places of a rank: the NUMA node of its host thread and host memory, and its GPU, if it has one.
struct RankPlaces {
  Place numa;
  std::optional<Place> gpu{};
};

struct Case {
  std::string benchmark;
  Engine engine = Engine::ce;
  Place src, dst;
  MemKind src_memory = MemKind::pageable, dst_memory = MemKind::pageable;
  u64 bytes = 0;
  u64 footprint_bytes = 0;  // least number of bytes that a batch rotates over; 0: one slice
  std::map<std::string, std::string> params;
  std::vector<Place> others{};      // the GPUs that gpu:all stands for
  std::vector<u32> cpus{};          // the number of CPUs of each NUMA node, for operations with a task on each
  std::vector<RankPlaces> ranks{};  // of rank:0, rank:1, …
  bool held = true;  // false: no gate holds the streams while work is queued, whatever the operation requests

  /// The value of a parameter, or `otherwise` if the case does not set it.
  [[nodiscard]] std::string param(const std::string& name, const std::string& otherwise) const {
    const auto found = params.find(name);
    return found == params.end() ? otherwise : found->second;
  }
  /// The same for a parameter whose values are numbers.
  [[nodiscard]] u32 number(const std::string& name, const std::string& otherwise) const {
    return static_cast<u32>(std::stoul(param(name, otherwise)));
  }
};

/// Relation of the two places: with to_all or from_all the destination or the source is gpu:all; with other_host they
/// are on two hosts.
enum class Relation : u8 { any, same, different, to_all, from_all, other_host };

/// The rules of a suite that select a row: all rules, only rules that name its operation or engine, or only rules that
/// name its memory kinds.
enum class Taken : u8 { unasked, by_name, by_memory };

/// What a row measures. `copy`: bytes are read in one memory and written to another. `access`: a kernel only reads, or
/// only writes, memory in place. `migration`: pages move between memories. `latency`: a dependent access or a round trip.
/// `atomic`: additions, for which byte limits do not hold. `call`: a driver call. `computation`: a kernel that computes.
/// `contention`: a kind of work beside another, both for the same time. `message`: messages between ranks. `collective`:
/// an operation of all ranks.
enum class Role : u8 { copy, access, migration, latency, atomic, call, computation, contention, message, collective };

/// A suite that takes a row in addition to the rules of the suite, at these sizes and with the default parameters. An
/// operation without bytes has no sizes.
struct InSuite {
  std::string_view suite;
  std::vector<u64> sizes{};
};

struct Param {
  std::string_view name;
  std::vector<std::string_view> values;  // the first is the default
  std::string_view help;
  bool default_in_id = true;  // false: ids hold the parameter only if it differs from the default
  bool paths = false;  // the value may also be other paths (parse_paths), which run together with the operation's own
  std::vector<std::string_view> told{};  // the values as text, if there are too many to list
};

/// A row of the table, found by name, engine, and kinds of places and memory: what `list`, the planner and the
/// documentation need, and how to build the program.
struct Benchmark {
  std::string_view name, summary, source;
  Engine engine;
  PlaceKind src, dst;
  Relation relation;
  std::vector<std::pair<MemKind, MemKind>> memories;
  std::vector<Param> params;
  Program (*build)(const Case&);
  bool sized = true;  // false: an operation without bytes, whose cases have 0
  Taken taken = Taken::by_name;
  Role role = Role::copy;
  std::vector<InSuite> suites{};
};

/// The table of all benchmarks.
[[nodiscard]] std::span<const Benchmark> benchmarks();

/// Checks the case against its row and builds its program. Throws Error{usage} that names the mistake.
[[nodiscard]] Program build_program(const Case&);

}  // namespace linkscope
