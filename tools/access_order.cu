// Does it matter in which order the threads of a GPU touch host memory, and for how long they do? The same bytes over the
// same links, by kernels that differ in the order alone, on one GPU and on all at once; then pass after pass from the first.
// docs/nvbandwidth.md shows what it printed on four H200s.
//
// Usage: nvcc -std=c++20 -O3 -arch=native -o access_order tools/access_order.cu && ./access_order
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

using u64 = unsigned long long;

namespace {

constexpr u64 buffer = u64{512} << 20, vectors = buffer / sizeof(uint4);
constexpr int samples = 5, threads = 1024, passes = 16;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

// One way. Tiles: a block copies 4 neighbouring runs of its threads, then goes to its next tile.
__global__ void __launch_bounds__(threads) by_tiles(uint4* to, const uint4* from) {
  constexpr int in_flight = 4;
  const u64 tile = u64{blockDim.x} * in_flight;
  for (u64 first = blockIdx.x * tile; first + tile <= vectors; first += gridDim.x * tile) {
    uint4 held[in_flight];
#pragma unroll
    for (int k = 0; k < in_flight; ++k) held[k] = __ldcs(from + first + threadIdx.x + k * blockDim.x);
#pragma unroll
    for (int k = 0; k < in_flight; ++k) __stcs(to + first + threadIdx.x + k * blockDim.x, held[k]);
  }
}

// One way. The accesses that a thread has in flight lie a whole grid apart.
__global__ void __launch_bounds__(threads) by_grids(uint4* to, const uint4* from, int times = 1) {
  constexpr int in_flight = 12;
  const u64 grid = u64{gridDim.x} * blockDim.x, at = u64{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int i = 0; i < times; ++i)
  for (u64 first = at; first < vectors; first += in_flight * grid) {
    uint4 held[in_flight];
#pragma unroll
    for (int k = 0; k < in_flight; ++k)
      if (first + k * grid < vectors) held[k] = __ldcg(from + first + k * grid);
#pragma unroll
    for (int k = 0; k < in_flight; ++k)
      if (first + k * grid < vectors) __stcg(to + first + k * grid, held[k]);
  }
}

// Both ways, 16 bytes a thread, even warps one way and odd ones the other: `times` over, at once by the same thread.
__global__ void __launch_bounds__(threads) both_ways(uint4* host, uint4* device, int times) {
  const u64 at = u64{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int i = 0; i < times; ++i)
    if (at / 32 % 2) __stcg(host + at, __ldcg(device + at));
    else __stcg(device + at, __ldcg(host + at));
}

struct Gpu {
  uint4 *host, *device;
  cudaStream_t stream;
  int sms;
};

// GB/s of each of `count` GPUs that do the work at once, the median of the samples; `bytes` is what one launch counts.
template <class Work>
void measure(const char* name, std::vector<Gpu>& gpus, std::size_t count, u64 bytes, Work work) {
  std::vector<std::vector<double>> rates(count);
  std::barrier together(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> hands;
  for (std::size_t i = 0; i < count; ++i)
    hands.emplace_back([&, i] {
      check(cudaSetDevice(static_cast<int>(i)));
      cudaEvent_t begin, end;
      check(cudaEventCreate(&begin));
      check(cudaEventCreate(&end));
      for (int sample = 0; sample <= samples; ++sample) {
        together.arrive_and_wait();
        // The work before and after keeps the others' links busy while this one is timed.
        work(gpus[i]);
        check(cudaEventRecord(begin, gpus[i].stream));
        work(gpus[i]);
        check(cudaEventRecord(end, gpus[i].stream));
        work(gpus[i]);
        check(cudaStreamSynchronize(gpus[i].stream));
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin, end));
        if (sample) rates[i].push_back(static_cast<double>(bytes) / ms / 1e6);
      }
    });
  for (auto& hand : hands) hand.join();
  std::printf("%-52s %zu GPU%s", name, count, count > 1 ? "s:" : ": ");
  for (auto& rate : rates) {
    std::sort(rate.begin(), rate.end());
    std::printf(" %7.2f", rate[rate.size() / 2]);
  }
  std::printf(" GB/s\n");
}

