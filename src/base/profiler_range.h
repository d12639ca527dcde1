// A named range on the time line of NVIDIA's profilers (NVTX), from construction to destruction in one
// thread. A build without AICF_ENABLE_NVTX has none of it. The name must be a C string; it is copied.
#pragma once

namespace aicf {

#ifdef AICF_ENABLE_NVTX
class ProfilerRange {
 public:
  explicit ProfilerRange(const char* name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};
#else
class [[maybe_unused]] ProfilerRange {
 public:
  explicit ProfilerRange(const char*) {}
};
#endif

}  // namespace aicf
