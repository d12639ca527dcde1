# Text files that travel inside the library.

set(AICF_EMBED_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/embed_text.cmake")

# aicf_embed(<variable> PATTERN <glob> ROOT <folder> HEADER <header> TYPE <struct> FUNCTION <name>)
#
# Sets <variable> to a generated source file with a function, declared in <header> under src/, that lists every file
# of <glob> (also in folders below) as a row {name, text}; names are paths from <folder>.
function(aicf_embed variable)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PATTERN;ROOT;HEADER;TYPE;FUNCTION" "")
  file(GLOB_RECURSE files CONFIGURE_DEPENDS "${arg_PATTERN}")
  set(output "${CMAKE_BINARY_DIR}/generated/${arg_FUNCTION}.cc")
  add_custom_command(
    OUTPUT "${output}"
    COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${output}" "-DROOT=${arg_ROOT}" "-DHEADER=${arg_HEADER}" "-DTYPE=${arg_TYPE}"
            "-DFUNCTION=${arg_FUNCTION}" "-DFILES=${files}" -P "${AICF_EMBED_SCRIPT}"
    DEPENDS ${files} "${AICF_EMBED_SCRIPT}"
    VERBATIM)
  set(${variable} "${output}" PARENT_SCOPE)
endfunction()
