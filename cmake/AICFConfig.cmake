include("${CMAKE_CURRENT_LIST_DIR}/AICFTargets.cmake")
