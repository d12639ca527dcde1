# libaicf.so with its CMake package, from src/api/*.cc and every folder library. Only what carries AICF_API is visible;
# the version script also hides the weak std:: instantiations that compilers export regardless of -fvisibility.

add_library(aicf SHARED $<TARGET_OBJECTS:aicf_api_objects>)
add_library(AICF::aicf ALIAS aicf)
target_link_libraries(aicf PRIVATE ${folders})
target_include_directories(aicf INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(aicf INTERFACE cxx_std_17)
target_link_options(aicf PRIVATE "-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/libaicf.map" -Wl,--exclude-libs,ALL)
if(NOT AICF_SANITIZE)
  target_link_options(aicf PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(aicf PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS "${CMAKE_SOURCE_DIR}/cmake/libaicf.map")

if(SKBUILD)
  return()
endif()
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/AICF")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/AICFConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
install(TARGETS aicf EXPORT AICFTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT AICFTargets NAMESPACE AICF:: DESTINATION ${package_dir})
install(FILES "${CMAKE_SOURCE_DIR}/cmake/AICFConfig.cmake" "${CMAKE_BINARY_DIR}/AICFConfigVersion.cmake"
  DESTINATION ${package_dir})
# The prefix is found from the file's own place, so that an installed folder may move.
file(RELATIVE_PATH AICF_PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" AICF_PC_PREFIX "${AICF_PC_PREFIX}")
configure_file("${CMAKE_SOURCE_DIR}/cmake/aicf.pc.in" "${CMAKE_BINARY_DIR}/aicf.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/aicf.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" "${CMAKE_SOURCE_DIR}/THIRD_PARTY_NOTICES"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/aicf" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
