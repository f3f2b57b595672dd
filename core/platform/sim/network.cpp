// Copies and words from one host to another. A thread posts a message, or a card takes a descriptor (cards.cpp); network
// cards read the message from the memory of its host and write it into the memory of the other host.
#include <algorithm>

#include "platform/sim/lanes.hpp"
#include "platform/sim/machine_table.hpp"

namespace linkscope::sim {

namespace {

Posting posting_of(const Table& table) {
  const auto time = [&](const char* key) { return table.number(key) * micro; };
  const auto queues = table.text("queues");
  if (queues != "card" && queues != "memory") wrong(table.name + ".queues", "it is card or memory");
  Posting posting{.in_registers = queues == "card",
                  .descriptor_bytes = table.count("descriptor_bytes"),
                  .cpu_post = time("cpu_post_us"),
                  .gpu_post = time("gpu_post_us"),
                  .cpu_take = time("cpu_take_us"),
                  .gpu_take = time("gpu_take_us"),
                  .gpu_message = std::nullopt};
  if (table.has("gpu_message_us")) posting.gpu_message = time("gpu_message_us");
  if (posting.descriptor_bytes % 8 || posting.descriptor_bytes > 128)
    wrong(table.name + ".descriptor_bytes", "it is a multiple of 8, and at most 128");
  return posting;
}

}  // namespace

Nic nic_of(const Table& table) {
  const auto time = [&](const char* key) { return std::optional{table.number(key) * micro}; };
  Nic nic;
  if (table.has("message_us")) nic.message = time("message_us");
  if (table.has("gpu_read_gbps")) nic.gpu_read = table.rate("gpu_read_gbps");
  if (table.has("gpu_write_gbps")) nic.gpu_write = table.rate("gpu_write_gbps");
  if (table.has("eager_kib")) {
    nic.eager_bytes = table.bytes("eager_kib");
    nic.eager = table.rate("eager_gbps");
    nic.eager_far = table.has("eager_far_gbps") ? table.rate("eager_far_gbps") : nic.eager;
  }
  if (table.has("queues")) nic.posting = posting_of(table);
  if (table.has("gpu_short_kib")) {
    nic.gpu_short_bytes = table.bytes("gpu_short_kib");
    nic.gpu_long_read = table.rate("gpu_long_read_gbps");
  }
  return nic;
}

/// The first and the last network card on a path; null without one.
std::pair<const Nic*, const Nic*> Compiler::cards(const std::vector<u32>& links) const {
  std::pair<const Nic*, const Nic*> found{nullptr, nullptr};
  for (const u32 link : links)
    if (const auto* nic = machine_.nic(machine_.links[link].to)) {
      if (!found.first) found.first = nic;
      found.second = nic;
    }
  return found;
}

Support Compiler::supports_network(Node from, Node to) const {
  const auto& links = routes_.between(from, to);
  if (!links) return Support::no("no route leads from one of the two hosts to the other");
  const auto [sender, receiver] = cards(*links);
  if (sender == receiver) return Support::no("no network card of either host is on the route between the two hosts");
  if (!sender->message)
    return Support::no("the model " + machine_.name + " does not say what a message costs: message_us of its [[nic]]");
  return {};
}

Support Compiler::supports_send(const Program& program, const Actor& actor, const Move& move) const {
  const Region &source = program.regions[move.from.region], &target = program.regions[move.to.region];
  if (source.at.host == target.at.host)
    return Support::no("network cards copy from one host to another, and both ends are on one host");
  const bool by_card = actor.kind == ActorKind::nic, fetches = by_card && actor.place.host == target.at.host;
  if ((!by_card && actor.kind != ActorKind::cpu_thread) || (!fetches && actor.place.host != source.at.host))
    return Support::no(
        "messages are sent by network cards and CPU threads of the source's host, or fetched by network cards of the "
        "target's");
  if (in_rows(move).count > 1) return Support::no("the model's messages are of one piece");
  for (const auto* region : {&source, &target})
    if (is_pageable(region->kind) || region->at.kind == PlaceKind::disk)
      return Support::no("network cards reach pinned host memory and GPU memory only");
  const Node from = node(source.at), to = node(target.at);
  if (auto support = supports_network(from, to); !support) return support;
  const auto [sender, receiver] = cards(*routes_.between(from, to));
  if (const Nic* near = fetches ? receiver : sender; by_card && near->node != node(actor.place))
    return Support::no(to_string(actor.place) +
                       " is not on the route between the two hosts: " + to_string(near->place) + " is");
  const auto silent = [&](const char* what, const char* key) {
    return Support::no("the model " + machine_.name + " does not say that its network cards " + what +
                       " GPU memory directly: " + key + " of its [[nic]]");
  };
  if (machine_.is_gpu(from) && !sender->gpu_read) return silent("read", "gpu_read_gbps");
  if (machine_.is_gpu(to) && !receiver->gpu_write) return silent("write", "gpu_write_gbps");
  return {};
}

bool Compiler::goes_to_other_host(const Program& program, const Actor& actor, const Span& word) const {
  return program.regions[word.region].at.host != actor.place.host;
}

/// A word on another host is a message of its own, from a host thread to host memory.
Support Compiler::supports_far_word(const Program& program, const Actor& actor, const Span& word) const {
  const Node at = node(program.regions[word.region].at), by = at_words(actor);
  if (machine_.is_gpu(at) || machine_.is_gpu(by))
    return Support::no("words go to another host from host threads to host memory only");
  return supports_network(by, at);
}

/// From the call until a message without bytes has arrived.
double Compiler::message_time(const Path& path) const { return *cards(path.links).first->message + path.latency; }

/// B/s at which a thread of the node copies between a message and the buffers of the card.
double Compiler::eager_rate(const Nic& card, Node numa) const {
  const auto latency = [&](Node from) {
    Path way;
    add_links(way, from, card.node);
    return way.latency;
  };
  const auto& nodes = machine_.numa;
  for (Node other = 0; other < nodes.size(); ++other)
    if (nodes[other].place.host == nodes[numa].place.host && latency(other) < latency(numa)) return card.eager_far;
  return card.eager;
}

/// B/s of the cards on memory of GPUs.
double Compiler::gpu_rate(const Nic& sender, const Nic& receiver, const Move& move, Node from, Node to) const {
  double rate = never;
  if (machine_.is_gpu(from))
    rate = sender.gpu_short_bytes > 0 && move.from.bytes > sender.gpu_short_bytes ? sender.gpu_long_read
                                                                                  : *sender.gpu_read;
  return machine_.is_gpu(to) ? std::min(rate, *receiver.gpu_write) : rate;
}

Op Compiler::send(const Program& program, const Actor& actor, const Move& move) const {
  const Node from = node(program.regions[move.from.region].at), to = node(program.regions[move.to.region].at);
  Op op;
  op.bytes = op.chunk_bytes = move.from.bytes;
  op.moves = {move};
  Stage stage;
  stage.by = Stage::By::call;
  stage.path = path(from, to);
  const auto [sender, receiver] = cards(stage.path.links);
  stage.setup = *sender->message;
  stage.path.cap = gpu_rate(*sender, *receiver, move, from, to);
  if (actor.kind == ActorKind::nic) {
    stage.by = Stage::By::card;
    stage.server = servers_.card(static_cast<u32>(sender - machine_.nics.data()));
    stage.setup = card_time(program, actor);
    stage.path.latency = 0;  // later messages follow before this one arrives: the words behind it are delayed (flag)
    op.stages.push_back(std::move(stage));
    return op;
  }
  const bool of_hosts = !machine_.is_gpu(from) && !machine_.is_gpu(to);
  if (of_hosts && op.bytes <= sender->eager_bytes)
    stage.byte_setup = 1 / eager_rate(*sender, node(actor.place)) + 1 / eager_rate(*receiver, to);
  else if (sender->eager_bytes > 0) stage.setup += 2 * message_time(stage.path);  // ask, and the answer
  op.stages.push_back(std::move(stage));
  return op;
}

}  // namespace linkscope::sim
