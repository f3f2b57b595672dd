# Headers and the device compiler come from the wheels of the Python that builds the project (pyproject.toml,
# build-system.requires). Each may be given by hand: -DLINKSCOPE_JSON_INCLUDE=…, -DLINKSCOPE_CUDA_INCLUDE=…,
# -DLINKSCOPE_CUB_INCLUDE=….
function(linkscope_find_in_wheels result file)
  if(DEFINED ${result})
    return()
  endif()
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c "
import pathlib, sys
for root in sys.path:
    for sub in sys.argv[2:]:
        if root and (pathlib.Path(root, sub) / sys.argv[1]).is_file():
            print(pathlib.Path(root, sub).as_posix()); sys.exit()
" ${file} ${ARGN}
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT found)
    find_path(found_by_cmake ${file} NO_CACHE)
    if(found_by_cmake)
      set(found ${found_by_cmake})
    endif()
  endif()
  if(NOT found)
    message(FATAL_ERROR "${file} was not found. Install the build requirements of pyproject.toml, or pass -D${result}=FOLDER.")
  endif()
  set(${result} "${found}" CACHE PATH "folder of ${file}")
endfunction()

linkscope_find_in_wheels(LINKSCOPE_JSON_INCLUDE nlohmann/json.hpp nlohmann_json/include)
linkscope_find_in_wheels(LINKSCOPE_CUDA_INCLUDE cudaTypedefs.h nvidia/cu13/include nvidia/cuda_runtime/include)
linkscope_find_in_wheels(LINKSCOPE_CUB_INCLUDE cub/version.cuh nvidia/cu13/include/cccl)
