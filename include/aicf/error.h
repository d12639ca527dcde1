// What the library throws. A mistake of the user, a failing environment and a bug of the library are three
// types; each carries a stable code ("AICF-U0403") and, where they apply, the op or tensor, the value, what
// was expected, what was found, what to do.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "aicf/version.h"

namespace aicf::v1 {

struct ErrorFields {
  std::string code, message, op, value, expected, actual, remedy;
  std::string text;  // all of the above, as the command line prints it
};

class AICF_API Error : public std::exception {
 public:
  explicit Error(ErrorFields fields);
  Error(const Error&) noexcept;
  Error& operator=(const Error&) noexcept;
  ~Error() override;

  const char* what()
      const noexcept override;  // several lines: code and message, then the fields that are filled
  const std::string& code() const noexcept { return fields_->code; }
  const std::string& message() const noexcept { return fields_->message; }
  const std::string& op() const noexcept { return fields_->op; }
  const std::string& value() const noexcept { return fields_->value; }
  const std::string& expected() const noexcept { return fields_->expected; }
  const std::string& actual() const noexcept { return fields_->actual; }
  const std::string& remedy() const noexcept { return fields_->remedy; }

 private:
  std::shared_ptr<const ErrorFields> fields_;
};

// The model, an input or an option is wrong.
class AICF_API UserError : public Error {
 public:
  using Error::Error;
  ~UserError() override;
};

// The machine or its operating system cannot do what was asked: memory, files, devices.
class AICF_API EnvironmentError : public Error {
 public:
  using Error::Error;
  ~EnvironmentError() override;
};

// A bug in the library; please report it.
class AICF_API InternalError : public Error {
 public:
  using Error::Error;
  ~InternalError() override;
};

}  // namespace aicf::v1
