// A stranger's artifact: a good one taken apart, to be put together again with another plan and fitting
// checksums, loaded and run.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "artifact/artifact.h"
#include "base/error.h"
#include "runtime/device.h"

namespace aicf::testing {

class Forger {
 public:
  using Json = nlohmann::json;

  // Sizes run at both ends of the plan's ranges, but at no more than `largest_size`.
  Forger(const Artifact& good, int64_t largest_size);
  ~Forger();
  Forger(const Forger&) = delete;
  Forger& operator=(const Forger&) = delete;

  const Json& plan() const { return plan_; }
  const std::string& file() const { return file_; }

  // Loads and runs the good artifact with this plan, or these bytes. Nothing but success or an error of ours
  // about the input may come of it, soon.
  void expect_sound_plan(const std::string& text, const std::string& what);
  void expect_sound_plan(const Json& plan, const std::string& what);
  void expect_sound_file(const std::string& bytes, const std::string& what);
  // Of the error that a plan ends in; check_failed if it ends in none.
  ErrorCode code_of(const Json& plan);

  int64_t accepted() const { return accepted_; }
  const std::string& last_text() const { return last_text_; }

 private:
  void write(const std::string& bytes);
  void expect_our_errors_only(const std::string& what);
  void use();

  const std::string good_path_, path_;
  const int64_t largest_size_;
  std::shared_ptr<Device> device_;
  std::string file_, version_;
  Json header_, plan_;
  std::map<std::string, Array> others_;
  int64_t accepted_ = 0;
  ErrorCode last_ = ErrorCode::kI_check_failed;
  std::string last_text_;
};

}  // namespace aicf::testing
