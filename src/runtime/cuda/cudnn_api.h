// cuDNN's graph API, which is loaded at run time: descriptors that own themselves. Names and values are those
// of NVIDIA's cudnn_graph.h (9.x), of which only what is needed stands here.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "runtime/cuda/driver.h"

namespace aicf::cuda::cudnn {

enum DescriptorType : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristic = 4,
  kExecutionPlan = 5,
  kKnobChoice = 7,
  kOperationConvolution = 10,
  kOperationPointwise = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kOperationMatmul = 19,
  kReduction = 21,
  kOperationReduction = 22,
};

enum ValueType : int {
  kHandleType = 0,
  kDataType = 1,
  kBooleanType = 2,
  kInt64Type = 3,
  kFloatType = 4,
  kPointerType = 6,
  kConvolutionModeType = 7,
  kHeuristicModeType = 8,
  kKnobType = 9,
  kNumericalNoteType = 11,
  kPointwiseModeType = 14,
  kDescriptorType = 15,
  kReductionOperatorType = 18,
};

enum Attribute : int {
  kPointwiseMode = 0,
  kPointwiseMathType = 1,
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionHigh = 104,
  kConvolutionLow = 105,
  kConvolutionSpatialAxes = 106,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigEngine = 300,
  kConfigKnobs = 302,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kKnobChoiceType = 600,
  kKnobChoiceValue = 601,
  kConvolutionAlpha = 700,
  kConvolutionBeta = 701,
  kConvolutionDescriptor = 702,
  kConvolutionW = 703,
  kConvolutionX = 704,
  kConvolutionY = 705,
  kPointwiseDescriptor = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNotes = 1303,
  kMatmulComputeType = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulDescriptor = 1523,
  kReductionOperator = 1600,
  kReductionComputeType = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionDescriptor = 1612,
};

constexpr int kCrossCorrelation = 1;
constexpr int kHeuristicFallback = 2, kHeuristicA = 3;
constexpr int kAdd = 0, kMultiply = 1, kDivide = 6, kSubtract = 9, kExp = 13, kLog = 15, kRelu = 100;
constexpr int kReduceAdd = 0, kReduceMax = 3;
constexpr int kNoteReducedPrecision = 2, kNoteNondeterministic = 4, kNoteCount = 10;
constexpr int kFloat = 0, kInt32 = 4, kBoolean = 11;  // cudnnDataType_t
int data_type(DType dtype);                           // of f32, f16, bf16

using Handle = void*;
using RawDescriptor = void*;

struct Api {
  size_t (*version)();
  int (*create)(Handle*);
  int (*destroy)(Handle);
  int (*set_stream)(Handle, StreamHandle);
  int (*create_descriptor)(int type, RawDescriptor*);
  int (*destroy_descriptor)(RawDescriptor);
  int (*finalize)(RawDescriptor);
  int (*set_attribute)(RawDescriptor, int attribute, int type, int64_t count, const void*);
  int (*get_attribute)(RawDescriptor, int attribute, int type, int64_t room, int64_t* count, void*);
  int (*execute)(Handle, RawDescriptor plan, RawDescriptor pack);
};
// EnvironmentError device_missing if the library is not there.
const Api& api();
// Of the current context; handles live as long as the process. Calls that use it hold `mutex`.
Handle handle();

// EnvironmentError library_failed that names the call.
void check_status(int status, const char* call);

class Descriptor {
 public:
  explicit Descriptor(DescriptorType type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }

  void set(Attribute attribute, ValueType type, int64_t count, const void* values);
  void set(Attribute attribute, ValueType type, int value) { set(attribute, type, 1, &value); }
  void set(Attribute attribute, int64_t value) { set(attribute, kInt64Type, 1, &value); }
  void set(Attribute attribute, float value) { set(attribute, kFloatType, 1, &value); }
  void set(Attribute attribute, const std::vector<int64_t>& values);
  void set(Attribute attribute, const Descriptor& value) { set(attribute, kDescriptorType, 1, &value.raw_); }
  void set(Attribute attribute, const std::vector<Descriptor>& values);
  void set_flag(Attribute attribute);
  void finalize();
  bool try_finalize();  // false: the library does not serve it

  int64_t get(Attribute attribute, ValueType type = kInt64Type) const;
  std::vector<int> get_enums(Attribute attribute, ValueType type, int64_t most) const;
  // Into descriptors made before; gives those that the library filled.
  std::vector<Descriptor> get(Attribute attribute, DescriptorType type, int64_t most) const;
  RawDescriptor raw() const { return raw_; }

 private:
  RawDescriptor raw_ = nullptr;
};

}  // namespace aicf::cuda::cudnn
