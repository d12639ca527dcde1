#include "runtime/device.h"

#include <algorithm>
#include <cstring>

namespace aicf {
namespace {

constexpr int64_t kNaturalAlignment = 8;

}  // namespace

std::vector<double> medians(std::vector<std::vector<double>> samples) {
  std::vector<double> middle;
  for (std::vector<double>& list : samples) {
    std::sort(list.begin(), list.end());
    middle.push_back(list.empty() ? 0 : list[list.size() / 2]);
  }
  return middle;
}

int64_t HostDevice::alignment(int64_t element_bytes) const {
  return std::min(kNaturalAlignment, element_bytes);
}

void HostDevice::upload(std::byte* to, const void* from, int64_t bytes, Stream) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void HostDevice::download(void* to, const std::byte* from, int64_t bytes, Stream) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void HostDevice::copy(std::byte* to, const std::byte* from, int64_t bytes, Stream) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void HostDevice::zero(std::byte* to, int64_t bytes, Stream) {
  if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
}

std::shared_ptr<const Code> HostDevice::load_code(const Variant&) { return nullptr; }

}  // namespace aicf
