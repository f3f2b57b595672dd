// A fake cuFile on the fake driver, whose memory of a GPU is memory of the host: it reads and writes as the kernel does.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <string>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Status {
  int error, cuda_error;
};

struct Description {
  int type, padding, descriptor;
};

struct File {
  int descriptor;
};

constexpr int failure = 5030;  // CU_FILE_INTERNAL_ERROR
std::string failing;           // the call that fails
std::atomic<std::size_t> most{~std::size_t{0}};
std::atomic<int> registered{0};
std::atomic<bool> is_compatible{false};

bool fails(const char* call) { return failing == call; }

/// The file without O_DIRECT, whose rules cuFile hides.
int open_again(int descriptor, bool to_write) {
  const auto path = "/proc/self/fd/" + std::to_string(descriptor);
  return open(path.c_str(), (to_write ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

Status status_of(const char* call) { return {fails(call) ? failure : 0, 0}; }

}  // namespace

/// Chooses the call that fails (null: none), the most bytes of a call, and the mode.
FAKE_EXPORT void fake_cufile_set(const char* call, std::size_t most_bytes, bool compatible) {
  failing = call ? call : "";
  most = most_bytes;
  is_compatible = compatible;
}

FAKE_EXPORT int fake_cufile_registered() { return registered; }

FAKE_EXPORT Status cuFileDriverOpen() { return status_of("cuFileDriverOpen"); }

FAKE_EXPORT Status cuFileDriverGetProperties(unsigned* properties) {
  const bool has_module = !is_compatible;
  properties[0] = has_module ? 2 : 0;
  properties[1] = has_module ? 25 : 0;
  return status_of("cuFileDriverGetProperties");
}

FAKE_EXPORT Status cuFileHandleRegister(File** file, const Description* description) {
  const auto status = status_of("cuFileHandleRegister");
  if (status.error) return status;
  *file = new File{description->descriptor};
  ++registered;
  return status;
}

FAKE_EXPORT void cuFileHandleDeregister(File* file) {
  delete file;
  --registered;
}

FAKE_EXPORT ssize_t cuFileRead(const File* file, char* memory, std::size_t bytes, off_t in_file, off_t in_memory) {
  if (fails("cuFileRead")) return -failure;
  const int buffered = open_again(file->descriptor, false);
  const ssize_t moved = pread(buffered, memory + in_memory, bytes < most ? bytes : most.load(), in_file);
  close(buffered);
  return moved;
}

FAKE_EXPORT ssize_t cuFileWrite(const File* file, const char* memory, std::size_t bytes, off_t in_file,
                                off_t in_memory) {
  if (fails("cuFileWrite")) return -failure;
  const int buffered = open_again(file->descriptor, true);
  const ssize_t moved = pwrite(buffered, memory + in_memory, bytes < most ? bytes : most.load(), in_file);
  close(buffered);
  return moved;
}
