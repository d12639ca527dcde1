// Memory that could not be had, told without memory: std::bad_alloc says it, and std::system_error of a
// thread that could not be started. Every border (command line, C, C++, Python) turns both into
// out_of_memory.
#pragma once

#include <exception>

#include "base/error.h"

namespace aicf {

bool says_out_of_memory(const std::exception& error);
// May itself find no memory for its text: std::bad_alloc.
EnvironmentError out_of_memory_error(const std::exception& error);

// Whether the process has come so near to its limit on address space (ulimit -v) that memory may have been
// refused to it: for what a library reports in words that do not say so.
bool met_memory_limit();

// What is printed where there is no memory for an Error.
inline constexpr char kOutOfMemoryText[] =
    "error[AICF-E0002]: memory could not be allocated\n"
    "  remedy: free memory, or raise the limit of the process (ulimit -v, the container's)\n";
inline constexpr char kOutOfMemoryJson[] =
    "{\n  \"schema\": 1,\n  \"error\": {\n    \"code\": \"AICF-E0002\",\n    \"kind\": \"environment\",\n"
    "    \"message\": \"memory could not be allocated\",\n    \"op\": \"\",\n    \"value\": \"\",\n"
    "    \"expected\": \"\",\n    \"actual\": \"\",\n"
    "    \"remedy\": \"free memory, or raise the limit of the process (ulimit -v, the container's)\"\n  "
    "}\n}\n";

}  // namespace aicf
