#include "mpi/world.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <variant>

namespace linkscope {
namespace {

[[noreturn]] void unusable(const std::string& library, const std::string& why) {
  throw Error{ErrorKind::unsupported, "the MPI library " + library + " cannot be used: " + why};
}

/// A symbol that only Open MPI has.
constexpr const char* of_open_mpi = "ompi_mpi_comm_world";

class Library {
 public:
  explicit Library(const std::string& name) : name_{name} {
    // Never unloaded. In the global scope, MPICH's own UCX would take the calls of NIXL's plugin, which brings another one.
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) unusable(name, dlerror());
    // Open MPI's components look for its symbols in the global scope.
    if (find(of_open_mpi)) (void)dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
  [[nodiscard]] std::string path() const {
    const link_map* map = nullptr;
    return dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map ? map->l_name : name_;
  }
  [[nodiscard]] void* find(const char* symbol) const { return dlsym(handle_, symbol); }
  template <class Function>
  void get(Function*& into, const char* symbol) const {
    into = reinterpret_cast<Function*>(find(symbol));
    if (!into) unusable(name_, std::string{"it has no "} + symbol);
  }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
  void* handle_ = nullptr;
};

std::string version_text(const Library& library) {
  int (*version)(char*, int*) = nullptr;
  library.get(version, "MPI_Get_library_version");
  std::array<char, 8192> text{};
  int length = 0;
  (void)version(text.data(), &length);
  const std::string all{text.data()};
  auto line = all.substr(0, all.find('\n'));
  std::replace(line.begin(), line.end(), '\t', ' ');
  const auto blanks = std::unique(line.begin(), line.end(), [](char a, char b) { return a == ' ' && b == ' '; });
  line.erase(blanks, line.end());  // MPICH: "MPICH Version:      5.0.2"
  return line;
}

template <class Handle>
void load_calls(const Library& library, MpiBinding<Handle>& mpi) {
  library.get(mpi.init_thread, "MPI_Init_thread");
  library.get(mpi.finalize, "MPI_Finalize");
  library.get(mpi.set_errhandler, "MPI_Comm_set_errhandler");
  library.get(mpi.rank, "MPI_Comm_rank");
  library.get(mpi.size, "MPI_Comm_size");
  library.get(mpi.version, "MPI_Get_version");
  library.get(mpi.bcast, "MPI_Bcast");
  library.get(mpi.all_reduce, "MPI_Allreduce");
  library.get(mpi.all_gather, "MPI_Allgather");
  library.get(mpi.reduce_scatter, "MPI_Reduce_scatter_block");
  library.get(mpi.reduce, "MPI_Reduce");
  library.get(mpi.all_to_all, "MPI_Alltoall");
  library.get(mpi.send, "MPI_Send");
  library.get(mpi.receive, "MPI_Recv");
  library.get(mpi.start_send, "MPI_Isend");
  library.get(mpi.start_receive, "MPI_Irecv");
  library.get(mpi.wait_all, "MPI_Waitall");
  library.get(mpi.error_text, "MPI_Error_string");
  mpi.gpu_support = reinterpret_cast<int (*)()>(library.find("MPIX_Query_cuda_support"));
}

using ByNumber = MpiBinding<int>;
using ByAddress = MpiBinding<void*>;
using AnyBinding = std::variant<ByNumber, ByAddress>;

ByAddress open_mpi(const Library& library) {
  ByAddress mpi;
  load_calls(library, mpi);
  mpi.world = library.find(of_open_mpi);
  mpi.byte = library.find("ompi_mpi_byte");
  mpi.errors_return = library.find("ompi_mpi_errors_return");
  mpi.sum = library.find("ompi_mpi_op_sum");
  mpi.float32 = library.find("ompi_mpi_float");
  mpi.float64 = library.find("ompi_mpi_double");
  mpi.unsigned32 = library.find("ompi_mpi_unsigned");
  mpi.in_place = reinterpret_cast<void*>(std::uintptr_t{1});  // NOLINT(performance-no-int-to-ptr): MPI_IN_PLACE
  mpi.serialized = 2;
  if (!mpi.byte || !mpi.errors_return || !mpi.sum || !mpi.float32 || !mpi.float64 || !mpi.unsigned32)
    unusable(library.name(), "it lacks symbols of Open MPI");
  return mpi;
}

/// The standard binary interface of MPI 5.
ByAddress standard_abi(const Library& library) {
  const auto constant = [](std::uintptr_t value) {
    return reinterpret_cast<void*>(value);  // NOLINT(performance-no-int-to-ptr): the standard's handles
  };
  ByAddress mpi;
  load_calls(library, mpi);
  mpi.world = constant(0x101);
  mpi.byte = constant(0x247);
  mpi.errors_return = constant(0x143);
  mpi.sum = constant(0x21);
  mpi.float32 = constant(0x210);
  mpi.float64 = constant(0x214);
  mpi.unsigned32 = constant(0x20d);
  mpi.in_place = constant(1);
  mpi.serialized = 2048;
  return mpi;
}

ByNumber mpich(const Library& library) {
  ByNumber mpi;
  load_calls(library, mpi);
  mpi.world = 0x44000000;
  mpi.byte = 0x4c00010d;
  mpi.errors_return = 0x54000001;
  mpi.sum = 0x58000003;
  mpi.float32 = 0x4c00040a;
  mpi.float64 = 0x4c00080b;
  mpi.unsigned32 = 0x4c000406;
  mpi.in_place = reinterpret_cast<void*>(~std::uintptr_t{0});  // NOLINT(performance-no-int-to-ptr): MPI_IN_PLACE
  mpi.no_status = reinterpret_cast<void*>(std::uintptr_t{1});  // NOLINT(performance-no-int-to-ptr): MPI_STATUS_IGNORE
  mpi.serialized = 2;
  return mpi;
}

AnyBinding binding_of(const Library& library, const std::string& version) {
  if (library.find(of_open_mpi)) return open_mpi(library);
  if (std::filesystem::path{library.path()}.filename().string().starts_with("libmpi_abi."))
    return standard_abi(library);
  for (const char* kin : {"MPICH", "Intel(R) MPI", "MVAPICH", "CRAY MPI"})
    if (version.find(kin) != std::string::npos) return mpich(library);
  unusable(library.name(), "its binary interface is unknown, it calls itself '" + version + "'");
}

}  // namespace

struct MpiWorld::Impl {
  explicit Impl(const std::string& name)
      : library{name}, version{version_text(library)}, binding{binding_of(library, version)} {}

