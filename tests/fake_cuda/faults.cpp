#include "faults.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "context.hpp"
#include "control.hpp"
#include "settings.hpp"

namespace fake {
namespace {

std::atomic<int> sticky{CUDA_SUCCESS};
std::atomic<bool> is_initialized{false};
std::atomic<unsigned long long> hang_calls{0}, die_calls{0}, copies_begun{0}, copies_made{0}, misuses{0};

/// Writes one line for a call with the time of the worker's clock. A test sees which calls lie between two stamps, also
/// on a slow machine.
void log_call(const char* symbol) {
  static std::mutex one_at_a_time;
  const std::lock_guard held{one_at_a_time};
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  std::ofstream{settings().calls, std::ios::app} << symbol << ' ' << std::fixed << std::setprecision(9) << now.count()
                                                 << '\n';
}

/// The failure that a test planned, and the calls since.
struct Plan {
  std::mutex mutex;
  std::string symbol;
  unsigned long long after = 0, times = 0;
  CUresult error = CUDA_SUCCESS;
  std::map<std::string, unsigned long long> calls;
};
std::atomic<bool> has_plan{false};

Plan& plan() {
  static auto* made = new Plan;
  return *made;
}

CUresult planned(const char* symbol) {
  if (!has_plan) return CUDA_SUCCESS;
  const std::lock_guard held{plan().mutex};
  const auto before = plan().calls[symbol]++;
  const bool fails = plan().symbol == symbol && before >= plan().after && before - plan().after < plan().times;
  return fails ? plan().error : CUDA_SUCCESS;
}

}  // namespace

void note_misuse(const std::string& what) {
  ++misuses;
  if (settings().log.empty()) return;
  const std::lock_guard lock{global_mutex()};
  std::ofstream{settings().log, std::ios::app} << "misuse " << what << '\n';
}

namespace {

/// Calls that may be made while the thread's current context has ended: those of devices, and those that replace it.
bool needs_no_context(const std::string& symbol) {
  return symbol.starts_with("cuDevice") || symbol == "cuCtxSetCurrent" || symbol == "cuCtxGetCurrent" ||
         symbol == "cuCtxCreate";
}

}  // namespace

CUresult enter(const char* symbol) {
  if (!settings().calls.empty()) log_call(symbol);
  if (settings().hang_symbol == symbol && hang_calls++ >= settings().hang_after)
    for (;;) pause();
  if (settings().die_symbol == symbol && die_calls++ >= settings().die_after) _exit(9);
  if (const CUresult status = planned(symbol); status != CUDA_SUCCESS) return status;
  if (settings().refuse_symbol == symbol) return settings().refusal;
  const auto& when = settings().slow_while;
  if (settings().slow_symbol == symbol && (when.empty() || std::filesystem::exists(when)))
    std::this_thread::sleep_for(std::chrono::microseconds{settings().slow_us});
  if (current() && !is_context(current()) && !needs_no_context(symbol)) {
    note_misuse(std::string{symbol} + " while the current context has ended");
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
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

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void fake_cuda_fail(const char* symbol, unsigned long long after, unsigned long long times, int error) {
  const std::lock_guard held{fake::plan().mutex};
  fake::plan().symbol = symbol ? symbol : "";
  fake::plan().after = after;
  fake::plan().times = times;
  fake::plan().error = static_cast<CUresult>(error);
  fake::plan().calls.clear();
  fake::has_plan = true;
}

EXPORT unsigned long long fake_cuda_misuses() { return fake::misuses; }

EXPORT const char* fake_cuda_called(unsigned long long number) {
  const std::lock_guard held{fake::plan().mutex};
  const auto& calls = fake::plan().calls;
  return number < calls.size() ? std::next(calls.begin(), static_cast<std::ptrdiff_t>(number))->first.c_str() : nullptr;
}

EXPORT unsigned long long fake_cuda_calls(const char* symbol) {
  const std::lock_guard held{fake::plan().mutex};
  return fake::plan().calls[symbol];
}
