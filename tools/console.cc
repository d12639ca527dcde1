#include "console.h"

#include <unistd.h>

#include <cstdio>

namespace aicf::cli {
namespace {

int exit_code(ErrorKind kind) {
  return kind == ErrorKind::kUser          ? kUserError
         : kind == ErrorKind::kEnvironment ? kEnvironmentError
                                           : kInternalError;
}

std::string_view kind_name(ErrorKind kind) {
  return kind == ErrorKind::kUser ? "user" : kind == ErrorKind::kEnvironment ? "environment" : "internal";
}

void print_error(const Error& error, bool json) {
  std::fprintf(stderr, "%s\n", error.what());
  if (!json) return;
  const Json body = {{"code", error_info(error.code).text},
                     {"kind", kind_name(error.kind())},
                     {"message", error.message},
                     {"op", error.op},
                     {"value", error.value},
                     {"expected", error.expected},
                     {"actual", error.actual},
                     {"remedy", error.remedy}};
  std::printf(
      "%s\n",
      Json{{"schema", 1}, {"error", body}}.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace

void Console::result(const std::string& text, Json object) const {
  if (!json) {
    std::fputs(text.c_str(), stdout);
    return;
  }
  Json whole = {{"schema", 1}};
  whole.update(object);
  std::printf("%s\n", whole.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

int Console::report(std::exception_ptr error) const {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    print_error(e, json);
    const bool check = e.code == ErrorCode::kU_verify_failed || e.code == ErrorCode::kU_validate_failed;
    return check ? kCheckFailed : exit_code(e.kind());
  } catch (const std::bad_alloc&) {
    print_error(EnvironmentError(ErrorCode::kE_out_of_memory, "memory could not be allocated"), json);
    return kEnvironmentError;
  } catch (const std::exception& e) {
    print_error(InternalError(ErrorCode::kI_check_failed, e.what()), json);
    return kInternalError;
  }
}

void Console::status(const std::string& line) const {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
}

void Console::progress(const std::string& label, int64_t done, int64_t total) const {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r%s %lld/%lld%s", label.c_str(), static_cast<long long>(done),
               static_cast<long long>(total), done == total ? "\r\033[K" : "");
  std::fflush(stderr);
}

std::string format_ms(double milliseconds) {
  char text[32];
  if (milliseconds < 0.1)
    std::snprintf(text, sizeof(text), "%.2f µs", milliseconds * 1000);
  else
    std::snprintf(text, sizeof(text), milliseconds < 10 ? "%.3f ms" : "%.1f ms", milliseconds);
  return text;
}

}  // namespace aicf::cli
