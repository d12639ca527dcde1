# aicf_add_test(<target>): the GoogleTest executable as a test of ctest. One that takes minutes is several, each a process
# with its share of the cases, and they start first, so that all cores are done at about the same time.
set(AICF_TEST_SHARDS_test_kernels 4)
set(AICF_TEST_SHARDS_test_compile 4)
# The programs whose tests ask of CUDA machine code only that it is there: NVRTC takes half the time where it optimises
# little (quick_nvrtc.cc).
set(AICF_QUICK_NVRTC_TESTS test_compile)
function(aicf_add_test target)
  set(shards ${AICF_TEST_SHARDS_${target}})
  set(tests "")
  if(shards)
    foreach(shard RANGE 1 ${shards})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${target}_${shard} COMMAND ${target} --gtest_brief=1)
      set_tests_properties(${target}_${shard} PROPERTIES COST 100
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
      list(APPEND tests ${target}_${shard})
    endforeach()
  else()
    add_test(NAME ${target} COMMAND ${target} --gtest_brief=1)
    set(tests ${target})
  endif()
  set_tests_properties(${tests} PROPERTIES TIMEOUT 600)
  if(target IN_LIST AICF_QUICK_NVRTC_TESTS AND TARGET quick_nvrtc)
    add_dependencies(${target} quick_nvrtc)
    set_tests_properties(${tests} PROPERTIES
      ENVIRONMENT_MODIFICATION "AICF_CUDA_PATH=path_list_prepend:${CMAKE_BINARY_DIR}/quick_nvrtc")
  endif()
endfunction()

# aicf_compile_tests(<target>): what holds for the tests of every folder. Test code itself need not be fast, and compiles
# a fifth faster at -O1; at -O0 the templates that it shares with the product would be slow there too.
function(aicf_compile_tests target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/test")
endfunction()

# aicf_share_test_headers(<target>): GoogleTest's header is read once for all test programs, by the first of them. Off
# where files are compiled one by one, which finds includes that are missing, and with ccache, which then keeps nothing.
function(aicf_share_test_headers target)
  if(NOT AICF_UNITY OR AICF_CCACHE)
    return()
  endif()
  get_property(first GLOBAL PROPERTY AICF_FIRST_TEST)
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    set_property(GLOBAL PROPERTY AICF_FIRST_TEST ${target})
    target_precompile_headers(${target} PRIVATE <gtest/gtest.h>)
  endif()
endfunction()

# aicf_folder(<name> [DEPS <folder>...] [LIBS <target>...] [PRIVATE_LIBS <target>...] [TEST_DEPS <folder>...] [OBJECTS <object>...])
#
# Makes from src/<name>/**:
#   aicf_<name>   static library of all .cc files but tests, benches and ISA sources; an interface library while
#                 there is no such file
#   aicf_<name>_testing  what tests share, the .cc files of folders testing/; other folders' tests name it in TEST_DEPS
#   test_<name>   one GoogleTest executable of all *_test.cc, registered with ctest (aicf_add_test)
#   bench_<name>  one Google Benchmark executable of all *_bench.cc, built by the target `benches` only
# New files are found by the next build without editing CMake.
function(aicf_folder name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPS;LIBS;PRIVATE_LIBS;TEST_DEPS;OBJECTS")
  set(dir "${CMAKE_SOURCE_DIR}/src/${name}")
  file(GLOB_RECURSE all CONFIGURE_DEPENDS "${dir}/*.cc")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(benches ${all})
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  set(testing ${all})
  list(FILTER testing INCLUDE REGEX "/testing/")
  list(FILTER all EXCLUDE REGEX "/testing/|_(test|bench|isa)\\.cc$")

  list(TRANSFORM arg_DEPS PREPEND aicf_)
  list(TRANSFORM arg_TEST_DEPS PREPEND aicf_)
  if(all OR arg_OBJECTS)
    add_library(aicf_${name} STATIC ${all} ${arg_OBJECTS})
    set_target_properties(aicf_${name} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(aicf_${name} PUBLIC aicf_flags ${arg_DEPS} ${arg_LIBS} PRIVATE ${arg_PRIVATE_LIBS})
    aicf_unity(aicf_${name} ${all})
  else()
    add_library(aicf_${name} INTERFACE)
    target_link_libraries(aicf_${name} INTERFACE aicf_flags ${arg_DEPS} ${arg_LIBS})
  endif()
  set_property(GLOBAL APPEND PROPERTY AICF_FOLDER_LIBS aicf_${name})

  if(AICF_TESTS AND testing)
    add_library(aicf_${name}_testing STATIC EXCLUDE_FROM_ALL ${testing})
    aicf_unity(aicf_${name}_testing ${testing})
    target_link_libraries(aicf_${name}_testing PUBLIC aicf_${name})
    target_compile_options(aicf_${name}_testing PRIVATE $<$<CONFIG:Release>:-O1>)
    list(APPEND arg_TEST_DEPS aicf_${name}_testing)
  endif()

  if(AICF_TESTS AND tests)
    add_executable(test_${name} ${tests})
    aicf_unity(test_${name} ${tests})
    target_link_libraries(test_${name} PRIVATE aicf_${name} ${arg_PRIVATE_LIBS} ${arg_TEST_DEPS} aicf_test_main)
    target_compile_definitions(test_${name} PRIVATE AICF_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    aicf_compile_tests(test_${name})
    aicf_share_test_headers(test_${name})
    aicf_add_test(test_${name})
  endif()

  if(AICF_BENCHES AND benches)
    if(NOT TARGET benches)
      add_custom_target(benches)
    endif()
    add_executable(bench_${name} EXCLUDE_FROM_ALL ${benches})
    target_link_libraries(bench_${name} PRIVATE aicf_${name} benchmark::benchmark_main)
    set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bench")
    add_dependencies(benches bench_${name})
  endif()
endfunction()
