# What leaves the build: libaicf.so and its CMake package, the command line tool, the Python extension, the examples
# and the fuzzers. Each appears as soon as its folder has sources.

get_property(folders GLOBAL PROPERTY AICF_FOLDER_LIBS)
file(GLOB_RECURSE api_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/api/*.cc")
set(api_tests ${api_sources})
list(FILTER api_tests INCLUDE REGEX "_test\\.cc$")
list(FILTER api_sources EXCLUDE REGEX "_test\\.cc$")

include(GNUInstallDirs)
if(AICF_SHARED_LIB AND api_sources)
  include(AicfSharedLib)
endif()

file(GLOB tool_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/*.cc")
if(AICF_TOOLS AND tool_sources)
  add_executable(aicf_cli ${tool_sources})
  set_target_properties(aicf_cli PROPERTIES OUTPUT_NAME aicf)
  target_link_libraries(aicf_cli PRIVATE ${folders} aicf::cli11 aicf::json)
  target_compile_definitions(aicf_cli PRIVATE AICF_VERSION="${PROJECT_VERSION}")
  install(TARGETS aicf_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli)
endif()

if(AICF_PYTHON)
  include(AicfPython)
endif()
if(AICF_FUZZ)
  include(AicfFuzz)
endif()
