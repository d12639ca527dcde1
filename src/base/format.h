// Numbers as text, the same in every locale: printf writes 0,3 where a process speaks German.
#pragma once

#include <cstdint>
#include <string>

namespace aicf {

// "512 B", "23.4 KiB", "1907.3 MiB".
std::string format_bytes(int64_t bytes);
// As short as ten digits can be: "5", "-0.1", "1e+30".
std::string format_number(double value);
// With this many decimals: "0.3".
std::string format_fixed(double value, int decimals);
// All of a double, as C's %a: "0x1.8p+0".
std::string format_hex(double value);

}  // namespace aicf
