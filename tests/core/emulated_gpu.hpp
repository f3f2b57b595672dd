// A slow and strict GPU for device code that kernels_as_cpp.py turned into C++. Blocks and warps run one after the
// other; the lanes of a warp are contexts that switch where they exchange values. Every access by an asm statement must
// be aligned and inside of a Memory, which counts it. TMA copies are made as late as the instructions allow.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace emulated {

using u64 = unsigned long long;

struct Index {
  unsigned x = 0;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) ulonglong2 {
  u64 x, y;
};

/// A buffer between two guard zones. Kernels may touch it during its lifetime.
class Memory {
 public:
  explicit Memory(u64 bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] char* data() const { return start_; }
  [[nodiscard]] u64* words() const { return reinterpret_cast<u64*>(start_); }
  [[nodiscard]] u64 bytes() const { return bytes_; }
  void fill_with_pattern(u64 seed, u64 first_index = 0) const;
  [[nodiscard]] bool holds_pattern(u64 seed, u64 first_index = 0) const;
  [[nodiscard]] bool guards_intact() const;
  [[nodiscard]] bool untouched() const;
  /// True if asm statements read (wrote) every whole 16 bytes once and nothing else.
  [[nodiscard]] bool vectors_read_once() const { return each_vector_once(reads_); }
  [[nodiscard]] bool vectors_written_once() const { return each_vector_once(writes_); }

 private:
  friend bool touch(const void*, u64 bytes, bool writes);
  [[nodiscard]] bool each_vector_once(const std::vector<unsigned>&) const;
  u64 bytes_;
  std::vector<char> kept_;
  char* start_;
  std::vector<unsigned> reads_, writes_;  // by word
};

/// The accesses of asm statements, in order.
struct Access {
  unsigned block, thread;
  const char* at;
  bool writes;
  u64 bytes;
};
inline std::vector<Access> accesses;
/// Mistakes that make a GPU report an error, hang, or deliver wrong bytes.
inline std::vector<std::string> faults;
void fault(const std::string& what);
/// Called when a kernel reads the clock. Each read advances the clock by 100 ns.
inline std::function<void()> on_clock_read;

/// Only lanes in lockstep may exchange values. They run more slowly. `block`: all warps of a block run together, so that
/// they may join.
enum class Lanes { one_by_one, lockstep, block };
void launch(unsigned blocks, unsigned threads, const std::function<void()>& kernel, Lanes = Lanes::one_by_one);

// --- functions that kernels call ----------------------------------------------------------------------------------

bool touch(const void* at, u64 bytes, bool writes);
u64 __shfl_xor_sync(unsigned lanes, u64 value, unsigned mask);
/// For blocks of at most one warp, or whose warps run together.
void __syncthreads();
int __syncthreads_and(int value);
inline void atomicAdd(u64* at, u64 value) { *at += value; }
inline u64 atomicCAS(u64* at, u64 expected, u64 value) {
  const u64 found = *at;
  if (found == expected) *at = value;
  return found;
}
inline void atomicMin(u64* at, u64 value) { *at = value < *at ? value : *at; }
inline void __threadfence_system() {}
u64 __cvta_generic_to_shared(const void*);

template <class T>
T loaded(const void* at) {
  return touch(at, sizeof(T), false) ? *static_cast<const T*>(at) : T{};
}
template <class T>
void stored(void* at, const T& value) {
  if (touch(at, sizeof(T), true)) *static_cast<T*>(at) = value;
}

inline void ptx_ld_global_cs_v2_u64(u64& x, u64& y, const void* at) {
  const auto v = loaded<ulonglong2>(at);
  x = v.x, y = v.y;
}
inline void ptx_st_global_cs_v2_u64(void* at, u64 x, u64 y) { stored(at, ulonglong2{x, y}); }
inline void ptx_ld_global_cs_v4_u32(unsigned& x, unsigned& y, unsigned& z, unsigned& w, const void* at) {
  const auto v = loaded<uint4>(at);
  x = v.x, y = v.y, z = v.z, w = v.w;
}
inline void ptx_st_global_cs_v4_u32(void* at, unsigned x, unsigned y, unsigned z, unsigned w) {
  stored(at, uint4{x, y, z, w});
}
inline void ptx_ld_global_cs_u32(unsigned& value, const void* at) { value = loaded<unsigned>(at); }
inline void ptx_ld_global_cs_u64(u64& value, const void* at) { value = loaded<u64>(at); }
inline void ptx_st_global_cs_u32(void* at, unsigned value) { stored(at, value); }
inline void ptx_st_global_cs_u64(void* at, u64 value) { stored(at, value); }
inline void ptx_ld_global_cg_u64(u64& value, u64 at) { value = loaded<u64>(reinterpret_cast<const void*>(at)); }
void ptx_mov_u64(u64& now);
/// The clock of an SM, which counts up by 64.
long long clock64();
/// The SM of a block. A block without an entry runs on the SM of its own number.
inline std::map<unsigned, unsigned> sm_of_block;
inline void ptx_mov_u32(unsigned& sm) {
  sm = sm_of_block.contains(blockIdx.x) ? sm_of_block.at(blockIdx.x) : blockIdx.x;
}

