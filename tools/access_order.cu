// Does it matter in which order the threads of a GPU touch host memory, and which memory it is? The same bytes over the
// same links, by kernels that differ in the order alone, on one GPU and on all at once; then all at once in one set of
// buffers after another. And what a launch for each copy costs between GPUs. docs/notes/nvbandwidth.md says what it printed on H200s.
//
// Usage: nvcc -std=c++20 -O3 -arch=native -o access_order tools/access_order.cu && ./access_order
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

using u64 = unsigned long long;

namespace {

constexpr u64 buffer = u64{512} << 20, vectors = buffer / sizeof(uint4);
constexpr int samples = 3, threads = 1024, passes = 16;

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
__global__ void __launch_bounds__(threads) by_grids(uint4* to, const uint4* from, int times) {
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

// GB/s of each of the first `count` GPUs, which do the work at once: medians of the samples. `bytes` is what one launch counts.
template <class Work>
std::vector<double> rates_of(std::vector<Gpu>& gpus, std::size_t count, u64 bytes, Work work) {
  std::vector<double> found(count);
  std::barrier together(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> hands;
  for (std::size_t i = 0; i < count; ++i)
    hands.emplace_back([&, i] {
      check(cudaSetDevice(static_cast<int>(i)));
      std::vector<cudaEvent_t> stamps(samples + 1);
      for (auto& stamp : stamps) check(cudaEventCreate(&stamp));
      together.arrive_and_wait();
      // The work before and after keeps the others' links busy while what lies between is timed.
      work(gpus[i]);
      for (int sample = 0; sample < samples; ++sample) {
        check(cudaEventRecord(stamps[sample], gpus[i].stream));
        work(gpus[i]);
      }
      check(cudaEventRecord(stamps[samples], gpus[i].stream));
      work(gpus[i]);
      check(cudaStreamSynchronize(gpus[i].stream));
      check(cudaGetLastError());
      std::vector<double> rates;
      for (int sample = 0; sample < samples; ++sample) {
        float ms = 0;
        check(cudaEventElapsedTime(&ms, stamps[sample], stamps[sample + 1]));
        rates.push_back(static_cast<double>(bytes) / ms / 1e6);
      }
      std::sort(rates.begin(), rates.end());
      found[i] = rates[rates.size() / 2];
    });
  for (auto& hand : hands) hand.join();
  return found;
}

template <class Work>
void print_rates(const char* name, std::vector<Gpu>& gpus, std::size_t count, u64 bytes, Work work) {
  const auto rates = rates_of(gpus, count, bytes, work);
  std::printf("%-55s %zu GPU%s", name, count, count > 1 ? "s:" : ": ");
  for (const double rate : rates) std::printf(" %7.2f", rate);
  std::printf(" GB/s\n");
}

// One way by all GPUs at once, in each set of host buffers: GB/s of a GPU, the mean of all.
template <class Work>
void print_sets(const char* name, std::vector<Gpu>& gpus, const std::vector<std::vector<uint4*>>& sets, Work work) {
  constexpr int passes_here = 2;
  std::printf("%-55s", name);
  for (const auto& set : sets) {
    for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i].host = set[i];
    const auto rates = rates_of(gpus, gpus.size(), passes_here * buffer, [&](Gpu& gpu) {
      for (int i = 0; i < passes_here; ++i) work(gpu);
    });
    std::printf(" %5.1f", std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size()));
  }
  std::printf(" GB/s\n");
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int count = 0;
  check(cudaGetDeviceCount(&count));
  std::vector<Gpu> gpus(static_cast<std::size_t>(count));
  std::vector<std::vector<uint4*>> sets(8, std::vector<uint4*>(gpus.size()));
  for (int i = 0; i < count; ++i) {
    auto& gpu = gpus[static_cast<std::size_t>(i)];
    check(cudaSetDevice(i));
    check(cudaMalloc(&gpu.device, buffer));
    check(cudaMemset(gpu.device, 1, buffer));
    check(cudaStreamCreate(&gpu.stream));
    check(cudaDeviceGetAttribute(&gpu.sms, cudaDevAttrMultiProcessorCount, i));
  }
  for (auto& set : sets)
    for (auto& start : set) check(cudaHostAlloc(&start, buffer, cudaHostAllocPortable));
  for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i].host = sets[0][i];

