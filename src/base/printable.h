// Text for people that a stranger's names are part of: what would move a terminal's cursor, colour it or turn
// the writing direction stands as its code, "\x1b", "\u202e", so that a file cannot paint on the screen.
#pragma once

#include <string>
#include <string_view>

namespace aicf {

// A name: on one line, "\n" for its line break.
std::string printable_name(std::string_view name);
// Text of ours, whose line breaks and tabs stay.
std::string printable_text(std::string_view text);
// The same as errors print it: a line break inside begins an indented line, so that no name in it can pass
// for an error of its own.
std::string error_lines(std::string_view text);

}  // namespace aicf
