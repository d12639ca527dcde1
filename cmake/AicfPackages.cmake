# System packages. All of those that end up in libaicf are used as headers only, so that the library needs nothing
# beyond libc and libstdc++ at run time; the interface targets below carry no include path because the headers lie
# in the default one.

include(CheckIncludeFileCXX)
function(aicf_header_package name header package)
  check_include_file_cxx("${header}" AICF_HAVE_${name})
  if(NOT AICF_HAVE_${name})
    message(FATAL_ERROR "<${header}> not found: install ${package} (make setup does it)")
  endif()
  add_library(aicf_${name} INTERFACE)
  add_library(aicf::${name} ALIAS aicf_${name})
endfunction()

aicf_header_package(xxhash xxhash.h libxxhash-dev)
target_compile_definitions(aicf_xxhash INTERFACE XXH_INLINE_ALL=1)
aicf_header_package(json nlohmann/json.hpp nlohmann-json3-dev)
aicf_header_package(protozero protozero/pbf_reader.hpp libprotozero-dev)
aicf_header_package(highway hwy/highway.h libhwy-dev)
if(AICF_TOOLS)
  aicf_header_package(cli11 CLI/CLI.hpp libcli11-dev)
endif()
if(AICF_TOOLS OR AICF_TESTS OR AICF_FUZZ)
  # Linked statically, so that the command line needs no more than libaicf at run time. Never part of the library:
  # the archives are not position-independent.
  aicf_header_package(minizip minizip/unzip.h "libminizip-dev zlib1g-dev")
  find_library(AICF_MINIZIP_LIBRARY NAMES libminizip.a minizip REQUIRED)
  find_library(AICF_ZLIB_LIBRARY NAMES libz.a z REQUIRED)
  target_link_libraries(aicf_minizip INTERFACE "${AICF_MINIZIP_LIBRARY}" "${AICF_ZLIB_LIBRARY}")
endif()

target_link_libraries(aicf_flags INTERFACE aicf_xxhash aicf_highway)

# NVTX is headers that open the profiler's library when one is attached.
find_path(AICF_NVTX_INCLUDE nvtx3/nvToolsExt.h HINTS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
if(AICF_ENABLE_NVTX)
  if(NOT AICF_NVTX_INCLUDE)
    message(FATAL_ERROR "nvtx3/nvToolsExt.h not found: install the CUDA toolkit or 'pip install nvidia-nvtx==13.0.85' and set "
                        "AICF_NVTX_INCLUDE to its include folder")
  endif()
  target_compile_definitions(aicf_flags INTERFACE AICF_ENABLE_NVTX)
  target_include_directories(aicf_flags SYSTEM INTERFACE "${AICF_NVTX_INCLUDE}")
  target_link_libraries(aicf_flags INTERFACE ${CMAKE_DL_LIBS})
endif()

if(AICF_TESTS)
  find_package(GTest REQUIRED)
  add_library(aicf_test_main STATIC "${CMAKE_SOURCE_DIR}/cmake/test_main.cc")
  target_link_libraries(aicf_test_main PUBLIC aicf_sanitize GTest::gtest Threads::Threads)
endif()
if(AICF_BENCHES)
  find_package(benchmark REQUIRED)
endif()
