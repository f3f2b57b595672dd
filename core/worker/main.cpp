// The worker: one request a line, one answer a line, until the input ends (docs/reference/worker.md).
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <set>

#include "base/error.hpp"
#include "gpu/queues.hpp"
#include "host/far_sockets.hpp"
#include "host/messages.hpp"
#include "mpi/world.hpp"
#include "platform/cuda/device_code.hpp"
#include "platform/sim/sim.hpp"
#include "program/processes.hpp"
#include "worker/json.hpp"

namespace linkscope {
namespace {

struct Answer {
  Json json = Json::object();
  std::vector<Stamp> stamps;
};

class Worker {
 public:
  Answer handle(const Json& request) {
    const auto op = request.at("op").get<std::string>();
    if (op == "hello") return hello();
    if (op == "benchmarks") return table();
    if (op == "check") return check(request);
    if (op == "open") return open(request);
    if (op == "nccl") return {{{"nccl", to_json(Nccl{parse_nccl(request)}.facts())}}, {}};
    if (op == "mpi") return start_mpi(request);
    if (op == "share" || op == "end_mpi") return with_mpi(op, request);
    if (op == "listen") return listen_for_others();
    if (!platform_) throw Error{ErrorKind::usage, "'" + op + "' before 'open'"};
    if (op == "join") return join(request);
    if (op == "prepare") return prepare(request);
    if (op == "run") return run(request);
    if (op == "release") return release();
    throw Error{ErrorKind::usage, "there is no request '" + op + "'"};
  }

  /// After a failure the session's state is unknown; it is not used again.
  void drop_session() { session_.reset(); }

 private:
  static Answer hello() {
    std::set<std::pair<int, std::string>> archs;  // several modules for each
    for (const auto& code : device_codes())
      archs.emplace(code.arch, (code.ptx ? "compute_" : "sm_") + std::to_string(code.arch));
    Json names = Json::array();
    for (const auto& [number, name] : archs) names.push_back(name);
    return {{{"version", LINKSCOPE_VERSION},
             {"compiler", std::string{"g++ "} + __VERSION__},
             {"hardware_queues", hardware_queues()},
             {"kernels", {{"compiler", device_code_compiler()}, {"hash", device_code_hash()}, {"archs", names}}}},
            {}};
  }

  static Answer table() {
    Json rows = Json::array();
    for (const auto& row : benchmarks()) rows.push_back(to_json(row));
    return {{{"benchmarks", rows}}, {}};
  }

  static Answer check(const Json& request) {
    (void)build_program(parse_case(request.at("case")));
    return {};
  }

  Answer open(const Json& request) {
    session_.reset();
    platform_.reset();
    sim_ = nullptr;
    cuda_ = nullptr;
    const auto name = request.at("platform").get<std::string>();
    if (name == "sim") {
      auto sim = make_sim(request.at("machine"), request.at("seed").get<u64>());
      sim_ = sim.get();
      platform_ = std::move(sim);
      return {};
    }
    if (name == "cuda") {
      auto cuda =
          make_cuda(parse_wanted(request), mpi_.get(), parse_nccl(request), parse_ucx(request), parse_nixl(request));
      Answer answer{{{"driver", to_json(cuda->facts())}}, {}};
      if (request.contains("contexts")) {
        const auto& asked = request.at("contexts");
        answer.json["contexts"] =
            to_json(cuda->make_contexts(asked.at("gpus").get<std::vector<u32>>(), parse_floors(asked.at("floors_s")),
                                        parse_own_floors(asked)),
                    cuda->facts());
      }
      cuda_ = cuda.get();
      platform_ = std::move(cuda);
      return answer;
    }
    throw Error{ErrorKind::usage, "there is no platform '" + name + "'; there are sim and cuda"};
  }

  Answer start_mpi(const Json& request) {
    if (mpi_) throw Error{ErrorKind::usage, "a process initializes MPI once"};
    mpi_ = std::make_unique<MpiWorld>(request.at("library").get<std::string>());
    return {{{"mpi", to_json(mpi_->facts())}}, {}};
  }

  Answer with_mpi(const std::string& op, const Json& request) {
    if (!mpi_ && op == "share") throw Error{ErrorKind::usage, "'share' before 'mpi'"};
    if (op == "share") return {{{"texts", mpi_->share(request.at("text").get<std::string>())}}, {}};
    session_.reset();
    platform_.reset();  // by all ranks at the same time, because they may have opened each other's memory
    sim_ = nullptr;
    cuda_ = nullptr;
    if (mpi_) mpi_->end();  // ranks may also have met without MPI
    return {};
  }

  Answer join(const Json& request) {
    if (!cuda_) throw Error{ErrorKind::usage, "one worker runs all processes on a model"};
    session_.reset();
    FarPeers far;
    if (request.contains("addresses")) {
      if (!listener_) throw Error{ErrorKind::usage, "'join' with addresses before 'listen'"};
      far = {listener_.get(), request.at("addresses").get<std::vector<std::vector<std::string>>>()};
    }
    cuda_->join(request.at("process").get<u32>(), request.at("processes").get<u32>(),
                request.at("meeting").get<std::string>(), std::move(far));
    return {};
  }

