// For tests that compile CUDA texts one by one, or all for one architecture.
#pragma once

#include <string>
#include <vector>

#include "codegen/nvrtc.h"

namespace aicf {

inline std::vector<CudaUnit> units_of(const std::vector<std::string>& sources, const std::string& target) {
  std::vector<CudaUnit> units;
  for (const std::string& source : sources) units.push_back({source, target});
  return units;
}

inline std::vector<std::string> compile_cuda(const std::vector<std::string>& sources,
                                             const std::string& target) {
  return compile_cuda(units_of(sources, target));
}
inline std::string compile_cuda(const std::string& source, const std::string& target) {
  return compile_cuda(units_of({source}, target))[0];
}
inline void check_cuda(const std::vector<std::string>& sources, const std::string& target) {
  check_cuda(units_of(sources, target));
}

}  // namespace aicf
