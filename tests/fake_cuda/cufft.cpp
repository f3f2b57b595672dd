// A fake cuFFT on the fake driver: forward transforms by their definition, on the plan's stream.
#include <complex>
#include <map>
#include <numbers>

#include "library.hpp"

namespace {

struct Plan {
  int points = 0, batch = 0;
  CUstream stream = nullptr;
};

constexpr int success = 0, invalid_plan = 1, execution_failed = 6;

std::map<int, Plan>& plans() {
  static std::map<int, Plan> all;
  return all;
}

template <class T>
int transform(int number, const std::complex<T>* from, std::complex<T>* to) {
  const auto found = plans().find(number);
  if (found == plans().end()) return invalid_plan;
  const auto queued = fake_library::submit(found->second.stream, [plan = found->second, from, to](bool damaged) {
    for (int first = 0; first < plan.batch * plan.points; first += plan.points)
      for (int point = 0; point < plan.points; ++point) {
        std::complex<double> sum;
        for (int i = 0; i < plan.points; ++i)
          sum += std::polar(1.0, -2 * std::numbers::pi * (i * point % plan.points) / plan.points) *
                 std::complex<double>{from[first + i]};
        to[first + point] = std::complex<T>{sum};
      }
    if (damaged) to[0] += 1;
  });
  return queued ? success : execution_failed;
}

}  // namespace

FAKE_EXPORT int cufftPlanMany(int* plan, int, int* n, int*, int, int, int*, int, int, int, int batch) {
  static int last = 0;
  plans()[*plan = ++last] = {*n, batch, nullptr};
  return success;
}

FAKE_EXPORT int cufftDestroy(int plan) { return plans().erase(plan) ? success : invalid_plan; }

FAKE_EXPORT int cufftSetStream(int plan, CUstream stream) {
  const auto found = plans().find(plan);
  if (found == plans().end()) return invalid_plan;
  found->second.stream = stream;
  return success;
}

FAKE_EXPORT int cufftExecC2C(int plan, void* from, void* to, int) {
  return transform(plan, static_cast<std::complex<float>*>(from), static_cast<std::complex<float>*>(to));
}

FAKE_EXPORT int cufftExecZ2Z(int plan, void* from, void* to, int) {
  return transform(plan, static_cast<std::complex<double>*>(from), static_cast<std::complex<double>*>(to));
}
