#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "host/messages.hpp"

namespace {

/// Lets files of tests lie on a disk where /tmp is in memory: many tests need reads and writes past the page cache.
void choose_folder() {
  namespace fs = std::filesystem;
  for (const fs::path& folder : {fs::temp_directory_path(), fs::path{"/var/tmp"}, fs::current_path()}) {
    struct statfs system{};
    if (statfs(folder.c_str(), &system) != 0 || system.f_type == TMPFS_MAGIC) continue;
    if (access(folder.c_str(), W_OK) != 0) continue;
    setenv("TMPDIR", folder.c_str(), 1);
    return;
  }
}

}  // namespace

int main(int count, char** arguments) {
  // Another program may stop any thread of a test for many seconds.
  setenv("LINKSCOPE_PATIENCE", "20", 0);
  choose_folder();
  if (const int status = linkscope::answer_messages(count, arguments); status >= 0) return status;
  return doctest::Context{count, arguments}.run();
}
