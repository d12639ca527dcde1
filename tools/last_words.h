// What the program says when it cannot go on: an exception that nobody caught, which is most often memory
// that ran out where nothing may throw, and a file that was cut off under its mapping. It ends with a coded
// error and the exit code of its kind, not with a signal.
#pragma once

namespace aicf::cli {

// They are set before main begins. Whether a word of the command line is --json: then the error is one JSON
// object on stdout, too.
bool asks_for_json();

}  // namespace aicf::cli
