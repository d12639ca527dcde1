// An Error as one text, for another process.
#pragma once

#include <string>

#include "base/error.h"

namespace aicf {

std::string packed(const Error& error);
// Throws the error again; check_failed if the text is none of packed().
[[noreturn]] void throw_packed(const std::string& text);

}  // namespace aicf
