// The first of several reports that throw, when all of them must be asked: each forgets what it tells.
#pragma once

#include <exception>

namespace aicf::cuda {

class FirstError {
 public:
  template <typename Report>
  void note(const Report& report) {
    try {
      report();
    } catch (...) {
      if (first_ == nullptr) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace aicf::cuda
