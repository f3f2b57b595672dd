// Functions of libraries that are loaded at run time.
#pragma once
#include <dlfcn.h>
#include <link.h>

#include <string>

namespace linkscope {

/// The file of a library that dlopen returned, or `name` where the loader does not say.
inline std::string path_of(void* library, const std::string& name) {
  const link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map ? map->l_name : name;
}

/// Looks up functions of a library, whose names begin with `prefix`, and keeps the name of the first that is missing.
struct Symbols {
  void* library;
  std::string prefix{};
  std::string missing{};

  /// Sets `into` to the function, or to null. Only those that are `needed` count as missing.
  template <class Function>
  void get(Function& into, const char* name, bool needed = true) {
    const auto symbol = prefix + name;
    into = reinterpret_cast<Function>(dlsym(library, symbol.c_str()));
    if (!into && needed && missing.empty()) missing = symbol;
  }
};

}  // namespace linkscope