// GB/s of a GPU, the mean of all, in the passes after a common start: the median of the samples.
template <class Work>
void measure_passes(const char* name, std::vector<Gpu>& gpus, Work work) {
  constexpr int ends[] = {1, 2, 4, 8, 16, 48}, marks = sizeof ends / sizeof *ends;
  std::vector<std::vector<double>> rates(marks);
  std::mutex mutex;
  std::barrier together(static_cast<std::ptrdiff_t>(gpus.size()));
  std::vector<std::thread> hands;
  for (std::size_t i = 0; i < gpus.size(); ++i)
    hands.emplace_back([&, i] {
      check(cudaSetDevice(static_cast<int>(i)));
      cudaEvent_t stamps[marks + 1];
      for (auto& stamp : stamps) check(cudaEventCreate(&stamp));
      for (int sample = 0; sample <= samples; ++sample) {
        together.arrive_and_wait();
        check(cudaEventRecord(stamps[0], gpus[i].stream));
        for (int pass = 1, mark = 0; mark < marks; ++pass) {
          work(gpus[i]);
          if (pass == ends[mark]) check(cudaEventRecord(stamps[++mark], gpus[i].stream));
        }
        check(cudaStreamSynchronize(gpus[i].stream));
        for (int mark = 0; sample && mark < marks; ++mark) {
          float ms = 0;
          check(cudaEventElapsedTime(&ms, stamps[mark], stamps[mark + 1]));
          const int passes_here = ends[mark] - (mark ? ends[mark - 1] : 0);
          const std::lock_guard lock{mutex};
          rates[static_cast<std::size_t>(mark)].push_back(static_cast<double>(passes_here * buffer) / ms / 1e6);
        }
        together.arrive_and_wait();
        std::this_thread::sleep_for(std::chrono::milliseconds{200});
      }
    });
  for (auto& hand : hands) hand.join();
  std::printf("%-52s %zu GPU%s", name, gpus.size(), gpus.size() > 1 ? "s:" : ": ");
  for (int mark = 0; mark < marks; ++mark) {
    auto& all = rates[static_cast<std::size_t>(mark)];
    std::sort(all.begin(), all.end());
    std::printf("  to %d: %.2f", ends[mark], all[all.size() / 2]);
  }
  std::printf(" GB/s\n");
}

}  // namespace

int main() {
  int count = 0;
  check(cudaGetDeviceCount(&count));
  std::vector<Gpu> gpus(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    auto& gpu = gpus[static_cast<std::size_t>(i)];
    check(cudaSetDevice(i));
    check(cudaMallocHost(&gpu.host, buffer));
    check(cudaMalloc(&gpu.device, buffer));
    check(cudaMemset(gpu.device, 1, buffer));
    check(cudaMemcpy(gpu.host, gpu.device, buffer, cudaMemcpyDeviceToHost));
    check(cudaStreamCreate(&gpu.stream));
    check(cudaDeviceGetAttribute(&gpu.sms, cudaDevAttrMultiProcessorCount, i));
  }
  constexpr unsigned all = vectors / threads;
  const auto work = [](auto launch) {
    return [launch](Gpu& gpu) {
      launch(gpu);
      check(cudaGetLastError());
    };
  };
  for (const std::size_t n : {std::size_t{1}, gpus.size()}) {
    measure("to the host, by tiles, 4 in flight", gpus, n, passes * buffer, work([](Gpu& g) { for (int i = 0; i < passes; ++i) by_tiles<<<g.sms, threads, 0, g.stream>>>(g.host, g.device); }));
    measure("to the host, by grids, 12 in flight", gpus, n, passes * buffer, work([](Gpu& g) { for (int i = 0; i < passes; ++i) by_grids<<<g.sms, threads, 0, g.stream>>>(g.host, g.device); }));
    measure("to the host, by grids, 16 passes in one launch", gpus, n, passes * buffer, work([](Gpu& g) { by_grids<<<g.sms, threads, 0, g.stream>>>(g.host, g.device, passes); }));
    measure("from the host, by tiles, 4 in flight", gpus, n, passes * buffer, work([](Gpu& g) { for (int i = 0; i < passes; ++i) by_tiles<<<g.sms, threads, 0, g.stream>>>(g.device, g.host); }));
    measure("from the host, by grids, 12 in flight", gpus, n, passes * buffer, work([](Gpu& g) { for (int i = 0; i < passes; ++i) by_grids<<<g.sms, threads, 0, g.stream>>>(g.device, g.host); }));
    measure("from the host, by grids, 16 passes in one launch", gpus, n, passes * buffer, work([](Gpu& g) { by_grids<<<g.sms, threads, 0, g.stream>>>(g.device, g.host, passes); }));
    // Half of the bytes go each way: what is printed is the rate of one way.
    measure("both ways, 16 passes over the buffer", gpus, n, passes * buffer / 2, work([](Gpu& g) { for (int i = 0; i < passes; ++i) both_ways<<<all, threads, 0, g.stream>>>(g.host, g.device, 1); }));
    measure("both ways, one pass, every line 16 times at once", gpus, n, passes * buffer / 2, work([](Gpu& g) { both_ways<<<all, threads, 0, g.stream>>>(g.host, g.device, passes); }));
  }
  measure_passes("to the host, by tiles, pass after pass", gpus, work([](Gpu& g) { by_tiles<<<g.sms, threads, 0, g.stream>>>(g.host, g.device); }));
  measure_passes("from the host, by tiles, pass after pass", gpus, work([](Gpu& g) { by_tiles<<<g.sms, threads, 0, g.stream>>>(g.device, g.host); }));
  measure_passes("to the host, by copy engine, pass after pass", gpus, work([](Gpu& g) { check(cudaMemcpyAsync(g.host, g.device, buffer, cudaMemcpyDeviceToHost, g.stream)); }));
  measure_passes("from the host, by copy engine, pass after pass", gpus, work([](Gpu& g) { check(cudaMemcpyAsync(g.device, g.host, buffer, cudaMemcpyHostToDevice, g.stream)); }));
}
