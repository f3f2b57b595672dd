// A kernel that puts one message per block into memory of another GPU, of another process or of the host, and waits for the
// answer. Its argument is what ls_channel_view() fills. Compile it with `nvcc -std=c++17
// -I DIR`, where DIR is the folder linkscope/_native of the package.
#include "linkscope_device.hpp"

using namespace linkscope;

/// One block. `bytes` at offset 0 of the local region go to offset 0 of the remote one; the word at `word` of the remote
/// region then becomes `number`, and the other side answers by setting the same word of the local region.
extern "C" __global__ void send_and_wait(Channel channel, unsigned long long bytes, unsigned long long word,
                                         unsigned long long number, unsigned* result) {
  DevicePoster<Block> poster{channel, DeviceMemoryWords{}, Block{}};
  Posted done = poster.open();
  if (done == Posted::ok) {
    done = poster.put_signal(0, 0, bytes, word, number);
    if (done == Posted::ok) done = poster.await(word, number);
    poster.close();
  }
  if (threadIdx.x == 0) *result = static_cast<unsigned>(done);
}
