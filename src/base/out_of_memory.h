// Memory that could not be had, told without memory: std::bad_alloc says it, and std::system_error of a
// thread that could not be started. Every border (command line, C, C++, Python) turns both into
// out_of_memory.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "base/error.h"

namespace aicf {

bool says_out_of_memory(const std::exception& error);
// May itself find no memory for its text: std::bad_alloc.
EnvironmentError out_of_memory_error(const std::exception& error);

// out_of_memory unless so many bytes, which `what` takes, can be had now. For code of others that ends the
// process where it finds no memory: constructors of libraries, and destructors, such as those of nlohmann's
// JSON, which keep what they take apart in a vector.
void require_room(uint64_t bytes, const std::string& what);
// For a JSON text of so many bytes, what is parsed of it, and what is made of that.
void require_room_for_json(uint64_t bytes, const std::string& what);

// Whether the process has come so near to its limit on address space (ulimit -v) that memory may have been
// refused to it: for what a library reports in words that do not say so, or by a signal. It takes no memory,
// and a handler of signals may call it.
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