  Answer listen_for_others() {
    if (!listener_) listener_ = listen_for_far();
    return {{{"port", port_of(listener_.get())}}, {}};
  }

  Answer prepare(const Json& request) {
    session_.reset();
    try {
      return prepare(program_of(request), request);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::unsupported) return unsupported(error.what());
      throw;
    }
  }

  /// The program of a case, or of several cases at once. Throws Error{unsupported} if this machine lacks their places.
  static Program program_of(const Json& request) {
    std::vector<Program> programs;
    if (request.contains("cases"))
      for (const auto& one : request.at("cases")) programs.push_back(build_program(parse_case(one)));
    else programs.push_back(build_program(parse_case(request.at("case"))));
    Program program = programs.size() == 1 ? std::move(programs.front()) : together(programs);
    validate(program);
    return program;
  }

  Answer prepare(const Program& program, const Json& request) {
    const u32 processes = sim_ ? 1 : processes_of(program), together = request.value("processes", 1u);
    if (together == 1)
      if (const auto support = platform_->supports(program); !support) return unsupported(support.why_not);
    if (processes > together) return {{{"supported", true}, {"processes", processes}}, {}};
    actors_ = program.actors.size();
    session_ = platform_->prepare(program, request.at("key").get<std::string>());
    Answer answer{to_json(program), {}};
    answer.json["supported"] = true;
    answer.json["acts"] = session_->acts;
    answer.json["once_s"] = session_->expected_loop.count();
    return answer;
  }

  static Answer unsupported(const std::string& reason) { return {{{"supported", false}, {"reason", reason}}, {}}; }

  Answer run(const Json& request) {
    if (!session_) throw Error{ErrorKind::usage, "'run' before 'prepare'"};
    auto trace = platform_->run(*session_, parse_order(request, actors_));
    Answer answer{to_json(trace), std::move(trace.stamps)};
    if (session_->spent.samples > Seconds{0}) answer.json["spent"] = to_json(session_->spent);
    answer.json["doubles"] = 2 * answer.stamps.size();
    return answer;
  }

  Answer release() {
    session_.reset();
    return sim_ ? Answer{{{"held", sim_->in_use()}}, {}} : Answer{};
  }

  std::unique_ptr<MpiWorld> mpi_;  // null before 'mpi'
  Descriptor listener_;            // for processes of other hosts; none before 'listen'
  std::unique_ptr<Platform> platform_;
  const SimPlatform* sim_ = nullptr;  // null for other platforms
  CudaPlatform* cuda_ = nullptr;      // likewise
  std::unique_ptr<Session> session_;  // declared after the platform, so that it is destroyed first
  std::size_t actors_ = 0;
};

Answer answer_to(Worker& worker, const std::string& line) {
  const auto failure = [&](ErrorKind kind, const char* message) {
    if (kind != ErrorKind::lost) worker.drop_session();
    return Answer{{{"ok", false}, {"error", {{"kind", to_string(kind)}, {"message", message}}}}, {}};
  };
  try {
    Answer answer = worker.handle(Json::parse(line));
    answer.json["ok"] = true;
    return answer;
  } catch (const Error& error) {
    return failure(error.kind(), error.what());
  } catch (const Json::exception& error) {
    return failure(ErrorKind::usage, error.what());
  } catch (const std::bad_alloc&) {
    return failure(ErrorKind::memory, "the worker has no memory left");
  } catch (const std::exception& error) {
    return failure(ErrorKind::failed, error.what());
  }
}

void write_all(int file, const void* data, std::size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(file, at, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      std::exit(0);  // the parent is gone: no one is left to report to
    }
    at += written;
    size -= static_cast<std::size_t>(written);
  }
}

}  // namespace
}  // namespace linkscope

int main(int count, char** arguments) {
  using namespace linkscope;
  if (const int status = answer_messages(count, arguments); status >= 0) return status;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a killed parent leaves no worker behind
  std::signal(SIGINT, SIG_IGN);      // Ctrl-C is handled by the parent
  std::signal(SIGPIPE, SIG_IGN);
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  ask_for_all_hardware_queues();
  std::ios::sync_with_stdio(false);  // otherwise requests are read byte by byte
  // Answers go to a private copy of standard output; whatever else prints there goes to standard error.
  const int answers = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(STDERR_FILENO, STDOUT_FILENO);

  Worker worker;
  for (std::string line; std::getline(std::cin, line);) {
    const Answer answer = answer_to(worker, line);
    auto text = answer.json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    text.append(reinterpret_cast<const char*>(answer.stamps.data()), answer.stamps.size() * sizeof(Stamp));
    write_all(answers, text.data(), text.size());  // one write, because each write wakes the parent
  }
  return 0;
}
