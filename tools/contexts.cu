// What decides the cost of an operation in a context: the CPU that makes it, buffers, streams, or none of them
// (docs/notes/context-effects.md).
//
// Build and run: nvcc -O2 -arch=sm_90 tools/contexts.cu -o contexts && ./contexts && ./contexts
//
// On every CPU in turn a context is made anew, with three streams and three pairs of buffers. A cost is the slope between
// 64 and 400 operations behind a gate, the middle one of three. As a Markdown table, in microseconds: copies of 4 KiB within
// the GPU (mean of all streams and buffers), by how much buffers and streams differ, kernels of one thread, fills of 8 B.
#include <cuda_runtime.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                    \
  do {                                                                 \
    if (const cudaError_t error = (call); error != cudaSuccess) {      \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
      std::exit(1);                                                    \
    }                                                                  \
  } while (0)

namespace {

constexpr int few = 64, many = 400, streams = 3, buffers = 3;
constexpr std::size_t small = 4 << 10;
constexpr std::array<std::size_t, buffers> sizes{2 << 20, 4 << 20, 64 << 20};
constexpr long long patience_cycles = 400'000'000;  // a fifth of a second

__global__ void gate(const volatile int* open) {
  const long long begin = clock64();
  while (!*open && clock64() - begin < patience_cycles) {
  }
}

__global__ void one_word(int* word) {
  if (threadIdx.x == 0) *word = 1;
}

enum class Operation { copy, kernel, fill };

struct Context {
  int* open = nullptr;
  cudaEvent_t enter = nullptr, exit = nullptr;
  std::array<cudaStream_t, streams> stream{};
  std::array<std::array<char*, 2>, buffers> buffer{};

  Context() {
    CHECK(cudaHostAlloc(&open, sizeof *open, cudaHostAllocMapped));
    CHECK(cudaEventCreate(&enter));
    CHECK(cudaEventCreate(&exit));
    for (auto& one : stream) CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    for (int pair = 0; pair < buffers; ++pair)
      for (auto& side : buffer[pair]) CHECK(cudaMalloc(&side, sizes[pair]));
  }

  double batch(Operation operation, cudaStream_t on, const std::array<char*, 2>& sides, int count) {
    *static_cast<volatile int*>(open) = 0;
    gate<<<1, 1, 0, on>>>(open);
    CHECK(cudaEventRecord(enter, on));
    for (int i = 0; i < count; ++i) {
      if (operation == Operation::copy) CHECK(cudaMemcpyAsync(sides[1], sides[0], small, cudaMemcpyDeviceToDevice, on));
      if (operation == Operation::kernel) one_word<<<1, 32, 0, on>>>(reinterpret_cast<int*>(sides[1]));
      if (operation == Operation::fill) CHECK(cudaMemsetAsync(sides[1], 0, 8, on));
    }
    CHECK(cudaEventRecord(exit, on));
    *static_cast<volatile int*>(open) = 1;
    CHECK(cudaStreamSynchronize(on));
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, enter, exit));
    return milliseconds * 1e3;
  }

  double cost(Operation operation, int on, int pair) {
    batch(operation, stream[on], buffer[pair], few);
    std::array<double, 3> slopes;
    for (double& slope : slopes)
      slope = (batch(operation, stream[on], buffer[pair], many) - batch(operation, stream[on], buffer[pair], few)) / (many - few);
    std::sort(slopes.begin(), slopes.end());
    return slopes[1];
  }
};

double mean(const std::vector<double>& of) {
  double sum = 0;
  for (const double one : of) sum += one;
  return sum / of.size();
}

double apart(const std::vector<double>& of) { return *std::max_element(of.begin(), of.end()) / *std::min_element(of.begin(), of.end()) - 1; }

}  // namespace

int main() {
  std::printf("| CPU | copy, us | buffers differ by | streams differ by | kernel, us | fill, us |\n|---|---|---|---|---|---|\n");
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  for (int cpu = 0; cpu < cpus; ++cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) continue;
    if (cpu > 0) CHECK(cudaDeviceReset());
    Context context;
    std::vector<double> by_stream, by_buffer, kernels, fills;
    for (int on = 0; on < streams; ++on) {
      std::vector<double> of_buffers;
      for (int pair = 0; pair < buffers; ++pair) of_buffers.push_back(context.cost(Operation::copy, on, pair));
      by_stream.push_back(mean(of_buffers));
      by_buffer.push_back(apart(of_buffers));
      kernels.push_back(context.cost(Operation::kernel, on, 0));
      fills.push_back(context.cost(Operation::fill, on, 0));
    }
    std::printf("| %d | %.3f | %.1f %% | %.1f %% | %.3f | %.3f |\n", cpu, mean(by_stream), 100 * *std::max_element(by_buffer.begin(), by_buffer.end()),
                100 * apart(by_stream), mean(kernels), mean(fills));
    std::fflush(stdout);
  }
}
