#include "base/profiler_range.h"

#ifdef AICF_ENABLE_NVTX

#include <nvtx3/nvToolsExt.h>

namespace aicf {
namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("aicf");
  return handle;
}

}  // namespace

ProfilerRange::ProfilerRange(const char* name) {
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &event);
}

ProfilerRange::~ProfilerRange() { nvtxDomainRangePop(domain()); }

}  // namespace aicf

#endif
