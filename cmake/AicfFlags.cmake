# Language level, warnings and code generation flags shared by every target (interface target aicf_flags).

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# Host code gains nothing from -O3 and compiles slower; the kernels ask for it themselves.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

# Several files of a folder are compiled as one: half of what a file costs is reading headers and instantiating the
# same templates. -DAICF_UNITY=OFF compiles each alone (the sanitizer presets and `make lint` do).
option(AICF_UNITY "Compile the files of a folder together" ON)

# aicf_unity(<target> <source>...): the target's sources in units of at most ten files of one folder, in order of their
# names. scripts/check_names.py keeps file-local names of a folder apart.
function(aicf_unity target)
  if(NOT AICF_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS ARGN)
    get_filename_component(folder "${source}" DIRECTORY)
    file(RELATIVE_PATH folder "${CMAKE_SOURCE_DIR}" "${folder}")
    string(REPLACE "/" "_" group "${folder}")
    math(EXPR unit "0${count_${group}} / 10")
    math(EXPR count_${group} "0${count_${group}} + 1")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${group}_${unit}")
  endforeach()
endfunction()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(AICF_CCACHE ccache)
  if(AICF_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${AICF_CCACHE}")
  endif()
endif()

add_library(aicf_flags INTERFACE)
target_include_directories(aicf_flags INTERFACE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/include")
target_compile_options(aicf_flags INTERFACE
  -Wall -Wextra
  # Results must not depend on which a*b+c the compiler happens to fuse: fused multiply-add is written out.
  -ffp-contract=off
  # Nobody reads errno after sqrt; without this every sqrt keeps a branch to the library call.
  -fno-math-errno
  # libstdc++ 12's own std::stable_sort calls a function that it marks deprecated; only clang shows that.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
if(AICF_WERROR)
  # What later versions of GCC guess from optimised code is reported and stops nobody: it names our containers wrongly.
  set(later_gcc $<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>)
  target_compile_options(aicf_flags INTERFACE -Werror
    "$<${later_gcc}:-Wno-error=free-nonheap-object;-Wno-error=array-bounds;-Wno-error=stringop-overflow;-Wno-error=maybe-uninitialized;-Wno-error=dangling-reference>")
endif()

# Apart, because users of the shared library (its tests, the examples) need the sanitizers too, but not our warnings
# and include paths.
add_library(aicf_sanitize INTERFACE)
if(AICF_SANITIZE)
  target_compile_options(aicf_sanitize INTERFACE "-fsanitize=${AICF_SANITIZE}" -fno-omit-frame-pointer)
  target_link_options(aicf_sanitize INTERFACE "-fsanitize=${AICF_SANITIZE}")
  if(AICF_SANITIZE MATCHES "undefined")
    target_compile_options(aicf_sanitize INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
target_link_libraries(aicf_flags INTERFACE aicf_sanitize)
if(AICF_FUZZ)
  target_compile_options(aicf_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_package(Threads REQUIRED)
target_link_libraries(aicf_flags INTERFACE Threads::Threads)
