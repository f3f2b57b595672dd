// Empty kernels with arguments of several sizes.
template <unsigned bytes>
struct Arguments {
  char held[bytes];
};

extern "C" __global__ void linkscope_take_8(Arguments<8>) {}
extern "C" __global__ void linkscope_take_256(Arguments<256>) {}
extern "C" __global__ void linkscope_take_1024(Arguments<1024>) {}
extern "C" __global__ void linkscope_take_4096(Arguments<4096>) {}
