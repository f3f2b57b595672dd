#include "platform/cuda/collectives.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.hpp"
#include "base/sampled.hpp"
#include "platform/cuda/references.hpp"

namespace linkscope {
namespace {

constexpr Seconds meeting_limit{30.0};

const Collective* collective_by_gpus(const Program& program) {
  for (const auto& actor : program.actors)
    if (const auto* collective = collective_of(actor); collective && actor.kind == ActorKind::stream) return collective;
  return nullptr;
}

/// The places of all ranks, in order.
std::string places_of(const Program& program) {
  std::string text;
  for (const auto& actor : program.actors)
    text += (text.empty() ? "" : ", ") + to_string(actor.place) +
            (actor.process ? " of process " + std::to_string(actor.process) : "");
  return text;
}

std::string why_one_gpu_twice(const Program& program) {
  for (std::size_t a = 0; a < program.actors.size(); ++a)
    for (std::size_t b = a + 1; b < program.actors.size(); ++b)
      if (program.actors[a].place == program.actors[b].place)
        return "NCCL takes one rank per GPU, and ranks " + std::to_string(a) + " and " + std::to_string(b) +
               " both have " + to_string(program.actors[a].place);
  return "";
}

std::string why_no_mpi(const MpiWorld* mpi, const Collective& collective) {
  if (!mpi) return "collectives of MPI need MPI, and this process was not started by mpiexec or srun";
  if (mpi->facts().size != collective.ranks())
    return "collectives of MPI are of all " + std::to_string(mpi->facts().size) +
           " ranks that were started, and not of " + std::to_string(collective.ranks());
  if (collective.type == NumberType::bf16) return "MPI has no numbers of type bf16";
  if (collective.bytes() / bytes_of(collective.type) > std::numeric_limits<int>::max())
    return bytes_text(collective.bytes()) + ": a collective of MPI has less than 2^31 numbers";
  return "";
}

}  // namespace

// --- groups ---------------------------------------------------------------------------------------------------------

const Nccl& Collectives::nccl() {
  if (!nccl_) nccl_ = std::make_unique<Nccl>(sources_);
  return *nccl_;
}

std::string Collectives::why_not(const MpiWorld* mpi, const Program& program, const Actor& actor) {
  const auto& collective = *collective_of(actor);
  if (actor.kind == ActorKind::cpu_thread) return why_no_mpi(mpi, collective);
  if (auto why = why_one_gpu_twice(program); !why.empty()) return why;
  return nccl().facts().why_not;
}

void Collectives::prepare(CudaSession& session, Devices& devices) {
  const auto* collective = collective_by_gpus(session.whole);
  if (!collective) return;
  const auto& library = nccl();
  session.notes.emplace_back("nccl", library.facts().version + ", " + library.facts().path + ": " +
                                         library.facts().found + "; " + library.facts().nvls);
  auto& kept = groups_[places_of(session.whole)];
  if (kept.group && !kept.group->why_ended().empty()) kept.group.reset();
  const u32 first = session.whole.actors.front().process;
  if (!kept.group) {
    NcclId id;
    const bool gives = session.process == first;
    if (gives) id = library.new_id();
    for (u32 other = 0; session.peers && other < session.peers->processes(); ++other)
      if (gives && other != first) session.peers->give(other, id);
    if (!gives) id = session.peers->take<NcclId>(first, "the id of NCCL's ranks", session.patience());
    std::vector<NcclGroup::Own> own;
    for (const auto& actor : session.program.actors)
      own.push_back({collective_of(actor)->rank, [&device = devices.at(actor.place.index)] { device.use(); }});
    if (own.empty()) return;
    kept.group = std::make_shared<NcclGroup>(library, id, collective->ranks(), own, meeting_limit);
    kept.one_process = session.peers == nullptr;
  }
  session.nccl = kept.group;
}

void Collectives::drop_groups_of_processes() {
  std::erase_if(groups_, [](const auto& entry) {
    const auto& [places, kept] = entry;
    if (!kept.one_process && kept.group) kept.group->abort("its processes meet anew");
    return !kept.one_process;
  });
}

bool Collectives::drop_groups() {
  const bool any = !groups_.empty();
  groups_.clear();
  return any;
}

std::unique_ptr<NcclWatch> watch_collectives(const CudaSession& session, const std::vector<u32>& batch) {
  if (!session.nccl) return nullptr;
  constexpr double connecting = 4, slower = 10;  // the first calls of a group connect its ranks
  const auto& collective = *collective_by_gpus(session.program);
  const u32 most = *std::max_element(batch.begin(), batch.end());
  const Seconds limit = session.expected_loop > Seconds{0} ? collective.timeout + slower * most * session.expected_loop
                                                           : connecting * collective.timeout;
  return std::make_unique<NcclWatch>(*session.nccl, limit);
}

void check_collectives(const CudaSession& session) {
  if (!session.nccl) return;
  if (const auto why = session.nccl->why_ended(); !why.empty())
    throw Error{ErrorKind::timeout, why + "; the ranks are " + places_of(session.whole)};
}

// --- checks ---------------------------------------------------------------------------------------------------------

namespace {

constexpr u64 most_whole = u64{4} << 20, piece_bytes = 1024, most_pieces = 4096;

std::byte* start_of(const CudaSession& session, const Span& span, u64 iteration) {
  const Buffer& buffer = *session.buffers[span.region];
  auto* start = buffer.host() ? buffer.host() : reinterpret_cast<std::byte*>(buffer.address());
  return start + span.offset_at(iteration);
}

Contents read(const CudaSession& session, const Span& span, u64 offset, u64 bytes) {
  Span part = span;
  part.offset = offset;
  part.bytes = bytes;
  part.slices = 1;
  return {session, part};
}

/// The largest difference that rounding leaves between a sum of `ranks` numbers and the exact one, per sum of their
/// magnitudes.
double allowed(NumberType type, u32 ranks) {
  const double each = type == NumberType::f64 ? 1e-15 : type == NumberType::f32 ? 1e-6 / 8 : 1.0 / 256;
  return each * ranks;
}

template <class T>
double value_of(T stored) {
  if constexpr (std::is_same_v<T, std::uint16_t>) return from_bf16(stored);
  else return static_cast<double>(stored);
}

/// Compares a piece of a sum: `bytes` from byte `at` of the part, of one slice.
template <class T>
void check_sum(const CudaSession& session, const Collective& of, const OutputPart& part, const Range& piece, u64 slice,
               Verdict& verdict) {
  const u64 offset = of.out.offset_at(slice) + part.to + piece.offset;
  const auto found = read(session, of.out, offset, piece.bytes);
  std::vector<Input> inputs;
  for (const auto& input : of.inputs)
    inputs.push_back({seed_of(session, input.region), input.offset_at(slice) + part.from + piece.offset});
  u64 wrong = 0, first = 0;
  for (u64 i = 0; i < piece.bytes / sizeof(T); ++i) {
    T stored;
    std::memcpy(&stored, found.bytes().data() + i * sizeof stored, sizeof stored);
    bool same;
    if constexpr (std::is_same_v<T, u32>) {
      u32 sum = 0;
      for (const auto& input : inputs) sum += input.at<T>(i);
      same = sum == stored;
    } else {
      double sum = 0, size = 0;
      for (const auto& input : inputs) {
        const double value = value_of(input.at<T>(i));
        sum += value;
        size += std::abs(value);
      }
      same = std::abs(value_of(stored) - sum) <= allowed(of.type, of.ranks()) * size;
    }
    if (same) continue;
    if (wrong == 0) first = i * sizeof(T);
    wrong += sizeof(T);
  }
  verdict.checked_bytes += piece.bytes;
  add_wrong(verdict, wrong, session, of.out, offset + first, ", by the sum of all ranks' numbers");
}

/// The pieces of a slice that are compared: all of it, or spread ones if the slices together are large.
std::vector<Range> pieces_of(u64 bytes, u64 slices) {
  if (bytes * slices <= most_whole || bytes <= piece_bytes) return {{0, bytes}};
  std::vector<Range> pieces;
  for (u64 i = 0; i < std::max<u64>(4, most_pieces / slices); ++i)
    pieces.push_back({sampled_at(i, bytes / piece_bytes) * piece_bytes, piece_bytes});
  pieces.push_back({bytes - piece_bytes, piece_bytes});
  return pieces;
}

void check_sums(const CudaSession& session, const Collective& of, const OutputPart& part, u64 iterations,
                Verdict& verdict) {
  const u64 slices = std::min<u64>(iterations, of.out.slices);
  for (u64 slice = 0; slice < slices; ++slice)
    for (const auto& piece : pieces_of(part.bytes, slices)) {
      const auto with = [&]<class T>(T) { check_sum<T>(session, of, part, piece, slice, verdict); };
      if (of.type == NumberType::f32) with(float{});
      else if (of.type == NumberType::f64) with(double{});
      else if (of.type == NumberType::bf16) with(std::uint16_t{});
      else with(u32{});
    }
}

/// Compares bytes of one rank's input in another rank's output. Other parts of the output lie beside them.
void check_part(const CudaSession& session, const Collective& of, const OutputPart& part, u64 iterations,
                Verdict& verdict) {
  const Span& from = of.inputs[part.rank];
  for (u64 slice = 0; slice < std::min<u64>(iterations, of.out.slices); ++slice) {
    const u64 at = of.out.offset_at(slice) + part.to;
    const auto found = compare(session.driver, *session.buffers[of.out.region], at, part.bytes,
                               seed_of(session, from.region), from.offset_at(slice) + part.from);
    verdict.checked_bytes += part.bytes;
    add_wrong(verdict, found.wrong * sizeof(u64), session, of.out, at + found.first * sizeof(u64));
  }
}

// --- runs -----------------------------------------------------------------------------------------------------------

class CollectiveRunner final : public StepRunner {
 public:
  explicit CollectiveRunner(const Collective& of)
      : of_{of}, parts_{output_of(of.kind, of.bytes(), of.rank, of.ranks())} {
    call_.kind = of.kind;
    call_.type = of.type;
    call_.in_bytes = of.in.bytes;
    call_.out_bytes = of.out.bytes;
  }

