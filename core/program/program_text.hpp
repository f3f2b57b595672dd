#pragma once
/// What the files about programs share: words for errors, and a visitor of steps.
#include <string>

#include "program/program.hpp"

namespace linkscope {

/// A visitor made of one function for each kind of step.
template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

/// A span as `to_text` writes it.
[[nodiscard]] std::string span_text(const Span& span);

/// Throws a usage error that names the place in the program.
[[noreturn]] void wrong_program(const std::string& where, const std::string& what);

}  // namespace linkscope
