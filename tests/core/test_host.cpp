#include <doctest.h>

#include <linux/mman.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "host/cpu_wait.hpp"
#include "host/dirty.hpp"
#include "host/flush.hpp"
#include "host/pages.hpp"
#include "host/parallel.hpp"
#include "host/topology.hpp"
#include "platform/cuda/contents.hpp"

using namespace linkscope;
using namespace linkscope::literals;

TEST_CASE("check_pattern accepts any range of a pattern and locates one wrong byte") {
  std::vector<u64> words(1_MiB);
  auto* bytes = reinterpret_cast<std::byte*>(words.data());
  fill_pattern(bytes, 8_MiB, 42);
  CHECK(check_pattern(bytes, 8_MiB, 42, 0).wrong == 0);
  CHECK(check_pattern(bytes + 4096, 8192, 42, 4096).wrong == 0);
  CHECK(check_pattern(bytes + 4096, 8192, 42, 0).wrong == 1024);
  CHECK(check_pattern(bytes, 8_MiB, 43, 0).wrong == 1_MiB);
  bytes[5_MiB + 3] ^= std::byte{1};
  const auto found = check_pattern(bytes, 8_MiB, 42, 0);
  CHECK(found.wrong == 1);
  CHECK(found.first == (5_MiB) / 8);
}

