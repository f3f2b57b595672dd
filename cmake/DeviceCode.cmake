# Compiles core/platform/cuda/kernels/*.cu by NVRTC for every architecture it offers and embeds the machine code.
function(linkscope_device_code target)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/device_code)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/core/platform/cuda/kernels/*.cu)
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed_device_code.py)
  add_custom_command(
    OUTPUT ${folder}/device_code.cpp
    COMMAND "${Python_EXECUTABLE}" ${script} --include ${CMAKE_CURRENT_SOURCE_DIR}/core --out ${folder} ${kernels}
    DEPENDS ${kernels} ${script} ${CMAKE_CURRENT_SOURCE_DIR}/core/base/pattern.hpp ${CMAKE_CURRENT_SOURCE_DIR}/core/base/actor_ops.hpp ${CMAKE_CURRENT_SOURCE_DIR}/core/program/chain.hpp ${CMAKE_CURRENT_SOURCE_DIR}/core/program/line_order.hpp ${CMAKE_CURRENT_SOURCE_DIR}/core/program/row_order.hpp
    COMMENT "Device code by NVRTC" VERBATIM)
  target_sources(${target} PRIVATE ${folder}/device_code.cpp)
endfunction()
