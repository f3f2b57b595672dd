// The ways to make one copy, as rows of a table. A copy takes the first row that fits.
#pragma once
#include <optional>
#include <span>

#include "gpu/cufile.hpp"
#include "host/page_access.hpp"
#include "transfer/arena.hpp"
#include "transfer/fallbacks.hpp"
#include "transfer/gpus.hpp"
#include "transfer/hops.hpp"
#include "transfer/location.hpp"
#include "transfer/movers.hpp"
#include "transfer/options.hpp"
#include "transfer/progress.hpp"

namespace linkscope {

struct CopyRequest {
  void* dst = nullptr;
  const void* src = nullptr;
  u64 bytes = 0;
  CUstream stream = nullptr;
  bool fresh = false;  // no page of the destination was touched yet, as the caller knows
};

/// A request with the facts that decide how it is done.
struct PlannedCopy {
  CopyRequest request;
  Location dst, src;
  std::optional<CopyLane> lane;  // none: only the driver knows where the stream runs
  bool captured = false;
  bool has_unknown_order = false;  // the stream is one of a context that is not a primary one, or has no context
};

/// What copies share.
struct Resources {
  const Driver& driver;
  const Options& options;
  Gpus& gpus;
  Arena& arena;
  Movers& movers;
  Hops& hops;
  Cufile& cufile;
  Fallbacks& fallbacks;
  const PageAccess& pages;
};

struct CopyMethod {
  MethodId id;
  const char* name;
  const char* summary;
  bool (*fits)(const Resources&, const PlannedCopy&);
  void (*run)(const Resources&, const PlannedCopy&, Progress&);
};

/// All methods. The last one fits every copy.
[[nodiscard]] std::span<const CopyMethod> copy_methods();
[[nodiscard]] const CopyMethod& method_for(const Resources&, const PlannedCopy&);
/// Throws Error{usage} with all names.
[[nodiscard]] const CopyMethod& method_named(const std::string& name);
/// The length of chunks that `workers`, which are threads or paths, move at once. The first chunk delays the start and the
/// last one the end, so both are short in a short copy. A multiple of `smallest`, or a slot if that is shorter.
[[nodiscard]] u64 chunk_for(u64 bytes, const Knobs&, u64 workers, u64 slot_bytes, u64 smallest);
/// memcpy of at most `piece` bytes at a time; 0: of all.
void copy_in_pieces(std::byte* to, const std::byte* from, u64 bytes, u64 piece);
/// The driver's own copy.
void copy_plainly(const Resources&, const PlannedCopy&);

}  // namespace linkscope
