#include "transfer/trial.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <random>

#include "base/error.hpp"
#include "gpu/context.hpp"

namespace linkscope {
namespace {

/// Memory whose pages nobody has touched.
class Untouched {
 public:
  explicit Untouched(u64 bytes)
      : bytes_{bytes}, start_{mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)} {
    if (start_ == MAP_FAILED) throw Error{ErrorKind::memory, "the host has no " + bytes_text(bytes) + " left"};
  }
  ~Untouched() { munmap(start_, bytes_); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;
  [[nodiscard]] void* start() const { return start_; }

 private:
  u64 bytes_;
  void* start_;
};

Device& gpu_of(Transfers& transfers, u32 gpu) {
  const auto& driver = transfers.driver();
  if (!driver.usable()) throw Error{ErrorKind::unsupported, driver.why_not()};
  if (const auto count = transfers.gpu_facts().size(); gpu >= count)
    throw Error{ErrorKind::usage,
                "gpu:" + std::to_string(gpu) + " is not here; this process sees " + std::to_string(count) + " GPUs"};
  return transfers.gpu(gpu);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Trial::Trial(Transfers& transfers, u32 gpu, u64 bytes)
    : transfers_{transfers}, gpu_{gpu_of(transfers, gpu)}, number_{gpu}, bytes_{bytes} {
  const auto& driver = transfers_.driver();
  const CurrentContext current{driver, gpu_.context()};
  stream_ = std::make_unique<Stream>(driver);
  on_gpu_ = {driver, bytes};
  pinned_ = {driver, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP};
  pageable_.assign(bytes, std::byte{1});
}

Trial::~Trial() {
  try {
    const CurrentContext current{transfers_.driver(), gpu_.context()};
    transfers_.driver().cuStreamSynchronize(stream_->get());
    stream_.reset();
    on_gpu_.free();
    also_on_gpu_.free();
    pinned_.free();
    on_peer_.reset();
    if (!other_) return;
    const CurrentContext others{transfers_.driver(), other_->context()};
    on_other_.free();
  } catch (const Error&) {  // the driver is shutting down and has freed the memory
  }
}

void Trial::require(u64 bytes) const {
  if (bytes == 0 || bytes > bytes_)
    throw Error{ErrorKind::usage, "a trial of " + bytes_text(bytes_) + " cannot copy " + bytes_text(bytes)};
}

/// The caches must not hold the data of a copy from the copy before.
u64 Trial::next_offset(u64 bytes) {
  if (offset_ + bytes > bytes_) offset_ = 0;
  const u64 at = offset_;
  offset_ += bytes;
  return at;
}

template <class Call>
double Trial::timed(Call call) {
  const auto before = transfers_.fallbacks();
  const auto begin = std::chrono::steady_clock::now();
  call();
  stream_->synchronize();
  const Seconds taken = std::chrono::steady_clock::now() - begin;
  if (transfers_.fallbacks() != before) throw Error{ErrorKind::failed, transfers_.latest_fallback()};
  return taken.count();
}

void Trial::add_gpu(u32 gpu) {
  Device& other = gpu_of(transfers_, gpu);
  if (&other == &gpu_) throw Error{ErrorKind::usage, "a copy between GPUs needs two; name another one"};
  const CurrentContext current{transfers_.driver(), other.context()};
  on_other_ = {transfers_.driver(), bytes_};
  other_ = &other;
  other_number_ = gpu;
}

/// Allocates what only copies by this method use.
void Trial::require_memory(MethodId id) {
  if ((id == MethodId::between_gpus || id == MethodId::between_peers) && !other_)
    throw Error{ErrorKind::usage, "a copy between GPUs needs two; name another one"};
  if (id == MethodId::within_gpu && !also_on_gpu_.address()) also_on_gpu_ = {transfers_.driver(), bytes_};
  if (id != MethodId::between_peers || on_peer_) return;
  if (!transfers_.can_grant(other_number_, number_))
    throw Error{ErrorKind::unsupported, "gpu:" + std::to_string(number_) + " does not reach memory of gpu:" +
                                            std::to_string(other_number_) + " by peer access"};
  const CurrentContext current{transfers_.driver(), other_->context()};
  on_peer_ = std::make_unique<GrantedMemory>(transfers_.driver(), other_->facts().handle, gpu_.facts().handle, bytes_);
}

/// The memory of the next copy. `fresh`: its destination, unless it is null.
CopyRequest Trial::request_of(MethodId id, Way way, u64 bytes, void* fresh) {
  const u64 at = next_offset(bytes);
  void* device = reinterpret_cast<void*>(on_gpu_.address() + at);
  if (id == MethodId::between_gpus && way != Way::pinned)
    return {device, reinterpret_cast<void*>(on_other_.address() + at), bytes, stream_->get(), false};
  if (id == MethodId::within_gpu)
    return {device, reinterpret_cast<void*>(also_on_gpu_.address() + at), bytes, stream_->get(), false};
  if (id == MethodId::between_peers)
    return {device, reinterpret_cast<void*>(on_peer_->address() + at), bytes, stream_->get(), false};
  const bool to_gpu = id == MethodId::ring_to_gpu || id == MethodId::relay_to_gpu || id == MethodId::between_gpus,
             is_pinned = way == Way::pinned || id == MethodId::relay_to_gpu || id == MethodId::relay_to_host;
  void* host = fresh ? fresh : is_pinned ? pinned_.data() + at : pageable_.data() + at;
  if (to_gpu) return {device, host, bytes, stream_->get(), false};
  return {host, device, bytes, stream_->get(), fresh != nullptr};
}

double Trial::copy(MethodId id, Way way, u64 bytes, u32 repeats) {
  require(bytes);
  if (id == MethodId::host || id == MethodId::plain)
    throw Error{
        ErrorKind::usage,
        "a trial copies by ring_to_gpu, ring_to_host, ring_to_fresh, relay_to_gpu, relay_to_host, between_gpus, "
        "within_gpu or between_peers"};
  const auto& driver = transfers_.driver();
  const CurrentContext current{driver, gpu_.context()};
  require_memory(id);
  std::vector<double> seconds;
  for (u32 i = 0; i < std::max(repeats, 1u); ++i) {
    std::optional<Untouched> fresh;
    if (id == MethodId::ring_to_fresh && way != Way::pinned) fresh.emplace(bytes);
    const auto request = request_of(id, way, bytes, fresh ? fresh->start() : nullptr);
    seconds.push_back(timed([&] {
      if (way == Way::chosen) return transfers_.copy(request);
      LINKSCOPE_CU(driver, cuMemcpyAsync, reinterpret_cast<CUdeviceptr>(request.dst),
                   reinterpret_cast<CUdeviceptr>(request.src), bytes, request.stream);
    }));
  }
  return median(std::move(seconds));
}

double Trial::file(const std::string& directory, bool is_cold, u64 bytes, u32 repeats) {
  constexpr u64 most_bytes = u64{256} << 20;  // a slow disk writes more for too long
  require(bytes);
  if (!file_ || file_->directory() != directory)
    file_ = std::make_unique<TrialFile>(directory, std::min(bytes_, most_bytes));
  if (bytes > file_->bytes())
    throw Error{ErrorKind::usage, "a trial reads at most " + bytes_text(file_->bytes()) + " of a file"};
  const auto& driver = transfers_.driver();
  const CurrentContext current{driver, gpu_.context()};
  std::vector<double> seconds;
  for (u32 i = 0; i < std::max(repeats, 1u); ++i) {
    file_->prepare(is_cold, bytes);
    const FilePiece all{0, bytes, reinterpret_cast<void*>(on_gpu_.address() + next_offset(bytes))};
    seconds.push_back(timed([&] {
      ReadCounts counts;
      Progress progress;
      transfers_.read(FileReader{file_->path()}, {&all, 1}, stream_->get(), counts, progress);
    }));
  }
  return median(std::move(seconds));
}

double Trial::save(const std::string& directory, u64 bytes, u32 repeats) {
  require(bytes);
  const auto& driver = transfers_.driver();
  const CurrentContext current{driver, gpu_.context()};
  const std::string path = directory + "/linkscope-trial-" + std::to_string(getpid());
  std::vector<double> seconds;
  for (u32 i = 0; i < std::max(repeats, 1u); ++i) {
    const FileSource all{reinterpret_cast<void*>(on_gpu_.address() + next_offset(bytes)), bytes, stream_->get()};
    const auto remove = [&](void*) { unlink(path.c_str()); };
    const std::unique_ptr<void, decltype(remove)> removed{this, remove};
    seconds.push_back(timed([&] {
      WriteCounts counts;
      Progress progress;
      transfers_.save(path, {&all, 1}, true, counts, progress);
    }));
  }
  return median(std::move(seconds));
}

double Trial::blocks_of(std::byte* memory, Towards towards, u64 block_bytes, u64 count, u32 repeats) {
  if (count == 0 || block_bytes > bytes_ / count) require(0);
  require(block_bytes * count);
  const auto& driver = transfers_.driver();
  const CurrentContext current{driver, gpu_.context()};
  std::vector<u64> pages(count);
  std::iota(pages.begin(), pages.end(), u64{0});
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64{block_bytes});
  std::vector<double> seconds;
  for (u32 i = 0; i < std::max(repeats, 1u); ++i) {
    const u64 at = next_offset(block_bytes * count);
    std::vector<Block> blocks(count);
    for (u64 block = 0; block < count; ++block) {
      const u64 host = reinterpret_cast<u64>(memory + at) + block * block_bytes,
                device = on_gpu_.address() + at + pages[block] * block_bytes;
      blocks[block] = towards == Towards::gpu ? Block{device, host, block_bytes} : Block{host, device, block_bytes};
    }
    seconds.push_back(timed([&] { transfers_.copy_blocks(blocks, stream_->get()); }));
  }
  return median(std::move(seconds));
}

}  // namespace linkscope
