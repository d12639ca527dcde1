// Whether something may be done, or else why not: what the checks of a rule give, so that the first refusal
// is what people are shown.
#pragma once

#include <string>
#include <utility>

namespace aicf {

class Decision {
 public:
  Decision() = default;  // it may
  static Decision no(std::string why) { return Decision(std::move(why)); }
  explicit operator bool() const { return why_.empty(); }
  const std::string& why() const { return why_; }  // not

 private:
  explicit Decision(std::string why) : why_(std::move(why)) {}
  std::string why_;
};

}  // namespace aicf
