// The error of a call as text, for tests that compare it.
#pragma once
#include <string>

#include "base/error.hpp"

namespace linkscope {

/// The text of the error that a call throws; "" if it throws none.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace linkscope
