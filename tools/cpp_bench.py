"""The sections of tools/transfer_bench.py whose calls come from C++, so that Python's share is not in their times."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_KIB = 1 << 10

_START = r"""
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include "linkscope.h"
namespace bench {  // whose names hide the functions of cuda.h
void* driver = dlopen("libcuda.so.1", RTLD_NOW);
template <class F> F get(const char* name, int version) {
  void* found = nullptr;
  ((PFN_cuGetProcAddress_v12000)dlsym(driver, "cuGetProcAddress_v2"))(name, &found, version, 0, nullptr);
  return (F)found;
}
#define GET(name, version) const auto name = get<PFN_##name##_v##version>(#name, version)
GET(cuInit, 2000);
GET(cuDeviceGet, 2000);
GET(cuDevicePrimaryCtxRetain, 7000);
GET(cuCtxSetCurrent, 4000);
GET(cuMemAlloc, 3020);
GET(cuMemHostAlloc, 2020);
GET(cuStreamCreate, 2000);
GET(cuStreamSynchronize, 2000);
GET(cuMemcpyHtoDAsync, 3020);
GET(cuMemcpyDtoHAsync, 3020);
CUdeviceptr gpu; CUstream stream; char* host;
void allocate(size_t bytes) {
  CUdevice device; CUcontext context;
  cuInit(0); cuDeviceGet(&device, 0); cuDevicePrimaryCtxRetain(&context, device); cuCtxSetCurrent(context);
  cuMemAlloc(&gpu, bytes); cuMemHostAlloc((void**)&host, bytes, 3); cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}
double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}
"""

# One line a size: the bytes, and the nanoseconds of the driver's call, of ls_run and of ls_copy, three times in turn.
_SMALL = r"""
template <class Call> double ns(size_t bytes, Call call) {
  const int count = bytes < 1 << 20 ? 200 : 20, calls = bytes < 1 << 20 ? 100 : 10;
  std::vector<double> rounds;
  for (int round = 0; round < count; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    rounds.push_back(taken.count() / calls);
    cuStreamSynchronize(stream);
  }
  return median(rounds);
}
int run(int, char**) {
  const size_t most = size_t{16} << 20;
  allocate(most);
  for (size_t bytes = 1; bytes <= most; bytes *= 4) {
    ls_prepared* prepared = nullptr;
    if (ls_prepare(&prepared, (void*)gpu, host, bytes, stream)) return puts(ls_last_error()), 1;
    printf("%zu", bytes);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const double plain = ns(bytes, [&] { cuMemcpyHtoDAsync(gpu, host, bytes, stream); });
      const double run = ns(bytes, [&] { ls_run(prepared); });
      printf(" %.1f %.1f %.1f", plain, run, ns(bytes, [&] { ls_copy((void*)gpu, host, bytes, stream); }));
    }
    puts("");
    ls_release(prepared);
  }
  return 0;
}
}
int main(int count, char** words) { return bench::run(count, words); }
"""

# Words: repeats, then bytes of a block and blocks of a call, in turn. One line for each direction and method: bytes,
# blocks, 1 towards the GPU, the method and microseconds of a call with its end. Blocks as in blocks_bench.py.
_BLOCKS = r"""
int repeats = 1;
template <class Call> double us(Call call) {
  std::vector<double> rounds;
  for (int round = -3; round < repeats; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    cuStreamSynchronize(stream);
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
    if (round >= 0) rounds.push_back(taken.count());
  }
  return median(rounds);
}
/// Sends blocks to the GPU and back by the present method.
bool is_right(const std::vector<void*>& on_gpu, const std::vector<void*>& on_host, const std::vector<size_t>& sizes) {
  const size_t count = sizes.size();
  const auto byte = [&](size_t i, size_t at) -> char& { return ((char*)on_host[i])[at]; };
  const auto expected = [](size_t i, size_t at) { return (char)(i * 7 + at * 3 + 1); };
  for (size_t i = 0; i < count; ++i)
    for (size_t at = 0; at < sizes[i]; ++at) byte(i, at) = expected(i, at);
  ls_copy_blocks(on_gpu.data(), on_host.data(), sizes.data(), count, stream);
  cuStreamSynchronize(stream);
  for (size_t i = 0; i < count; ++i) std::fill_n((char*)on_host[i], sizes[i], 0);
  ls_copy_blocks(on_host.data(), on_gpu.data(), sizes.data(), count, stream);
  cuStreamSynchronize(stream);
  for (size_t i = 0; i < count; ++i)
    for (size_t at = 0; at < sizes[i]; ++at)
      if (byte(i, at) != expected(i, at)) return false;
  return true;
}
int blocks(size_t bytes, size_t count) {
  std::vector<void*> on_gpu(count), on_host(count);
  std::vector<size_t> sizes(count, bytes), places(count);
  std::iota(places.begin(), places.end(), size_t{0});
  std::shuffle(places.begin(), places.end(), std::mt19937_64{3});
  for (size_t i = 0; i < count; ++i) {
    on_gpu[i] = (void*)(gpu + 2 * bytes * places[i]);
    on_host[i] = host + 2 * bytes * i;
  }
  for (const int to_gpu : {1, 0}) {
    const auto& dst = to_gpu ? on_gpu : on_host;
    const auto& src = to_gpu ? on_host : on_gpu;
    const auto say = [&](const char* method, double taken) {
      printf("%zu %zu %d %s %.2f\n", bytes, count, to_gpu, method, taken);
    };
    const auto one = [&](void* device, void* memory, size_t size) {
      if (to_gpu) cuMemcpyHtoDAsync((CUdeviceptr)device, memory, size, stream);
      else cuMemcpyDtoHAsync(memory, (CUdeviceptr)device, size, stream);
    };
    say("one_copy", us([&] { one((void*)gpu, host, bytes * count); }));
    say("loop", us([&] { for (size_t i = 0; i < count; ++i) one(on_gpu[i], on_host[i], bytes); }));
    const char* usual = nullptr; uint32_t sms = 0;
    ls_get_block_knobs(to_gpu, bytes, &usual, &sms);
    const struct { const char *name, *method; uint32_t sms; } ways[] = {
        {"auto", usual, sms}, {"batch", "batch", sms}, {"kernel_12", "kernel", 12}};
    for (const auto& way : ways) {
      if (ls_set_block_knobs(to_gpu, bytes, way.method, way.sms)) return puts(ls_last_error()), 1;
      ls_status status = LS_OK;
      say(way.name, us([&] { status = ls_copy_blocks(dst.data(), src.data(), sizes.data(), count, stream); }));
      if (status) return puts(ls_last_error()), 1;
      if (!is_right(on_gpu, on_host, sizes)) return puts("WRONG DATA"), 1;
    }
    ls_set_block_knobs(to_gpu, bytes, usual, sms);
  }
  return 0;
}
int run(int count, char** words) {
  allocate(size_t{192} << 20);
  repeats = atoi(words[1]);
  for (int i = 2; i + 1 < count; i += 2)
    if (const int status = blocks(atoll(words[i]), atoll(words[i + 1]))) return status;
  return 0;
}
}
int main(int count, char** words) { return bench::run(count, words); }
"""
_SHAPES = ((4 * _KIB, 1000), (4 * _KIB, 8192), (8 * _KIB, 8192), (16 * _KIB, 4096))


def _lines(name: str, program: str, *words: str) -> list[str]:
    """Builds a program and returns what it prints. Nothing without the headers of CUDA's driver interface."""
    nvcc = shutil.which("nvcc")
    places = [*ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cu13/include")]
    places += [Path(nvcc).resolve().parents[1] / "include"] if nvcc else []
    headers = next((one for one in places if (one / "cuda.h").exists()), None)
    library = Path(os.environ.get("LINKSCOPE_LIBRARY") or ROOT / "src" / "linkscope" / "_native" / "liblinkscope.so")
    if headers is None:
        print(f"{name:14} cuda.h was not found")
        return []
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "bench.cpp"), Path(folder, "bench")
        source.write_text(_START + program)
        build = ["g++", "-O2", f"-I{headers}", f"-I{ROOT / 'core' / 'capi'}", str(source), str(library), "-ldl"]
        subprocess.run([*build, f"-Wl,-rpath,{library.parent}", "-o", str(built)], check=True)
        done = subprocess.run([str(built), *words], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{name:14} FAILED: {(done.stdout + done.stderr).strip()[-300:]}")
        return []
    return done.stdout.splitlines()


def small_copies(bench: Any) -> None:
    """The cost of one call of a copy of pinned memory: of three medians the least, and all three as `medians_ns`."""
    for line in _lines("small", _SMALL):
        nbytes, *medians = map(float, line.split())
        calls = {"driver": medians[::3], "run": medians[1::3], "copy": medians[2::3]}
        least = {f"{name}_ns": min(values) for name, values in calls.items()}
        bench.rows.append({"section": "small", "bytes": int(nbytes), **least, "medians_ns": calls})
        text = ", ".join(f"{name} {least[f'{name}_ns']:.1f} ns" for name in calls)
        print(f"small          {int(nbytes):>8} B: {text}")


def blocks_from_c(bench: Any) -> None:
    """Scattered blocks between pinned memory and the GPU, beside one copy, a loop of copies and one batch call."""
    words = [str(one) for shape in _SHAPES for one in shape]
    for line in _lines("blocks from C", _BLOCKS, str(max(3 * bench.repeats, 3)), *words):
        block, count, to_gpu, method, taken = line.split()
        nbytes, name = int(block) * int(count), f"{method.replace('_', ' ')}, to {'gpu' if to_gpu == '1' else 'host'}"
        section = f"{count} x {int(block) // _KIB} KiB from C"
        bench.add(section, name, nbytes, [float(taken) * 1e-6])
