# Compiles core/ROOM/kernels/*.cu by NVRTC for every architecture it offers and embeds the machine code, which functions of
# core/ROOM/device_code.hpp return, whose names begin with `prefix`. Further arguments are folders of headers from outside.
function(linkscope_device_code target room prefix)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${prefix}device_code)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/core/${room}/kernels/*.cu)
  set(first_only $<$<BOOL:${LINKSCOPE_FIRST_ARCHITECTURES}>:--first-only>)
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed_device_code.py)
  # A step for each file: a change compiles few of them, and several at once.
  set(compiled "")
  foreach(kernel ${kernels})
    cmake_path(GET kernel STEM stem)
    add_custom_command(
      OUTPUT ${folder}/${stem}.compiled
      COMMAND "${Python_EXECUTABLE}" ${script} compile ${kernel} --out ${folder} --include ${CMAKE_CURRENT_SOURCE_DIR}/core
        ${ARGN} ${first_only}
      DEPENDS ${kernel} ${script}
      DEPFILE ${folder}/${stem}.d
      COMMENT "Device code of ${room}, ${stem}, by NVRTC" VERBATIM COMMAND_EXPAND_LISTS)
    list(APPEND compiled ${folder}/${stem}.compiled)
  endforeach()
  add_custom_command(
    OUTPUT ${folder}/device_code.cpp
    COMMAND "${Python_EXECUTABLE}" ${script} embed ${kernels} --out ${folder} --header ${room}/device_code.hpp
      --prefix=${prefix} ${first_only}
    DEPENDS ${compiled} ${script}
    COMMENT "Device code of ${room}" VERBATIM COMMAND_EXPAND_LISTS)
  target_sources(${target} PRIVATE ${folder}/device_code.cpp)
  set_source_files_properties(${folder}/device_code.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # no file waits for it
endfunction()