  void run(CudaSession& session, ActorState& state, u64) override {
    call_.in = start_of(session, of_.in, state.iteration);
    call_.out = start_of(session, of_.out, state.iteration);
    session.nccl->queue(of_.rank, call_, state.stream->get());
  }
  void add_checks(const CudaSession& session, const ActorState& state, Checks& checks) const override {
    for (const auto& part : parts_)
      checks.add(session.buffers[of_.out.region]->device(),
                 [this, &session, &part, done = state.iteration](Verdict& into) {
                   if (part.rank == all_ranks) check_sums(session, of_, part, done, into);
                   else check_part(session, of_, part, done, into);
                 });
  }

 private:
  const Collective& of_;
  NcclCall call_;
  std::vector<OutputPart> parts_;
};

}  // namespace

void run_collective_by_mpi(CudaSession& session, ActorState& state, u32 count) {
  const auto& of = *collective_of(*state.actor);
  MpiCollective call;
  call.kind = of.kind;
  call.type = of.type;
  call.in = start_of(session, of.in, 0);
  call.out = start_of(session, of.out, 0);
  call.in_bytes = of.in.bytes;
  call.out_bytes = of.out.bytes;
  call.in_stride = of.in.stride;
  call.out_stride = of.out.stride;
  call.slices = of.in.slices;
  call.in_place = of.in_place();
  call.is_root = of.rank == 0;
  session.mpi->run(call, state.iteration, count);
  state.iteration += count;
}

std::unique_ptr<StepRunner> collective_runner(const Collective& of) { return std::make_unique<CollectiveRunner>(of); }

}  // namespace linkscope
