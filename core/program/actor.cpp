// Which actors perform ops (base/actor_ops.hpp), and which steps are ops.
#include <algorithm>

#include "program/program.hpp"

namespace linkscope {
namespace {

bool is_word(const Step& step) { return word_of(step) != nullptr; }

std::string why_no_copy(const Actor& actor, const Move& move) {
  const bool by_cpu = actor.kind == ActorKind::cpu_thread;
  const bool queued = move.engine == Engine::file || move.engine == Engine::nic;
  const Engine by_block = move.engine == Engine::tma ? Engine::tma : Engine::sm;
  const Engine own = actor.kind == ActorKind::nic ? Engine::nic
                     : !by_cpu                    ? by_block
                     : queued                     ? move.engine
                                                  : Engine::cpu;
  const auto who = std::string{to_string(actor.kind)};
  if (move.engine != own)
    return "a " + who + " that performs ops copies by engine " + to_string(own) + ", and not by " +
           to_string(move.engine);
  if (move.by) return "a " + who + " that performs ops makes its own copies";
  const auto rows = in_rows(move);
  return rows.count > 1 && (move.engine != Engine::cpu || rows.from.in_plane || rows.to.in_plane)
             ? "a copy among ops is of one piece, and not of rows; only CPU threads copy rows, of one plane"
             : "";
}

std::string why_no_access(const Kernel& kernel) {
  const auto name = std::string{"the kernel '"} + to_string(kernel.id) + "'";
  if (!traits_of(kernel.id).as_op) return name + " is no op: GPU blocks read, write, copy, set and wait";
  const bool linear = std::all_of(kernel.traffic.begin(), kernel.traffic.end(), [](const Access& access) {
    return access.stride == 0 && access.pattern == Access::Pattern::linear;
  });
  return linear ? "" : name + " is an op in its linear form only";
}

}  // namespace

bool is_of_job(const Actor& actor, const Step& step) {
  const Job* taken = nullptr;
  for (const auto& one : actor.loop) {
    if (std::holds_alternative<Wait>(one) && job_of(one)) taken = job_of(one);
    if (&one != &step) continue;
    const auto* set = std::get_if<Set>(&step);
    const auto same = [](const std::optional<Span>& a, const Span& b) {
      return a && a->region == b.region && a->offset == b.offset;
    };
    if (!taken) return false;
    if (set) return same(taken->signal, set->word);
    const auto* move = std::get_if<Move>(&step);
    return move && same(taken->to, move->to);
  }
  return false;
}

bool in_step(const Program& program) {
  return program.actors.size() > 1 && std::all_of(program.actors.begin(), program.actors.end(), [](const Actor& actor) {
           return std::any_of(actor.loop.begin(), actor.loop.end(), [](const Step& step) {
             return std::holds_alternative<Wait>(step) || std::holds_alternative<RankMessage>(step) ||
                    std::holds_alternative<Collective>(step);
           });
         });
}

bool same_grid(const Actor& a, const Actor& b) {
  return a.grid && a.grid == b.grid && a.place == b.place && a.process == b.process;
}

u32 leader_of(const Program& program, u32 actor) {
  for (u32 other = 0; other < actor; ++other)
    if (same_grid(program.actors[other], program.actors[actor])) return other;
  return actor;
}

std::string why_no_grid(const Program& program, const Actor& actor) {
  if (!actor.grid) return "";
  if (actor.kind != ActorKind::gpu_block) return "only GPU blocks are blocks of one kernel";
  // Only actors that exchange words always have the same number of iterations.
  if (!exchanges_words(actor)) return "the blocks of one kernel exchange words";
  const bool alike = std::all_of(program.actors.begin(), program.actors.end(), [&](const Actor& other) {
    return !same_grid(actor, other) || (other.threads == actor.threads && other.clock == actor.clock &&
                                        other.cpu == actor.cpu && !other.singly && !actor.singly);
  });
  return alike ? "" : "the blocks of one kernel have the same threads, clock and host thread, and run in batches";
}

double rest_after(const Actor& actor, double worked) { return worked * (all_tenths - actor.tenths) / actor.tenths; }

bool waits_for_words(const Actor& actor) {
  return std::any_of(actor.loop.begin(), actor.loop.end(),
                     [](const Step& step) { return std::holds_alternative<Wait>(step); });
}

bool exchanges_words(const Actor& actor) { return std::any_of(actor.loop.begin(), actor.loop.end(), is_word); }

bool performs_ops(const Actor& actor) {
  return actor.kind == ActorKind::gpu_block || actor.kind == ActorKind::nic ||
         (actor.kind == ActorKind::cpu_thread && exchanges_words(actor));
}

bool talks_to_ranks(const Actor& actor) {
  return std::any_of(actor.loop.begin(), actor.loop.end(),
                     [](const Step& step) { return std::holds_alternative<RankMessage>(step); });
}

bool makes_round_trips(const Actor& actor) {
  if (actor.loop.size() != 2 || actor.first_steps) return false;
  const auto *first = std::get_if<RankMessage>(&actor.loop[0]), *second = std::get_if<RankMessage>(&actor.loop[1]);
  return first && second && first->peer == second->peer && first->sends != second->sends && first->window == 0 &&
         second->window == 0;
}

bool keeps_step(const Actor& actor) {
  return exchanges_words(actor) || talks_to_ranks(actor) || collective_of(actor) != nullptr;
}

const Collective* collective_of(const Actor& actor) {
  return actor.loop.empty() ? nullptr : std::get_if<Collective>(&actor.loop.front());
}

std::string why_no_collective(const Program& program, const Actor& actor) {
  const bool any = std::any_of(actor.loop.begin(), actor.loop.end(),
                               [](const Step& step) { return std::holds_alternative<Collective>(step); });
  if (!any) return "";
  const auto* collective = collective_of(actor);
  if (!collective || actor.loop.size() > 1) return "a collective is the whole loop of an actor";
  if (actor.kind == ActorKind::gpu_block) return "collectives are of streams and CPU threads";
  if (actor.tenths < all_tenths) return "the other ranks wait in the collective, so it cannot rest";
  if (collective->rank >= collective->ranks()) return "a collective has no such rank";
  const auto of_group = std::count_if(program.actors.begin(), program.actors.end(), [&](const Actor& other) {
    const auto* theirs = collective_of(other);
    return theirs && theirs->kind == collective->kind && theirs->ranks() == collective->ranks() &&
           other.kind == actor.kind;
  });
  if (of_group != collective->ranks()) return "each rank of a collective is an actor, and there is one collective";
  const auto wanted = bytes_of(collective->kind, collective->bytes(), collective->ranks());
  const bool whole =
      !in_blocks(collective->kind) || collective->bytes() % (collective->ranks() * bytes_of(collective->type)) == 0;
  return whole && collective->in.bytes == wanted.in && collective->out.bytes == wanted.out
             ? ""
             : "the buffers of a collective do not fit its ranks";
}

bool changes_inputs(const Program& program) {
  return std::any_of(program.actors.begin(), program.actors.end(), [](const Actor& actor) {
    const auto* collective = collective_of(actor);
    return collective && collective->in_place() && adds(collective->kind);
  });
}

std::string why_no_rank_messages(const Actor& actor) {
  if (!talks_to_ranks(actor)) return "";
  if (actor.kind != ActorKind::cpu_thread) return "only CPU threads send messages to other processes and receive them";
  if (actor.tenths < all_tenths) return "another process waits for its messages, so it cannot rest";
  constexpr const char* ready_unknown = "the receiver of a write of NIXL does not say when its memory is free again";
  u32 window = 0;
  std::vector<std::pair<u32, bool>> ends;
  bool others = false, one_sided = false;
  for (const auto& step : actor.loop) {
    const auto* message = std::get_if<RankMessage>(&step);
    if (!message) {
      others = true;
      continue;
    }
    if (message->by != Engine::mpi && message->by != Engine::ucx && message->by != Engine::nixl)
      return "messages are of MPI, UCX or NIXL";
    one_sided |= message->by == Engine::nixl;
    if (one_sided && message->ahead) return ready_unknown;
    if (one_sided && message->span && message->span->slices > 1) return "a write of NIXL has one place";
    if (message->peer == actor.process) return "a process sends no messages to itself";
    window = std::max(window, message->window);
    const std::pair end{message->peer, message->sends};
    if (std::find(ends.begin(), ends.end(), end) != ends.end())
      return "a loop sends one message to a process and receives one from it";
    ends.push_back(end);
  }
  const auto sends = std::count_if(ends.begin(), ends.end(), [](const auto& end) { return end.second; });
  if (one_sided && (others || (window == 0 && ends.size() != 2))) return ready_unknown;
  if (window == 0 && (sends > 1 || ends.size() > 1 + static_cast<std::size_t>(sends)))
    return "a loop without a window sends one message and receives one";
  return window > 1 && others ? "messages in windows of more than one are the whole loop" : "";
}

std::string why_no_parts(const Actor& actor) {
  if (actor.first_steps == 0) return "";
  if (actor.first_steps >= actor.loop.size()) return "the second part of its loop has no steps";
  const bool able = actor.kind == ActorKind::stream ? exchanges_words(actor) : talks_to_ranks(actor);
  return able ? "" : "only loops with messages, and streams that exchange words with them, have two parts";
}

const Message* message_of(const Actor& actor) {
  return actor.loop.empty() ? nullptr : std::get_if<Message>(&actor.loop.front());
}

std::string to_text(const Message& message) {
  std::string text = std::string{"message "} + to_string(message.channel) + " of " + std::to_string(message.bytes) +
                     " to " + to_string(message.to);
  if (message.cpu) text += " from CPU " + std::to_string(*message.cpu);
  if (message.other_cpu) text += " to CPU " + std::to_string(*message.other_cpu);
  return text;
}

std::string why_no_messages(const Program& program, const Actor& actor) {
  const bool any = std::any_of(actor.loop.begin(), actor.loop.end(),
                               [](const Step& step) { return std::holds_alternative<Message>(step); });
  if (any && (actor.kind != ActorKind::cpu_thread || actor.loop.size() > 1))
    return "a message is the whole loop of a CPU thread";
  if (!actor.thread_of) return "";
  if (!any && !makes_round_trips(actor)) return "only messages share the host thread of a stream";
  const bool stream = *actor.thread_of < program.actors.size() &&
                      program.actors[*actor.thread_of].kind == ActorKind::stream &&
                      program.actors[*actor.thread_of].process == actor.process;
  return stream ? ""
                : "messages share the host thread of a stream, and a" + std::to_string(*actor.thread_of) + " is none";
}

std::string why_no_op(const Actor& actor, const Step& step) {
  if (is_word(step) || std::holds_alternative<Fence>(step) || std::holds_alternative<RankMessage>(step)) return "";
  if (const auto* move = std::get_if<Move>(&step)) return why_no_copy(actor, *move);
  if (const auto* kernel = std::get_if<Kernel>(&step)) return why_no_access(*kernel);
  return std::string{"a "} + to_string(actor.kind) +
         " that performs ops makes no calls, uses no libraries and prefetches nothing";
}

}  // namespace linkscope
