#include <doctest.h>

#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "platform/host/contents.hpp"
#include "platform/host/flush.hpp"
#include "platform/host/pages.hpp"
#include "platform/host/parallel.hpp"
#include "platform/host/topology.hpp"

using namespace linkscope;
using namespace linkscope::literals;

TEST_CASE("a pattern is found wherever it is compared, and one wrong byte is found where it is") {
  std::vector<u64> words(1_MiB);
  auto* bytes = reinterpret_cast<std::byte*>(words.data());
  fill_pattern(bytes, 8_MiB, 42);
  CHECK(check_pattern(bytes, 8_MiB, 42, 0).wrong_words == 0);
  CHECK(check_pattern(bytes + 4096, 8192, 42, 4096).wrong_words == 0);
  CHECK(check_pattern(bytes + 4096, 8192, 42, 0).wrong_words == 1024);
  CHECK(check_pattern(bytes, 8_MiB, 43, 0).wrong_words == 1_MiB);
  bytes[5_MiB + 3] ^= std::byte{1};
  const auto found = check_pattern(bytes, 8_MiB, 42, 0);
  CHECK(found.wrong_words == 1);
  CHECK(found.first_word == (5_MiB) / 8);
}

TEST_CASE("poison is everywhere and counted where it is gone") {
  std::vector<std::byte> bytes(100'003);
  fill(bytes.data(), bytes.size(), poison);
  CHECK(count_unpoisoned(bytes.data(), bytes.size()) == 0);
  bytes[99'999] = std::byte{0};
  CHECK(count_unpoisoned(bytes.data(), bytes.size()) == 1);
}

TEST_CASE("parallel ranges cover every byte once, in grains") {
  for (const u64 bytes : {u64{8}, u64{4096}, 13_MiB, 64_MiB + 8}) {
    std::vector<unsigned char> touched(bytes / 8, 0);
    parallel_ranges(bytes, 8, [&](u64 begin, u64 end) {
      CHECK(begin % 8 == 0);
      for (u64 at = begin; at < end; at += 8) ++touched[at / 8];
    });
    CHECK(std::count(touched.begin(), touched.end(), 1) == static_cast<std::ptrdiff_t>(touched.size()));
  }
}

TEST_CASE("pages are backed and on the node that was asked for, or the kernel hides it") {
  const HostPages pages{0, 4_MiB};
  const auto where = page_nodes(pages.data(), pages.size());
  CHECK((where == "numa:0" || where == "hidden"));
}

TEST_CASE("a flush leaves the data as it was") {
  std::vector<std::byte> bytes(1_MiB + 13, std::byte{7});
  flush_cpu_caches(bytes.data() + 5, 1_MiB);
  CHECK(std::count(bytes.begin(), bytes.end(), std::byte{7}) == static_cast<std::ptrdiff_t>(bytes.size()));
  CHECK(std::strlen(cache_flush_instruction()) > 0);
}

TEST_CASE("a thread cannot be bound to a node that is not here") {
  CHECK_THROWS_WITH_AS(bind_thread_to_node(4096), doctest::Contains("numa:4096 is not here"), Error);
  CHECK_NOTHROW(bind_thread_to_node(0));
}
