#include "runtime/cuda/library_handles.h"

#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"

namespace aicf::cuda {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<Context, int> users;  // DeviceContexts that are alive
  std::vector<LibraryHandles*> libraries;
};

Registry& registry() {
  static Registry registry;
  return registry;
}

}  // namespace

void check_library_status(int status, const char* library, const char* call) {
  if (status == 0) return;
  throw EnvironmentError(ErrorCode::kE_library_failed, std::string("a call of ") + library + " failed")
      .with_value(call)
      .with_actual("status " + std::to_string(status))
      .with_remedy("compile again with AICF_VENDOR_LIBRARIES=0");
}

LibraryHandles::LibraryHandles(const char* library, const char* create_name, Create create, Destroy destroy)
    : library_(library), create_name_(create_name), create_(create), destroy_(destroy) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  registry().libraries.push_back(this);
}

void* LibraryHandles::current() {
  Context context = nullptr;
  AICF_CUDA(driver().get_current(&context));
  const std::lock_guard<std::mutex> lock(registry().mutex);
  AICF_CHECK(registry().users.contains(context), "a library is asked for a context that no device holds");
  void*& handle = handles_[context];
  if (handle == nullptr) check_library_status(create_(&handle), library_, create_name_);
  return handle;
}

void LibraryHandles::destroy(Context context) {
  const auto found = handles_.find(context);
  if (found == handles_.end()) return;
  if (found->second != nullptr) destroy_(found->second);  // its creation may have failed
  handles_.erase(found);
}

void retain_library_handles(Context context) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  ++registry().users[context];
}

void release_library_handles(Context context) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  if (--registry().users.at(context) > 0) return;
  registry().users.erase(context);
  for (LibraryHandles* library : registry().libraries) library->destroy(context);
}

}  // namespace aicf::cuda
