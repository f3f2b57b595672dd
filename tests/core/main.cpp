#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest.h>

#include <cstdlib>

#include "host/messages.hpp"

int main(int count, char** arguments) {
  // Another program may stop any thread of a test for many seconds.
  setenv("LINKSCOPE_PATIENCE", "20", 0);
  if (const int status = linkscope::answer_messages(count, arguments); status >= 0) return status;
  return doctest::Context{count, arguments}.run();
}
