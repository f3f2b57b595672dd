// Collectives of NCCL on the cuda platform, with the fake driver and the fake NCCL. Two GPUs.
#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <optional>

#include "benchmarks/case.hpp"
#include "cuda_testing.hpp"
#include "error_of.hpp"
#include "nccl/group.hpp"

using namespace linkscope;

namespace {

const std::vector<NcclSource> fake_nccl{{"libnccl.so.2", "the tests have it"}};

CudaPlatform& with_nccl() {
  static const auto made = make_cuda({}, nullptr, fake_nccl);
  return *made;
}

/// A variable of the environment while it lives.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_{name} {
    if (const char* had = std::getenv(name)) before_ = had;
    setenv(name, value, 1);
  }
  ~Setting() {
    if (before_) setenv(name_, before_->c_str(), 1);
    else unsetenv(name_);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

Case collective(std::string_view name, u64 bytes, std::map<std::string, std::string> params = {}) {
  return {std::string{name}, Engine::nccl, gpu(0),    gpu(0),           MemKind::device,
          MemKind::device,   bytes,        4 * bytes, std::move(params)};
}

Trace run(CudaPlatform& on, const Program& program, u32 iterations) {
  const auto support = on.supports(program);
  REQUIRE_MESSAGE(support, support.why_not);
  const auto session = on.prepare(program, "test#0");
  return on.run(*session, {1, {std::vector<u32>(program.actors.size(), iterations)}, true});
}

std::vector<Benchmark> rows() {
  std::vector<Benchmark> found;
  for (const auto& row : benchmarks())
    if (row.engine == Engine::nccl && row.src == PlaceKind::gpu) found.push_back(row);
  return found;
}

}  // namespace

TEST_CASE("every collective delivers the result that its ranks' inputs give, of every type and in and out of place") {
  CHECK(rows().size() == 7);
  for (const auto& row : rows())
    for (const u64 bytes : {u64{64}, u64{80000}})
      for (const char* ranks : {"1", "2"}) {
        auto cases = std::vector{collective(row.name, bytes, {{"ranks", ranks}})};
        for (const auto& param : row.params)
          if (param.name == "place" || param.name == "element")
            for (const auto& value : param.values)
              cases.push_back(
                  collective(row.name, bytes, {{"ranks", ranks}, {std::string{param.name}, std::string{value}}}));
        for (const auto& c : cases) {
          CAPTURE(row.name);
          CAPTURE(bytes);
          CAPTURE(ranks);
          CAPTURE(c.param("place", "out"));
          CAPTURE(c.param("element", "f32"));
          const auto trace = run(with_nccl(), build_program(c), 5);
          CHECK_MESSAGE(trace.verdict->ok, trace.verdict->first_wrong);
          CHECK(trace.verdict->checked_bytes >= bytes);
          CHECK(trace.timing == "host");
        }
      }
}

TEST_CASE("a large sum is compared in pieces, and a wrong number in its first piece is found") {
  const u64 bytes = u64{8} << 20;
  const auto good = run(with_nccl(), build_program(collective("all_reduce", bytes)), 1);
  CHECK(good.verdict->ok);
  CHECK(good.verdict->checked_bytes < 2 * bytes);
  const auto session = with_nccl().prepare(build_program(collective("all_reduce", bytes)), "test#0");
  const Setting wrong{"FAKE_NCCL_WRONG", "1"};
  const auto trace = with_nccl().run(*session, {1, {{1, 1}}, true});
  CHECK_FALSE(trace.verdict->ok);
  CHECK(trace.verdict->first_wrong.find("at byte 0, by the sum of all ranks' numbers") != std::string::npos);
}

TEST_CASE("the run says which NCCL was used, how it was found, and that multicast stays off") {
  const auto trace = run(with_nccl(), build_program(collective("broadcast", 64)), 1);
  std::string note;
  for (const auto& [name, value] : trace.notes)
    if (name == "nccl") note = value;
  CHECK_MESSAGE(note.starts_with("2.28.9, "), note);
  CHECK_MESSAGE(note.find("libnccl.so.2: the tests have it; NCCL_NVLS_ENABLE=0, set by linkscope") != std::string::npos,
                note);
}

