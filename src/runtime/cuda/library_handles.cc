#include "runtime/cuda/library_handles.h"

#include <string>

#include "base/error.h"

namespace aicf::cuda {

void check_library_status(int status, const char* library, const char* call) {
  if (status == 0) return;
  throw EnvironmentError(ErrorCode::kE_library_failed, std::string("a call of ") + library + " failed")
      .with_value(call)
      .with_actual("status " + std::to_string(status))
      .with_remedy("compile again with AICF_VENDOR_LIBRARIES=0");
}

void* LibraryHandles::current() {
  Context context = nullptr;
  AICF_CUDA(driver().get_current(&context));
  const std::lock_guard<std::mutex> lock(mutex_);
  void*& handle = handles_[context];
  if (handle != nullptr) return handle;
  Device device = 0;
  if (context != nullptr) {
    AICF_CUDA(driver().current_device(&device));
    AICF_CUDA(driver().primary_retain(&context, device));
  }
  void* made = nullptr;
  const int status = create_(&made);
  if (status != 0 && context != nullptr) driver().primary_release(device);
  check_library_status(status, library_, create_name_);
  handle = made;
  return handle;
}

}  // namespace aicf::cuda
