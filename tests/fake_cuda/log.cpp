#include "log.hpp"

#include <fstream>

#include "context.hpp"
#include "gpus.hpp"
#include "settings.hpp"

namespace fake {

void log(const char* what, CUcontext where, const std::string& details) {
  if (settings().log.empty()) return;
  const auto gpu = static_cast<std::size_t>(settings().visible[static_cast<std::size_t>(where->device)]);
  const std::lock_guard lock{global_mutex()};
  std::ofstream{settings().log, std::ios::app} << what << ' ' << pci_id(buses[gpu]) << ' ' << details << '\n';
}

}  // namespace fake
