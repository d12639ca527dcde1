// Built twice: without NVTX in test_base, where a range must be nothing, and with it in test_nvtx, where this
// file stands in for a profiler.
#include "base/profiler_range.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#ifdef AICF_ENABLE_NVTX

#define NVTX_NO_IMPL  // the types only
#include <nvtx3/nvToolsExt.h>

namespace {

std::vector<std::string>& events() {
  static std::vector<std::string> list;
  return list;
}

nvtxDomainHandle_t NVTX_API create(const char* name) {
  events().push_back(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&events());
}
int NVTX_API push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  events().push_back(std::string("push ") + event->message.ascii);
  return 0;
}
int NVTX_API pop(nvtxDomainHandle_t) {
  events().emplace_back("pop");
  return 0;
}

int NVTX_API attach(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

}  // namespace

// NVTX asks for this symbol where a program brings its own profiler.
extern "C" {
__attribute__((visibility("default"))) NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr =
    attach;
}

namespace aicf {
namespace {

TEST(ProfilerRange, AProfilerSeesRangesWithinEachOther) {
  {
    const ProfilerRange outer("run");
    const ProfilerRange inner("matmul");
  }
  EXPECT_EQ(events(), (std::vector<std::string>{"domain aicf", "push run", "push matmul", "pop", "pop"}));
}

}  // namespace
}  // namespace aicf

#else

namespace aicf {
namespace {

TEST(ProfilerRange, IsNothingWithoutNvtx) { EXPECT_TRUE(std::is_trivially_destructible_v<ProfilerRange>); }

}  // namespace
}  // namespace aicf

#endif
