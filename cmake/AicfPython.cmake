# The Python extension aicf._aicf: everything static inside. In a plain build it is written into python/aicf, so that
# an interpreter with python/ on its path imports the tree as it is; a wheel build installs it instead.

file(GLOB binding_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/python/bindings/*.cc")
if(NOT binding_sources)
  return()
endif()

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT
  RESULT_VARIABLE nanobind_missing)
if(nanobind_missing)
  message(FATAL_ERROR "${Python_EXECUTABLE} has no nanobind: run make setup")
endif()
find_package(nanobind CONFIG REQUIRED)

nanobind_add_module(_aicf NB_STATIC NB_DOMAIN aicf ${binding_sources})
target_link_libraries(_aicf PRIVATE ${folders})
aicf_unity(_aicf ${binding_sources})
if(TARGET aicf_api_objects)
  target_sources(_aicf PRIVATE $<TARGET_OBJECTS:aicf_api_objects>)
endif()
target_compile_definitions(_aicf PRIVATE AICF_VERSION="${PROJECT_VERSION}")
if(SKBUILD)
  # A wheel meets C++ runtimes of unknown age.
  target_link_options(_aicf PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL)
  install(TARGETS _aicf LIBRARY DESTINATION aicf)
else()
  set_target_properties(_aicf PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_SOURCE_DIR}/python/aicf")
endif()
