#include "runtime/cuda/cublaslt.h"

#include "base/dynamic_library.h"
#include "base/error.h"
#include "runtime/cuda/library_handles.h"

namespace aicf::cuda {
namespace {

using CublasLtHandle = void*;
using LtDescriptor = void*;  // of an operation, a matrix or a preference

struct Algorithm {  // cublasLtMatmulAlgo_t
  std::array<uint64_t, 8> data = {};
};
struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace_bytes = 0;
  int state = 0;
  float waves = 0;
  int reserved[4] = {};
};

constexpr int kComputeF32 = 68;
constexpr int kOrderAttributeTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8, kBiasType = 26;
constexpr int kBatchCount = 5, kBatchOffset = 6;
constexpr int kMaxWorkspaceBytes = 1, kAlignmentA = 5;  // A, B, C, D follow each other
constexpr int kEpilogueNone = 1, kEpilogueRelu = 2, kEpilogueBias = 4, kEpilogueGelu = 32;

struct Library {
  size_t (*version)();
  int (*create)(CublasLtHandle*);
  int (*destroy)(CublasLtHandle);
  int (*operation_create)(LtDescriptor*, int compute, int scale);
  int (*operation_set)(LtDescriptor, int attribute, const void*, size_t);
  int (*operation_destroy)(LtDescriptor);
  int (*layout_create)(LtDescriptor*, int dtype, uint64_t rows, uint64_t columns, int64_t leading);
  int (*layout_set)(LtDescriptor, int attribute, const void*, size_t);
  int (*layout_destroy)(LtDescriptor);
  int (*preference_create)(LtDescriptor*);
  int (*preference_set)(LtDescriptor, int attribute, const void*, size_t);
  int (*preference_destroy)(LtDescriptor);
  int (*heuristic)(CublasLtHandle, LtDescriptor, LtDescriptor, LtDescriptor, LtDescriptor, LtDescriptor,
                   LtDescriptor, int, Heuristic*, int*);
  int (*check)(CublasLtHandle, LtDescriptor, LtDescriptor, LtDescriptor, LtDescriptor, LtDescriptor,
               const Algorithm*, Heuristic*);
  int (*matmul)(CublasLtHandle, LtDescriptor, const void* alpha, const void* a, LtDescriptor, const void* b,
                LtDescriptor, const void* beta, const void* c, LtDescriptor, void* d, LtDescriptor,
                const Algorithm*, void* workspace, size_t, StreamHandle);
};

const Library& library() {
  static const Library table = [] {
    const DynamicLibrary file =
        DynamicLibrary::open({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                             "install the CUDA toolkit or 'pip install nvidia-cublas', or compile again with "
                             "AICF_VENDOR_LIBRARIES=0");
    Library l;
    file.load(l.version, "cublasLtGetVersion");
    file.load(l.create, "cublasLtCreate");
    file.load(l.destroy, "cublasLtDestroy");
    file.load(l.operation_create, "cublasLtMatmulDescCreate");
    file.load(l.operation_set, "cublasLtMatmulDescSetAttribute");
    file.load(l.operation_destroy, "cublasLtMatmulDescDestroy");
    file.load(l.layout_create, "cublasLtMatrixLayoutCreate");
    file.load(l.layout_set, "cublasLtMatrixLayoutSetAttribute");
    file.load(l.layout_destroy, "cublasLtMatrixLayoutDestroy");
    file.load(l.preference_create, "cublasLtMatmulPreferenceCreate");
    file.load(l.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    file.load(l.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    file.load(l.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    file.load(l.check, "cublasLtMatmulAlgoCheck");
    file.load(l.matmul, "cublasLtMatmul");
    return l;
  }();
  return table;
}

#define AICF_CUBLASLT(call) check_library_status((call), "cuBLASLt", #call)

CublasLtHandle cublaslt_handle() {
  static LibraryHandles handles("cuBLASLt", "cublasLtCreate", library().create, library().destroy);
  return handles.current();
}

int library_dtype(DType dtype) {  // cudaDataType
  return dtype == DType::f32 ? 0 : dtype == DType::f16 ? 2 : 14;
}

int epilogue_of(const CublasLtCall& call) {
  int code = call.activation == CublasLtActivation::kGelu   ? kEpilogueGelu
             : call.activation == CublasLtActivation::kRelu ? kEpilogueRelu
                                                            : 0;
  if (call.bias >= 0) code |= kEpilogueBias;
  return code == 0 ? kEpilogueNone : code;
}

// Descriptors of the library over one set of windows.
struct Descriptors {
  LtDescriptor operation = nullptr, y = nullptr, x = nullptr, addend = nullptr, out = nullptr;

  Descriptors(const CublasLtCall& c, const CublasLtShape& shape) {
    const Library& l = library();
    AICF_CUBLASLT(l.operation_create(&operation, kComputeF32, library_dtype(DType::f32)));
    const int32_t transpose_y = shape.transpose_y, transpose_x = shape.transpose_x, epilogue = epilogue_of(c);
    AICF_CUBLASLT(l.operation_set(operation, kOrderAttributeTransA, &transpose_y, sizeof(int32_t)));
    AICF_CUBLASLT(l.operation_set(operation, kTransB, &transpose_x, sizeof(int32_t)));
    AICF_CUBLASLT(l.operation_set(operation, kEpilogue, &epilogue, sizeof(int32_t)));
    if (c.bias >= 0) {
      const int32_t dtype = library_dtype(shape.out.dtype);
      AICF_CUBLASLT(l.operation_set(operation, kBiasType, &dtype, sizeof(int32_t)));
    }
    y = layout(shape.y, shape.batch);
    x = layout(shape.x, shape.batch);
    addend = layout(shape.addend, shape.batch);
    out = layout(shape.out, shape.batch);
  }
  ~Descriptors() {
    const Library& l = library();
    for (LtDescriptor d : {y, x, addend, out})
      if (d != nullptr) l.layout_destroy(d);
    if (operation != nullptr) l.operation_destroy(operation);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  static LtDescriptor layout(const CublasLtMatrix& m, int64_t batch) {
    const Library& l = library();
    LtDescriptor d = nullptr;
    AICF_CUBLASLT(l.layout_create(&d, library_dtype(m.dtype), static_cast<uint64_t>(m.rows),
                                  static_cast<uint64_t>(m.columns), m.leading));
    if (batch == 1) return d;
    const auto count = static_cast<int32_t>(batch);
    AICF_CUBLASLT(l.layout_set(d, kBatchCount, &count, sizeof(count)));
    AICF_CUBLASLT(l.layout_set(d, kBatchOffset, &m.batch_stride, sizeof(m.batch_stride)));
    return d;
  }
};

class CublasLtRoutine final : public LibraryRoutine {
 public:
  CublasLtRoutine(const CublasLtCall& call, const CublasLtShape& shape, const std::string& origin)
      : call_(call), descriptors_(call, shape) {
    const Descriptors& d = descriptors_;
    Heuristic result;
    const Algorithm algorithm{call.algorithm};
    const int status =
        library().check(cublaslt_handle(), d.operation, d.y, d.x, d.addend, d.out, &algorithm, &result);
    if (status != 0 || result.state != 0)
      throw refused_by_library(call, origin, "the algorithm does not serve this problem");
    if (result.workspace_bytes > static_cast<size_t>(call.workspace_bytes))
      throw refused_by_library(
          call, origin,
          "the algorithm needs " + std::to_string(result.workspace_bytes) + " bytes of workspace");
  }

  void enqueue(const BoundCall& step, void* workspace, StreamHandle stream) override {
    const Library& l = library();
    const Descriptors& d = descriptors_;
    if (call_.bias >= 0) {
      const void* bias = step.inputs[static_cast<size_t>(call_.bias)].data;
      AICF_CUBLASLT(l.operation_set(d.operation, kBiasPointer, &bias, sizeof(bias)));
    }
    const float one = 1, zero = 0;
    void* const out = step.outputs[0].data;
    const void* addend = call_.addend >= 0 ? step.inputs[static_cast<size_t>(call_.addend)].data : out;
    const Algorithm algorithm{call_.algorithm};
    AICF_CUBLASLT(l.matmul(cublaslt_handle(), d.operation, &one, step.inputs[1].data, d.y,
                           step.inputs[0].data, d.x, call_.addend >= 0 ? &one : &zero, addend, d.addend, out,
                           d.out, &algorithm, workspace, static_cast<size_t>(call_.workspace_bytes), stream));
  }

 private:
  CublasLtCall call_;
  Descriptors descriptors_;
};

}  // namespace

int64_t cublaslt_version() { return static_cast<int64_t>(library().version()); }

std::unique_ptr<LibraryRoutine> make_cublaslt_routine(const CublasLtCall& call, const BoundCall& step,
                                                      const std::string& origin) {
  const auto shape = step.outputs.empty() ? std::nullopt : cublaslt_shape(call, step.inputs, step.outputs[0]);
  if (!shape) throw refused_by_library(call, origin, "its windows are not those of a library matrix");
  return std::make_unique<CublasLtRoutine>(call, *shape, origin);
}

std::vector<CublasLtCall> cublaslt_algorithms(const CublasLtCall& meaning,
                                              const std::vector<TensorArg>& inputs, const TensorArg& out,
                                              int count, int64_t most_workspace) {
  const auto shape = cublaslt_shape(meaning, inputs, out);
  if (!shape) return {};
  const Library& l = library();
  LtDescriptor preference = nullptr;
  AICF_CUBLASLT(l.preference_create(&preference));
  std::vector<Heuristic> results(static_cast<size_t>(count));
  int found = 0;
  {
    const Descriptors descriptors(meaning, *shape);
    const auto bytes = static_cast<uint64_t>(most_workspace);
    AICF_CUBLASLT(l.preference_set(preference, kMaxWorkspaceBytes, &bytes, sizeof(bytes)));
    constexpr uint32_t kAlignment = 16;
    for (int operand = 0; operand < 4; ++operand)
      AICF_CUBLASLT(l.preference_set(preference, kAlignmentA + operand, &kAlignment, sizeof(kAlignment)));
    if (l.heuristic(cublaslt_handle(), descriptors.operation, descriptors.y, descriptors.x,
                    descriptors.addend, descriptors.out, preference, count, results.data(), &found) != 0)
      found = 0;
  }
  l.preference_destroy(preference);
  std::vector<CublasLtCall> calls;
  for (int i = 0; i < found; ++i) {
    const Heuristic& result = results[static_cast<size_t>(i)];
    if (result.state != 0) continue;
    CublasLtCall call = meaning;
    call.version = cublaslt_version();
    call.algorithm = result.algorithm.data;
    call.workspace_bytes = static_cast<int64_t>(result.workspace_bytes);
    calls.push_back(call);
  }
  return calls;
}

}  // namespace aicf::cuda
