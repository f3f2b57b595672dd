#include "platform/cuda/messages.hpp"

#include "host/messages.hpp"
#include "host/topology.hpp"
#include "platform/cuda/session.hpp"
#include "platform/cuda/verification.hpp"

namespace linkscope {
namespace {

/// The CPUs that a thread of a node may use: one of them, or all.
std::vector<int> cpus_of(u32 node, const std::optional<u32>& cpu) {
  const auto& all = host_nodes()[node].cpus;
  return cpu ? std::vector{all[*cpu]} : all;
}

class MessageRunner final : public StepRunner {
 public:
  MessageRunner(const Actor& actor, const Message& message)
      : actor_{actor},
        messenger_{message.channel, message.bytes, actor.place.index, cpus_of(message.to.index, message.other_cpu)} {}

  void run(CudaSession&, ActorState&, u64) override { messenger_.round_trip(); }
  void add_checks(const CudaSession&, const ActorState&, Checks& checks) const override {
    checks.add(nullptr, [this](Verdict& into) {
      into.checked_bytes += messenger_.bytes();
      const u64 wrong = messenger_.wrong_bytes();
      if (wrong == 0) return;
      into.ok = false;
      into.wrong_bytes += wrong;
      if (into.first_wrong.empty()) into.first_wrong = "the answer to a message from " + to_string(actor_.place);
    });
  }

 private:
  const Actor& actor_;
  Messenger messenger_;
};

}  // namespace

std::string why_no_message(const Actor& actor, const Message& message) {
  const auto& nodes = host_nodes();
  for (const auto& [place, cpu] : {std::pair{actor.place, message.cpu}, std::pair{message.to, message.other_cpu}}) {
    if (place.kind != PlaceKind::numa || place.host != one_host || place.index >= nodes.size())
      return "messages go between NUMA nodes of this host, and " + to_string(place) + " is none";
    if (cpu && *cpu >= nodes[place.index].cpus.size()) return why_no_cpu(place, *cpu, nodes[place.index].cpus.size());
  }
  return "";
}

std::unique_ptr<StepRunner> message_runner(const Actor& actor, const Message& message) {
  return std::make_unique<MessageRunner>(actor, message);
}

}  // namespace linkscope
