// Host memory that two processes map: made by one of them, opened by the other through its descriptor.
#pragma once
#include <cstddef>

#include "base/units.hpp"
#include "host/descriptor.hpp"

namespace linkscope {

class SharedPages {
 public:
  SharedPages() = default;
  /// Creates it without pages; later pages are on the node. Throws Error{memory} if there is no more.
  SharedPages(u32 node, u64 bytes);
  /// Maps all bytes of another process's object. Throws Error{failed} if the descriptor holds fewer.
  SharedPages(const Descriptor&, u64 bytes);
  ~SharedPages();
  SharedPages(SharedPages&&) noexcept;
  SharedPages& operator=(SharedPages&&) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] u64 size() const { return bytes_; }
  [[nodiscard]] const Descriptor& descriptor() const { return descriptor_; }  // of its creator
  /// One thread writes a byte to each page.
  void touch();

 private:
  void map(int descriptor);
  Descriptor descriptor_;
  std::byte* data_ = nullptr;
  u64 bytes_ = 0;
};

}  // namespace linkscope
