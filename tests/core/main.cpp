#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest.h>

#include "host/messages.hpp"

int main(int count, char** arguments) {
  if (const int status = linkscope::answer_messages(count, arguments); status >= 0) return status;
  return doctest::Context{count, arguments}.run();
}
