#include "platform/sim/sim.hpp"

#include <fnmatch.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "base/error.hpp"
#include "platform/sim/noise.hpp"
#include "platform/sim/simulation.hpp"
#include "program/series.hpp"

namespace linkscope {
namespace {

using namespace sim;

/// The normal numbers behind a lane's factors, by kind.
using Normals = std::array<double, 5>;

Normals normals(u64 h) {
  Normals all;
  for (u64 kind = 0; kind < all.size(); ++kind) all[kind] = normal(hash(h, kind));
  return all;
}

Factors factors_of(const Spread& spread, const Normals& drawn) {
  const auto of = [&](double sigma, u64 kind) { return sigma == 0 ? 1.0 : exponential(sigma * drawn[kind]); };
  return {.compute = of(spread.compute, 0),
          .engine = of(spread.engine, 1),
          .channel = of(spread.channel, 2),
          .rate = of(spread.rate, 3),
          .host = of(spread.host, 4)};
}

Factors draw(const Spread& spread, u64 h) { return factors_of(spread, normals(h)); }

/// AR(1): each sample has a part of the one before, and enough of its own to keep the spread.
void follow(Normals& state, const Normals& fresh, double correlation) {
  const double own = std::sqrt(1 - correlation * correlation);
  for (std::size_t kind = 0; kind < state.size(); ++kind) state[kind] = correlation * state[kind] + own * fresh[kind];
}

/// The factor on all times in the drawn mode.
double mode(const Spread& spread, u64 h) {
  return spread.share > 0 && uniform(hash(h, "mode")) < spread.share ? spread.second : 1;
}

Factors operator*(const Factors& a, const Factors& b) {
  return {a.compute * b.compute, a.engine * b.engine, a.channel * b.channel,
          a.rate * b.rate,       a.host * b.host,     a.slow * b.slow};
}

/// The machine of this seed: one of many equal models.
Machine vary(Machine machine, u64 seed) {
  const auto& spread = machine.machine_noise;
  const u64 links = hash(seed, "links"), host = hash(seed, "host");
  for (std::size_t i = 0; i < machine.links.size(); ++i) machine.links[i].rate *= factor(spread.rate, hash(links, i));
  const auto factors = draw(spread, hash(seed, "copies"));
  auto& copy = machine.copy;
  copy.in_command.setup *= factors.compute;
  copy.channel *= factors.channel;
  if (copy.small_peer) *copy.small_peer *= factors.engine;
  for (double* time : {&machine.pull.extra, &machine.pull.least}) *time *= factors.engine;
  for (std::size_t i = 0; i < copy.setup.size(); ++i)
    copy.setup[i] *= i == within_device ? factors.compute : factors.engine;
  for (std::size_t i = 0; i < machine.numa.size(); ++i) {
    const double speed = factor(spread.host, hash(host, i));
    machine.numa[i].memcpy_near *= speed;
    machine.numa[i].memcpy_far *= speed;
    machine.numa[i].streamed *= speed;
  }
  for (auto& rate : machine.pageable_rate) rate *= factor(spread.host, hash(host, "driver"));
  machine.small_pageable_rate *= factor(spread.host, hash(host, "driver"));
  return machine;
}

/// The program as this round runs it: whatever is bound to no NUMA node is on one that the round draws.
Program placed(Program program, const Machine& machine, u64 noise) {
  if (is_bound(program)) return program;
  std::vector<Place> nodes;
  for (const auto& numa : machine.numa)
    if (numa.place.host == program.actors.front().place.host) nodes.push_back(numa.place);
  const Place& drawn = nodes[hash(noise, "unbound") % nodes.size()];
  for (auto& region : program.regions)
    if (!region.bound) region.at = drawn;
  for (auto& actor : program.actors)
    if (!actor.bound) (on_gpu(actor.kind) ? actor.cpu.emplace() : actor.place) = drawn;
  return program;
}

struct SimSession final : Session {
  SimSession(const Machine& machine, const Servers& servers, const Compiler& compiler, const Program& asked, u64 noise,
             Ledger& ledger)
      : program{placed(asked, machine, noise)},
        lanes{compiler.compile(program)},
        memory{program, lanes, machine, ledger},
        simulation{machine, servers, compiler.capacities(), lanes, memory},
        sample_noise{hash(noise, "samples")} {
    for (std::size_t lane = 0; lane < lanes.lanes.size(); ++lane)
      round.push_back(draw(machine.round_noise, hash(hash(noise, "round"), lane)));
    round_slow = mode(machine.round_noise, hash(noise, "round"));
    factors.resize(lanes.lanes.size());
    before.resize(lanes.lanes.size());
  }

  Program program;
  Lanes lanes;
  Memory memory;
  Simulation simulation;
  u64 sample_noise;
  u64 samples = 0;  // counted over all runs: sample noise is drawn from it
  std::vector<Factors> round, factors;
  std::vector<Normals> before;  // by lane, of the last sample
  double round_slow = 1;
  bool throttled = false;  // in any sample
  std::vector<Fault> faults;
};

class Sim final : public SimPlatform {
 public:
  Sim(const Machine& machine, u64 seed)
      : machine_{vary(machine, seed)},
        seed_{seed},
        slow_{mode(machine.machine_noise, hash(seed, "machine"))},
        routes_{machine},  // as in the file, so that a seed's noise never changes a path
        servers_{machine_},
        compiler_{machine_, routes_, servers_} {}

  Support supports(const Program& program) const override { return compiler_.supports(program); }
  u64 in_use(const Place& place) const override { return ledger_.in_use(place); }
  u64 in_use() const override { return ledger_.in_use(); }

