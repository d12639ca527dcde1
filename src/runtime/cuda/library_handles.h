// What the calls of every vendor library share: how a failure is told, and one handle per context, which
// lives as long as a DeviceContext of it.
#pragma once

#include <map>

#include "runtime/cuda/driver.h"

namespace aicf::cuda {

// library_failed unless `status` is 0.
void check_library_status(int status, const char* library, const char* call);

// The handles of one library. An instance lives as long as the process.
class LibraryHandles {
 public:
  using Create = int (*)(void**);
  using Destroy = int (*)(void*);
  LibraryHandles(const char* library, const char* create_name, Create create, Destroy destroy);
  LibraryHandles(const LibraryHandles&) = delete;
  LibraryHandles& operator=(const LibraryHandles&) = delete;
  // Of the current context, made by its first use. A DeviceContext of it is alive.
  void* current();

 private:
  friend void release_library_handles(Context context);
  void destroy(Context context);
  const char *library_, *create_name_;
  Create create_;
  Destroy destroy_;
  std::map<Context, void*> handles_;
};

// Of DeviceContext: one more of this context lives, one less. The last one destroys the context's handles:
// the driver may give the next context the same address. The context is current.
void retain_library_handles(Context context);
void release_library_handles(Context context);

}  // namespace aicf::cuda
