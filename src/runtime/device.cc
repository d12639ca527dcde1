#include "runtime/device.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace aicf {
namespace {

constexpr int64_t kNaturalAlignment = 8;

}  // namespace

std::string device_name(const DeviceId& id) { return id.cuda ? "cuda:" + std::to_string(id.ordinal) : "cpu"; }

void check_same_device(const DeviceId& array, const DeviceId& executable, const std::string& what) {
  if (array == executable) return;
  throw UserError(ErrorCode::kU_unsupported_option, what + " is in the memory of another device")
      .with_expected(device_name(executable) + (executable.cuda ? " or cpu" : ""))
      .with_actual(device_name(array))
      .with_remedy("copy it before the call, or load the model onto that device");
}

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

void Device::upload_all(const std::vector<Transfer>& transfers) {
  for (const Transfer& transfer : transfers) upload(transfer.to, transfer.from, transfer.bytes, {});
  wait({});
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
