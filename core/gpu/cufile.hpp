// cuFile (GPUDirect Storage), found at run time: reads and writes files with memory of a GPU, past memory of the host.
#pragma once
#include <mutex>
#include <string>

#include "base/units.hpp"
#include "gpu/driver.hpp"

namespace linkscope {

class Cufile {
 public:
  Cufile() = default;
  Cufile(const Cufile&) = delete;
  Cufile& operator=(const Cufile&) = delete;

  /// Why files cannot be moved past the host; "" if they can. The first call loads the library and opens its driver. In
  /// its compatibility mode cuFile itself copies through the host: that counts as not usable.
  [[nodiscard]] const std::string& why_not();

  /// A file that is registered while this object lives. Several threads may use it at once.
  class File {
   public:
    /// `descriptor` was opened with O_DIRECT. Throws Error{failed} if cuFile is not usable or refuses the file.
    File(Cufile&, int descriptor);
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    /// Moves all bytes, without regard to streams. The context of the memory's GPU is current. Throws Error{failed}.
    void read(CUdeviceptr dst, u64 bytes, u64 offset) const;
    void write(CUdeviceptr src, u64 bytes, u64 offset) const;

   private:
    const Cufile& owner_;
    void* handle_ = nullptr;
  };

 private:
  // From cufile.h of CUDA 12 and 13.
  struct Status {
    int error, cuda_error;
  };
  struct Description {
    int type;
    union {
      int descriptor;
      void* object;
    } handle;
    const void* operations;
  };
  using Move = ssize_t (*)(void* handle, void* memory, std::size_t bytes, off_t in_file, off_t in_memory);

  void load();
  [[nodiscard]] std::string open_driver() const;
  static void move(Move, const char* call, void* handle, CUdeviceptr memory, u64 bytes, u64 offset);

  std::once_flag loaded_;
  std::string why_not_;
  Status (*driver_open_)() = nullptr;
  Status (*get_properties_)(void* properties) = nullptr;
  Status (*register_)(void** handle, Description*) = nullptr;
  void (*deregister_)(void* handle) = nullptr;
  Move read_ = nullptr, write_ = nullptr;
};

}  // namespace linkscope
