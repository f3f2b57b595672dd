// One thread sets words and waits for others. If the other side never answers, it gives up after a time-out and reports
// the value. Before compute capability 7.0, volatile accesses and fences replace release and acquire.
typedef unsigned long long u64;

static __device__ __forceinline__ u64 clock_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

static __device__ __forceinline__ u64 look(const u64* word) {
  u64 value;
#if __CUDA_ARCH__ >= 700
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
#else
  value = *static_cast<const volatile u64*>(word);
  __threadfence_system();
#endif
  return value;
}

static __device__ __forceinline__ void put(u64* word, u64 value) {
#if __CUDA_ARCH__ >= 700
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
  __threadfence_system();
  *static_cast<volatile u64*>(word) = value;
#endif
}

static __device__ __forceinline__ bool arrives(const u64* word, u64 value, u64 timeout_ns) {
  constexpr unsigned polls = 256;  // between two readings of the clock, which would slow the polling
  const u64 start = clock_ns();
  do {
    for (unsigned i = 0; i < polls; ++i)
      if (look(word) >= value) return true;
  } while (clock_ns() - start <= timeout_ns);
  return false;
}

// Iteration i sets `set` to set_value + i * set_step and waits until `wait` is at least wait_value + i * wait_step, in
// one order or the other.
extern "C" __global__ void linkscope_flags(u64* set, u64 set_value, u64 set_step, const u64* wait, u64 wait_value,
                                           u64 wait_step, u64 iterations, unsigned waits_first, u64 timeout_ns,
                                           u64* gave_up) {
  for (u64 i = 0; i < iterations; ++i) {
    if (!waits_first) put(set, set_value + i * set_step);
    if (!arrives(wait, wait_value + i * wait_step, timeout_ns)) {
      *gave_up = wait_value + i * wait_step;
      return;
    }
    if (waits_first) put(set, set_value + i * set_step);
  }
}
