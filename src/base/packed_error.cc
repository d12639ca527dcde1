#include "base/packed_error.h"

#include <algorithm>
#include <array>
#include <sstream>

namespace aicf {
namespace {

constexpr std::array<std::string Error::*, 6> kFields = {&Error::message,  &Error::op,     &Error::value,
                                                         &Error::expected, &Error::actual, &Error::remedy};

template <class Type>
[[noreturn]] void rethrow(const ErrorInfo& info, const std::array<std::string, kFields.size()>& fields) {
  Type error(info.code, "");
  for (size_t i = 0; i < kFields.size(); ++i) error.*kFields[i] = fields[i];
  error.refresh();
  throw error;
}

}  // namespace

std::string packed(const Error& error) {
  std::string text = error_info(error.code).text;
  for (const auto field : kFields) text += '\0' + error.*field;
  return text;
}

void throw_packed(const std::string& text) {
  std::istringstream in(text);
  std::string code;
  std::getline(in, code, '\0');
  std::array<std::string, kFields.size()> fields;
  for (std::string& field : fields) std::getline(in, field, '\0');
  const auto& table = error_table();
  const auto info = std::find_if(table.begin(), table.end(), [&](const auto& i) { return i.text == code; });
  AICF_CHECK(info != table.end(), "another process sent an error that does not exist: " + code);
  if (info->kind == ErrorKind::kUser) rethrow<UserError>(*info, fields);
  if (info->kind == ErrorKind::kEnvironment) rethrow<EnvironmentError>(*info, fields);
  rethrow<InternalError>(*info, fields);
}

}  // namespace aicf
