// The part of the CUDA driver's interface that the runtime uses, loaded at run time, so that one build serves
// machines with and without a GPU. Names, types and values are those of NVIDIA's CUDA driver API reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace aicf::cuda {

using Device = int;
using Address = unsigned long long;
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using StreamHandle = struct StreamTag*;
using Event = struct EventTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;
using GraphNode = struct GraphNodeTag*;

struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2 and _v3
  Function func = nullptr;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  void** params = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;
  Context context = nullptr;
};

// CUgraphNodeType
constexpr int kKernelNode = 0, kChildGraphNode = 4, kEventRecordNode = 7, kConditionalNode = 13;

using ConditionalHandle = unsigned long long;
enum ConditionalType : int { kIf = 0, kWhile = 1 };  // CUgraphConditionalNodeType

struct ConditionalNodeParams {  // CUDA_CONDITIONAL_NODE_PARAMS
  ConditionalHandle handle = 0;
  int type = kIf;
  unsigned size = 1;
  Graph* bodies = nullptr;  // given by the driver
  Context context = nullptr;
};

struct GraphNodeParams {  // CUgraphNodeParams
  int type = kKernelNode;
  int reserved0[3] = {};
  union {
    long long reserved1[29];
    KernelNodeParams kernel;
    Event event;  // to be recorded
    Graph child;  // copied when added
    ConditionalNodeParams conditional;
  };
  long long reserved2 = 0;
  GraphNodeParams() : reserved1{} {}
};
static_assert(sizeof(GraphNodeParams) == 256);

struct EdgeData {  // CUgraphEdgeData
  unsigned char from_port = 0, to_port = 0, type = 0;
  unsigned char reserved[5] = {};
};
// The downstream kernel may start while the upstream one runs, and orders itself by griddepcontrol.wait.
constexpr unsigned char kProgrammaticPort = 1, kProgrammaticEdge = 1;

struct LaunchAttribute {  // CUlaunchAttribute
  int id = 0;
  char pad[4] = {};
  union Value {
    char bytes[64];
    int number;
    unsigned cluster[3];
  } value{};
};
constexpr int kClusterDimension = 4;

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  StreamHandle stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

struct alignas(64) TensorMap {
  uint64_t opaque[16] = {};
};

// CUdevice_attribute
constexpr int kClockKhz = 13, kMultiprocessors = 16, kMemoryClockKhz = 36, kMemoryBusBits = 37,
              kCacheBytes = 38, kComputeMajor = 75, kComputeMinor = 76;
// CUfunction_attribute
constexpr int kMaxDynamicShared = 8, kNonPortableCluster = 14;
constexpr int kPointerMemoryType = 2, kMemoryTypeHost = 1, kPointerOrdinal = 9;
constexpr unsigned kEventDisableTiming = 2;
constexpr int kCaptureRelaxed = 2;
constexpr unsigned kStreamNonBlocking = 1, kHostAllocDeviceMap = 2;

// Every function returns a CUresult; 0 is success.
struct Driver {
  int (*init)(unsigned);
  int (*driver_version)(int*);
  int (*error_name)(int, const char**);
  int (*error_string)(int, const char**);
  int (*device_count)(int*);
  int (*device_get)(Device*, int ordinal);
  int (*device_name)(char*, int, Device);
  int (*device_attribute)(int*, int attribute, Device);
  int (*primary_retain)(Context*, Device);
  int (*primary_release)(Device);
  int (*set_current)(Context);
  int (*get_current)(Context*);
  int (*current_device)(Device*);
  int (*context_synchronize)();
  int (*memory_info)(size_t* free, size_t* total);
  int (*allocate)(Address*, size_t);
  int (*release)(Address);
  int (*host_allocate)(void**, size_t, unsigned flags);
  int (*host_release)(void*);
  int (*host_address)(Address*, void*, unsigned flags);
  int (*pointer_attributes)(unsigned count, int* attributes, void** values, Address);
  int (*copy_in)(Address, const void*, size_t, StreamHandle);
  int (*copy_out)(void*, Address, size_t, StreamHandle);
  int (*copy_within)(Address, Address, size_t, StreamHandle);
  int (*fill_bytes)(Address, unsigned char, size_t, StreamHandle);
  int (*stream_create)(StreamHandle*, unsigned flags);
  int (*stream_destroy)(StreamHandle);
  int (*stream_synchronize)(StreamHandle);
  int (*stream_begin_capture)(StreamHandle, int mode);
  int (*stream_end_capture)(StreamHandle, Graph*);
  int (*event_create)(Event*, unsigned flags);
  int (*event_destroy)(Event);
  int (*event_record)(Event, StreamHandle);
  int (*event_synchronize)(Event);
  int (*stream_wait_event)(StreamHandle, Event, unsigned flags);
  int (*event_elapsed)(float* milliseconds, Event, Event);
  int (*module_load)(Module*, const void* image);
  int (*module_unload)(Module);
  int (*module_function)(Function*, Module, const char* name);
  int (*function_set_attribute)(Function, int attribute, int value);
  int (*launch)(const LaunchConfig*, Function, void** params, void** extra);
  int (*graph_create)(Graph*, unsigned flags);
  int (*graph_destroy)(Graph);
  int (*graph_add_node)(GraphNode*, Graph, const GraphNode* dependencies, const EdgeData*, size_t count,
                        GraphNodeParams*);
  // Null where the driver is older than CUDA 12.3.
  int (*conditional_handle_create)(ConditionalHandle*, Graph, Context, unsigned initial, unsigned flags);
  int (*graph_node_set_attribute)(GraphNode, int attribute, const LaunchAttribute::Value*);
  int (*graph_instantiate)(GraphExec*, Graph, unsigned long long flags);
  int (*graph_exec_destroy)(GraphExec);
  int (*graph_exec_set_kernel)(GraphExec, GraphNode, const KernelNodeParams*);
  int (*graph_exec_set_child)(GraphExec, GraphNode, Graph);
  int (*graph_launch)(GraphExec, StreamHandle);
  int (*tensor_map_encode)(TensorMap*, int dtype, uint32_t rank, void* address, const uint64_t* sizes,
                           const uint64_t* byte_strides, const uint32_t* box, const uint32_t* element_strides,
                           int interleave, int swizzle, int l2_promotion, int out_of_bounds_fill);
};

// Loads libcuda and initialises it, once. EnvironmentError device_missing if there is no driver or no GPU,
// driver_too_old.
const Driver& driver();

// An attribute of the memory that an address is in, e.g. its type or its device; `unknown` for memory that is
// not the driver's.
int pointer_attribute(const void* address, int attribute, int unknown);

// What the driver is called for in this thread while the scope lives: an error of it names the graph's node
// (or the entry, where nobody knows which of its kernels is meant), the kernel and its function. The strings
// live as long. Scopes nest; the innermost counts.
class CallsFor {
 public:
  explicit CallsFor(const std::string& node, const std::string& kernel = kNothing,
                    const std::string& function = kNothing);
  ~CallsFor();
  CallsFor(const CallsFor&) = delete;
  CallsFor& operator=(const CallsFor&) = delete;

 private:
  friend void check(int result, const char* call);
  static const std::string kNothing;
  const std::string &node_, &kernel_, &function_;
  const CallsFor* outer_;
};

// Throws EnvironmentError for a result that is not success, with a code by what it says: out_of_memory,
// device_missing, driver_too_old, bad_device_code, kernel_failed, device_lost, capture_failed, else
// driver_failed.
void check(int result, const char* call);
#define AICF_CUDA(call) ::aicf::cuda::check((call), #call)

}  // namespace aicf::cuda
