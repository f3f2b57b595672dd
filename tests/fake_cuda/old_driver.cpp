// A driver of the 470 series (CUDA 11.4), as far as a program of today gets with it: the version is told, and there is
// a cuGetProcAddress of the older kind, but no cuGetProcAddress_v2.
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
