#include "host/patience.hpp"

#include <cstdlib>
#include <string>

#include "base/error.hpp"

namespace linkscope {

Seconds patient(Seconds limit) {
  constexpr auto variable = "LINKSCOPE_PATIENCE";
  const char* text = std::getenv(variable);
  if (!text || !*text) return limit;
  char* end = nullptr;
  const double times = std::strtod(text, &end);
  if (*end || !(times > 0 && times <= 1e6))
    throw Error{ErrorKind::usage, std::string{variable} + "='" + text + "' is no number above zero"};
  return times * limit;
}

}  // namespace linkscope
