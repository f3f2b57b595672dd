#include "platform/cuda/computations.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <map>

#include "host/parallel.hpp"
#include "platform/cuda/moves.hpp"
#include "platform/cuda/references.hpp"
#include "program/computations.hpp"

namespace linkscope {
namespace {

/// The launches of one iteration on an actor's stream.
struct Launches {
  const CudaSession& session;
  ActorState& state;
  const Opaque& call;
  const std::map<std::string, CUfunction>& functions;

  [[nodiscard]] CUdeviceptr at(std::size_t array) const {
    const Span& span = call.traffic[array].span;
    return session.address(span.region, *state.device) + span.offset_at(state.iteration);
  }
  [[nodiscard]] u32 blocks_that_fill(unsigned threads) const {
    constexpr unsigned of_sm = 2048;  // threads that run at once on an SM of most GPUs
    return of_sm / threads * blocks_of(*state.device, {0, threads});
  }
  template <class... Arguments>
  void launch_blocks(const char* function, u64 blocks, unsigned threads, Arguments... arguments) const {
    void* pointers[] = {&arguments...};
    state.device->launch(functions.at(function), static_cast<unsigned>(blocks), threads, state.stream->get(), pointers);
  }
  template <class... Arguments>
  void launch(const char* function, Arguments... arguments) const {
    constexpr unsigned threads = 256;
    launch_blocks(function, blocks_that_fill(threads), threads, arguments...);
  }
  [[nodiscard]] u32 elements() const { return static_cast<u32>(call.shape[0]); }
  void clear(CUdeviceptr at, u64 bytes) const {
    LINKSCOPE_CU(session.driver, cuMemsetD8Async, at, 0, bytes, state.stream->get());
  }
};

/// What a check compares, and where it reports.
struct Results {
  const CudaSession& session;
  const Opaque& call;
  Verdict& verdict;

  [[nodiscard]] Input input(std::size_t array) const {
    return input_of(session, call.traffic[array].span).value_or(Input{});
  }
  [[nodiscard]] Contents output(std::size_t array) const { return {session, call.traffic[array].span}; }
  void checked(u64 bytes) const { verdict.checked_bytes += bytes; }
  void wrong(std::size_t array, u64 index, u64 bytes) const {
    const Span& span = call.traffic[array].span;
    add_wrong(verdict, bytes, session, span, span.offset + index * bytes, ", by the reference on the host");
  }
};

constexpr u64 most_elements = 1 << 28;  // that look-back counts in a 32-bit word beside its marks
constexpr u64 most_compared = 1 << 20;  // elements of a large result
bool near(double found, double expected, double scale, double rounding = 1e-5) {
  return std::abs(found - expected) <= rounding * scale;
}

// --- triad ----------------------------------------------------------------------------------------------------------

void queue_triad(const Launches& of) { of.launch("linkscope_triad", of.at(2), of.at(0), of.at(1), of.call.shape[0]); }

void check_triad(const Results& of) {
  const auto contents = of.output(2);
  const auto found = contents.as<float>();
  const Input b = of.input(0), c = of.input(1);
  look_at(found.size(), most_compared, [&](u64 i) {
    of.checked(sizeof(float));
    if (!near(found[i], b.at<float>(i) + 1.75 * c.at<float>(i), 8)) of.wrong(2, i, sizeof(float));
  });
}

// --- stencil --------------------------------------------------------------------------------------------------------

void queue_stencil(const Launches& of) {
  const auto n = static_cast<u32>(of.call.shape[0]);
  for (u64 step = 0; step < of.call.shape[1]; ++step)
    of.launch("linkscope_stencil", step == 0 ? of.at(0) : of.at(step % 2 ? 2 : 1), step % 2 ? of.at(1) : of.at(2), n);
}

/// The last step, with the step before as its input. A sum of weighted neighbors stays within their range.
void check_stencil(const Results& of) {
  const u64 n = of.call.shape[0];
  const auto contents_before = of.output(2), contents = of.output(1);
  const auto before = contents_before.as<float>(), found = contents.as<float>();
  look_at(n * n, most_compared, [&](u64 i) {
    const u64 row = i / n, column = i % n;
    const auto at = [&](std::int64_t down, std::int64_t right) {
      return double{
          before[static_cast<u64>(static_cast<std::int64_t>(i) + down * static_cast<std::int64_t>(n) + right)]};
    };
    double expected = before[i];
    if (row > 0 && row + 1 < n && column > 0 && column + 1 < n)
      expected = 0.25 * at(0, 0) + 0.125 * (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1)) +
                 0.0625 * (at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1));
    of.checked(sizeof(float));
    if (!near(found[i], expected, 2) || std::abs(found[i]) > 2) of.wrong(1, i, sizeof(float));
  });
}

// --- forces ---------------------------------------------------------------------------------------------------------

bool is_wide(const Opaque& call) { return call.element == "f64"; }