TEST_CASE("fill writes poison everywhere, and check_rows locates a changed byte between rows") {
  std::vector<u64> words(13'000);
  auto* bytes = reinterpret_cast<std::byte*>(words.data());
  fill(bytes, 104'000, poison);
  CHECK(std::all_of(words.begin(), words.end(), [](u64 word) { return word == poison_word; }));
  const linkscope_row_copy two_rows{104, 16, 2, {48, 2, ~0ull}, {16, 2, ~0ull}, 0, 0, 1, 42, poison_word};
  for (u64 slice = 0; slice < 1000; ++slice)
    for (u64 i = 0; i < 4; ++i) words[slice * 13 + i / 2 * 6 + i % 2] = linkscope_pattern_word(42, i);
  CHECK(check_rows(bytes, 104'000, two_rows).wrong == 0);
  bytes[99'999] = std::byte{0};
  const auto found = check_rows(bytes, 104'000, two_rows);
  CHECK((found.wrong == 1 && found.first == 99'999 / 8));
}

TEST_CASE("threads that poll for each other get CPUs of different cores, as long as there are enough") {
  std::set<int> cores;
  for (const int cpu : host_nodes()[0].cpus) cores.insert(cpus_of_core(cpu).front());
  const auto threads = static_cast<u32>(cores.size());
  std::set<int> taken;
  std::size_t dealt = 0;
  for (u32 number = 0; number < threads; ++number) {
    const auto cpus = dealt_cpus(0, number, threads);
    CHECK_FALSE(cpus.empty());
    std::set<int> own;
    for (const int cpu : cpus) own.insert(cpus_of_core(cpu).front());
    for (const int core : own) CHECK(taken.insert(core).second);
    dealt += cpus.size();
  }
  CHECK(dealt == host_nodes()[0].cpus.size());
  CHECK(dealt_cpus(0, 0, 1).size() == dealt_cpus(0, threads, threads + 1).size());
}

TEST_CASE("parallel ranges cover every byte once and start at multiples of the grain") {
  for (const u64 bytes : {u64{8}, u64{4096}, 13_MiB, 64_MiB + 8}) {
    std::vector<unsigned char> touched(bytes / 8, 0);
    parallel_ranges(bytes, 8, [&](u64 begin, u64 end) {
      CHECK(begin % 8 == 0);
      for (u64 at = begin; at < end; at += 8) ++touched[at / 8];
    });
    CHECK(std::count(touched.begin(), touched.end(), 1) == static_cast<std::ptrdiff_t>(touched.size()));
  }
}

TEST_CASE("pages are backed on the requested node, unless the kernel hides where they are") {
  HostPages pages{0, 4_MiB};
  pages.back(true);
  const auto where = page_nodes(pages.data(), pages.size());
  CHECK((where == "numa:0" || where == "hidden"));
}

TEST_CASE("a cache flush leaves the data unchanged") {
  std::vector<std::byte> bytes(1_MiB + 13, std::byte{7});
  write_again(bytes.data() + 5, 1_MiB);
  flush_cpu_caches(bytes.data() + 5, 1_MiB);
  CHECK(std::count(bytes.begin(), bytes.end(), std::byte{7}) == static_cast<std::ptrdiff_t>(bytes.size()));
  CHECK(std::strlen(cache_flush_instruction()) > 0);
}

TEST_CASE("a thread that shares its CPU with a busy one has waited for it") {
  if (!std::ifstream{"/proc/thread-self/schedstat"}) return;  // this kernel does not count
  Seconds waited{0};
  std::jthread{[&waited] {
    const int cpu = sched_getcpu();
    bind_thread_to_cpus({cpu});
    const std::jthread busy{[cpu](const std::stop_token& stop) {
      bind_thread_to_cpus({cpu});
      while (!stop.stop_requested()) continue;
    }};
    const auto before = waited_for_cpu();
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes{5};
    while (waited < Seconds{0.01} && std::chrono::steady_clock::now() < end) waited = waited_for_cpu() - before;
  }}.join();
  CHECK(waited >= Seconds{0.01});
}

TEST_CASE("writing lines back leaves the data unchanged, or the CPU is refused with the reason") {
  std::vector<std::byte> bytes(1_MiB + 13, std::byte{7});
  if (const auto why = why_no_write_back(); !why.empty()) {
    CHECK(why.find("cache=cleaned needs it") != std::string::npos);
    CHECK_THROWS_WITH_AS(write_back_cpu_caches(bytes.data(), 64), why.c_str(), Error);
    return;
  }
  write_again(bytes.data() + 5, 1_MiB);
  write_back_cpu_caches(bytes.data() + 5, 1_MiB);
  CHECK(std::count(bytes.begin(), bytes.end(), std::byte{7}) == static_cast<std::ptrdiff_t>(bytes.size()));
}

namespace {

/// Time of one load in ns: the minimum of several chases through 64 lines, which fit a small cache.
double load_ns(bool flushed) {
  constexpr std::size_t lines = 64, apart = 4096 + 64;
  static std::vector<std::byte> bytes(lines * apart);
  for (std::size_t i = 0; i < lines; ++i)
    *reinterpret_cast<std::byte**>(&bytes[i * apart]) = &bytes[(i * 37 + 1) % lines * apart];
  double least = 1e9;
  for (int attempt = 0; attempt < 200; ++attempt) {
    if (flushed) flush_cpu_caches(bytes.data(), bytes.size());
    const auto start = std::chrono::steady_clock::now();
    const std::byte* at = bytes.data();
    for (std::size_t i = 0; i < lines; ++i) at = *reinterpret_cast<const std::byte* const volatile*>(at);
    least = std::min(
        least, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / lines);
  }
  return least;
}

}  // namespace

TEST_CASE("a load from flushed memory takes more than three times the time of a load from a cache") {
  CAPTURE(cache_flush_instruction());
  const double hot = load_ns(false), cold = load_ns(true);
  CAPTURE(hot);
  CHECK(cold > 3 * hot);
}

TEST_CASE("dirtying cache lines leaves the data unchanged, and a node without a second core is reported") {
  std::vector<std::byte> bytes(1_MiB + 13, std::byte{7});
  write_again(bytes.data() + 5, 1_MiB);
  if (const auto why = why_no_other_core(0); why.empty()) {
    dirty_in_another_core(bytes.data() + 5, 1_MiB, 0);
  } else {
    CHECK(why.find("numa:0 has no second core") != std::string::npos);
    CHECK_THROWS_WITH_AS(dirty_in_another_core(bytes.data(), 64, 0), doctest::Contains("no second core"), Error);
  }
  CHECK(std::count(bytes.begin(), bytes.end(), std::byte{7}) == static_cast<std::ptrdiff_t>(bytes.size()));
}

TEST_CASE("binding a thread to a node that does not exist is an error") {
  CHECK_THROWS_WITH_AS(bind_thread_to_node(4096), doctest::Contains("numa:4096 does not exist"), Error);
  CHECK_NOTHROW(bind_thread_to_node(0));
}

TEST_CASE("the message about missing huge pages gives the command that reserves them") {
  const auto sys = std::filesystem::temp_directory_path() / ("linkscope-sys-" + std::to_string(getpid()));
  const auto write = [&](const std::filesystem::path& file, const char* text) {
    std::filesystem::create_directories((sys / file).parent_path());
    std::ofstream{sys / file} << text << "\n";
  };
  const auto why = [&](u64 bytes, PageSize page) { return why_no_pages(0, bytes, page, sys); };
  const PageSize small{2_MiB}, large{1_GiB}, transparent{2_MiB, true};
  CHECK(why(1_GiB, {}).empty());
  CHECK(why(4_MiB, small) == "this kernel has no huge pages of 2 MiB, or does not show them");
  CHECK(why(4_MiB, transparent) == "this kernel has no transparent huge pages, or does not show them");
  write("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "2");
  write("kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0");
  CHECK(why(4_MiB, small).empty());
  const auto file = (sys / "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").string();
  CHECK(why(4_MiB + 1, small) ==
        "2 huge pages of 2 MiB are reserved on numa:0, and 3 are needed; an administrator can reserve them: echo 3 > " +
            file);
  CHECK(why(8, large).find("or at boot, before memory is fragmented: hugepagesz=1G hugepages=1") != std::string::npos);
  // The count of the node has priority over the count of the machine.
  const auto of_node = "devices/system/node/node" + std::to_string(host_nodes()[0].os_index) +
                       "/hugepages/hugepages-2048kB/nr_hugepages";
  write(of_node, "1");
  CHECK(why(4_MiB, small).find("1 huge pages of 2 MiB are reserved on numa:0, and 2 are needed") == 0);
  write("kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  CHECK(why(4_MiB, transparent).find("transparent huge pages are off") == 0);
  write("kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  CHECK(why(4_MiB, transparent).empty());
  std::filesystem::remove_all(sys);
}

TEST_CASE("huge pages that cannot be allocated cause an error, not the end of the process") {
  try {
    HostPages pages{0, u64{1} << 50, {1_GiB}};  // 1 PiB: no machine reserves as much
    FAIL("a PiB of huge pages");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::memory);
    CHECK(std::string{error.what()}.find("in huge pages of 1 GiB on numa:0") != std::string::npos);
  }
}

namespace {

// True: mmap succeeds, but madvise finds no reserved huge pages left.
bool run_out = false;

}  // namespace

extern "C" {
void* __real_mmap(void* start, std::size_t bytes, int protection, int flags, int file, off_t offset);
int __real_madvise(void* start, std::size_t bytes, int advice);
void* __wrap_mmap(void* start, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  return __real_mmap(start, bytes, protection,
                     run_out ? flags & ~(MAP_HUGETLB | MAP_HUGE_MASK << MAP_HUGE_SHIFT) : flags, file, offset);
}
int __wrap_madvise(void* start, std::size_t bytes, int advice) {
  if (!run_out || advice != MADV_POPULATE_WRITE) return __real_madvise(start, bytes, advice);
  errno = ENOMEM;
  return -1;
}
}

TEST_CASE("huge pages that run out at first touch cause an error with a remedy, not the end of the process") {
  run_out = true;
  HostPages pages{0, 4_MiB, {2_MiB}};
  CHECK_THROWS_WITH_AS(pages.back(false), doctest::Contains("numa:0 has no huge pages of 2 MiB left for 4 MiB"), Error);
  CHECK_THROWS_WITH_AS(pages.back(true), doctest::Contains("reserve more there"), Error);
  run_out = false;
}
