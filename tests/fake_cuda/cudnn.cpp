// A fake cuDNN on the fake driver: one convolution or one attention as a graph of one operation, and softmax. An operation
// zeroes its result on its stream and computes the elements that linkscope compares (base/sampled.hpp).
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <vector>

#include "library.hpp"
#include "sampled_product.hpp"

namespace {

using fake_library::Format;
using u64 = std::uint64_t;
constexpr int success = 0, bad_parameter = 2000, not_supported = 3000, execution_failed = 5000;

struct Descriptor {
  int kind = 0;
  bool finalized = false;
  std::map<int, std::vector<std::int64_t>> values;  // of an attribute: numbers, or addresses

  [[nodiscard]] std::int64_t first(int attribute) const { return values.at(attribute).at(0); }
  [[nodiscard]] const Descriptor& part(int attribute) const {
    return *reinterpret_cast<const Descriptor*>(first(attribute));
  }
};
struct Handle {
  CUstream stream = nullptr;
};
struct Rows {
  int type = 0;
  u64 count = 0, length = 0;
};

// Kinds, attributes and types of cudnn_graph.h.
enum { heuristics = 4, convolution = 10, graph = 15, tensor = 17, attention = 41 };
enum { results = 202, plan_config = 401, plan_workspace = 402, images = 704, weights = 703, graph_operations = 801 };
enum { tensor_type = 901, lengths = 902, strides = 903, ids = 1000, pointers = 1001, q = 2800, scale = 2805 };

/// A tensor of an operation with the address that the pack gives it.
struct Array {
  Format format;
  std::vector<std::int64_t> lengths, strides;
  char* start;

  [[nodiscard]] u64 elements() const {
    u64 all = 1;
    for (const auto length : lengths) all *= static_cast<u64>(length);
    return all;
  }
  [[nodiscard]] double at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    const auto index = a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
    return fake_library::number_of(format, start + static_cast<u64>(index) * fake_library::bytes_of(format));
  }
};

Format format_of(std::int64_t type) { return type == 0 ? Format::f32 : type == 2 ? Format::f16 : Format::bf16; }

Array array(const Descriptor& of, const Descriptor& pack) {
  const auto id = static_cast<std::size_t>(of.first(906));
  return {format_of(of.first(tensor_type)), of.values.at(lengths), of.values.at(strides),
          reinterpret_cast<char*>(pack.values.at(pointers).at(id))};
}

/// Zeroes the result and puts the sampled elements; a damaged one is far off.
template <class Value>
void deliver(const Array& to, bool damaged, u64 samples, Value value) {
  const u64 each = fake_library::bytes_of(to.format), all = to.elements();
  std::memset(to.start, 0, all * each);
  for (u64 sample = 0; sample < samples; ++sample) {
    const u64 at = linkscope::sampled_at(sample, all);
    fake_library::put(to.format, to.start + at * each, value(at) + (damaged && sample == 0 ? 1000 : 0));
  }
}

void convolve(const Array& image, const Array& filter, const Array& to, bool damaged) {
  deliver(to, damaged, linkscope::most_sampled, [&](u64 at) {
    const auto channels = to.lengths[1], height = to.lengths[2], width = to.lengths[3];
    const auto index = static_cast<std::int64_t>(at);  // images, rows, columns, channels
    const auto k = index % channels, x = index / channels % width, y = index / channels / width % height;
    double sum = 0;
    for (std::int64_t c = 0; c < image.lengths[1]; ++c)
      for (std::int64_t dy = -1; dy <= 1; ++dy)
        for (std::int64_t dx = -1; dx <= 1; ++dx)
          if (y + dy >= 0 && y + dy < height && x + dx >= 0 && x + dx < width)
            sum += image.at(index / channels / width / height, c, y + dy, x + dx) * filter.at(k, c, dy + 1, dx + 1);
    return sum;
  });
}

void attend(const Array& queries, const Array& keys, const Array& values, const Array& to, double by, bool damaged) {
  constexpr u64 samples = 32;  // as many as linkscope compares
  deliver(to, damaged, samples, [&](u64 at) {
    const auto width = to.lengths[3], length = to.lengths[2], heads = to.lengths[1];
    const auto index = static_cast<std::int64_t>(at);
    const auto row = index / width % length, head = index / width / length % heads;
    const auto batch = index / width / length / heads;
    double sum = 0, all = 0;
    for (std::int64_t key = 0; key < length; ++key) {
      double score = 0;
      for (std::int64_t i = 0; i < width; ++i) score += queries.at(batch, head, row, i) * keys.at(batch, head, key, i);
      all += std::exp(score * by);
      sum += std::exp(score * by) * values.at(batch, head, key, index % width);
    }
    return sum / all;
  });
}

