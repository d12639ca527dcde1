// What the command line prints and returns: errors on stderr in words or as JSON on stdout, one JSON object
// with --json, progress on stderr only when it is a terminal.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace aicf::cli {

using Json = nlohmann::ordered_json;

enum ExitCode { kOk = 0, kCheckFailed = 1, kUserError = 2, kEnvironmentError = 3, kInternalError = 4 };

struct Console {
  bool json = false;
  int verbosity = 0;

  // Prints `text` without --json, else `object` with "schema": 1 first.
  void result(const std::string& text, Json object) const;
  // Reports any exception and gives the exit code that fits.
  int report(std::exception_ptr error) const;
  static ExitCode exit_code(const Error& error);
  // What is being done: show_status.
  void status(const std::string& line) const;
  // "label 3/10".
  void progress(const std::string& label, int64_t done, int64_t total) const;
  // " took 0.12 s, at most 34.5 MiB of memory"
  std::string spent() const;
};

// What is being done, as one line on stderr with the seconds since the program's start, redrawn while it
// lasts; silent when stderr is no terminal and in the first second. "" takes the line away, as results and
// errors do.
void show_status(const std::string& line);

std::string format_ms(double milliseconds);

}  // namespace aicf::cli
