// A driver of the 470 series (CUDA 11.4). It reports its version and has the older cuGetProcAddress, but no
// cuGetProcAddress_v2, so a current program stops there.
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cuInit(unsigned) { return 0; }

EXPORT int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}

EXPORT int cuGetProcAddress(const char*, void** found, int, unsigned long long) {
  constexpr int not_found = 500;
  *found = nullptr;
  return not_found;
}
