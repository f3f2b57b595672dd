// One of many scattered blocks, as host code and the kernel that moves them (kernels/copy_blocks.cu) see it.
#pragma once

struct linkscope_block {
  unsigned long long dst, src, bytes;
};
