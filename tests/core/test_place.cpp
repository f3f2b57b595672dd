#include <doctest.h>

#include "base/error.hpp"
#include "base/place.hpp"

using namespace linkscope;

TEST_CASE("a place stays the same when written as text and parsed again") {
  for (const char* text : {"numa:0", "gpu:15", "nic:3", "rank:7", "disk:/data/set.bin", "host:0/gpu:0", "host:1/gpu:0",
                           "host:2/disk:/x:y"})
    CHECK(to_string(parse_place(text)) == text);
}

TEST_CASE("the message about an invalid place names it and gives valid places") {
  for (const char* text :
       {"", "gpu", "gpu:", "gpu:-1", "gpu:x", "gpu:1x", "cpu:0", "host:1", "host:/gpu:0", "disk:", "gpu:99999999999"})
    CHECK_THROWS_WITH_AS(parse_place(text), doctest::Contains("is not a place; write numa:0, gpu:1"), Error);
}

TEST_CASE("paths are parsed in order, and the message about an invalid path names it and gives a valid path") {
  const auto paths = parse_paths("numa:0->gpu:1,host:1/gpu:2->host:1/numa:0");
  REQUIRE(paths.size() == 2);
  CHECK(paths[0] == std::pair{numa(0), gpu(1)});
  CHECK(to_string(paths[1].first) == "host:1/gpu:2");
  CHECK(to_string(paths[1].second) == "host:1/numa:0");
  for (const char* text : {"", "gpu:0", "numa:0->gpu:1,", "numa:0,gpu:1"})
    CHECK_THROWS_WITH_AS(parse_paths(text), doctest::Contains("is not a path; write numa:0->gpu:1"), Error);
  CHECK_THROWS_WITH_AS(parse_paths("numa:0->cpu:1"), doctest::Contains("'cpu:1' is not a place"), Error);
}
