// Knobs that were measured on a machine, in a text file of the user's cache directory.
#pragma once
#include <string>
#include <vector>

#include "gpu/driver.hpp"
#include "gpu/facts.hpp"
#include "transfer/options.hpp"

namespace linkscope {

/// The tuning file in use, or none.
struct Tuning {
  std::string file;  // "": none
  std::string note;  // when and by which version it was made, or why there is none
};

/// What the best knobs depend on, in one line: GPUs, driver, CPU, CPUs of this process, and this build's methods.
[[nodiscard]] std::string fingerprint(const Driver&, const std::vector<DeviceFacts>& gpus);

/// The file of a fingerprint in $XDG_CACHE_HOME/linkscope or ~/.cache/linkscope. Throws Error{failed} without a home.
[[nodiscard]] std::string tuning_path(const std::string& fingerprint);

/// Reads the file that options.tuning names, and replaces the knobs. A file that is damaged, or of another machine,
/// changes nothing. Never throws Error.
[[nodiscard]] Tuning load_tuning(Options& options, const std::string& fingerprint);

/// Replaces the file as a whole, so that no process reads a part of it. Throws Error{failed}.
void write_tuning(const Options&, const std::string& path, const std::string& fingerprint, const std::string& version);

}  // namespace linkscope
