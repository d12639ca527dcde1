# CUDA text for run-time compilation: every *.cuh of src/kernels becomes a row of cuda_headers() (kernels/cuda_kernel.h),
# named by its path from src/kernels.

set(AICF_CUDA_TEXT_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/cuda_text.cmake")

# aicf_cuda_text(<variable>): sets <variable> to the generated source file.
function(aicf_cuda_text variable)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/kernels/*.cuh")
  set(output "${CMAKE_BINARY_DIR}/generated/cuda_headers.cc")
  add_custom_command(
    OUTPUT "${output}"
    COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${output}" "-DROOT=${CMAKE_SOURCE_DIR}/src/kernels" "-DHEADERS=${headers}"
            -P "${AICF_CUDA_TEXT_SCRIPT}"
    DEPENDS ${headers} "${AICF_CUDA_TEXT_SCRIPT}"
    VERBATIM)
  set(${variable} "${output}" PARENT_SCOPE)
endfunction()
