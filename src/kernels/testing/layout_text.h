// For tests that what the host counts of shared memory is what the device lays out: a kernel's text without
// its functions, and assertions in their place, which NVRTC or nvcc checks.
#pragma once

#include <string>

namespace aicf::cuda_testing {

class LayoutText {
 public:
  // `source`: of CudaCode.
  explicit LayoutText(const std::string& source)
      : text_(source.substr(0, source.find("extern \"C\" __global__"))) {}
  void use(const std::string& name, const std::string& type) {
    text_ += "using " + name + " = " + type + ";\n";
  }
  void equal(const std::string& device, int64_t host) {
    text_ += "static_assert(" + device + " == " + std::to_string(host) + ", \"" + device + "\");\n";
  }
  // What needs device code to be compiled at all.
  std::string text() const { return text_ + "extern \"C\" __global__ void none() {}\n"; }

 private:
  std::string text_;
};

}  // namespace aicf::cuda_testing
