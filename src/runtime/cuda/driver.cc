#include "runtime/cuda/driver.h"

#include <utility>

#include "base/dynamic_library.h"
#include "base/error.h"
#include "base/option_text.h"

namespace aicf::cuda {
namespace {

Driver load_driver() {
  const DynamicLibrary library = DynamicLibrary::open(
      {"libcuda.so.1"}, "install NVIDIA's driver, or run on the CPU: " + option_text(Option::kDevice, "cpu"));
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

// CUresult of NVIDIA's CUDA driver API reference: what a code of it means for who called us.
struct Meaning {
  int first, last;
  ErrorCode code;
  const char *what, *remedy;
};

constexpr const char* kRestart =
    "start the process anew: its context on the device is lost; 'aicf doctor' tells the device's state";
constexpr Meaning kMeanings[] = {
    {2, 2, ErrorCode::kE_out_of_memory, "the GPU has not enough memory left",
     "compile with a smaller range of sizes, or free memory on the device"},
    {34, 34, ErrorCode::kE_device_missing, "libcuda is the toolkit's stub, not a driver",
     "take the toolkit's folder 'stubs' out of the loader's path, or install NVIDIA's driver"},
    {46, 46, ErrorCode::kE_device_lost, "the device is in use by another process alone, or in reset",
     kRestart},
    {100, 102, ErrorCode::kE_device_missing, "the CUDA driver finds no device of this kind",
     "check that a GPU is present ('nvidia-smi') and CUDA_VISIBLE_DEVICES"},
    {200, 200, ErrorCode::kE_bad_device_code, "the device cannot load the machine code",
     "compile the model again"},
    {209, 209, ErrorCode::kE_bad_device_code, "the machine code is of another GPU",
     "compile for this one; 'aicf doctor' tells its target"},
    {214, 214, ErrorCode::kE_device_lost, "the device met an error of its memory", kRestart},
    {218, 218, ErrorCode::kE_bad_device_code, "the driver does not compile the PTX",
     "compile the model again"},
    {220, 220, ErrorCode::kE_device_lost, "the device met an error of its links", kRestart},
    {221, 221, ErrorCode::kE_bad_device_code, "the driver lacks its compiler for PTX",
     "install the driver's package with the PTX compiler, or compile for this GPU's own target"},
    {222, 222, ErrorCode::kE_driver_too_old, "the PTX is of a newer CUDA than the driver",
     "update the driver, or compile for this GPU's own target"},
    {223, 223, ErrorCode::kE_bad_device_code, "compiling of PTX is switched off (CUDA_DISABLE_PTX_JIT)",
     "unset it, or compile for this GPU's own target"},
    {300, 300, ErrorCode::kE_bad_device_code, "the device cannot load the machine code",
     "compile the model again"},
    {700, 700, ErrorCode::kE_kernel_failed, "a kernel met an illegal address", kRestart},
    {701, 701, ErrorCode::kE_kernel_failed, "a launch asks for more than the device has",
     "please report this with the model and the GPU's name"},
    {702, 702, ErrorCode::kE_kernel_failed, "a kernel took longer than the device allows",
     "run on a GPU that drives no display, or on smaller sizes"},
    {710, 710, ErrorCode::kE_kernel_failed, "a kernel failed on the device", kRestart},
    {714, 720, ErrorCode::kE_kernel_failed, "a kernel failed on the device", kRestart},
    {802, 802, ErrorCode::kE_device_lost, "the machine's GPUs are not ready yet",
     "start its fabric manager, or wait for it"},
    {803, 804, ErrorCode::kE_driver_too_old, "libcuda does not fit the kernel's driver",
     "install both from one package, or restart the machine after an update"},
    {900, 908, ErrorCode::kE_capture_failed, "work could not be captured into a graph",
     "AICF_CUDA_GRAPHS=0 runs without one; please report this with the model"},
};

constexpr Meaning kOther = {0, 0, ErrorCode::kE_driver_failed, "a call of the CUDA driver failed",
                            "if the device is lost, restart the process; 'aicf doctor' tells its state"};

const Meaning& meaning_of(int result) {
  for (const Meaning& meaning : kMeanings)
    if (result >= meaning.first && result <= meaning.last) return meaning;
  return kOther;
}

}  // namespace

const Driver& driver() {
  static const Driver table = [] {
    Driver d = load_driver();
    if (const int result = d.init(0); result != 0) {
      const Meaning& meaning = meaning_of(result);
      const bool known = &meaning != &kOther;
      throw EnvironmentError(
          known ? meaning.code : ErrorCode::kE_device_missing,
          std::string("the CUDA driver does not start") + (known ? ": " : "") + (known ? meaning.what : ""))
          .with_actual(describe(d, result))
          .with_remedy(known ? meaning.remedy
                             : "check that a GPU is present and its kernel module is loaded ('nvidia-smi')");
    }
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

namespace {

// "graph_launch" of "driver().graph_launch(exec_, stream)".
std::string name_of(const std::string& call) {
  const size_t end = call.find('(', call.starts_with("driver()") ? sizeof("driver()") : 0);
  const size_t dot = call.rfind('.', end);
  return call.substr(dot == std::string::npos ? 0 : dot + 1, dot == std::string::npos ? end : end - dot - 1);
}

thread_local const CallsFor* calls_for = nullptr;

}  // namespace

const std::string CallsFor::kNothing;

CallsFor::CallsFor(const std::string& node, const std::string& kernel, const std::string& function)
    : node_(node), kernel_(kernel), function_(function), outer_(std::exchange(calls_for, this)) {}

CallsFor::~CallsFor() { calls_for = outer_; }

void check(int result, const char* call) {
  if (result == 0) return;
  const Meaning& meaning = meaning_of(result);
  EnvironmentError error(meaning.code, meaning.what);
  error.with_actual(name_of(call) + ": " + describe(driver(), result)).with_remedy(meaning.remedy);
  if (calls_for != nullptr) {
    const CallsFor& subject = *calls_for;
    error.with_op(subject.node_);
    if (!subject.kernel_.empty())
      error.with_value("kernel " + subject.kernel_ +
                       (subject.function_.empty() ? "" : ", function " + subject.function_));
    // Kernels run by themselves: who waits for them does not know which of them it was.
    if (meaning.code == ErrorCode::kE_kernel_failed && subject.kernel_.empty())
      error.with_remedy("AICF_CUDA_GRAPHS=0 with CUDA_LAUNCH_BLOCKING=1 names the kernel; " + error.remedy);
  }
  throw error;
}

}  // namespace aicf::cuda