  template <class Call>
  decltype(auto) with(Call call) {
    return std::visit(call, binding);
  }
  Library library;
  std::string version;
  AnyBinding binding;
  MpiFacts facts;
};

MpiWorld::MpiWorld(const std::string& library) : impl_{std::make_unique<Impl>(library)} {
  auto& facts = impl_->facts;
  facts.library = impl_->version;
  facts.path = impl_->library.path();
  impl_->with([&](const auto& mpi) {
    int granted = 0, rank = 0, size = 1, major = 0, minor = 0;
    // One thread at a time: that of the actor with the messages, or the main thread.
    mpi.check(mpi.init_thread(nullptr, nullptr, mpi.serialized, &granted), "MPI_Init_thread");
    if (granted < mpi.serialized) unusable(library, "it lets only the thread call it that initialized it");
    mpi.check(mpi.set_errhandler(mpi.world, mpi.errors_return), "MPI_Comm_set_errhandler");
    mpi.check(mpi.rank(mpi.world, &rank), "MPI_Comm_rank");
    mpi.check(mpi.size(mpi.world, &size), "MPI_Comm_size");
    mpi.check(mpi.version(&major, &minor), "MPI_Get_version");
    facts.rank = static_cast<u32>(rank);
    facts.size = static_cast<u32>(size);
    facts.standard = std::to_string(major) + "." + std::to_string(minor);
    if (!mpi.gpu_support) facts.why_not_gpu = "it cannot be asked for GPU support (MPIX_Query_cuda_support)";
    else if (mpi.gpu_support() == 0) facts.why_not_gpu = "it has no GPU support (MPIX_Query_cuda_support says 0)";
  });
}

MpiWorld::~MpiWorld() = default;

const MpiFacts& MpiWorld::facts() const { return impl_->facts; }

std::vector<std::string> MpiWorld::share(const std::string& text) {
  return impl_->with([&](const auto& mpi) {
    std::vector<std::string> texts(impl_->facts.size);
    texts[impl_->facts.rank] = text;
    for (u32 from = 0; from < impl_->facts.size; ++from) {
      u64 bytes = texts[from].size();
      mpi.check(mpi.bcast(&bytes, sizeof bytes, mpi.byte, static_cast<int>(from), mpi.world), "MPI_Bcast");
      texts[from].resize(bytes);
      mpi.check(mpi.bcast(texts[from].data(), static_cast<int>(bytes), mpi.byte, static_cast<int>(from), mpi.world),
                "MPI_Bcast");
    }
    return texts;
  });
}

void MpiWorld::exchange(std::span<const RankPost> posts, u32 window, u64 first, u64 count) const {
  impl_->with([&](const auto& mpi) {
    if (window) mpi.exchange_in_windows(posts, window, first, count);
    else mpi.exchange(posts, first, count);
  });
}

void MpiWorld::send_ahead(const RankPost& post, u64 iteration, u32 ahead) const {
  impl_->with([&](auto& mpi) { mpi.send_ahead(post, iteration, ahead); });
}

void MpiWorld::finish_sends(u32 most) const {
  impl_->with([&](auto& mpi) { mpi.finish_sends(most); });
}

void MpiWorld::run(const MpiCollective& collective, u64 first, u64 count) const {
  impl_->with([&](const auto& mpi) {
    for (u64 i = first; i < first + count; ++i) mpi.run(collective, static_cast<int>(impl_->facts.size), i);
  });
}

void MpiWorld::end() {
  impl_->with([](const auto& mpi) { mpi.check(mpi.finalize(), "MPI_Finalize"); });
}

}  // namespace linkscope
