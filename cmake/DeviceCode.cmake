# Compiles core/ROOM/kernels/*.cu by NVRTC for every architecture it offers and embeds the machine code, which functions of
# core/ROOM/device_code.hpp return, whose names begin with `prefix`. Further arguments are the headers of core that the
# kernels include.
function(linkscope_device_code target room prefix)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${prefix}device_code)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/core/${room}/kernels/*.cu)
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed_device_code.py)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/core/ OUTPUT_VARIABLE headers)
  add_custom_command(
    OUTPUT ${folder}/device_code.cpp
    COMMAND "${Python_EXECUTABLE}" ${script} --include ${CMAKE_CURRENT_SOURCE_DIR}/core --out ${folder}
      --header ${room}/device_code.hpp --prefix "${prefix}" ${kernels}
    DEPENDS ${kernels} ${script} ${headers}
    COMMENT "Device code of ${room} by NVRTC" VERBATIM)
  target_sources(${target} PRIVATE ${folder}/device_code.cpp)
endfunction()
