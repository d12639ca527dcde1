#include "base/path.h"

#include "base/error.h"

namespace aicf {

void require_path(const std::string& path) {
  if (path.empty())
    throw UserError(ErrorCode::kU_bad_option, "a path is empty").with_expected("the name of a file");
  const size_t end = path.find('\0');
  if (end == std::string::npos) return;
  throw UserError(ErrorCode::kU_bad_option, "a path holds a NUL byte")
      .with_value(path.substr(0, end))
      .with_expected("the name of a file");
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace aicf
