#include "api/c_bridge.h"

namespace aicf::c {
namespace {

struct LastError {
  std::string text, code;
  bool out_of_memory = false;
};
thread_local LastError last_error;

}  // namespace

aicf_status keep_error(const v1::Error& error, aicf_status status) noexcept {
  try {
    last_error.out_of_memory = false;
    last_error.text = error.what();
    last_error.code = error.code();
  } catch (...) {
    last_error.out_of_memory = true;
  }
  return status;
}

aicf_status keep_out_of_memory() noexcept {
  last_error.out_of_memory = true;
  return AICF_ENVIRONMENT_ERROR;
}

}  // namespace aicf::c

extern "C" {

const char* aicf_last_error(void) {
  return aicf::c::last_error.out_of_memory ? "memory is exhausted" : aicf::c::last_error.text.c_str();
}
const char* aicf_last_error_code(void) {
  return aicf::c::last_error.out_of_memory ? "AICF-E0002" : aicf::c::last_error.code.c_str();
}

}  // extern "C"