void soften(const Rows& rows, const char* from, char* to, bool damaged) {
  const auto format = format_of(rows.type);
  const auto all = static_cast<std::int64_t>(rows.count * rows.length);
  deliver({format, {all}, {1}, to}, damaged, linkscope::most_sampled, [&](u64 at) {
    const auto value = [&](u64 i) {
      return std::exp(fake_library::number_of(format, from + i * fake_library::bytes_of(format)));
    };
    double sum = 0;
    for (u64 i = 0; i < rows.length; ++i) sum += value(at / rows.length * rows.length + i);
    return value(at) / sum;
  });
}

}  // namespace

FAKE_EXPORT int cudnnCreate(Handle** handle) {
  *handle = new Handle;
  return success;
}
FAKE_EXPORT int cudnnDestroy(Handle* handle) {
  delete handle;
  return success;
}
FAKE_EXPORT int cudnnSetStream(Handle* handle, CUstream stream) {
  handle->stream = stream;
  return success;
}

FAKE_EXPORT int cudnnBackendCreateDescriptor(int kind, Descriptor** descriptor) {
  if (kind == attention && std::getenv("FAKE_CUDNN_NO_ATTENTION")) return bad_parameter;
  *descriptor = new Descriptor{kind, false, {}};
  return success;
}
FAKE_EXPORT int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return success;
}
FAKE_EXPORT int cudnnBackendSetAttribute(Descriptor* descriptor, int attribute, int type, std::int64_t count,
                                         const void* values) {
  if (descriptor->finalized) return bad_parameter;
  auto& kept = descriptor->values[attribute];
  kept.clear();
  const auto* bytes = static_cast<const char*>(values);
  const std::size_t each = type == 2 ? 1 : type == 1 || type == 4 || type == 7 || type == 8 ? 4 : 8;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t value = 0;
    std::memcpy(&value, bytes + static_cast<std::size_t>(i) * each, each);
    kept.push_back(value);
  }
  return success;
}
/// No engine takes a convolution where FAKE_CUDNN_NO_ENGINE is set.
FAKE_EXPORT int cudnnBackendFinalize(Descriptor* descriptor) {
  descriptor->finalized = true;
  return descriptor->kind == heuristics && std::getenv("FAKE_CUDNN_NO_ENGINE") ? not_supported : success;
}
/// One configuration, whose plan needs memory of its own.
FAKE_EXPORT int cudnnBackendGetAttribute(const Descriptor* descriptor, int attribute, int, std::int64_t wanted,
                                         std::int64_t* count, void* values) {
  if (!descriptor->finalized) return bad_parameter;
  *count = 1;
  if (attribute == plan_workspace) *static_cast<std::int64_t*>(values) = 4096;
  if (attribute == results && wanted > 0)
    (*static_cast<Descriptor**>(values))->values[results] = {descriptor->first(201)};
  return success;
}

FAKE_EXPORT int cudnnBackendExecute(const Handle* handle, const Descriptor* plan, const Descriptor* given) {
  const Descriptor& of = plan->part(plan_config).part(results).part(graph_operations);
  const Descriptor pack = *given;  // the library may drop it while the work is queued
  const auto tensor = [&](int attribute) { return array(of.part(attribute), pack); };
  bool queued = false;
  if (of.kind == convolution) {
    const auto x = tensor(images), w = tensor(weights), y = tensor(images + 1);
    queued = fake_library::submit(handle->stream, [=](bool damaged) { convolve(x, w, y, damaged); });
  } else {
    const auto queries = tensor(q), keys = tensor(q + 1), values = tensor(q + 2), to = tensor(q + 3);
    const double by = *reinterpret_cast<const float*>(tensor(scale).start);
    queued =
        fake_library::submit(handle->stream, [=](bool damaged) { attend(queries, keys, values, to, by, damaged); });
  }
  return queued ? success : execution_failed;
}

FAKE_EXPORT int cudnnCreateTensorDescriptor(Rows** rows) {
  *rows = new Rows;
  return success;
}
FAKE_EXPORT int cudnnDestroyTensorDescriptor(Rows* rows) {
  delete rows;
  return success;
}
FAKE_EXPORT int cudnnSetTensor4dDescriptor(Rows* rows, int, int type, int n, int c, int, int) {
  *rows = {type, static_cast<u64>(n), static_cast<u64>(c)};
  return success;
}
FAKE_EXPORT int cudnnSoftmaxForward(const Handle* handle, int, int, const void*, const Rows* of, const char* from,
                                    const void*, const Rows*, char* to) {
  const Rows rows = *of;
  return fake_library::submit(handle->stream, [=](bool damaged) { soften(rows, from, to, damaged); })
             ? success
             : execution_failed;
}
