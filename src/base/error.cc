#include "base/error.h"

#include <cstdio>
#include <cstring>

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
  text_ = "error[" + error_info(code).text + "]: " + message;
  auto line = [&](const char* label, const std::string& field) {
    if (!field.empty()) text_ += std::string("\n  ") + label + ": " + field;
  };
  line("op", op);
  line("value", value);
  line("expected", expected);
  line("actual", actual);
  line("remedy", remedy);
}

void internal_check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  const char* base = std::strrchr(file, '/');
  throw InternalError(ErrorCode::kI_check_failed, detail)
      .with_expected(condition)
      .with_actual(std::string("false at ") + (base ? base + 1 : file) + ":" + std::to_string(line))
      .with_remedy("please report this with the model or the command that led here");
}

}  // namespace aicf
