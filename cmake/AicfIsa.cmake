# CPU ISA levels. A file *_isa.cc is compiled once per level into namespace AICF_ISA_NAMESPACE, with flags that make
# Highway's static target exactly that level (hwy/detect_targets.h lists the macros each target wants), so that the
# choice at run time is ours and one binary serves all CPUs.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(AICF_X86 1)
  set(AICF_ISA_LEVELS portable avx2 avx512)
else()
  set(AICF_X86 0)
  set(AICF_ISA_LEVELS portable)
endif()
target_compile_definitions(aicf_flags INTERFACE AICF_X86=${AICF_X86})

set(AICF_ISA_FLAGS_portable)
set(AICF_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -maes -mpclmul)
set(AICF_ISA_FLAGS_avx512 ${AICF_ISA_FLAGS_avx2} -mavx512f -mavx512vl -mavx512dq -mavx512bw -mavx512cd)
set(AICF_ISA_HWY_avx2 HWY_AVX2)
set(AICF_ISA_HWY_avx512 HWY_AVX3)

# aicf_isa_objects(<variable> FROM <folder>...): object libraries of every *_isa.cc of the folders, one per level; sets
# <variable> to their objects.
function(aicf_isa_objects variable)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FROM")
  set(sources)
  foreach(folder IN LISTS arg_FROM)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${folder}/*_isa.cc")
    list(APPEND sources ${found})
  endforeach()
  set(objects)
  if(sources)
    foreach(level IN LISTS AICF_ISA_LEVELS)
      add_library(aicf_isa_${level} OBJECT ${sources})
      target_link_libraries(aicf_isa_${level} PRIVATE aicf_flags)
      target_compile_definitions(aicf_isa_${level} PRIVATE
        AICF_ISA_NAMESPACE=isa_${level} AICF_ISA_NAME="${level}" HWY_COMPILE_ONLY_STATIC=1)
      if(AICF_ISA_HWY_${level})
        # For static_assert(HWY_TARGET == AICF_ISA_HWY_TARGET); absent on the portable level, whose target depends on
        # the Highway version.
        target_compile_definitions(aicf_isa_${level} PRIVATE AICF_ISA_HWY_TARGET=${AICF_ISA_HWY_${level}})
      endif()
      target_compile_options(aicf_isa_${level} PRIVATE ${AICF_ISA_FLAGS_${level}} $<$<CONFIG:Release>:-O3>)
      if(level STREQUAL "portable" AND AICF_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
        # Emulated vectors are loops over lanes: with a sanitizer's checks in each, clang optimises one unrolled file
        # for over ten minutes.
        target_compile_options(aicf_isa_${level} PRIVATE -O0)
      endif()
      if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        # GCC 12 reports its own AVX-512 intrinsic headers under these warnings.
        target_compile_options(aicf_isa_${level} PRIVATE -Wno-maybe-uninitialized -Wno-uninitialized)
      endif()
      list(APPEND objects $<TARGET_OBJECTS:aicf_isa_${level}>)
    endforeach()
  endif()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
