// Names of files that callers give.
#pragma once

#include <string>

namespace aicf {

// Nothing at all, or a NUL inside, where the system would take the name to end: bad_option.
void require_path(const std::string& path);

// The folder that a file of this name lies in; "." where the name has none.
std::string folder_of(const std::string& path);

}  // namespace aicf
