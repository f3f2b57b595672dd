#include <doctest.h>

#include "base/error.hpp"
#include "base/place.hpp"

using namespace linkscope;

TEST_CASE("places survive text and back") {
  for (const char* text : {"numa:0", "gpu:15", "nic:3", "rank:7", "disk:/data/set.bin", "host:0/gpu:0", "host:1/gpu:0", "host:2/disk:/x:y"})
    CHECK(to_string(parse_place(text)) == text);
}

TEST_CASE("what is no place is named, with the cure") {
  for (const char* text : {"", "gpu", "gpu:", "gpu:-1", "gpu:x", "gpu:1x", "cpu:0", "host:1", "host:/gpu:0", "disk:", "gpu:99999999999"})
    CHECK_THROWS_WITH_AS(parse_place(text), doctest::Contains("is not a place; write numa:0, gpu:1"), Error);
}
