#include "platform/cuda/caller.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "gpu/graph.hpp"

namespace linkscope {
namespace {

constexpr std::size_t most_arguments = 4096;

/// The kernel with this many bytes of arguments.
std::string kernel_of(u64 arguments) {
  return arguments ? "linkscope_take_" + std::to_string(arguments) : "linkscope_empty";
}

}  // namespace

struct CallState {
  CallState(const CudaSession& s, Device& d, const Stream& on)
      : driver{s.driver}, session{s}, device{d}, stream{on}, event{s.driver} {}

  const Driver& driver;
  const CudaSession& session;
  Device& device;
  const Stream& stream;
  Event event;

  CUfunction kernel = nullptr;
  alignas(16) std::array<std::byte, most_arguments> arguments{};
  void* argument = arguments.data();

  CUstream made = nullptr;  // from its creation until its destruction
  std::unique_ptr<KernelChain> chain;
  std::vector<ReadyGraph> graphs;
  std::size_t next = 0;  // graphs that wait for their upload

  using Make = void (*)(CallState&, const Call&, u64 iteration);
  struct Step {
    Make make;
    const Call* call;
  };
  std::vector<Step> loop;
};

namespace {

enum class Needs : u8 { nothing, kernel, graph };

struct Api {
  std::string_view name;
  std::vector<const char*> symbols;  // driver symbols beyond the common ones
  Needs needs;
  CallState::Make make;
};

u64 address(const CallState& state, const Span& span, u64 iteration) {
  return state.session.buffers[span.region]->address() + span.offset_at(iteration);
}

std::byte* host(const CallState& state, const Span& span, u64 iteration) {
  return state.session.buffers[span.region]->host() + span.offset_at(iteration);
}

void launch(CallState& s, const Call& call, u64) {
  s.device.launch(s.kernel, 1, 1, s.stream.get(), call.amount ? &s.argument : nullptr);
}

void copy(CallState& s, const Call& call, u64 iteration) {
  if (s.session.buffers[call.span->region]->host())
    LINKSCOPE_CU(s.driver, cuMemcpyHtoDAsync, address(s, *call.to, iteration), host(s, *call.span, iteration),
                 call.span->bytes, s.stream.get());
  else
    LINKSCOPE_CU(s.driver, cuMemcpyDtoHAsync, host(s, *call.to, iteration), address(s, *call.span, iteration),
                 call.span->bytes, s.stream.get());
}

void query_event(CallState& s, const Call&, u64) {
  // "Not ready" is a valid answer.
  if (const CUresult status = s.driver.cuEventQuery(s.event.get()); status != CUDA_ERROR_NOT_READY)
    s.driver.check(status, "cuEventQuery");
}

void create_stream(CallState& s, const Call&, u64) {
  LINKSCOPE_CU(s.driver, cuStreamCreate, &s.made, CU_STREAM_NON_BLOCKING);
}
void destroy_stream(CallState& s, const Call&, u64) {
  LINKSCOPE_CU(s.driver, cuStreamDestroy, std::exchange(s.made, nullptr));
}

void upload_graph(CallState& s, const Call&, u64) {
  LINKSCOPE_CU(s.driver, cuGraphUpload, s.graphs[s.next++].get(), s.stream.get());
}
void launch_graph(CallState& s, const Call&, u64) {
  LINKSCOPE_CU(s.driver, cuGraphLaunch, s.graphs.front().get(), s.stream.get());
}
void instantiate_graph(CallState& s, const Call&, u64) { s.graphs.emplace_back(s.driver, s.chain->get()); }

const std::vector<Api>& apis() {
  const auto graphs = [](const char* more) {
    return std::vector<const char*>{"cuGraphCreate",        "cuGraphDestroy",
                                    "cuGraphAddKernelNode", "cuGraphInstantiateWithFlags",
                                    "cuGraphExecDestroy",   more};
  };
  static const std::vector<Api> all{
      {"launch", {}, Needs::kernel, launch},
      {"copy", {}, Needs::nothing, copy},
      {"synchronize_stream", {}, Needs::nothing, [](CallState& s, const Call&, u64) { s.stream.synchronize(); }},
      {"synchronize_device",
       {"cuCtxSynchronize"},
       Needs::nothing,
       [](CallState& s, const Call&, u64) { LINKSCOPE_CU(s.driver, cuCtxSynchronize); }},
      {"synchronize_event",
       {"cuEventSynchronize"},
       Needs::nothing,
       [](CallState& s, const Call&, u64) { LINKSCOPE_CU(s.driver, cuEventSynchronize, s.event.get()); }},
      {"record_event",
       {},
       Needs::nothing,
       [](CallState& s, const Call&, u64) { LINKSCOPE_CU(s.driver, cuEventRecord, s.event.get(), s.stream.get()); }},
      {"query_event", {"cuEventQuery"}, Needs::nothing, query_event},
      {"create_stream", {}, Needs::nothing, create_stream},
      {"destroy_stream", {}, Needs::nothing, destroy_stream},
      {"instantiate_graph", graphs("cuGraphLaunch"), Needs::graph, instantiate_graph},
      {"upload_graph", graphs("cuGraphUpload"), Needs::graph, upload_graph},
      {"launch_graph", graphs("cuGraphLaunch"), Needs::graph, launch_graph},
  };
  return all;
}

const Api* find(std::string_view name) {
  const auto& all = apis();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Api& api) { return api.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

bool makes_calls(const Actor& actor) {
  const auto* call = std::get_if<Call>(&actor.loop.front());
  return call && call->on;
}

std::string why_no_call(const Driver& driver, const Call& call) {
  const Api* api = find(call.api);
  if (!api || call.on->kind != PlaceKind::gpu) return "the call '" + call.api + "' cannot be made here yet";
  for (const char* symbol : api->symbols)
    if (auto why = driver.why_no(symbol); !why.empty()) return why;
  return "";
}

Caller::Caller(const CudaSession& session, const Actor& actor, Device& device, const Stream& stream) {
  device.use();
  state_ = std::make_unique<CallState>(session, device, stream);
  auto& s = *state_;
  for (const auto& step : actor.loop) {
    const auto& call = std::get<Call>(step);
    const Api& api = *find(call.api);
    s.loop.push_back({api.make, &call});
    if (api.needs == Needs::kernel) s.kernel = device.function(call.amount ? "calls" : "gate", kernel_of(call.amount));
    if (api.needs == Needs::graph)
      s.chain = std::make_unique<KernelChain>(s.driver, device.function("gate", kernel_of(0)), call.amount);
  }
  LINKSCOPE_CU(s.driver, cuEventRecord, s.event.get(), stream.get());
  stream.synchronize();
}

Caller::~Caller() {
  auto& s = *state_;
  if (s.driver.cuCtxSetCurrent(s.device.context()) != CUDA_SUCCESS) return;  // the driver is shutting down
  s.driver.cuStreamSynchronize(s.stream.get());
  if (s.made) s.driver.cuStreamDestroy(s.made);
}

void Caller::ready(u32 iterations) {
  auto& s = *state_;
  s.device.use();
  s.next = 0;
  s.graphs.clear();
  s.graphs.reserve(iterations);  // reserved, since instantiating would move the elements
  for (const auto& [make, call] : s.loop) {
    const u32 graphs = make == upload_graph ? iterations : make == launch_graph ? 1 : 0;
    for (u32 i = 0; i < graphs; ++i) s.graphs.emplace_back(s.driver, s.chain->get());
    if (make != launch_graph) continue;
    launch_graph(s, *call, 0);  // the first launch also uploads
    s.stream.synchronize();
  }
}

void Caller::enter() const { state_->device.use(); }

void Caller::make(u64 first_iteration, u32 iterations) {
  auto& s = *state_;
  for (u64 i = first_iteration; i < first_iteration + iterations; ++i)
    for (const auto& [make, call] : s.loop) make(s, *call, i);
}

void Caller::settle() {
  auto& s = *state_;
  s.device.use();
  s.stream.synchronize();
  s.graphs.clear();
}

}  // namespace linkscope
