// The executors of kernels on this machine: every kernel has one for each of its forms.
#include <doctest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "platform/cuda/device_code.hpp"
#include "platform/cuda/kernel_executors.hpp"
#include "platform/cuda/steps.hpp"

using namespace linkscope;

namespace {

Kernel kernel_of(KernelId id) {
  return {id, {1, 32}, 0, std::vector<Access>(traits_of(id).accesses, Access{{0, 0, 512, 512, 1}})};
}

/// Whether the code has this name, and not only a longer one.
bool contains(const DeviceCode& code, std::string_view name) {
  const std::string_view all{reinterpret_cast<const char*>(code.begin),
                             static_cast<std::size_t>(code.end - code.begin)};
  for (auto at = all.find(name); at != std::string_view::npos; at = all.find(name, at + 1)) {
    const auto end = at + name.size();
    const bool longer = end < all.size() && (std::isalnum(static_cast<unsigned char>(all[end])) || all[end] == '_');
    if (!longer) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("each kernel has one executor for every form, after those for some forms") {
  for (const auto& kernel : kernels()) {
    CAPTURE(kernel.name);
    const auto rows = kernel_executors();
    const auto of_kernel = [&](const KernelExecutor& row) { return row.id == kernel.id; };
    CHECK(std::count_if(rows.begin(), rows.end(),
                        [&](const KernelExecutor& row) { return of_kernel(row) && !row.fits; }) == 1);
    const auto last = std::find_if(rows.rbegin(), rows.rend(), of_kernel);
    CHECK((last != rows.rend() && !last->fits));
    CHECK(executor_of(kernel_of(kernel.id)).id == kernel.id);
  }
}

TEST_CASE("an executor can queue and check its kernel, and does it on a CPU if the kernel's row says so") {
  for (const auto& row : kernel_executors()) {
    CAPTURE(row.function);
    CHECK((row.queue != nullptr));
    CHECK((row.add_checks != nullptr));
    if (row.do_on_cpu) CHECK(traits_of(row.id).by_cpu_thread);
  }
  for (const auto& kernel : kernels()) {
    CAPTURE(kernel.name);
    CHECK((executor_of(kernel_of(kernel.id)).do_on_cpu != nullptr) == kernel.by_cpu_thread);
    CHECK(why_no_step(kernel_of(kernel.id), ActorKind::stream).empty());
    CHECK(why_no_step(kernel_of(kernel.id), ActorKind::cpu_thread).empty() == kernel.by_cpu_thread);
  }
  CHECK(why_no_step(kernel_of(KernelId::read), ActorKind::cpu_thread) ==
        "a cpu_thread cannot run the kernel 'read' here");
}

TEST_CASE("the form of a kernel decides which device function runs") {
  const auto function = [](const Kernel& kernel) { return std::string{executor_of(kernel).function}; };
  for (const KernelId id : {KernelId::read, KernelId::write}) {
    auto kernel = kernel_of(id);
    const auto usual = std::string{"linkscope_"} + to_string(id);
    CHECK(function(kernel) == usual);
    kernel.traffic[0].stride = 4096;
    CHECK(function(kernel) == usual + "_lines");
  }
  auto chase = kernel_of(KernelId::chase);
  CHECK(function(chase) == "linkscope_chase");
  chase.sm = 0;
  CHECK(function(chase) == "linkscope_chase_on");
  auto touch = kernel_of(KernelId::touch);
  CHECK(function(touch) == "linkscope_touch_read");
  touch.traffic[0].dir = Access::Dir::write;
  CHECK(function(touch) == "linkscope_touch_write");
}

TEST_CASE("the device code of a kernel's module holds the functions of its executors") {
  for (const auto& row : kernel_executors()) {
    CAPTURE(row.function);
    std::size_t codes = 0;
    for (const auto& code : device_codes()) {
      if (std::string_view{code.module} != traits_of(row.id).module) continue;
      ++codes;
      CHECK(contains(code, row.function));
    }
    CHECK(codes > 0);
  }
}
