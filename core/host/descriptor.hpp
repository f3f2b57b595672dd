// Owns a file descriptor.
#pragma once
#include <unistd.h>

#include <utility>

namespace linkscope {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_{number} {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int get() const { return number_; }
  [[nodiscard]] explicit operator bool() const { return number_ >= 0; }
  void reset() { (void)close_now(); }
  /// Returns the result of close(): the descriptor is gone in any case.
  int close_now() { return number_ >= 0 ? close(std::exchange(number_, -1)) : 0; }

 private:
  int number_ = -1;
};

}  // namespace linkscope
