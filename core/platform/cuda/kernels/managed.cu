// Accesses one byte of every page of a range, one warp per page, as Comm|Scope does (CS-14), in order or in the order of
// line_order.hpp. Absent pages move.
#include "program/line_order.hpp"

typedef unsigned long long u64;

static __device__ __forceinline__ u64 first_warp() { return u64{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32; }
static __device__ __forceinline__ u64 all_warps() { return u64{gridDim.x} * (blockDim.x / 32); }

// The byte of page i of a range; a partial last page counts.
struct Pages {
  u64 count, page, mask;
  unsigned half;
  bool random;
  __device__ __forceinline__ Pages(u64 bytes, u64 page, unsigned random)
      : count{(bytes + page - 1) / page},
        page{page},
        mask{linkscope_line_mask(count)},
        half{linkscope_line_half(mask)},
        random{random != 0} {}
  __device__ __forceinline__ u64 offset(u64 i) const {
    return (random ? linkscope_line_at(i, count, mask, half) : i) * page;
  }
};

extern "C" __global__ void linkscope_touch_write(char* range, u64 bytes, u64 page, unsigned random) {
  if (threadIdx.x % 32) return;
  const Pages pages{bytes, page, random};
  for (u64 i = first_warp(); i < pages.count; i += all_warps())
    *static_cast<volatile char*>(range + pages.offset(i)) = 0;
}

// The sum of what was read lets the host verify it.
extern "C" __global__ void linkscope_touch_read(const unsigned char* range, u64 bytes, u64 page, unsigned random,
                                                u64* sum) {
  if (threadIdx.x % 32) return;
  const Pages pages{bytes, page, random};
  u64 mine = 0;
  for (u64 i = first_warp(); i < pages.count; i += all_warps())
    mine += *static_cast<const volatile unsigned char*>(range + pages.offset(i));
  if (mine) atomicAdd(sum, mine);
}
