// How a function of the C interface ends: exceptions become a status, and a text for ls_last_error.
#pragma once
#include <new>
#include <string>

#include "base/error.hpp"
#include "capi/linkscope.h"
#include "transfer/progress.hpp"

namespace linkscope {

inline thread_local std::string last_error;

inline ls_status failed(ls_status status, const char* text) {
  try {
    last_error = text;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return status;
}

inline ls_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return LS_USAGE;
    case ErrorKind::failed:
    case ErrorKind::unsupported:
      return LS_FAILED;
    case ErrorKind::lost:
      return LS_LOST;
    case ErrorKind::timeout:
      return LS_TIMEOUT;
    case ErrorKind::memory:
      return LS_MEMORY;
  }
  return LS_FAILED;
}

/// Runs a call of the library; exceptions end here.
template <class Call>
ls_status guarded(Call call) {
  try {
    call();
    return LS_OK;
  } catch (const Cancelled& error) {
    return failed(LS_CANCELLED, error.what());
  } catch (const Error& error) {
    return failed(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(LS_MEMORY, "the host has no memory left");
  } catch (const std::exception& error) {
    return failed(LS_FAILED, error.what());
  }
}

/// Frees what puts and gets share, if no region is open (putget.cpp).
void close_putget();

}  // namespace linkscope
