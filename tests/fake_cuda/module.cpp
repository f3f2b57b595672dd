// Modules. The real device code is parsed for its architecture and the names of its kernels. kernels.cpp has what the
// kernels do.
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "calls.hpp"
#include "context.hpp"
#include "function.hpp"
#include "gpus.hpp"
#include "leaks.hpp"
#include "log.hpp"
#include "settings.hpp"
#include "stream.hpp"

struct CUmod_st {
  CUcontext context = nullptr;
  std::vector<std::string> kernels;
  std::vector<std::unique_ptr<CUfunc_st>> functions;
};

namespace fake {
namespace {

struct Code {
  int arch = 0;
  std::vector<std::string> kernels;
};

Live<CUmod_st>& modules() {
  static auto* live = new Live<CUmod_st>;
  return *live;
}

template <class T>
const T* at(const void* image, unsigned long long offset) {
  return reinterpret_cast<const T*>(static_cast<const char*>(image) + offset);
}

/// The position of the architecture in the header's flags depends on the ABI: 7 up to sm_90, 8 for sm_100 and later.
int arch_of(const Elf64_Ehdr& header) {
  constexpr int old_abi = 7;
  return header.e_ident[EI_ABIVERSION] <= old_abi ? header.e_flags & 0xFF : header.e_flags >> 8 & 0xFF;
}

Code read_machine_code(const void* image) {
  const auto& header = *at<Elf64_Ehdr>(image, 0);
  Code code{arch_of(header), {}};
  const auto* sections = at<Elf64_Shdr>(image, header.e_shoff);
  for (int s = 0; s < header.e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const auto* names = at<char>(image, sections[sections[s].sh_link].sh_offset);
    const auto* symbols = at<Elf64_Sym>(image, sections[s].sh_offset);
    for (std::size_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i)
      if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC) code.kernels.emplace_back(names + symbols[i].st_name);
  }
  return code;
}

Code read_ptx(const std::string& text) {
  Code code;
  constexpr const char *target = ".target sm_", *entry = ".entry ";
  if (const auto found = text.find(target); found != std::string::npos)
    code.arch = std::atoi(text.c_str() + found + std::strlen(target));
  for (auto found = text.find(entry); found != std::string::npos; found = text.find(entry, found + 1)) {
    const auto begin = found + std::strlen(entry);
    code.kernels.push_back(text.substr(begin, text.find_first_of("( \n", begin) - begin));
  }
  return code;
}

bool is_ptx(const char* text) { return *text == '/' || *text == '.'; }

/// Machine code runs on its own major version with at least its minor version. PTX runs on its architecture or later.
CUresult read(const void* image, Code& code) {
  const int gpu = settings().capability_major * 10 + settings().capability_minor;
  if (std::memcmp(image, ELFMAG, SELFMAG) == 0) {
    code = read_machine_code(image);
    return code.arch / 10 == gpu / 10 && code.arch <= gpu ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (!is_ptx(static_cast<const char*>(image))) return CUDA_ERROR_INVALID_IMAGE;
  code = read_ptx(static_cast<const char*>(image));
  if (code.arch == 0) return CUDA_ERROR_INVALID_PTX;
  return code.arch <= gpu ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

}  // namespace

void count_modules(LeakCounts& counts) { counts["modules"] += modules().size(); }

CUresult module_load_data(CUmodule* handle, const void* image) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  Code code;
  if (const CUresult status = read(image, code); status != CUDA_SUCCESS) return status;
  auto module = std::make_shared<CUmod_st>();
  module->context = current();
  module->kernels = std::move(code.kernels);
  *handle = module.get();
  modules().add(std::move(module));
  return CUDA_SUCCESS;
}

CUresult module_unload(CUmodule module) { return modules().remove(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }

CUresult module_get_function(CUfunction* function, CUmodule handle, const char* name) {
  const auto module = modules().find(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  const auto* prepare = find_kernel(name);
  if (!prepare || std::find(module->kernels.begin(), module->kernels.end(), name) == module->kernels.end())
    return CUDA_ERROR_NOT_FOUND;
  const std::lock_guard lock{global_mutex()};
  module->functions.push_back(std::make_unique<CUfunc_st>(CUfunc_st{module->context, prepare, name}));
  *function = module->functions.back().get();
  return CUDA_SUCCESS;
}

CUresult func_set_attribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > h200_shared_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  function->max_shared_bytes = value;
  return CUDA_SUCCESS;
}

CUresult launch_kernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream handle, void** parameters,
                       void** extra) {
  constexpr unsigned max_threads = 1024;
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  const unsigned long long blocks = 1ull * grid_x * grid_y * grid_z, threads = 1ull * block_x * block_y * block_z;
  if (blocks == 0 || threads == 0 || threads > max_threads || extra) return CUDA_ERROR_INVALID_VALUE;
  const auto stream = stream_of(handle);
  if (!function || !stream || stream->context != function->context) return CUDA_ERROR_INVALID_HANDLE;
  if (shared_bytes > static_cast<unsigned>(function->max_shared_bytes)) return CUDA_ERROR_INVALID_VALUE;
  log("launch", function->context,
      function->name + ' ' + std::to_string(blocks) + ' ' + std::to_string(threads) +
          (shared_bytes ? ' ' + std::to_string(shared_bytes) : ""));
  const auto launch = (*function->prepare)(function->context, parameters, static_cast<unsigned>(blocks));
  const auto number = stream->submit([launch, queue = stream->queue] {
    const std::lock_guard alone{*queue};
    run(launch);
  });
  if (settings().launch_blocking) stream->wait(number);
  return CUDA_SUCCESS;
}

}  // namespace fake
