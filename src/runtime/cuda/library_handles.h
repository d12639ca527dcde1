// What the calls of every vendor library share: how a failure is told, and one handle per context.
#pragma once

#include <map>
#include <mutex>

#include "runtime/cuda/driver.h"

namespace aicf::cuda {

// library_failed unless `status` is 0.
void check_library_status(int status, const char* library, const char* call);

// Handles live as long as the process, and so does the primary context of each, which they hold: the driver
// gives a later one the same address, and a handle of one that has ended is no handle of that.
class LibraryHandles {
 public:
  using Create = int (*)(void**);
  LibraryHandles(const char* library, const char* create_name, Create create)
      : library_(library), create_name_(create_name), create_(create) {}
  // Of the current context, made by its first use.
  void* current();

 private:
  const char *library_, *create_name_;
  Create create_;
  std::mutex mutex_;
  std::map<Context, void*> handles_;
};

}  // namespace aicf::cuda
