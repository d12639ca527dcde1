// Numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace aicf {

// "512 B", "23.4 KiB", "1907.3 MiB".
std::string format_bytes(int64_t bytes);
// As short as ten digits can be: "5", "-0.1", "1e+30".
std::string format_number(double value);

}  // namespace aicf
