#include "faults.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <mutex>
#include <thread>

#include "settings.hpp"

namespace fake {
namespace {

std::atomic<int> sticky{CUDA_SUCCESS};
std::atomic<bool> is_initialized{false};
std::atomic<unsigned long long> hang_calls{0}, die_calls{0}, copies_begun{0}, copies_made{0};

/// Writes one line for a call with the time of the worker's clock. A test sees which calls lie between two stamps, also
/// on a slow machine.
void log_call(const char* symbol) {
  static std::mutex one_at_a_time;
  const std::lock_guard held{one_at_a_time};
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  std::ofstream{settings().calls, std::ios::app} << symbol << ' ' << std::fixed << std::setprecision(9) << now.count()
                                                 << '\n';
}

}  // namespace

CUresult enter(const char* symbol) {
  if (!settings().calls.empty()) log_call(symbol);
  if (settings().hang_symbol == symbol && hang_calls++ >= settings().hang_after)
    for (;;) pause();
  if (settings().die_symbol == symbol && die_calls++ >= settings().die_after) _exit(9);
  if (settings().refuse_symbol == symbol) return settings().refusal;
  const auto& when = settings().slow_while;
  if (settings().slow_symbol == symbol && (when.empty() || std::filesystem::exists(when)))
    std::this_thread::sleep_for(std::chrono::microseconds{settings().slow_us});
  return lost();
}

void lose(CUresult error) {
  int none = CUDA_SUCCESS;
  sticky.compare_exchange_strong(none, error);  // the first error stays
}

CUresult lost() { return static_cast<CUresult>(sticky.load()); }

void set_initialized() { is_initialized = true; }
bool initialized() { return is_initialized; }

Delivers begin_copy() {
  const auto number = ++copies_begun;
  if (settings().copy_us) std::this_thread::sleep_for(std::chrono::microseconds{settings().copy_us});
  if (settings().overrun.contain(number)) return Delivers::one_byte_more;
  if (settings().skip.contain(number)) return Delivers::nothing;
  return settings().corrupt.contain(number) ? Delivers::one_wrong_byte : Delivers::all;
}

void end_copy() {
  if (++copies_made >= settings().lost_after) lose(settings().lost_error);
}

}  // namespace fake
