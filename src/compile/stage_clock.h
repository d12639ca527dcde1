#pragma once

#include <chrono>
#include <string>

#include "base/log.h"
#include "compile/compile.h"

namespace aicf {

// Tells of the stages of a compilation, one after the other, and times them.
class StageClock {
 public:
  // Null: for the debug log alone.
  StageClock(CompileReport* report, const CompileOptions& options) : report_(report), options_(options) {}
  void begin(std::string_view stage, size_t parts = 1) {
    at_ = {stage, 0, parts};
    start_ = std::chrono::steady_clock::now();
    tell();
  }
  void part_done() {
    ++at_.done;
    tell();
  }
  void parts_done(size_t count) {
    at_.done = count;
    tell();
  }
  void end() { end(at_.stage); }
  void end(std::string_view name) {
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start_;
    const std::string stage(name);
    if (report_ != nullptr) report_->stages.push_back({stage, taken.count()});
    debug_print(1, [&] { return "stage " + stage + ": " + std::to_string(taken.count()) + " ms"; });
  }

 private:
  void tell() const {
    if (options_.on_stage) options_.on_stage(at_);
  }
  CompileReport* report_;
  const CompileOptions& options_;
  StageProgress at_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace aicf
