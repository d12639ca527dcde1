// Numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace aicf {

// "512 B", "23.4 KiB", "1907.3 MiB".
std::string format_bytes(int64_t bytes);

}  // namespace aicf