// Tensor cores. Copies to shared memory are made when the thread waits for their group.
void ptx_cp_async_cg_shared_global(unsigned to, const char* from, unsigned bytes);
void ptx_cp_async_commit_group();
void ptx_cp_async_wait_group(unsigned pending);
void ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3, unsigned at);
/// The registers of an operation D = A B + C on 16 x 8 elements of C.
struct Registers {
  float* d[4];
  unsigned a[4], b[2];
  float c[4];
};
enum class Short { bf16, f16, tf32 };
void multiply(Short, const Registers&);
inline void ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2, float& d3,
                                                                    unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                                    unsigned b0, unsigned b1, float c0, float c1,
                                                                    float c2, float c3) {
  multiply(Short::bf16, {{&d0, &d1, &d2, &d3}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}});
}
inline void ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3,
                                                                  unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                                  unsigned b0, unsigned b1, float c0, float c1,
                                                                  float c2, float c3) {
  multiply(Short::f16, {{&d0, &d1, &d2, &d3}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}});
}
inline void ptx_mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float& d0, float& d1, float& d2, float& d3,
                                                                   unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                                   unsigned b0, unsigned b1, float c0, float c1,
                                                                   float c2, float c3) {
  multiply(Short::tf32, {{&d0, &d1, &d2, &d3}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}});
}

// Words that other devices see. A test emulates the other side between two polls.
inline std::function<void()> between_polls;
inline void ptx_ld_acquire_sys_global_u64(u64& value, const u64* at) {
  if (between_polls) between_polls();
  value = loaded<u64>(at);
}
inline void ptx_st_release_sys_global_u64(u64* at, u64 value) { stored(at, value); }

inline void ptx_ld_relaxed_sys_global_b128(u64 at, u64& x, u64& y) {
  if (between_polls) between_polls();
  const auto v = loaded<ulonglong2>(reinterpret_cast<const void*>(at));
  x = v.x, y = v.y;
}
inline void ptx_mov_b128(u64 x, u64 y, u64 at) { stored(reinterpret_cast<void*>(at), ulonglong2{x, y}); }

/// The scopes of atomic operations, in order: "gpu" or "sys".
inline std::vector<std::string> scopes;
inline u64 added(u64* at, u64 value, const char* scope) {
  scopes.emplace_back(scope);
  const u64 found = loaded<u64>(at);
  stored(at, found + value);
  return found;
}
inline void ptx_red_gpu_global_add_u64(u64* at, u64 value) { added(at, value, "gpu"); }
inline void ptx_red_sys_global_add_u64(u64* at, u64 value) { added(at, value, "sys"); }
inline void ptx_atom_gpu_global_add_u64(u64& found, u64* at, u64 value) { found = added(at, value, "gpu"); }
inline void ptx_atom_sys_global_add_u64(u64& found, u64* at, u64 value) { found = added(at, value, "sys"); }

// What a network card reads and writes.
inline void ptx_fence_acq_rel_sys() {}
inline void* pointer(u64 at) { return reinterpret_cast<void*>(at); }
inline void ptx_st_global_v4_u32(u64 at, unsigned x, unsigned y, unsigned z, unsigned w) {
  stored(pointer(at), uint4{x, y, z, w});
}
inline void ptx_st_global_u32(u64 at, unsigned value) { stored(pointer(at), value); }
inline void ptx_ld_volatile_global_v4_u32(unsigned& x, unsigned& y, unsigned& z, unsigned& w, u64 at) {
  const auto v = loaded<uint4>(pointer(at));
  x = v.x, y = v.y, z = v.z, w = v.w;
}
inline void ptx_st_volatile_global_u32(u64 at, unsigned value) { stored(pointer(at), value); }
inline void ptx_st_volatile_global_u64(u64 at, u64 value) { stored(pointer(at), value); }

// TMA copies. A fetch is made when the kernel waits for its barrier, a store when the kernel waits for its group. A
// kernel that waits for too little therefore delivers the old bytes.
void ptx_mbarrier_init_shared_cta_b64(unsigned barrier, unsigned arrivals);
inline void ptx_fence_mbarrier_init_release_cluster() {}
inline void ptx_fence_proxy_async() {}
void ptx_mbarrier_arrive_expect_tx_shared_cta_b64(unsigned barrier, unsigned bytes);
void ptx_cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(unsigned to, const char* from, unsigned bytes,
                                                                        unsigned barrier);
void ptx_mbarrier_try_wait_parity_shared_cta_b64(unsigned barrier, unsigned parity, unsigned& done, unsigned if_done,
                                                 unsigned if_not);
void ptx_cp_async_bulk_global_shared_cta_bulk_group(char* to, unsigned from, unsigned bytes);
void ptx_cp_async_bulk_commit_group();
void ptx_cp_async_bulk_wait_group(unsigned pending);
inline void ptx_cp_async_bulk_wait_group_read(unsigned pending) { ptx_cp_async_bulk_wait_group(pending); }

}  // namespace emulated
