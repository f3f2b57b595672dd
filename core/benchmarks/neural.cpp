// microbench (MB-4): operations of neural networks by cuDNN. An iteration is one operation.
#include <string>

#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

/// Arrays of numbers, the last one a result, and one operation on them.
Program operation(const Case& c, Opaque call, const std::vector<u64>& elements) {
  const u64 each = call.element == "f32" ? 4 : 2;
  Program program;
  for (u32 i = 0; i < elements.size(); ++i) {
    const bool result = i + 1 == elements.size();
    const u64 bytes = elements[i] * each;
    program.regions.push_back({c.src, c.src_memory, bytes, result ? Content::poison : Content::numbers});
    call.traffic.push_back({Span{i, 0, bytes, bytes}, result ? Access::Dir::write : Access::Dir::read});
  }
  const u64 moved = call.operations > 0 ? 0 : traffic_bytes(call);
  program.flows = {{0, c.src, c.dst, c.src_memory, c.dst_memory, moved, true, call.operations}};
  Actor stream;
  stream.place = c.src;
  stream.loop = {std::move(call)};
  program.actors = {std::move(stream)};
  return program;
}

/// 32 images of 32 x 32 pixels. The border of zeros has no operations.
Program convolution(const Case& c) {
  constexpr u64 images = 32, size = 32, taps = (3 * size - 2) * (3 * size - 2);
  const u64 channels = c.number("channels", "256"), image = images * channels * size * size;
  const double operations = 2.0 * static_cast<double>(images * channels * channels * taps);
  return operation(c, {"cudnn_convolution", c.param("element", "bf16"), {images, channels, size}, {}, operations},
                   {image, 9 * channels * channels, image});
}

/// 4 batches of 16 heads of 128 numbers.
Program attention(const Case& c) {
  constexpr u64 batch = 4, heads = 16, width = 128;
  const u64 length = c.number("length", "2048"), array = batch * heads * length * width;
  const double operations = 4.0 * static_cast<double>(array) * static_cast<double>(length);
  return operation(c, {"cudnn_attention", c.param("element", "bf16"), {batch, heads, length, width}, {}, operations},
                   {array, array, array, array});
}

/// 2^25 numbers in all. The time is that of reading and writing them, so the flow counts bytes.
Program softmax(const Case& c) {
  constexpr u64 all = u64{1} << 25;
  const u64 length = c.number("length", "4096");
  return operation(c, {"cudnn_softmax", c.param("element", "f32"), {all / length, length}, {}, 0}, {all, all});
}

}  // namespace

std::vector<Benchmark> neural_operations() {
  constexpr bool sized = false;
  const auto row = [&](const char* name, const char* summary, std::vector<Param> params,
                       Program (*build)(const Case&)) {
    return Benchmark{name,
                     summary,
                     "microbench: neural networks",
                     Engine::sm,
                     PlaceKind::gpu,
                     PlaceKind::gpu,
                     Relation::same,
                     {{MemKind::device, MemKind::device}},
                     std::move(params),
                     build,
                     sized,
                     Taken::by_name,
                     Role::computation};
  };
  const Param of_tensor_cores{"element", {"bf16", "f16"}, "type of the elements, with sums in f32"};
  return {row("convolution", "convolution of 32 images of 32 x 32 pixels with filters of 3 x 3, by cuDNN",
              {of_tensor_cores, {"channels", {"256", "64", "1024"}, "channels of the images and of the result"}},
              convolution),
          row("attention", "scaled dot-product attention of 4 x 16 heads of 128 numbers, by cuDNN",
              {of_tensor_cores, {"length", {"2048", "512", "8192"}, "length of the sequences"}}, attention),
          row("softmax", "softmax of rows of 2^25 numbers in all, by cuDNN",
              {{"element", {"f32", "bf16"}, "type of the elements"},
               {"length", {"4096", "1024", "32768"}, "numbers in a row"}},
              softmax)};
}

}  // namespace linkscope