TEST_CASE("a collective that hangs is aborted after its time-out, and the next one runs") {
  auto program = build_program(collective("all_reduce", 64));
  for (auto& actor : program.actors) std::get<Collective>(actor.loop[0]).timeout = Seconds{0.1};
  {
    const auto session = with_nccl().prepare(program, "test#0");
    const Setting hang{"FAKE_NCCL_HANG", "1"};
    std::string text;
    ErrorKind kind{};
    try {
      (void)with_nccl().run(*session, {1, {{1, 1}}, false});
    } catch (const Error& error) {
      text = error.what();
      kind = error.kind();
    }
    CHECK(kind == ErrorKind::timeout);
    CHECK_MESSAGE(text.find("did not end within") != std::string::npos, text);
    CHECK_MESSAGE(text.find("the ranks are gpu:0, gpu:1") != std::string::npos, text);
  }
  CHECK(run(with_nccl(), program, 1).verdict->ok);
}

TEST_CASE("an error that NCCL notices in the background ends a collective at once") {
  const auto program = build_program(collective("all_reduce", 64));
  const auto session = with_nccl().prepare(program, "test#0");
  const Setting hang{"FAKE_NCCL_HANG", "1"}, notice{"FAKE_NCCL_NOTICE", "0"};
  const auto text = error_of([&] { (void)with_nccl().run(*session, {1, {{1, 1}}, false}); });
  CHECK_MESSAGE(text.find("rank 0: remote process exited") != std::string::npos, text);
}

TEST_CASE("an error of one rank's call ends the others, and is reported in NCCL's words") {
  const auto program = build_program(collective("all_reduce", 64));
  const auto session = with_nccl().prepare(program, "test#0");
  const Setting fail{"FAKE_NCCL_FAIL", "ncclAllReduce"};
  const auto text = error_of([&] { (void)with_nccl().run(*session, {1, {{1, 1}}, false}); });
  CHECK_MESSAGE(text.find("ncclAllReduce: unhandled system error (a test wants it)") != std::string::npos, text);
}

TEST_CASE("ranks that have met leave no shared memory in which later ranks would meet") {
  const Nccl nccl{fake_nccl};
  const NcclId id = nccl.new_id();
  CHECK(id.bytes != nccl.new_id().bytes);
  const NcclGroup group{nccl, id, 1, {{0, [] {}}}, Seconds{10}};
  CHECK(shm_open(id.bytes.data(), O_RDWR, 0) < 0);
  CHECK(errno == ENOENT);
}

TEST_CASE("ranks that do not meet are given up") {
  const Nccl library{fake_nccl};
  REQUIRE(library.facts().why_not.empty());
  std::vector<NcclGroup::Own> own(1);
  own[0].use = [] {};
  const auto text = error_of([&] { NcclGroup{library, library.new_id(), 2, own, Seconds{0.05}}; });
  CHECK_MESSAGE(text.find("did not meet within 0.0 s") != std::string::npos, text);
}

TEST_CASE("without a usable NCCL, collectives are unsupported with the reason and a cure") {
  const auto why_not = [](const std::vector<NcclSource>& sources) {
    const auto none = make_cuda({}, nullptr, sources);
    return none->supports(build_program(collective("all_reduce", 64))).why_not;
  };
  CHECK(why_not({}).find("no library was found; `pip install nvidia-nccl-cu13`") != std::string::npos);
  CHECK(why_not({{"/no/such/libnccl.so.2", ""}}).find("/no/such/libnccl.so.2") != std::string::npos);
  CHECK(why_not({{"libcublas.so.13", ""}}).find("does not say its version") != std::string::npos);
  const Setting old{"FAKE_NCCL_VERSION", "2804"};
  CHECK(why_not(fake_nccl).find("is NCCL 2.8.4, and 2.10.0 or newer is needed") != std::string::npos);
}

TEST_CASE("the user's setting of multicast is kept, and said") {
  const Setting given{"NCCL_NVLS_ENABLE", "0"};
  CHECK(Nccl{fake_nccl}.facts().nvls == "NCCL_NVLS_ENABLE=0, from the environment");
}
