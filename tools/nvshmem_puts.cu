// Times what NVSHMEM does between two GPUs of one node, for tools/nvshmem_bench.py:
//   nvshmem_puts PE FILE    PE: 0 or 1, which is also the GPU; FILE: where PE 0 leaves the id by which PE 1 finds it
// PE 0 prints a line of JSON for each test, with the seconds of an operation in each round. NVLink multicast stays off.
// Kernels wait at most wait_limit_ns, and the process ends itself after life_limit_s.
#include <nvshmem.h>
#include <nvshmemx.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using Word = uint64_t;

namespace {

constexpr int rounds = 6;
constexpr unsigned life_limit_s = 100, bootstrap_limit_s = 30;
constexpr Word wait_limit_ns = 3'000'000'000;
constexpr unsigned trips = 8192, warm_up_trips = 512;
constexpr size_t region_bytes = size_t{256} << 20, line_words = 16;
constexpr unsigned most_warps = 132 * 32, message_slots = 16, message_bytes = 64, warp_threads = 32;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// --- device code ------------------------------------------------------------------------------------------------------

__device__ Word now_ns() {
  Word now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// Word `index` of the data of a round: no two words or rounds are alike.
__host__ __device__ Word pattern(Word seed, Word index) {
  const Word mixed = (index + seed * 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
  return mixed ^ mixed >> 31;
}

/// What a kernel notes. `begun_ns` and `ended_ns` are those of its earliest and its latest block.
struct Notes {
  Word begun_ns, ended_ns, begun_clock, ended_clock, timed_out, has_ended;
  unsigned stamps[trips];
};

enum class Way { signal_thread, signal_block, word };

/// `signal`: the word that the other PE sets; `inbox`: the payload beside it; `first`: the number of the first trip.
struct Trips {
  Word *signal, *inbox, *outbox;
  Word first;
  int me;
};

template <Way way>
__device__ void send(const Trips& t, Word number) {
  if constexpr (way == Way::signal_thread)
    nvshmem_putmem_signal(t.inbox, t.outbox, sizeof(Word), t.signal, number, NVSHMEM_SIGNAL_SET, 1 - t.me);
  else if constexpr (way == Way::signal_block)
    nvshmemx_putmem_signal_block(t.inbox, t.outbox, sizeof(Word), t.signal, number, NVSHMEM_SIGNAL_SET, 1 - t.me);
  else nvshmem_uint64_p(t.signal, number, 1 - t.me);
}

template <Way way>
__device__ void await(const Trips& t, Word number) {
  if (threadIdx.x == 0) {
    if constexpr (way == Way::word) nvshmem_uint64_wait_until(t.signal, NVSHMEM_CMP_GE, number);
    else nvshmem_signal_wait_until(t.signal, NVSHMEM_CMP_GE, number);
  }
  if constexpr (way == Way::signal_block) __syncthreads();
}

/// NVSHMEM's waits have no time-out. This block ends them by setting the word that they poll.
__device__ void watch(const Trips& t, Notes* notes) {
  if (threadIdx.x != 0) return;
  const Word start = now_ns();
  while (*static_cast<volatile Word*>(&notes->has_ended) == 0) {
    __nanosleep(20'000);
    if (now_ns() - start < wait_limit_ns) continue;
    notes->timed_out = 1;
    *static_cast<volatile Word*>(t.signal) = ~Word{0};
    return;
  }
}

// Stamps stay in shared memory until the end, so that no fence waits for them.
template <Way way>
__global__ void play(Trips t, Notes* notes) {
  __shared__ unsigned stamps[trips];
  if (blockIdx.x == 1) return watch(t, notes);
  const Word begun_ns = now_ns(), begun_clock = clock64();
  for (unsigned i = 0; i < trips; ++i) {
    const Word number = t.first + i;
    if (t.me == 0) send<way>(t, number);
    await<way>(t, number);
    if (t.me == 1) send<way>(t, number);
    if (threadIdx.x == 0) stamps[i] = static_cast<unsigned>(clock64());
  }
  const Word ended_ns = now_ns(), ended_clock = clock64();
  if (threadIdx.x != 0) return;
  notes->begun_ns = begun_ns;
  notes->ended_ns = ended_ns;
  notes->begun_clock = begun_clock;
  notes->ended_clock = ended_clock;
  for (unsigned i = 0; i < trips; ++i) notes->stamps[i] = stamps[i];
  *static_cast<volatile Word*>(&notes->has_ended) = 1;
}

struct Stream {
  char *to, *from;
  Word* signals;
  size_t bytes;
  unsigned slots, count;
  unsigned at_once = 1;  // puts under way by blocks of their own
};

__device__ void note_begin(Notes* notes) {
  if (threadIdx.x == 0) atomicMin(reinterpret_cast<unsigned long long*>(&notes->begun_ns), now_ns());
}

__device__ void note_end(Notes* notes) {
  nvshmem_quiet();
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned long long*>(&notes->ended_ns), now_ns());
}

/// Puts to PE 1, which groups of blocks make in turn. Each block puts its part; with signals it then adds one to its group's
/// signal word.
template <bool signals>
__global__ void __launch_bounds__(1024) put_parts(Stream s, Notes* notes) {
  constexpr size_t line = 128;
  note_begin(notes);
  const unsigned blocks = gridDim.x / s.at_once, group = blockIdx.x / blocks;
  const size_t part = ((s.bytes + blocks - 1) / blocks + line - 1) / line * line, offset = blockIdx.x % blocks * part;
  if (offset < s.bytes) {
    const size_t mine = min(part, s.bytes - offset);
    for (unsigned i = group; i < s.count; i += s.at_once) {
      const size_t at = i % s.slots * s.bytes + offset;
      if constexpr (signals)
        nvshmemx_putmem_signal_nbi_block(s.to + at, s.from + at, mine, s.signals + group * line_words, 1,
                                         NVSHMEM_SIGNAL_ADD, 1);
      else nvshmemx_putmem_nbi_block(s.to + at, s.from + at, mine, 1);
    }
  }
  note_end(notes);
}

/// Small puts to PE 1: each warp has slots of its own, and with signals a signal word, which it sets to the number of puts.
template <bool signals>
__global__ void __launch_bounds__(1024) put_messages(Stream s, Notes* notes) {
  note_begin(notes);
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / warp_threads;
  for (unsigned i = 0; i < s.count; ++i) {
    const size_t at = (size_t{warp} * s.slots + i % s.slots) * s.bytes;
    if constexpr (signals)
      nvshmemx_putmem_signal_nbi_warp(s.to + at, s.from + at, s.bytes, s.signals + warp * line_words, i + 1,
                                      NVSHMEM_SIGNAL_SET, 1);
    else nvshmemx_putmem_nbi_warp(s.to + at, s.from + at, s.bytes, 1);
  }
  note_end(notes);
}

__global__ void fill(Word* words, size_t count, Word seed, Word flip) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    words[i] = pattern(seed, i) ^ flip;
}

__global__ void count_wrong(const Word* words, size_t count, Word seed, unsigned long long* wrong) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    if (words[i] != pattern(seed, i)) atomicAdd(wrong, 1ull);
}

/// Signal words that differ from what is expected.
__global__ void count_wrong_signals(const Word* signals, unsigned count, Word expected, unsigned long long* wrong) {
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
    if (signals[i * line_words] != expected) atomicAdd(wrong, 1ull);
}

__global__ void fetch(Word* to, const Word* from) { *to = nvshmem_uint64_g(from, 1); }

// --- host code --------------------------------------------------------------------------------------------------------

/// Symmetric memory, and the notes of this PE's kernels. `wrong` counts what PE 1 found.
struct Memory {
  int me;
  char *to, *from;
  Word *signals, *wrong;
  Notes* notes;
  Word* fetched;
  Word next_seed = 1;
};

template <class Kind>
Kind* symmetric(size_t bytes) {
  void* made = nvshmem_calloc(bytes, 1);
  if (made) return static_cast<Kind*>(made);
  std::fprintf(stderr, "NVSHMEM has no %zu bytes of symmetric memory\n", bytes);
  std::exit(1);
}

template <class Kind>
Kind* own(size_t count) {
  void* made = nullptr;
  check(cudaMalloc(&made, count * sizeof(Kind)), "cudaMalloc");
  return static_cast<Kind*>(made);
}

Memory allocate(int me) {
  Memory m{me,
           symmetric<char>(region_bytes),
           symmetric<char>(region_bytes),
           symmetric<Word>(size_t{most_warps} * line_words * sizeof(Word)),
           symmetric<Word>(line_words * sizeof(Word)),
           own<Notes>(1),
           own<Word>(1)};
  if (nvshmem_ptr(m.to, 1 - me)) return m;
  std::fprintf(stderr, "NVSHMEM gives PE %d no direct access to the other GPU's memory\n", me);
  std::exit(1);
}

void barrier() {
  check(cudaDeviceSynchronize(), "kernel");
  nvshmem_barrier_all();
}

void clear_notes(const Memory& m) {
  check(cudaMemset(m.notes, 0, sizeof(Notes)), "cudaMemset");
  check(cudaMemset(&m.notes->begun_ns, 0xFF, sizeof(Word)), "cudaMemset");  // of streams: the least begin counts
  check(cudaMemset(m.wrong, 0, sizeof(Word)), "cudaMemset");
}

template <class Kind>
Kind read(const Kind* at) {
  Kind value;
  check(cudaMemcpy(&value, at, sizeof value, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return value;
}

/// What PE 1 counted, which PE 0 fetches from it.
Word wrong_words(const Memory& m) {
  barrier();
  if (m.me == 0) fetch<<<1, 1>>>(m.fetched, m.wrong);
  barrier();
  return m.me == 0 ? read(m.fetched) : 0;
}

/// The seconds of an operation in each round, and for latencies their 99th percentiles.
struct Result {
  std::vector<double> seconds, p99_s;
  const char* reason = nullptr;
};

std::string listed(const std::vector<double>& values) {
  std::ostringstream text;
  const char* between = "";
  for (const double value : values) text << std::exchange(between, ", ") << value;
  return text.str();
}

void print(const Memory& m, const char* test, const char* way, size_t bytes, unsigned blocks, unsigned threads,
           const Result& result) {
  if (m.me != 0) return;
  std::printf("{\"test\": \"%s\", \"way\": \"%s\", \"bytes\": %zu, \"blocks\": %u, \"threads\": %u, ", test, way, bytes,
              blocks, threads);
  if (result.reason) std::printf("\"reason\": \"%s\"}\n", result.reason);
  else
    std::printf("\"seconds\": [%s], \"p99_s\": [%s]}\n", listed(result.seconds).c_str(), listed(result.p99_s).c_str());
  std::fflush(stdout);
}

void add_round(Result& result, const Notes& notes) {
  const double cycle_s = static_cast<double>(notes.ended_ns - notes.begun_ns) * 1e-9 /
                         static_cast<double>(notes.ended_clock - notes.begun_clock);
  std::vector<unsigned> cycles;
  for (unsigned i = warm_up_trips; i < trips; ++i) cycles.push_back(notes.stamps[i] - notes.stamps[i - 1]);
  std::sort(cycles.begin(), cycles.end());
  result.seconds.push_back(cycles[cycles.size() / 2] * cycle_s);
  result.p99_s.push_back(cycles[cycles.size() * 99 / 100] * cycle_s);
}

/// The payload of each PE lies at `from` and comes to the other's `to`.
template <Way way>
void ping_pong(Memory& m, const char* name, unsigned threads) {
  Result result;
  for (int round = 0; round < rounds; ++round) {
    const Word seed = m.next_seed++;
    auto* inbox = reinterpret_cast<Word*>(m.to);
    auto* outbox = reinterpret_cast<Word*>(m.from);
    fill<<<1, 1>>>(outbox, 1, seed, 0);
    fill<<<1, 1>>>(inbox, 1, seed, ~Word{0});
    clear_notes(m);
    barrier();
    play<way><<<2, threads>>>({m.signals, inbox, outbox, 1 + Word{trips} * round, m.me}, m.notes);
    check(cudaDeviceSynchronize(), name);
    if (way != Way::word) count_wrong<<<1, 1>>>(inbox, 1, seed, reinterpret_cast<unsigned long long*>(m.wrong));
    const Notes notes = read(m.notes);
    const Word wrong_here = read(m.wrong);
    if (wrong_words(m) + wrong_here) result.reason = "the payload is wrong";
    if (notes.timed_out) result.reason = "no answer within 3 s";
    else if (m.me == 0) add_round(result, notes);
  }
  check(cudaMemset(m.signals, 0, sizeof(Word)), "cudaMemset");
  barrier();
  print(m, "ping_pong", name, sizeof(Word), 1, threads, result);
}

/// Times a stream that PE 0 launches. PE 1 checks its data and, if `signal_words` is not 0, so many signal words.
template <class Launch>
Result stream(Memory& m, size_t bytes, unsigned operations, unsigned signal_words, Word signal, Launch launch) {
  Result result;
  constexpr unsigned blocks = 264, threads = 512;
  const size_t words = bytes / sizeof(Word);
  for (int round = 0; round < rounds; ++round) {
    const Word seed = m.next_seed++;
    fill<<<blocks, threads>>>(reinterpret_cast<Word*>(m.from), words, seed, 0);
    fill<<<blocks, threads>>>(reinterpret_cast<Word*>(m.to), words, seed, ~Word{0});
    check(cudaMemset(m.signals, 0, size_t{most_warps} * line_words * sizeof(Word)), "cudaMemset");
    clear_notes(m);
    barrier();
    if (m.me == 0) launch();
    check(cudaGetLastError(), "launch");
    barrier();
    auto* wrong = reinterpret_cast<unsigned long long*>(m.wrong);
    if (m.me == 1) count_wrong<<<blocks, threads>>>(reinterpret_cast<Word*>(m.to), words, seed, wrong);
    if (m.me == 1) count_wrong_signals<<<1, threads>>>(m.signals, signal_words, signal, wrong);
    if (wrong_words(m)) result.reason = "the data or the signals are wrong";
    const Notes notes = read(m.notes);
    result.seconds.push_back(static_cast<double>(notes.ended_ns - notes.begun_ns) * 1e-9 / operations);
  }
  return result;
}

/// `blocks` of each put. The counts are multiples of `at_once`.
void puts(Memory& m, size_t bytes, unsigned blocks, unsigned at_once, bool signals) {
  constexpr size_t line = 128, total = size_t{512} << 20;
  const unsigned threads = 1024, slots = std::min<size_t>(16, region_bytes / bytes);
  const unsigned count = std::clamp<size_t>(total / bytes, 16, 4096);
  const size_t part = ((bytes + blocks - 1) / blocks + line - 1) / line * line;
  const Stream s{m.to, m.from, m.signals, bytes, slots, count, at_once};
  const auto kernel = signals ? put_parts<true> : put_parts<false>;
  const auto launch = [&] { kernel<<<blocks * at_once, threads>>>(s, m.notes); };
  const Word adds = (bytes + part - 1) / part * (count / at_once);
  const std::string way = std::string{signals ? "signal" : "plain"} + (at_once > 1 ? ", several at once" : "");
  print(m, "put", way.c_str(), bytes, blocks * at_once, threads,
        stream(m, slots * bytes, count, signals ? at_once : 0, adds, launch));
}

void messages(Memory& m, unsigned blocks, unsigned warps, bool signals) {
  constexpr unsigned count = 4096;
  const unsigned all = blocks * warps, threads = warps * warp_threads;
  const Stream s{m.to, m.from, m.signals, message_bytes, message_slots, count};
  const auto kernel = signals ? put_messages<true> : put_messages<false>;
  const auto launch = [&] { kernel<<<blocks, threads>>>(s, m.notes); };
  const size_t bytes = size_t{all} * message_slots * message_bytes;
  print(m, "messages", signals ? "signal" : "plain", message_bytes, blocks, threads,
        stream(m, bytes, all * count, signals ? all : 0, count, launch));
}

/// PE 0 makes the id and leaves it under its name when it is whole.
nvshmemx_uniqueid_t exchange_id(int me, const std::string& path) {
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  const std::string part = path + ".part";
  if (me == 0) {
    if (nvshmemx_get_uniqueid(&id) != 0) std::exit(1);
    std::ofstream file{part, std::ios::binary};
    file.write(reinterpret_cast<const char*>(&id), sizeof id).flush();
    if (file && std::rename(part.c_str(), path.c_str()) == 0) return id;
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    std::exit(1);
  }
  constexpr unsigned look_us = 10'000;
  for (unsigned look = 0; look < bootstrap_limit_s * (1'000'000 / look_us); ++look) {
    if (std::ifstream{path, std::ios::binary}.read(reinterpret_cast<char*>(&id), sizeof id)) return id;
    usleep(look_us);
  }
  std::fprintf(stderr, "PE 0 left no id in %s within %u s\n", path.c_str(), bootstrap_limit_s);
  std::exit(1);
}

/// Two processes of one node need no network card and no multicast.
void set_environment() {
  const char* given = std::getenv("NVSHMEM_DISABLE_NVLS");
  if (given && std::strcmp(given, "1") != 0) {
    std::fprintf(stderr, "NVSHMEM_DISABLE_NVLS is %s: NVLink multicast must stay off, so leave it unset or set 1\n",
                 given);
    std::exit(2);
  }
  setenv("NVSHMEM_DISABLE_NVLS", "1", 1);
  setenv("NVSHMEM_DISABLE_NCCL", "1", 0);
  setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
  setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo", 0);
  setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY", "AF_INET", 0);
  setenv("NVSHMEM_SYMMETRIC_SIZE", "1G", 0);
}

void print_machine() {
  int major = 0, minor = 0, patch = 0;
  nvshmemx_vendor_get_version_info(&major, &minor, &patch);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("{\"nvshmem\": \"%d.%d.%d\", \"gpu\": \"%s\"}\n", major, minor, patch, properties.name);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3 || (std::strcmp(words[1], "0") != 0 && std::strcmp(words[1], "1") != 0)) {
    std::fprintf(stderr, "usage: nvshmem_puts PE FILE, where PE is 0 or 1\n");
    return 2;
  }
  alarm(life_limit_s);
  set_environment();
  const int me = std::atoi(words[1]);
  check(cudaSetDevice(me), "cudaSetDevice");
  const nvshmemx_uniqueid_t id = exchange_id(me, words[2]);
  nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
  nvshmemx_set_attr_uniqueid_args(me, 2, &id, &attributes);
  nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes);
  if (me == 0) print_machine();
  Memory m = allocate(me);
  ping_pong<Way::signal_thread>(m, "signal, a thread", 1);
  ping_pong<Way::signal_block>(m, "signal, a block", 128);
  ping_pong<Way::word>(m, "word", 1);
  for (const bool signals : {false, true})
    for (const size_t bytes : {size_t{64} << 10, size_t{256} << 10, size_t{1} << 20, size_t{4} << 20, size_t{64} << 20})
      for (const unsigned blocks : {1u, 8u, 32u, 132u}) puts(m, bytes, blocks, 1, signals);
  // The ways of linkscope's streams with several puts at once.
  for (const size_t bytes : {size_t{64} << 10, size_t{256} << 10})
    for (const unsigned blocks : {4u, 8u})
      for (const unsigned at_once : {4u, 16u}) puts(m, bytes, blocks, at_once, true);
  for (const size_t bytes : {size_t{1} << 20, size_t{4} << 20})
    for (const unsigned blocks : {8u, 32u}) puts(m, bytes, blocks, 4, true);
  for (const bool signals : {false, true})
    for (const unsigned warps : {1u, 32u}) messages(m, 132, warps, signals);
  barrier();
  nvshmem_finalize();
  return 0;
}
