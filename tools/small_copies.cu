// Why do medians of small copies differ between processes by several percent, when those of one process agree? The same
// copies with one thing made anew each time: nothing, the buffers, the stream, both, the context, the process. What differs
// first as much as processes do is the cause. docs/notes/small-copies.md shows what it printed on one H200.
//
// Usage: nvcc -std=c++20 -O3 -arch=native -o small_copies tools/small_copies.cu -lcuda -lnvidia-ml && ./small_copies
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>
#include <nvml.h>

namespace {

constexpr std::size_t sizes[] = {8, 4096, 65536};
constexpr int times = 24, batch = 64, samples = 9;
constexpr std::size_t footprint = std::size_t{batch} * 2 * 65536;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

void check(CUresult error) {
  if (error == CUDA_SUCCESS) return;
  std::fprintf(stderr, "driver error %d\n", error);
  std::exit(1);
}

// Holds the stream until all is queued, or for two seconds.
__global__ void hold(const volatile int* open) {
  const long long end = clock64() + 4'000'000'000ll;
  while (!*open && clock64() < end) {
  }
}

struct Stage {
  cudaStream_t stream{};
  cudaEvent_t begin{}, end{};
  char *host{}, *device{};
  int* gate{};

  void make_stream() {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaEventCreate(&begin));
    check(cudaEventCreate(&end));
  }
  void make_buffers() {
    check(cudaHostAlloc(&host, footprint, cudaHostAllocMapped));
    check(cudaMalloc(&device, footprint));
    check(cudaHostAlloc(&gate, sizeof *gate, cudaHostAllocMapped));
  }
  void end_stream() {
    check(cudaStreamDestroy(stream));
    check(cudaEventDestroy(begin));
    check(cudaEventDestroy(end));
  }
  void end_buffers() {
    check(cudaFreeHost(host));
    check(cudaFree(device));
    check(cudaFreeHost(gate));
  }

  // Microseconds of `count` copies behind the gate.
  float of(bool to_device, std::size_t bytes, int count) {
    *const_cast<volatile int*>(gate) = 0;
    hold<<<1, 1, 0, stream>>>(gate);
    check(cudaEventRecord(begin, stream));
    for (int i = 0; i < count; ++i) {
      char *h = host + i * bytes, *d = device + i * bytes;
      check(cudaMemcpyAsync(to_device ? d : h, to_device ? h : d, bytes, to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream));
    }
    check(cudaEventRecord(end, stream));
    *const_cast<volatile int*>(gate) = 1;
    check(cudaStreamSynchronize(stream));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1e3f;
  }

  // Microseconds of one copy: the slope between two batches, the median of the samples.
  double median(bool to_device, std::size_t bytes) {
    std::vector<double> found;
    of(to_device, bytes, batch);
    for (int i = 0; i < samples; ++i) found.push_back((of(to_device, bytes, 2 * batch) - of(to_device, bytes, batch)) / batch);
    std::sort(found.begin(), found.end());
    return found[found.size() / 2];
  }
};

using Medians = std::vector<double>;  // of every direction and size, in order

Medians all_of(Stage& stage) {
  Medians found;
  for (const bool to_device : {true, false})
    for (const std::size_t bytes : sizes) found.push_back(stage.median(to_device, bytes));
  return found;
}

void print(const char* anew, const std::vector<Medians>& runs) {
  std::printf("%-22s", anew);
  for (std::size_t k = 0; k < runs.front().size(); ++k) {
    double mean = 0, squares = 0;
    for (const auto& run : runs) mean += run[k] / static_cast<double>(runs.size());
    for (const auto& run : runs) squares += (run[k] - mean) * (run[k] - mean);
    std::printf("  %7.3f +-%5.2f%%", mean, 100 * std::sqrt(squares / static_cast<double>(runs.size() - 1)) / mean);
  }
  std::printf("\n");
}

std::string clocks() {
  nvmlDevice_t gpu;
  unsigned sm = 0, memory = 0;
  if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetHandleByIndex_v2(0, &gpu) != NVML_SUCCESS) return "clocks hidden";
  nvmlDeviceGetClockInfo(gpu, NVML_CLOCK_SM, &sm);
  nvmlDeviceGetClockInfo(gpu, NVML_CLOCK_MEM, &memory);
  return std::to_string(sm) + " and " + std::to_string(memory) + " MHz";
}

}  // namespace

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  check(cudaSetDevice(0));
  Stage stage;
  if (count > 1 && !std::strcmp(arguments[1], "once")) {
    stage.make_stream();
    stage.make_buffers();
    for (const double us : all_of(stage)) std::printf("%.4f ", us);
    std::printf("\n# %s\n", clocks().c_str());
    return 0;
  }
  std::printf("%-22s", "us of a copy; anew");
  for (const char* way : {"to device", "to host"})
    for (const std::size_t bytes : sizes) std::printf("  %9s %5zu", way, bytes);
  std::printf("\n");

  std::vector<Medians> runs;
  stage.make_stream();
  stage.make_buffers();
  for (int i = 0; i < times; ++i) runs.push_back(all_of(stage));
  print("nothing", runs);

  runs.clear();
  for (int i = 0; i < times; ++i) {
    stage.end_buffers();
    stage.make_buffers();
    runs.push_back(all_of(stage));
  }
  print("buffers, freed first", runs);

  runs.clear();
  for (int i = 0; i < times; ++i) {
    stage.make_buffers();  // the ones before are kept: other pages, other addresses
    runs.push_back(all_of(stage));
  }
  print("buffers, others kept", runs);

  runs.clear();
  for (int i = 0; i < times; ++i) {
    stage.end_stream();
    stage.make_stream();
    runs.push_back(all_of(stage));
  }
  print("stream, freed first", runs);

  runs.clear();
  for (int i = 0; i < times; ++i) {
    stage.make_stream();
    runs.push_back(all_of(stage));
  }
  print("stream, others kept", runs);

  runs.clear();
  CUdevice gpu;
  check(cuDeviceGet(&gpu, 0));
  for (int i = 0; i < times; ++i) {
    CUcontext context, before;
    check(cuCtxGetCurrent(&before));
#if CUDA_VERSION >= 13000
    check(cuCtxCreate(&context, nullptr, 0, gpu));
#else
    check(cuCtxCreate(&context, 0, gpu));
#endif
    Stage own;
    own.make_stream();
    own.make_buffers();
    runs.push_back(all_of(own));
    check(cuCtxDestroy(context));
    check(cuCtxSetCurrent(before));
  }
  print("context", runs);

  runs.clear();
  std::string seen;
  for (int i = 0; i < times; ++i) {
    FILE* other = popen((std::string{arguments[0]} + " once").c_str(), "r");
    if (!other) return 1;
    Medians found(2 * std::size(sizes));
    for (auto& us : found)
      if (std::fscanf(other, "%lf", &us) != 1) return 1;
    char line[64] = "";
    if (std::fgets(line, sizeof line, other) && std::fgets(line, sizeof line, other)) seen += line + 1;
    pclose(other);
    runs.push_back(found);
  }
  print("process", runs);
  for (std::size_t k = 0; k < runs.front().size(); ++k) {
    std::printf("%s %5zu B in processes:", k < std::size(sizes) ? "to device" : "to host  ", sizes[k % std::size(sizes)]);
    for (const auto& run : runs) std::printf(" %.3f", run[k]);
    std::printf("\n");
  }
  std::printf("clocks (SM, memory) at their ends:\n%s", seen.c_str());
}
