// From pageable memory, such as a mapped file of weights, to the device: threads copy pieces into page-locked
// memory, from where the copy engine takes them, so that page faults, copies and transfers run side by side.
#pragma once

#include <memory>
#include <vector>

#include "runtime/cuda/cuda_context.h"
#include "runtime/device.h"

namespace aicf::cuda {

// Below this the page-locked memory takes longer to get than it saves.
constexpr int64_t kLeastStagedBytes = int64_t{64} << 20;

// Everything has arrived when this returns.
void staged_upload(const std::shared_ptr<DeviceContext>& context, const std::vector<Transfer>& transfers);

}  // namespace aicf::cuda
