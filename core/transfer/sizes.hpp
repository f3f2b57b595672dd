// Numbers of the caller that make no sense as sizes.
#pragma once
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "base/units.hpp"

namespace linkscope {

/// Whether a number was negative before it became an unsigned one. No memory and no file is so long.
[[nodiscard]] constexpr bool was_negative(u64 number) { return number >> 63 != 0; }

/// Throws Error{usage} for such a number. `what`: "the offset in the file".
inline void refuse_negative(const char* what, u64 number) {
  if (was_negative(number))
    throw Error{ErrorKind::usage, std::string{what} + " is " + std::to_string(static_cast<std::int64_t>(number)) +
                                      "; pass a number of at least 0"};
}

}  // namespace linkscope
