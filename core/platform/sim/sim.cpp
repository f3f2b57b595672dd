#include "platform/sim/sim.hpp"

#include <fnmatch.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.hpp"
#include "platform/sim/noise.hpp"
#include "platform/sim/simulation.hpp"

namespace linkscope {
namespace {

using namespace sim;

Factors draw(const Spread& spread, u64 h) {
  return {.compute = factor(spread.compute, hash(h, u64{0})),
          .engine = factor(spread.engine, hash(h, u64{1})),
          .channel = factor(spread.channel, hash(h, u64{2})),
          .rate = factor(spread.rate, hash(h, u64{3})),
          .host = factor(spread.host, hash(h, u64{4}))};
}

Factors operator*(const Factors& a, const Factors& b) {
  return {a.compute * b.compute, a.engine * b.engine, a.channel * b.channel, a.rate * b.rate, a.host * b.host};
}

/// The machine that this seed stands for: one of many of its kind.
Machine vary(Machine machine, u64 seed) {
  const auto& spread = machine.machine_noise;
  const u64 links = hash(seed, "links"), host = hash(seed, "host");
  for (std::size_t i = 0; i < machine.links.size(); ++i) machine.links[i].rate *= factor(spread.rate, hash(links, i));
  const auto factors = draw(spread, hash(seed, "copies"));
  auto& copy = machine.copy;
  copy.inline_setup *= factors.compute;
  copy.channel *= factors.channel;
  for (std::size_t i = 0; i < copy.setup.size(); ++i) copy.setup[i] *= i == within_device ? factors.compute : factors.engine;
  for (std::size_t i = 0; i < machine.numa.size(); ++i) {
    const double speed = factor(spread.host, hash(host, i));
    machine.numa[i].memcpy_near *= speed;
    machine.numa[i].memcpy_far *= speed;
  }
  for (auto& rate : machine.pageable_rate) rate *= factor(spread.host, hash(host, "driver"));
  return machine;
}

struct SimSession final : Session {
  SimSession(const Machine& machine, const Servers& servers, const Compiler& compiler, const Program& program, u64 noise)
      : lanes{compiler.compile(program)},
        memory{program, lanes},
        simulation{machine, servers, compiler.capacities(), lanes, memory},
        sample_noise{hash(noise, "samples")} {
    for (std::size_t lane = 0; lane < lanes.lanes.size(); ++lane)
      round.push_back(draw(machine.round_noise, hash(hash(noise, "round"), lane)));
    factors.resize(lanes.lanes.size());
  }

  Lanes lanes;
  Memory memory;
  Simulation simulation;
  u64 sample_noise;
  u64 samples = 0;  // counted over all runs: sample noise is drawn from it
  std::vector<Factors> round, factors;
  std::vector<Fault> faults;
};

class Sim final : public Platform {
 public:
  Sim(const Machine& machine, u64 seed)
      : machine_{vary(machine, seed)},
        seed_{seed},
        routes_{machine},  // as the file has it: equal ways must not part over a seed's noise
        servers_{machine_},
        compiler_{machine_, routes_, servers_} {}

  Support supports(const Program& program) const override { return compiler_.supports(program); }

  std::unique_ptr<Session> prepare(const Program& program, const std::string& key) override {
    if (const auto support = supports(program); !support) throw Error{ErrorKind::usage, "sim: " + support.why_not};
    auto session = std::make_unique<SimSession>(machine_, servers_, compiler_, program, hash(seed_, key));
    for (const auto& fault : machine_.faults)
      if (fnmatch(fault.match.c_str(), key.c_str(), 0) == 0) session->faults.push_back(fault);
    return session;
  }

  Trace run(Session& opened, const Order& order) override {
    auto& session = static_cast<SimSession&>(opened);
    const auto& lanes = session.lanes.lanes;
    Trace trace;
    trace.samples = order.samples;
    trace.batches = static_cast<u32>(order.batches.size());
    trace.actors = static_cast<u32>(lanes.size());
    trace.timing = "virtual";
    trace.stamps.resize(std::size_t{trace.samples} * trace.batches * trace.actors);
    for (const auto& batch : order.batches)
      if (batch.size() != lanes.size())
        throw Error{ErrorKind::usage, "sim: a batch has " + std::to_string(batch.size()) + " counts, the program " +
                                          std::to_string(lanes.size()) + " actors"};

    Stamp* stamps = trace.stamps.data();
    for (u32 sample = 0; sample < order.samples; ++sample)
      for (const auto& batch : order.batches) {
        for (const auto& fault : session.faults)
          if (session.samples >= fault.after_samples) strike(session, fault);
        const u64 noise = hash(session.sample_noise, session.samples++);
        for (std::size_t lane = 0; lane < lanes.size(); ++lane)
          session.factors[lane] = session.round[lane] * draw(machine_.sample_noise, hash(noise, lane));
        const double tick_phase = uniform(hash(noise, "tick")) * machine_.costs.event_tick;
        session.simulation.sample(batch, session.factors, tick_phase, stamps);
        stamps += lanes.size();
      }
    if (order.verify) trace.verdict = session.memory.verify();
    trace.links = count_links(session);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
      trace.notes.emplace_back("route a" + std::to_string(lane), lanes[lane].route);
    return trace;
  }

 private:
  Machine machine_;
  u64 seed_;
  Routes routes_;
  Servers servers_;
  Compiler compiler_;

  void strike(SimSession& session, const Fault& fault) const {
    switch (fault.kind) {
      case Fault::Kind::corrupt: session.memory.corrupt_first_copy(session.sample_noise); return;
      case Fault::Kind::die: std::abort();
      case Fault::Kind::hang:
        for (;;) std::this_thread::sleep_for(std::chrono::hours{1});  // the parent's watchdog is what ends this
    }
  }

  std::vector<LinkBytes> count_links(SimSession& session) const {
    const auto carried = session.simulation.take_carried();
    std::vector<u64> bytes(machine_.links.size());
    for (const auto& lane : session.lanes.lanes)
      for (const auto* ops : {&lane.once, &lane.loop})
        for (const auto& op : *ops)
          for (const auto& stage : op.stages)
            for (const u32 link : stage.path.links) bytes[link] += carried[stage.counter];
    std::vector<LinkBytes> counted;
    for (std::size_t link = 0; link < bytes.size(); ++link)
      if (bytes[link] > 0) counted.push_back({machine_.links[link].name, bytes[link]});
    return counted;
  }
};

}  // namespace

std::unique_ptr<Platform> make_sim(const nlohmann::json& machine, u64 seed) {
  return std::make_unique<Sim>(parse_machine(machine), seed);
}

}  // namespace linkscope
