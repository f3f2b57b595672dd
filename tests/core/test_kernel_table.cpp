// The table of kernels: one row for each identity, traits that agree with each other, and programs whose kernels do not
// state the traffic of their row.
#include <doctest.h>

#include <set>
#include <string>

#include "base/error.hpp"
#include "sim_testing.hpp"

using namespace linkscope;
using namespace linkscope::literals;
using namespace linkscope::testing;

namespace {

using Names = std::set<std::string>;

/// The names of all kernels with a trait.
template <class Trait>
Names kernels_with(Trait trait) {
  Names names;
  for (const auto& row : kernels())
    if (trait(row)) names.insert(row.name);
  return names;
}

/// A program of one kernel with that many accesses.
Program program_of(KernelId id, u32 accesses) {
  Program p;
  p.regions = {{gpu(0), MemKind::device, 4_KiB, Content::pattern}};
  Kernel kernel{id, {1, 32}, 0, {}};
  for (u32 i = 0; i < accesses; ++i) kernel.traffic.push_back({{0, 0, 512, 512, 1}});
  p.actors = {{gpu(0), ActorKind::stream, Clock::event, {}, 0, {}, {kernel}}};
  p.flows = {{0, gpu(0), gpu(0), MemKind::device, MemKind::device, 512}};
  return p;
}

}  // namespace

TEST_CASE("each kernel has one row, and its name leads back to it") {
  std::set<KernelId> ids;
  Names names;
  for (const auto& row : kernels()) {
    ids.insert(row.id);
    names.insert(row.name);
    CHECK(&traits_of(row.id) == &row);
    CHECK(to_string(row.id) == row.name);
  }
  CHECK(ids.size() == kernels().size());
  CHECK(names == Names{"read", "write", "exchange", "add", "add_chain", "chase", "touch", "touch_chain"});
}

TEST_CASE("each trait holds for the kernels that it describes") {
  using Row = KernelTraits;
  CHECK(kernels_with([](const Row& row) { return row.by_cpu_thread; }) ==
        Names{"add", "chase", "touch", "touch_chain"});
  CHECK(kernels_with([](const Row& row) { return row.atomic; }) == Names{"add", "add_chain"});
  CHECK(kernels_with([](const Row& row) { return row.follows_chain; }) == Names{"chase", "touch_chain"});
  CHECK(kernels_with([](const Row& row) { return row.touches_pages; }) == Names{"touch", "touch_chain"});
  CHECK(kernels_with([](const Row& row) { return row.all_bytes; }) == Names{"read", "write"});
  CHECK(kernels_with([](const Row& row) { return row.in_pairs; }) == Names{"exchange"});
  CHECK(kernels_with([](const Row& row) { return row.on_chosen_sm; }) == Names{"chase"});
  CHECK(kernels_with([](const Row& row) { return row.proof == Proof::sum; }) == Names{"read", "touch"});
  CHECK(kernels_with([](const Row& row) { return row.proof == Proof::contents; }) == Names{"write", "exchange"});
  CHECK(kernels_with([](const Row& row) { return row.proof == Proof::additions; }) == Names{"add", "add_chain"});
  CHECK(kernels_with([](const Row& row) { return row.proof == Proof::position; }) == Names{"chase", "touch_chain"});
}

TEST_CASE("traits of a kernel that describe the same fact agree") {
  for (const auto& row : kernels()) {
    CAPTURE(row.name);
    CHECK(row.accesses >= 1);
    CHECK(row.in_pairs == (row.accesses > 1));
    CHECK(row.accesses % (row.in_pairs ? 2 : 1) == 0);
    CHECK(row.atomic == (row.proof == Proof::additions));
    CHECK(row.follows_chain == (row.proof == Proof::position));
    if (row.on_chosen_sm) CHECK(row.follows_chain);
    CHECK_FALSE((row.all_bytes && row.touches_pages));
  }
}

TEST_CASE("a kernel without traffic is refused by name") {
  for (const auto& row : kernels()) {
    const auto program = program_of(row.id, 0);
    const std::string words = std::string{"the kernel '"} + row.name + "' states no traffic";
    CHECK_THROWS_WITH_AS(validate(program), doctest::Contains(("program: actor a0 loop: " + words).c_str()), Error);
    CHECK(make_sim(toy(), 1)->supports(program).why_not.find(words) == 0);
  }
}

TEST_CASE("a kernel that does not state all its accesses is refused with their number") {
  CHECK_THROWS_WITH_AS(validate(program_of(KernelId::exchange, 3)),
                       "program: actor a0 loop: the kernel 'exchange' states 3 accesses, and it has 4", Error);
  CHECK_THROWS_WITH_AS(validate(program_of(KernelId::read, 2)),
                       "program: actor a0 loop: the kernel 'read' states 2 accesses, and it has 1", Error);
  for (const auto& row : kernels()) CHECK_NOTHROW(validate(program_of(row.id, row.accesses)));
}

TEST_CASE("the text of a program shows its kernels by name") {
  for (const auto& row : kernels())
    CHECK(to_text(program_of(row.id, 1)).find(std::string{"kernel "} + row.name + " <1, 32>") != std::string::npos);
}
