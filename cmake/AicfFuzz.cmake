# One executable per fuzz/*.cc. With AICF_FUZZ over libFuzzer and libraries that carry the coverage instrumentation
# (AicfFlags.cmake), named as the source; else, built only when asked for, mutate_NAME, which draws its mutations by a
# seed (fuzz/plain/driver.cc) and needs no clang.

file(GLOB fuzz_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/fuzz/*.cc")
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name "${source}" NAME_WE)
  set(needed "")
  if(name STREQUAL "fuzz_npz")
    set(needed "${CMAKE_SOURCE_DIR}/tools/npz.cc")
  endif()
  if(AICF_FUZZ)
    add_executable(${name} "${source}" ${needed})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set(target ${name})
  else()
    string(REPLACE "fuzz_" "mutate_" target "${name}")
    add_executable(${target} EXCLUDE_FROM_ALL "${source}" ${needed} "${CMAKE_SOURCE_DIR}/fuzz/plain/driver.cc")
  endif()
  target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}/tools" "${CMAKE_SOURCE_DIR}/fuzz")
  target_link_libraries(${target} PRIVATE ${folders} aicf::minizip)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
endforeach()