  constexpr unsigned all = vectors / threads;
  const auto out_by_tiles = [](Gpu& g) { by_tiles<<<g.sms, threads, 0, g.stream>>>(g.host, g.device); };
  const auto out_by_grids = [](Gpu& g) { by_grids<<<g.sms, threads, 0, g.stream>>>(g.host, g.device, 1); };
  const auto in_by_tiles = [](Gpu& g) { by_tiles<<<g.sms, threads, 0, g.stream>>>(g.device, g.host); };
  const auto in_by_grids = [](Gpu& g) { by_grids<<<g.sms, threads, 0, g.stream>>>(g.device, g.host, 1); };
  const auto often = [](auto launch) { return [launch](Gpu& g) { for (int i = 0; i < passes; ++i) launch(g); }; };
  for (const std::size_t n : {std::size_t{1}, gpus.size()}) {
    print_rates("to the host, by tiles, 4 in flight", gpus, n, passes * buffer, often(out_by_tiles));
    print_rates("to the host, by grids, 12 in flight", gpus, n, passes * buffer, often(out_by_grids));
    print_rates("to the host, by grids, 16 passes in one launch", gpus, n, passes * buffer,
                [](Gpu& g) { by_grids<<<g.sms, threads, 0, g.stream>>>(g.host, g.device, passes); });
    print_rates("from the host, by tiles, 4 in flight", gpus, n, passes * buffer, often(in_by_tiles));
    print_rates("from the host, by grids, 12 in flight", gpus, n, passes * buffer, often(in_by_grids));
    print_rates("from the host, by grids, 16 passes in one launch", gpus, n, passes * buffer,
                [](Gpu& g) { by_grids<<<g.sms, threads, 0, g.stream>>>(g.device, g.host, passes); });
    // Half of the bytes go each way: what is printed is the rate of one way.
    print_rates("both ways, 16 passes over the buffer", gpus, n, passes * buffer / 2,
                often([](Gpu& g) { both_ways<<<all, threads, 0, g.stream>>>(g.host, g.device, 1); }));
    print_rates("both ways, one pass, every line 16 times at once", gpus, n, passes * buffer / 2,
                [](Gpu& g) { both_ways<<<all, threads, 0, g.stream>>>(g.host, g.device, passes); });
  }
  std::printf("\nAll GPUs at once, in %zu sets of host buffers one after another: GB/s of a GPU\n", sets.size());
  print_sets("to the host, by tiles", gpus, sets, out_by_tiles);
  print_sets("to the host, by grids", gpus, sets, out_by_grids);
  print_sets("to the host, by copy engine", gpus, sets,
             [](Gpu& g) { check(cudaMemcpyAsync(g.host, g.device, buffer, cudaMemcpyDeviceToHost, g.stream)); });
  print_sets("from the host, by tiles", gpus, sets, in_by_tiles);
  print_sets("from the host, by grids", gpus, sets, in_by_grids);
  print_sets("from the host, by copy engine", gpus, sets,
             [](Gpu& g) { check(cudaMemcpyAsync(g.device, g.host, buffer, cudaMemcpyHostToDevice, g.stream)); });

  if (count < 2) return 0;
  std::printf("\nGPU 0 reads GPU 1's memory\n");
  check(cudaSetDevice(0));
  check(cudaDeviceEnablePeerAccess(1, 0));
  const uint4* peer = gpus[1].device;
  print_rates("by tiles, 16 launches", gpus, 1, passes * buffer, often([=](Gpu& g) { by_tiles<<<g.sms, threads, 0, g.stream>>>(g.device, peer); }));
  print_rates("by grids, 16 launches", gpus, 1, passes * buffer, often([=](Gpu& g) { by_grids<<<g.sms, threads, 0, g.stream>>>(g.device, peer, 1); }));
  print_rates("by grids, 16 passes in one launch", gpus, 1, passes * buffer,
              [=](Gpu& g) { by_grids<<<g.sms, threads, 0, g.stream>>>(g.device, peer, passes); });
}
