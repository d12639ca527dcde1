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

  // Prints `text` without --json, else `object` with "schema": 1 first.
  void result(const std::string& text, Json object) const;
  // Reports any exception and gives the exit code that fits.
  int report(std::exception_ptr error) const;
  // One line on stderr, redrawn; silent when it is no terminal. "" takes the last one away.
  void status(const std::string& line) const;
  // "label 3/10" on one line, redrawn; silent when stderr is no terminal.
  void progress(const std::string& label, int64_t done, int64_t total) const;
};

std::string format_ms(double milliseconds);

}  // namespace aicf::cli
