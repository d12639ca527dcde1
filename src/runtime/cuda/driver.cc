#include "runtime/cuda/driver.h"

#include "base/dynamic_library.h"
#include "base/error.h"

namespace aicf::cuda {
namespace {

Driver load_driver() {
  const DynamicLibrary library =
      DynamicLibrary::open({"libcuda.so.1"}, "install NVIDIA's driver; 'aicf doctor' tells what is there");
  Driver d;
  library.load(d.init, "cuInit");
  library.load(d.driver_version, "cuDriverGetVersion");
  library.load(d.error_name, "cuGetErrorName");
  library.load(d.error_string, "cuGetErrorString");
  library.load(d.device_count, "cuDeviceGetCount");
  library.load(d.device_get, "cuDeviceGet");
  library.load(d.device_name, "cuDeviceGetName");
  library.load(d.device_attribute, "cuDeviceGetAttribute");
  library.load(d.primary_retain, "cuDevicePrimaryCtxRetain");
  library.load(d.primary_release, "cuDevicePrimaryCtxRelease_v2");
  library.load(d.set_current, "cuCtxSetCurrent");
  library.load(d.get_current, "cuCtxGetCurrent");
  library.load(d.context_synchronize, "cuCtxSynchronize");
  library.load(d.memory_info, "cuMemGetInfo_v2");
  library.load(d.allocate, "cuMemAlloc_v2");
  library.load(d.release, "cuMemFree_v2");
  library.load(d.host_allocate, "cuMemHostAlloc");
  library.load(d.host_release, "cuMemFreeHost");
  library.load(d.host_address, "cuMemHostGetDevicePointer_v2");
  library.load(d.pointer_attributes, "cuPointerGetAttributes");
  library.load(d.copy_in, "cuMemcpyHtoDAsync_v2");
  library.load(d.copy_out, "cuMemcpyDtoHAsync_v2");
  library.load(d.copy_within, "cuMemcpyDtoDAsync_v2");
  library.load(d.fill_bytes, "cuMemsetD8Async");
  library.load(d.stream_create, "cuStreamCreate");
  library.load(d.stream_destroy, "cuStreamDestroy_v2");
  library.load(d.stream_synchronize, "cuStreamSynchronize");
  library.load(d.stream_begin_capture, "cuStreamBeginCapture_v2");
  library.load(d.stream_end_capture, "cuStreamEndCapture");
  library.load(d.event_create, "cuEventCreate");
  library.load(d.event_destroy, "cuEventDestroy_v2");
  library.load(d.event_record, "cuEventRecord");
  library.load(d.event_synchronize, "cuEventSynchronize");
  library.load(d.stream_wait_event, "cuStreamWaitEvent");
  library.load(d.event_elapsed, "cuEventElapsedTime");
  library.load(d.module_load, "cuModuleLoadData");
  library.load(d.module_unload, "cuModuleUnload");
  library.load(d.module_function, "cuModuleGetFunction");
  library.load(d.function_set_attribute, "cuFuncSetAttribute");
  library.load(d.launch, "cuLaunchKernelEx");
  library.load(d.graph_create, "cuGraphCreate");
  library.load(d.graph_destroy, "cuGraphDestroy");
  library.load(d.graph_add_node, "cuGraphAddNode_v2");
  d.conditional_handle_create =
      reinterpret_cast<decltype(d.conditional_handle_create)>(library.find("cuGraphConditionalHandleCreate"));
  library.load(d.graph_node_set_attribute, "cuGraphKernelNodeSetAttribute");
  library.load(d.graph_instantiate, "cuGraphInstantiateWithFlags");
  library.load(d.graph_exec_destroy, "cuGraphExecDestroy");
  library.load(d.graph_exec_set_kernel, "cuGraphExecKernelNodeSetParams_v2");
  library.load(d.graph_exec_set_child, "cuGraphExecChildGraphNodeSetParams");
  library.load(d.graph_launch, "cuGraphLaunch");
  library.load(d.tensor_map_encode, "cuTensorMapEncodeTiled");
  return d;
}

std::string describe(const Driver& d, int result) {
  const char *name = nullptr, *text = nullptr;
  d.error_name(result, &name);
  d.error_string(result, &text);
  return std::string(name != nullptr ? name : std::to_string(result)) + (text != nullptr ? ": " : "") +
         (text != nullptr ? text : "");
}

}  // namespace

const Driver& driver() {
  static const Driver table = [] {
    Driver d = load_driver();
    const int result = d.init(0);
    if (result != 0)
      throw EnvironmentError(ErrorCode::kE_device_missing, "the CUDA driver does not start")
          .with_actual(describe(d, result))
          .with_remedy("check that a GPU is present and its kernel module is loaded ('nvidia-smi')");
    return d;
  }();
  return table;
}

int pointer_attribute(const void* address, int attribute, int unknown) {
  // Asked for several attributes the driver gives zeros for memory it does not know, where the call for one
  // of them counts as failed.
  int type = 0, value = 0;
  int attributes[] = {kPointerMemoryType, attribute};
  void* values[] = {&type, &value};
  const auto at = reinterpret_cast<Address>(address);
  const bool known = driver().pointer_attributes(2, attributes, values, at) == 0 && type != 0;
  return known ? value : unknown;
}

void check(int result, const char* call) {
  constexpr int kOutOfMemory = 2;
  if (result == 0) return;
  if (result == kOutOfMemory)
    throw EnvironmentError(ErrorCode::kE_out_of_memory, "the GPU has not enough memory left")
        .with_value(call)
        .with_remedy("compile with a smaller range of sizes, or free memory on the device");
  throw EnvironmentError(ErrorCode::kE_device_missing, "a call of the CUDA driver failed")
      .with_value(call)
      .with_actual(describe(driver(), result))
      .with_remedy("if the device is lost, restart the process; 'aicf doctor' tells its state");
}

}  // namespace aicf::cuda
