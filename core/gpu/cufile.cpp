#include "gpu/cufile.hpp"

#include <dlfcn.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace linkscope {
namespace {

constexpr int success = 0, opaque_descriptor = 1;  // CU_FILE_SUCCESS, CU_FILE_HANDLE_TYPE_OPAQUE_FD

/// The start of CUfileDrvProps_t. The library writes the whole of it, which later versions may extend.
struct Properties {
  unsigned nvfs_major, nvfs_minor;
  std::array<std::byte, 1024> others;
};

std::string refused(const char* call, int error) {
  return std::string{call} + ": cuFile reports error " + std::to_string(error);
}

}  // namespace

const std::string& Cufile::why_not() {
  std::call_once(loaded_, [this] { load(); });
  return why_not_;
}

void Cufile::load() {
  void* library = nullptr;
  for (const char* name : {"libcufile.so.0", "libcufile.so"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    why_not_ = "cuFile is not here: libcufile.so.0 cannot be loaded";
    return;
  }
  const auto fetch = [&]<class Function>(Function& target, const char* name) {
    target = reinterpret_cast<Function>(dlsym(library, name));
    if (!target && why_not_.empty()) why_not_ = std::string{"cuFile lacks "} + name;
  };
  fetch(driver_open_, "cuFileDriverOpen");
  fetch(get_properties_, "cuFileDriverGetProperties");
  fetch(register_, "cuFileHandleRegister");
  fetch(deregister_, "cuFileHandleDeregister");
  fetch(read_, "cuFileRead");
  fetch(write_, "cuFileWrite");
  if (why_not_.empty()) why_not_ = open_driver();
}

/// The driver stays open to the end of the process, which closes it: the application may use it too.
std::string Cufile::open_driver() const {
  if (const auto status = driver_open_(); status.error != success) return refused("cuFileDriverOpen", status.error);
  Properties properties{};
  if (const auto status = get_properties_(&properties); status.error != success)
    return refused("cuFileDriverGetProperties", status.error);
  if (properties.nvfs_major == 0 && properties.nvfs_minor == 0)
    return "cuFile is in its compatibility mode: the kernel module nvidia-fs is not loaded";
  return "";
}

Cufile::File::File(Cufile& owner, int descriptor) : owner_{owner} {
  if (!owner.why_not().empty()) throw Error{ErrorKind::failed, owner.why_not()};
  if (descriptor < 0) throw Error{ErrorKind::failed, "the file system refuses O_DIRECT, which cuFile needs"};
  Description description{};
  description.type = opaque_descriptor;
  description.handle.descriptor = descriptor;
  if (const auto status = owner.register_(&handle_, &description); status.error != success)
    throw Error{ErrorKind::failed, refused("cuFileHandleRegister", status.error)};
}

Cufile::File::~File() { owner_.deregister_(handle_); }

void Cufile::File::read(CUdeviceptr dst, u64 bytes, u64 offset) const {
  move(owner_.read_, "cuFileRead", handle_, dst, bytes, offset);
}

void Cufile::File::write(CUdeviceptr src, u64 bytes, u64 offset) const {
  move(owner_.write_, "cuFileWrite", handle_, src, bytes, offset);
}

void Cufile::move(Move call, const char* name, void* handle, CUdeviceptr memory, u64 bytes, u64 offset) {
  for (u64 done = 0; done < bytes;) {
    const ssize_t moved =
        call(handle, reinterpret_cast<void*>(memory + done), bytes - done, static_cast<off_t>(offset + done), 0);
    if (moved > 0) {
      done += static_cast<u64>(moved);
      continue;
    }
    if (moved == -1) throw Error{ErrorKind::failed, std::string{name} + ": " + std::strerror(errno)};
    if (moved < 0) throw Error{ErrorKind::failed, refused(name, static_cast<int>(-moved))};
    throw Error{ErrorKind::failed, std::string{name} + " moved nothing at byte " + std::to_string(offset + done)};
  }
}

}  // namespace linkscope