void queue_forces(const Launches& of) {
  of.launch(is_wide(of.call) ? "linkscope_forces_double" : "linkscope_forces", of.at(0), of.at(1), of.at(2),
            static_cast<u32>(of.call.shape[0]), static_cast<u32>(of.call.shape[1]));
}

template <class Real>
void check_forces_of(const Results& of, double rounding) {
  const u64 atoms = of.call.shape[0];
  const auto contents = of.output(2);
  const auto found = contents.as<Real>();
  const Input positions = of.input(0), neighbors = of.input(1);
  look_at(atoms, 1024, [&](u64 i) {
    std::array<double, 3> sum{}, size{};
    for (u64 j = 0; j < of.call.shape[1]; ++j) {
      const u64 other = neighbors.at<u32>(j * atoms + i) * atoms >> 32;
      std::array<double, 3> apart{};
      double square = 0.5;
      for (u64 axis = 0; axis < 3; ++axis) {
        apart[axis] = double{positions.at<Real>(4 * i + axis)} - positions.at<Real>(4 * other + axis);
        square += apart[axis] * apart[axis];
      }
      const double third = std::pow(square, -3), force = third / square * (1.5 * third - 2);
      for (u64 axis = 0; axis < 3; ++axis) {
        sum[axis] += apart[axis] * force;
        size[axis] += std::abs(apart[axis] * force);
      }
    }
    of.checked(4 * sizeof(Real));
    for (u64 axis = 0; axis < 3; ++axis)
      if (!near(found[4 * i + axis], sum[axis], size[axis] + 1, rounding))
        return of.wrong(2, 4 * i + axis, sizeof(Real));
  });
}

void check_forces(const Results& of) {
  if (is_wide(of.call)) check_forces_of<double>(of, 1e-12);
  else check_forces_of<float>(of, 1e-5);
}

// --- sum and scan ---------------------------------------------------------------------------------------------------

/// Calls work(begin, end) for ranges of elements on several threads.
template <class Work>
void parallel_elements(u64 elements, Work work) {
  constexpr u64 each = sizeof(u32);
  parallel_ranges(elements * each, each, [&work](u64 begin, u64 end) { work(begin / each, end / each); });
}

/// The sum of what `value` returns for each element.
template <class Value>
u64 sum_over(u64 elements, Value value) {
  std::atomic<u64> all = 0;
  parallel_elements(elements, [&](u64 begin, u64 end) {
    u64 sum = 0;
    for (u64 i = begin; i < end; ++i) sum += value(i);
    all += sum;
  });
  return all;
}

/// The first element that `is_wrong`; `elements` if there is none.
template <class IsWrong>
u64 first_wrong(u64 elements, IsWrong is_wrong) {
  std::atomic<u64> first = elements;
  parallel_elements(elements, [&](u64 begin, u64 end) {
    u64 i = begin;
    while (i < end && !is_wrong(i)) ++i;
    u64 known = first;
    while (i < end && i < known && !first.compare_exchange_weak(known, i)) {
    }
  });
  return first;
}

void queue_sum(const Launches& of) {
  of.clear(of.at(1), sizeof(u64));
  of.launch_blocks("linkscope_sum", of.blocks_that_fill(sum_threads), sum_threads, of.at(0), of.elements(), of.at(1));
}

void check_sum(const Results& of) {
  const Input in = of.input(0);
  const u64 expected = sum_over(of.call.shape[0] / 2, [&in](u64 word) {
    const auto both = in.at<u64>(word);
    return (both >> 32) + (both & 0xFFFFFFFF);
  });
  of.checked(sizeof(u64));
  if (of.output(1).as<u64>()[0] != expected) of.wrong(1, 0, sizeof(u64));
}

void queue_scan(const Launches& of) {
  const u64 tiles = scan_tiles(of.elements());
  of.launch_blocks("linkscope_scan_start", (tiles + scan_threads - 1) / scan_threads, scan_threads, of.at(2),
                   static_cast<u32>(tiles));
  of.launch_blocks("linkscope_scan", tiles, scan_threads, of.at(0), of.at(1), of.elements(), of.at(2));
}

void check_scan(const Results& of) {
  const auto contents = of.output(1);
  const auto found = contents.as<u32>();
  const Input in = of.input(0);
  // Each sum follows from the one before, so all are right if the first is 0.
  const u64 wrong =
      first_wrong(found.size(), [&](u64 i) { return found[i] != (i == 0 ? 0 : found[i - 1] + in.at<u32>(i - 1)); });
  if (wrong < found.size()) return of.wrong(1, wrong, sizeof(u32));
  of.checked(found.size() * sizeof(u32));
}

// --- sort -----------------------------------------------------------------------------------------------------------

