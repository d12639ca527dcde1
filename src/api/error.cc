#include "api/bridge.h"
#include "base/out_of_memory.h"

namespace aicf::v1 {
namespace {

ErrorFields fields_of(const core::Error& error) {
  return {core::error_info(error.code).text,
          error.message,
          error.op,
          error.value,
          error.expected,
          error.actual,
          error.remedy,
          error.text()};
}

[[noreturn]] void throw_public(const core::Error& error) {
  switch (error.kind()) {
    case core::ErrorKind::kUser:
      throw UserError(fields_of(error));
    case core::ErrorKind::kEnvironment:
      throw EnvironmentError(fields_of(error));
    case core::ErrorKind::kInternal:
      break;
  }
  throw InternalError(fields_of(error));
}

}  // namespace

Error::Error(ErrorFields fields) : fields_(std::make_shared<const ErrorFields>(std::move(fields))) {}
Error::Error(const Error&) noexcept = default;
Error& Error::operator=(const Error&) noexcept = default;
Error::~Error() = default;
const char* Error::what() const noexcept { return fields_->text.c_str(); }
UserError::~UserError() = default;
EnvironmentError::~EnvironmentError() = default;
InternalError::~InternalError() = default;

void rethrow_public() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const core::Error& error) {
    throw_public(error);
  } catch (const std::exception& error) {
    if (core::says_out_of_memory(error)) throw_public(core::out_of_memory_error(error));
    throw_public(core::InternalError(core::ErrorCode::kI_check_failed, error.what())
                     .with_remedy("please report this"));
  }
}

void detail::throw_empty() {
  throw_public(core::UserError(core::ErrorCode::kU_misuse, "an object is used that holds nothing")
                   .with_actual("it was moved from")
                   .with_remedy("use the object that it was moved to"));
}

}  // namespace aicf::v1
