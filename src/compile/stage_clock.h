#pragma once

#include <chrono>
#include <string>

#include "base/log.h"
#include "compile/compile.h"

namespace aicf {

// Times the stages of a compilation one after the other.
class StageClock {
 public:
  // Null: for the debug log alone.
  explicit StageClock(CompileReport* report) : report_(report), last_(std::chrono::steady_clock::now()) {}
  void lap(const std::string& stage) {
    const auto now = std::chrono::steady_clock::now();
    const double milliseconds = std::chrono::duration<double, std::milli>(now - last_).count();
    if (report_ != nullptr) report_->stages.push_back({stage, milliseconds});
    debug_print(1, [&] { return "stage " + stage + ": " + std::to_string(milliseconds) + " ms"; });
    last_ = now;
  }

 private:
  CompileReport* report_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace aicf
