#include "settings.hpp"

#include <algorithm>
#include <tuple>

#include "environment.hpp"
#include "gpus.hpp"

namespace fake {
namespace {

constexpr const char* visible_name = "CUDA_VISIBLE_DEVICES";

/// The real driver's rule: ordinals or UUIDs; the first unknown entry hides itself and all later entries.
std::vector<int> visible_gpus(int count) {
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back(i);
  if (!std::getenv(visible_name)) return all;
  std::vector<int> visible;
  std::istringstream stream{text(visible_name)};
  for (std::string item; std::getline(stream, item, ',');) {
    int found = -1;
    for (const int i : all)
      if (item == std::to_string(i) || item == uuid_text(buses[static_cast<std::size_t>(i)])) found = i;
    if (found < 0) break;
    visible.push_back(found);
  }
  return visible;
}

void read_mode(Settings& s) {
  constexpr const char* name = "FAKE_CUDA_MODE";
  const auto [mode, gpu] = with_number(name, text(name, "default"), never);
  s.mode_gpu = gpu;
  s.held_by_another = mode == "exclusive";
  if (mode == "exclusive" || mode == "exclusive-free") s.mode = CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
  else if (mode == "prohibited") s.mode = CU_COMPUTEMODE_PROHIBITED;
  else if (mode != "default") refuse(name, mode, "default, exclusive, exclusive-free or prohibited");
}

/// "n": the nth copy; "n+": the nth and all later copies; "n+m": the nth and every mth after it.
Copies read_copies(const char* name) {
  auto value = text(name);
  if (value.empty()) return {};
  Copies copies;
  if (const auto plus = value.find('+'); plus != std::string::npos && plus + 1 < value.size()) {
    copies.step = to_number(name, value.substr(plus + 1));
    if (copies.step == 0) refuse(name, value, "n+m with m of at least 1");
    value.erase(plus + 1);
  }
  const bool onwards = value.back() == '+';
  if (onwards) value.pop_back();
  copies.first = to_number(name, value);
  copies.last = onwards ? never : copies.first;
  return copies;
}

void read_lost(Settings& s) {
  constexpr const char* name = "FAKE_CUDA_LOST_AFTER";
  if (text(name).empty()) return;
  const auto [after, error] = with_number(name, text(name), static_cast<unsigned long long>(s.lost_error));
  s.lost_after = to_number(name, after);
  s.lost_error = static_cast<CUresult>(error);
}

Settings read() {
  Settings s;
  s.version = static_cast<int>(number("FAKE_CUDA_VERSION", 13000));
  if (s.version < 12000)
    refuse("FAKE_CUDA_VERSION", std::to_string(s.version), "12000 or more (the library in old/ plays an older one)");
  const auto gpus = number("FAKE_CUDA_GPUS", 2);
  if (gpus > max_gpus) refuse("FAKE_CUDA_GPUS", std::to_string(gpus), "a number up to 8");
  s.visible = visible_gpus(static_cast<int>(gpus));
  const auto capability = number("FAKE_CUDA_CAPABILITY", 90);
  s.capability_major = static_cast<int>(capability / 10);
  s.capability_minor = static_cast<int>(capability % 10);
  s.missing = list("FAKE_CUDA_MISSING");
  s.memory_bytes = number("FAKE_CUDA_MEMORY", h200_bytes);
  s.pinned_bytes = number("FAKE_CUDA_PINNED", never);
  s.init = static_cast<CUresult>(number("FAKE_CUDA_INIT", 0));
  read_mode(s);
  read_lost(s);
  s.corrupt = read_copies("FAKE_CUDA_CORRUPT");
  s.skip = read_copies("FAKE_CUDA_SKIP");
  s.overrun = read_copies("FAKE_CUDA_OVERRUN");
  std::tie(s.slow_symbol, s.slow_us) = with_number("FAKE_CUDA_SLOW", text("FAKE_CUDA_SLOW"), 0);
  s.slow_while = text("FAKE_CUDA_SLOW_WHILE");
  s.copy_us = number("FAKE_CUDA_COPY_US", 0);
  s.late_us = number("FAKE_CUDA_LATE_US", 0);
  std::tie(s.slow_contexts, s.extra_us) = with_number("FAKE_CUDA_SLOW_CONTEXTS", text("FAKE_CUDA_SLOW_CONTEXTS"), 0);
  if (s.slow_contexts.find_first_not_of("x.") != std::string::npos)
    refuse("FAKE_CUDA_SLOW_CONTEXTS", s.slow_contexts, "of x and .");
  std::tie(s.hang_symbol, s.hang_after) = with_number("FAKE_CUDA_HANG", text("FAKE_CUDA_HANG"), 0);
  unsigned long long refusal = CUDA_ERROR_NOT_PERMITTED;
  std::tie(s.refuse_symbol, refusal) = with_number("FAKE_CUDA_REFUSE", text("FAKE_CUDA_REFUSE"), refusal);
  s.refusal = static_cast<CUresult>(refusal);
  std::tie(s.die_symbol, s.die_after) = with_number("FAKE_CUDA_DIE", text("FAKE_CUDA_DIE"), 0);
  s.no_posix_fd = flag("FAKE_CUDA_NO_POSIX_FD");
  s.private_shares = flag("FAKE_CUDA_PRIVATE_SHARES");
  s.no_peer = flag("FAKE_CUDA_NO_PEER");
  s.lying_peer = flag("FAKE_CUDA_LYING_PEER");
  s.hmm = flag("FAKE_CUDA_HMM");
  s.held_sm = number("FAKE_CUDA_HELD_SM", never);
  s.staging_bytes = number("FAKE_CUDA_STAGING", never);
  s.staging_while = text("FAKE_CUDA_STAGING_WHILE");
  s.launch_blocking = flag("CUDA_LAUNCH_BLOCKING");
  s.queues = std::clamp(number("CUDA_DEVICE_MAX_CONNECTIONS", s.queues), 1ull, 32ull);
  s.log = text("FAKE_CUDA_LOG");
  s.calls = text("FAKE_CUDA_CALLS");
  s.stamps = text("FAKE_CUDA_STAMPS");
  return s;
}

}  // namespace

const Settings& settings() {
  static const Settings* kept = new Settings{read()};  // never destroyed, because stream threads outlive main
  return *kept;
}

}  // namespace fake