void queue_sort(const Launches& of) {
  const u64 tiles = sort_tiles(of.elements());
  const CUdeviceptr counts = of.at(6), counters = counts + sort_counts_bytes, before = counters + sort_counters_bytes;
  of.clear(counts, sort_counts_bytes + sort_counters_bytes);
  of.launch_blocks("linkscope_digit_counts", of.blocks_that_fill(count_threads), count_threads, of.at(0), of.elements(),
                   counts);
  of.launch_blocks("linkscope_digit_starts", sort_passes, sort_digits, counts);
  CUdeviceptr keys = of.at(0), values = of.at(1);
  for (u32 pass = 0; pass < sort_passes; ++pass) {
    const CUdeviceptr keys_to = of.at(pass % 2 ? 4 : 2), values_to = of.at(pass % 2 ? 5 : 3);
    of.clear(before, tiles * sort_digits * sizeof(u32));
    of.launch_blocks("linkscope_sort_pass", tiles, sort_threads, keys, values, of.elements(), pass,
                     counts + u64{pass} * sort_digits * sizeof(u32), counters + pass * sizeof(u32), before, keys_to,
                     values_to);
    keys = keys_to, values = values_to;
  }
}

/// Rising keys, and the same pairs of keys and values as before.
void check_sort(const Results& of) {
  const auto key_contents = of.output(4), value_contents = of.output(5);
  const auto keys = key_contents.as<u32>(), values = value_contents.as<u32>();
  const Input keys_before = of.input(0), values_before = of.input(1);
  const auto mixed = [](u32 key, u32 value) { return linkscope_pattern_word(key, value); };
  const u64 wrong = first_wrong(keys.size(), [&](u64 i) { return i > 0 && keys[i] < keys[i - 1]; });
  if (wrong < keys.size()) return of.wrong(4, wrong, sizeof(u32));
  const u64 sum = sum_over(keys.size(), [&](u64 i) { return mixed(keys[i], values[i]); });
  const u64 before =
      sum_over(keys.size(), [&](u64 i) { return mixed(keys_before.at<u32>(i), values_before.at<u32>(i)); });
  of.checked(2 * keys.size() * sizeof(u32));
  if (sum != before) of.wrong(5, 0, sizeof(u32));
}

// --- table ----------------------------------------------------------------------------------------------------------

struct Computation {
  const char* name;
  std::size_t lengths, arrays;  // that it needs: of its shape, and the first of its traffic
  void (*queue)(const Launches&);
  void (*check)(const Results&);
};

constexpr auto computation_table = std::to_array<Computation>({
    {"triad", 1, 3, queue_triad, check_triad},
    {"stencil", 2, 3, queue_stencil, check_stencil},
    {"forces", 2, 3, queue_forces, check_forces},
    {"sum", 1, 2, queue_sum, check_sum},
    {"scan", 1, 3, queue_scan, check_scan},
    {"sort", 1, 7, queue_sort, check_sort},
});

const Computation* find(const std::string& name) {
  const auto* found = std::find_if(computation_table.begin(), computation_table.end(),
                                   [&](const auto& row) { return name == row.name; });
  return found == computation_table.end() ? nullptr : found;
}

class ComputationRunner final : public StepRunner {
 public:
  explicit ComputationRunner(const Opaque& call) : call_{call}, row_{*find(call.library_call)} {}

  void load_code(ActorState& state) override {
    for (const char* name : {"linkscope_triad", "linkscope_stencil", "linkscope_forces", "linkscope_forces_double"})
      functions_[name] = state.device->function("compute", name);
    for (const char* name : {"linkscope_sum", "linkscope_scan_start", "linkscope_scan", "linkscope_digit_counts",
                             "linkscope_digit_starts", "linkscope_sort_pass"})
      functions_[name] = state.device->function("cub", name);
  }
  void run(CudaSession& session, ActorState& state, u64) override { row_.queue({session, state, call_, functions_}); }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    if (state.iteration > 0)
      checks.add(state.device, [this, &session](Verdict& into) { row_.check({session, call_, into}); });
  }

 private:
  const Opaque& call_;
  const Computation& row_;
  std::map<std::string, CUfunction> functions_;
};

}  // namespace

bool is_computation(const std::string& name) { return find(name) != nullptr; }

std::string why_no_computation(const Opaque& call) {
  const auto& row = *find(call.library_call);
  if (call.shape.size() != row.lengths || call.traffic.size() < row.arrays)
    return call.library_call + " has " + std::to_string(row.lengths) + " lengths and " + std::to_string(row.arrays) +
           " arrays";
  if (call.shape[0] % 4) return call.library_call + " takes elements in fours";
  if (call.shape[0] > most_elements) return call.library_call + " takes at most 2^28 elements";
  if (call.library_call == "forces" && call.element != "f32" && !is_wide(call))
    return "forces are computed in f32 and f64, and not in '" + call.element + "'";
  if (call.library_call == "stencil" && call.shape[1] % 2) return "a stencil has an even number of steps";
  return "";
}

std::unique_ptr<StepRunner> computation_runner(const Opaque& call) { return std::make_unique<ComputationRunner>(call); }

}  // namespace linkscope
