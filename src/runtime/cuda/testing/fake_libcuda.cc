// A library in place of libcuda.so.1, for tests of the CUDA driver's own logic without a GPU: what it makes
// and destroys, what it does when a call fails, when it captures again. It answers as two H100s.
#include "runtime/cuda/testing/fake_libcuda.h"

#include <cstdlib>
#include <cstring>

#include "runtime/cuda/driver.h"

#define AICF_EXPORT extern "C" __attribute__((visibility("default")))

AICF_EXPORT aicf::cuda::FakeCuda fake_cuda;
aicf::cuda::FakeCuda fake_cuda;

namespace aicf::cuda {
namespace {

constexpr int kDeinitialized = 4;

int outcome(const char* function) {
  if (fake_cuda.gone) return kDeinitialized;
  if (fake_cuda.failing == nullptr || std::strcmp(fake_cuda.failing, function) != 0) return 0;
  return fake_cuda.sound_calls-- > 0 ? 0 : fake_cuda.result;
}

template <typename Handle>
void make(Handle* handle, int& alive) {
  static uintptr_t last = 0;
  *handle = reinterpret_cast<Handle>(++last);
  ++alive;
}

// That of a device, at the same address whenever it is made again.
Context primary_context(Device device) { return reinterpret_cast<Context>(uintptr_t{1} << 20 | device); }

thread_local Context current = nullptr;

void* host(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace

// Gives a driver's function that can be made to fail.
#define AICF_FAKE(name, arguments, ...)                   \
  AICF_EXPORT int name arguments {                        \
    if (const int failed = outcome(#name)) return failed; \
    __VA_ARGS__                                           \
    return 0;                                             \
  }

AICF_FAKE(cuInit, (unsigned))
AICF_FAKE(cuDriverGetVersion, (int* version), { *version = 13000; })
AICF_FAKE(cuGetErrorName, (int, const char** name), { *name = "CUDA_ERROR_FAKE"; })
AICF_FAKE(cuGetErrorString, (int, const char** text), { *text = "made to fail"; })
AICF_FAKE(cuDeviceGetCount, (int* count), { *count = 2; })
AICF_FAKE(cuDeviceGet, (Device * device, int ordinal), { *device = ordinal; })
AICF_FAKE(cuDeviceGetName, (char* name, int size, Device),
          { std::strncpy(name, "fake", static_cast<size_t>(size)); })
AICF_FAKE(cuDeviceGetAttribute, (int* value, int attribute, Device), {
  *value = attribute == kComputeMajor     ? fake_cuda.arch / 10
           : attribute == kComputeMinor   ? fake_cuda.arch % 10
           : attribute == kClockKhz       ? 1'980'000
           : attribute == kMemoryClockKhz ? 2'619'000
           : attribute == kMemoryBusBits  ? 5'120
           : attribute == kCacheBytes     ? 50 << 20
                                          : 132;
})
AICF_FAKE(cuDevicePrimaryCtxRetain, (Context * context, Device device), {
  *context = primary_context(device);
  ++fake_cuda.contexts;
})
AICF_FAKE(cuDevicePrimaryCtxRelease_v2, (Device), { --fake_cuda.contexts; })
AICF_FAKE(cuCtxSetCurrent, (Context context), { current = context; })
AICF_FAKE(cuCtxGetCurrent, (Context * context), { *context = current; })
AICF_FAKE(cuCtxSynchronize, ())
AICF_FAKE(cuMemGetInfo_v2, (size_t* free, size_t* total), { *free = *total = size_t{1} << 36; })

AICF_FAKE(cuMemAlloc_v2, (Address * address, size_t bytes), {
  *address = reinterpret_cast<Address>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  ++fake_cuda.blocks;
})
AICF_FAKE(cuMemFree_v2, (Address address), {
  std::free(host(address));
  --fake_cuda.blocks;
})
AICF_FAKE(cuMemHostAlloc, (void** address, size_t bytes, unsigned), {
  *address = std::calloc(1, bytes);
  fake_cuda.host_bytes[*address] = bytes;
  ++fake_cuda.host_blocks;
})
AICF_FAKE(cuMemFreeHost, (void* address), {
  fake_cuda.host_bytes.erase(address);
  std::free(address);
  --fake_cuda.host_blocks;
})
AICF_FAKE(cuMemHostGetDevicePointer_v2, (Address * device, void* address, unsigned),
          { *device = reinterpret_cast<Address>(address); })
AICF_FAKE(cuPointerGetAttributes, (unsigned count, int*, void** values, Address), {
  for (unsigned i = 0; i < count; ++i) std::memset(values[i], 0, sizeof(int));
})
AICF_FAKE(cuMemcpyHtoDAsync_v2, (Address to, const void* from, size_t bytes, StreamHandle),
          { std::memcpy(host(to), from, bytes); })
AICF_FAKE(cuMemcpyDtoHAsync_v2, (void* to, Address from, size_t bytes, StreamHandle),
          { std::memcpy(to, host(from), bytes); })
AICF_FAKE(cuMemcpyDtoDAsync_v2, (Address to, Address from, size_t bytes, StreamHandle),
          { std::memcpy(host(to), host(from), bytes); })
AICF_FAKE(cuMemsetD8Async, (Address to, unsigned char value, size_t bytes, StreamHandle),
          { std::memset(host(to), value, bytes); })

AICF_FAKE(cuStreamCreate, (StreamHandle * stream, unsigned), { make(stream, fake_cuda.streams); })
AICF_FAKE(cuStreamDestroy_v2, (StreamHandle), { --fake_cuda.streams; })
AICF_FAKE(cuStreamSynchronize, (StreamHandle))
AICF_FAKE(cuStreamBeginCapture_v2, (StreamHandle, int))
AICF_FAKE(cuStreamEndCapture, (StreamHandle, Graph* graph), { make(graph, fake_cuda.graphs); })
AICF_FAKE(cuEventCreate, (Event * event, unsigned), { make(event, fake_cuda.events); })
AICF_FAKE(cuEventDestroy_v2, (Event), { --fake_cuda.events; })
AICF_FAKE(cuEventRecord, (Event, StreamHandle))
AICF_FAKE(cuEventSynchronize, (Event))
AICF_FAKE(cuStreamWaitEvent, (StreamHandle, Event, unsigned))
AICF_FAKE(cuEventElapsedTime, (float* milliseconds, Event, Event), { *milliseconds = 0.001F; })

AICF_FAKE(cuModuleLoadData, (Module * module, const void*), { make(module, fake_cuda.modules); })
AICF_FAKE(cuModuleUnload, (Module), { --fake_cuda.modules; })
AICF_FAKE(cuModuleGetFunction, (Function * function, Module, const char*),
          { *function = reinterpret_cast<Function>(1); })
AICF_FAKE(cuFuncSetAttribute, (Function, int attribute, int value), {
  if (attribute == kMaxDynamicShared) fake_cuda.dynamic_shared = value;
})
AICF_FAKE(cuLaunchKernelEx, (const LaunchConfig*, Function, void**, void**), { ++fake_cuda.kernel_launches; })

AICF_FAKE(cuGraphCreate, (Graph * graph, unsigned), { make(graph, fake_cuda.graphs); })
AICF_FAKE(cuGraphDestroy, (Graph), { --fake_cuda.graphs; })
AICF_FAKE(cuGraphAddNode_v2,
          (GraphNode * node, Graph, const GraphNode* before, const EdgeData* edges, size_t count,
           GraphNodeParams* params),
          {
            static Graph body;
            int of_the_graph = 0;
            fake_cuda.nodes.emplace_back();
            *node = reinterpret_cast<GraphNode>(fake_cuda.nodes.size());
            for (size_t i = 0; i < count; ++i) {
              const size_t number = reinterpret_cast<uintptr_t>(before[i]) - 1;
              fake_cuda.nodes.back().follows.push_back(number);
              if (edges[i].type == kProgrammaticEdge) fake_cuda.nodes.back().early.push_back(number);
            }
            if (params->type != kConditionalNode) return 0;
            make(&body, of_the_graph);
            params->conditional.bodies = &body;
            ++fake_cuda.conditionals;
          })
AICF_FAKE(cuGraphConditionalHandleCreate, (ConditionalHandle * handle, Graph, Context, unsigned, unsigned),
          { *handle = 1; })
AICF_FAKE(cuGraphKernelNodeSetAttribute, (GraphNode, int, const LaunchAttribute::Value*))
AICF_FAKE(cuGraphInstantiateWithFlags, (GraphExec * exec, Graph, unsigned long long), {
  make(exec, fake_cuda.execs);
  ++fake_cuda.instantiations;
})
AICF_FAKE(cuGraphExecDestroy, (GraphExec), { --fake_cuda.execs; })
AICF_FAKE(cuGraphExecKernelNodeSetParams_v2, (GraphExec, GraphNode, const KernelNodeParams*),
          { ++fake_cuda.node_updates; })
AICF_FAKE(cuGraphExecChildGraphNodeSetParams, (GraphExec, GraphNode, Graph), { ++fake_cuda.node_updates; })
AICF_FAKE(cuGraphLaunch, (GraphExec, StreamHandle), { ++fake_cuda.graph_launches; })
AICF_FAKE(cuTensorMapEncodeTiled, (TensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                                   const uint32_t*, const uint32_t*, int, int, int, int))

}  // namespace aicf::cuda
