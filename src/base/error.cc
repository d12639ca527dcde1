#include "base/error.h"

#include <cstdio>
#include <cstring>

#include "base/printable.h"

namespace aicf {
namespace {

ErrorKind kind_of(char letter) {
  return letter == 'U' ? ErrorKind::kUser : letter == 'E' ? ErrorKind::kEnvironment : ErrorKind::kInternal;
}

std::string code_text(char letter, int number) {
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), "AICF-%c%04d", letter, number);
  return buffer;
}

}  // namespace

const std::vector<ErrorInfo>& error_table() {
  static const std::vector<ErrorInfo> table = {
#define AICF_ERROR(kind, number, name, meaning) \
  {ErrorCode::k##kind##_##name, kind_of(#kind[0]), code_text(#kind[0], number), #name, meaning},
#include "base/errors.def"
#undef AICF_ERROR
  };
  return table;
}

const ErrorInfo& error_info(ErrorCode code) { return error_table()[static_cast<size_t>(code)]; }

void Error::refresh() {
  text_ = "error[" + error_info(code).text + "]: " + error_lines(message);
  auto line = [&](const char* label, const std::string& text) {
    if (!text.empty()) text_ += std::string("\n  ") + label + ": " + text;
  };
  line("op", printable_name(op));
  line("value", printable_name(value));
  line("expected", error_lines(expected));
  line("actual", error_lines(actual));
  line("remedy", error_lines(remedy));
}

void internal_check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  const char* base = std::strrchr(file, '/');
  throw InternalError(ErrorCode::kI_check_failed, detail)
      .with_expected(condition)
      .with_actual(std::string("false at ") + (base ? base + 1 : file) + ":" + std::to_string(line))
      .with_remedy("please report this with the model or the command that led here");
}

}  // namespace aicf
