// Accesses one byte of every page of a range, one warp per page, as Comm|Scope does (CS-14). Absent pages move.
typedef unsigned long long u64;

static __device__ __forceinline__ u64 first_warp() { return u64{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32; }
static __device__ __forceinline__ u64 all_warps() { return u64{gridDim.x} * (blockDim.x / 32); }

extern "C" __global__ void linkscope_touch_write(char* range, u64 bytes, u64 page) {
  if (threadIdx.x % 32) return;
  for (u64 at = first_warp() * page; at < bytes; at += all_warps() * page) *static_cast<volatile char*>(range + at) = 0;
}

// The sum of what was read lets the host verify it.
extern "C" __global__ void linkscope_touch_read(const unsigned char* range, u64 bytes, u64 page, u64* sum) {
  if (threadIdx.x % 32) return;
  u64 mine = 0;
  for (u64 at = first_warp() * page; at < bytes; at += all_warps() * page)
    mine += *static_cast<const volatile unsigned char*>(range + at);
  if (mine) atomicAdd(sum, mine);
}
