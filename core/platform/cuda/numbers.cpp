#include "platform/cuda/numbers.hpp"

#include <algorithm>
#include <cmath>

#include "base/sampled.hpp"
#include "platform/cuda/contents.hpp"

namespace linkscope {

double number_in(const char* bytes, Element element) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, bytes, sizeof value);
    return value;
  };
  switch (element) {
    case Element::f32:
    case Element::tf32:
      return as(float{});
    case Element::f64:
      return as(double{});
    case Element::bf16:
      return from_bf16(as(std::uint16_t{}));
    case Element::f16:
      return from_f16(as(std::uint16_t{}));
    case Element::fp8:
      return from_e4m3(as(std::uint8_t{}));
  }
  return 0;
}

double number_at(const Input& input, Element element, u64 index) {
  const u64 byte = input.offset + index * bytes_of(element);
  const u64 word = linkscope_pattern_word(input.seed, byte / sizeof(u64));
  return number_in(reinterpret_cast<const char*>(&word) + byte % sizeof(u64), element);
}

std::optional<Input> numbers_of(const CudaSession& session, const Span& span, u64 slice) {
  const auto input = input_of(session, span, slice);
  return input && input->seed & numbers_seed ? input : std::nullopt;
}

double rounding_of(Element element) {
  return element == Element::bf16 ? 1.0 / 128 : element == Element::f16 ? 1.0 / 1024 : 0;
}

void check_result(const CudaSession& session, const Span& span, Element element, u64 iterations, u64 samples,
                  const std::function<Reference(u64 slice)>& reference_of, Verdict& verdict) {
  const u64 each = bytes_of(element);
  for (u64 slice = 0; slice < std::min<u64>(span.slices, iterations); ++slice) {
    const Contents contents{session, span, slice};
    const auto found = contents.bytes();
    verdict.checked_bytes += span.bytes;
    if (std::all_of(found.begin(), found.end(), [](std::byte one) { return one == poison; })) {
      add_wrong(verdict, span.bytes, session, span, span.offset_at(slice),
                ", which a library call should have written");
      continue;
    }
    const Reference reference = reference_of(slice);
    for (u64 sample = 0; reference && sample < samples; ++sample) {
      const u64 at = sampled_at(sample, span.bytes / each);
      const Expected expected = reference(at);
      const double value = number_in(reinterpret_cast<const char*>(found.data()) + at * each, element);
      if (!(std::abs(value - expected.value) <= expected.allowed))
        add_wrong(verdict, each, session, span, span.offset_at(slice) + at * each, ", by the reference on the host");
    }
  }
}

}  // namespace linkscope