  std::unique_ptr<Session> prepare(const Program& program, const std::string& key) override {
    if (const auto support = supports(program); !support) throw Error{ErrorKind::usage, "sim: " + support.why_not};
    auto session = std::make_unique<SimSession>(machine_, servers_, compiler_, program, hash(seed_, key), ledger_);
    for (const auto& fault : machine_.faults)
      if (fnmatch(fault.match.c_str(), key.c_str(), 0) == 0) session->faults.push_back(fault);
    return session;
  }

  Trace run(Session& opened, const Order& order) override {
    auto& session = static_cast<SimSession&>(opened);
    const auto& lanes = session.lanes.lanes;
    Trace trace;
    trace.make_room(order, lanes.size());
    trace.timing = "virtual";
    for (const auto& batch : order.batches)
      if (batch.size() != lanes.size())
        throw Error{ErrorKind::usage, "sim: a batch has " + std::to_string(batch.size()) + " counts, the program " +
                                          std::to_string(lanes.size()) + " actors"};
    check_order(session.program, order);

    Verdict before;
    // as on hardware: first verifies earlier samples, then poisons again for the samples of this order
    if (order.verify) {
      before = session.memory.verify();
      session.memory.start_afresh();
    }
    for (u32 sample = 0; sample < order.samples; ++sample) {
      for (u32 batch = 0; batch < order.batches.size(); ++batch) {
        const double tick_phase = draw_sample(session);
        session.simulation.sample(order.batches[batch], session.factors, tick_phase, &trace.at(sample, batch, 0),
                                  order.stamped ? trace.latencies.data() : nullptr);
      }
      if (!order.lasts) continue;
      draw_sample(session);
      const std::span actors{&trace.series[std::size_t{sample} * lanes.size()], lanes.size()};
      session.simulation.sample(*order.lasts, session.factors, &trace.at(sample, 0, 0), actors.data());
      trace.windows[sample] = common_time(actors);
      add_intervals(session.program, *order.lasts, actors, trace.windows[sample]);
    }
    if (order.verify) trace.verdict = both(before, session.memory.verify());
    trace.links = count_links(session);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
      trace.notes.emplace_back("route a" + std::to_string(lane), lanes[lane].route);
    for (const auto& region : session.program.regions)
      if (!region.bound) trace.notes.emplace_back("pages of no node", to_string(region.at));
    // On hardware the parent asks NVML; a model's GPU reports the same word itself.
    if (session.throttled) trace.notes.emplace_back("throttled", "sw_thermal");
    return trace;
  }

 private:
  Machine machine_;
  u64 seed_;
  double slow_;
  Ledger ledger_;
  Routes routes_;
  Servers servers_;
  Compiler compiler_;

  /// Draws the factors of the next sample; returns the phase of the event clock's tick.
  double draw_sample(SimSession& session) const {
    const u64 noise = hash(session.sample_noise, session.samples);
    const double slow = slow_ * session.round_slow * mode(machine_.sample_noise, noise) * strike(session, noise);
    for (std::size_t lane = 0; lane < session.factors.size(); ++lane) {
      auto fresh = normals(hash(noise, lane));
      if (session.samples > 0 && machine_.sample_noise.correlation > 0)
        follow(session.before[lane], fresh, machine_.sample_noise.correlation);
      else session.before[lane] = fresh;
      session.factors[lane] = session.round[lane] * factors_of(machine_.sample_noise, session.before[lane]);
      session.factors[lane].slow *= slow;
    }
    ++session.samples;
    return uniform(hash(noise, "tick")) * machine_.costs.event_tick;
  }

  static Verdict both(const Verdict& a, const Verdict& b) {
    return {a.ok && b.ok, a.checked_bytes + b.checked_bytes, a.wrong_bytes + b.wrong_bytes,
            a.ok ? b.first_wrong : a.first_wrong};
  }

  /// The effects of faults in the next sample; returns the factor on its times.
  double strike(SimSession& session, u64 noise) const {
    double slow = 1;
    std::optional<u64> lies;
    for (const auto& fault : session.faults)
      for (const u32 link : fault.links)
        session.simulation.set_capacity(compiler_.link_resource(link), machine_.links[link].rate);
    std::vector<double> left(machine_.links.size(), 1);
    for (const auto& fault : session.faults) {
      if (session.samples < fault.after_samples) continue;
      const u64 since = session.samples - fault.after_samples;
      switch (fault.kind) {
        case Fault::Kind::corrupt:
          session.memory.corrupt_first_copy(session.sample_noise);
          break;
        case Fault::Kind::die:
          std::abort();
        case Fault::Kind::hang:
          for (;;) std::this_thread::sleep_for(std::chrono::hours{1});  // the parent's watchdog ends this
        case Fault::Kind::ramp:
          if (since < fault.samples)
            slow *= 1 + (fault.factor - 1) * (1 - static_cast<double>(since) / static_cast<double>(fault.samples));
          break;
        case Fault::Kind::throttle:
          if (since >= fault.samples) break;
          slow *= fault.factor;
          session.throttled = true;
          break;
        case Fault::Kind::slow:
        case Fault::Kind::flaky:
          for (const u32 link : fault.links)
            if (uniform(hash(hash(noise, "flaky"), link)) < fault.share) left[link] *= fault.factor;
          break;
        case Fault::Kind::lie:
          lies = fault.samples;
          break;
      }
      for (const u32 link : fault.links)
        session.simulation.set_capacity(compiler_.link_resource(link), machine_.links[link].rate * left[link]);
    }
    session.memory.begin_sample(lies);
    return slow;
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

std::unique_ptr<SimPlatform> make_sim(const nlohmann::json& machine, u64 seed) {
  return std::make_unique<Sim>(parse_machine(machine), seed);
}

}  // namespace linkscope
