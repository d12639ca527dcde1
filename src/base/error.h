// Coded errors. A user's mistake, a failing environment and our own bug are different types with different
// words; each carries the op, the value, what was expected, what was found, and what to do. errors.def lists
// the codes.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace aicf {

enum class ErrorKind { kUser, kEnvironment, kInternal };

enum class ErrorCode {
#define AICF_ERROR(kind, number, name, meaning) k##kind##_##name,
#include "base/errors.def"
#undef AICF_ERROR
};

struct ErrorInfo {
  ErrorCode code;
  ErrorKind kind;
  std::string text;  // "AICF-U0001"
  std::string_view name, meaning;
};

// All codes in the order of errors.def.
const std::vector<ErrorInfo>& error_table();
const ErrorInfo& error_info(ErrorCode code);

// Base of all three types. Fill the fields with the chained setters:
//   throw UserError(ErrorCode::kU_input_shape, "input 'x' has the wrong
//   rank").with_expected("2").with_actual("3").with_remedy("…");
class Error : public std::exception {
 public:
  ErrorCode code;
  std::string message, op, value, expected, actual, remedy;

  const char* what() const noexcept override { return text_.c_str(); }
  ErrorKind kind() const { return error_info(code).kind; }
  // The form printed on stderr: "error[AICF-U0103]: …" then one line per filled field.
  const std::string& text() const { return text_; }
  // Recomputes what() after a field was changed directly.
  void refresh();

 protected:
  Error(ErrorCode c, std::string msg) : code(c), message(std::move(msg)) { refresh(); }

 private:
  std::string text_;
};

#define AICF_DECLARE_ERROR_SETTER(Type, field) \
  Type& with_##field(std::string text) {       \
    field = std::move(text);                   \
    refresh();                                 \
    return *this;                              \
  }
#define AICF_DECLARE_ERROR_TYPE(Type)                                              \
  class Type : public Error {                                                      \
   public:                                                                         \
    Type(ErrorCode code, std::string message) : Error(code, std::move(message)) {} \
    AICF_DECLARE_ERROR_SETTER(Type, op)                                            \
    AICF_DECLARE_ERROR_SETTER(Type, value)                                         \
    AICF_DECLARE_ERROR_SETTER(Type, expected)                                      \
    AICF_DECLARE_ERROR_SETTER(Type, actual)                                        \
    AICF_DECLARE_ERROR_SETTER(Type, remedy)                                        \
  };
AICF_DECLARE_ERROR_TYPE(UserError)
AICF_DECLARE_ERROR_TYPE(EnvironmentError)
AICF_DECLARE_ERROR_TYPE(InternalError)
#undef AICF_DECLARE_ERROR_TYPE
#undef AICF_DECLARE_ERROR_SETTER

[[noreturn]] void internal_check_failed(const char* file, int line, const char* condition,
                                        const std::string& detail);

// Invariants of our own: always on, because plans steer raw memory.
#define AICF_CHECK(cond, detail)                                                     \
  do {                                                                               \
    if (!(cond)) ::aicf::internal_check_failed(__FILE__, __LINE__, #cond, (detail)); \
  } while (0)

}  // namespace aicf
