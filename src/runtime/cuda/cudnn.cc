#include "runtime/cuda/cudnn.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "runtime/cuda/cudnn_graph.h"

namespace aicf::cuda {
namespace {

using namespace cudnn;

constexpr int64_t kMostKnobs = 64;

// Of the handle, which serves one thread at a time.
std::mutex& handle_mutex() {
  static std::mutex mutex;
  return mutex;
}

struct EnginePlan {
  std::vector<Descriptor> parts;  // engine, knobs and their configuration
  Descriptor plan;
};

// Of this engine with these knobs; nothing, and `why`, if the library refuses it or its results may differ
// from run to run, or if a convolution's sums are kept in less than f32 (attention rounds weights anyway).
std::optional<EnginePlan> make_plan(const OperationGraph& graph, const CudnnCall& call, std::string& why) {
  EnginePlan made{{}, Descriptor(kExecutionPlan)};
  Descriptor engine(kEngine), config(kEngineConfig);
  engine.set(kEngineGraph, graph.graph);
  engine.set(kEngineIndex, call.engine);
  why = "the engine does not serve this problem";
  if (!engine.try_finalize()) return std::nullopt;
  for (const int note : engine.get_enums(kEngineNumericalNotes, kNumericalNoteType, kNoteCount)) {
    const bool rounds = note == kNoteReducedPrecision && call.op == CudnnOp::kConv;
    if (note != kNoteNondeterministic && !rounds) continue;
    why = rounds ? "the engine sums in less than f32" : "the engine is not deterministic";
    return std::nullopt;
  }
  config.set(kConfigEngine, engine);
  for (const auto& [type, value] : call.knobs) {
    Descriptor knob(kKnobChoice);
    knob.set(kKnobChoiceType, kKnobType, static_cast<int>(type));
    knob.set(kKnobChoiceValue, value);
    if (!knob.try_finalize()) return std::nullopt;
    made.parts.push_back(std::move(knob));
  }
  if (!made.parts.empty()) config.set(kConfigKnobs, made.parts);
  if (!config.try_finalize()) return std::nullopt;
  Handle own = handle();
  made.plan.set(kPlanHandle, kHandleType, 1, &own);
  made.plan.set(kPlanConfig, config);
  if (!made.plan.try_finalize()) return std::nullopt;
  made.parts.push_back(std::move(engine));
  made.parts.push_back(std::move(config));
  return made;
}

// The engine and its knobs as the library's advice has them.
CudnnCall call_of(const CudnnCall& meaning, const Descriptor& config) {
  CudnnCall call = meaning;
  call.version = cudnn_version();
  call.knobs.clear();
  call.engine = config.get(kConfigEngine, kEngine, 1).at(0).get(kEngineIndex);
  for (const Descriptor& knob : config.get(kConfigKnobs, kKnobChoice, kMostKnobs))
    call.knobs.emplace_back(knob.get(kKnobChoiceType, kKnobType), knob.get(kKnobChoiceValue));
  return call;
}

std::vector<CudnnCall> advised(const CudnnCall& meaning, const OperationGraph& graph, int mode, int count) {
  Descriptor advice(kEngineHeuristic);
  advice.set(kHeuristicGraph, graph.graph);
  advice.set(kHeuristicMode, kHeuristicModeType, mode);
  std::vector<CudnnCall> calls;
  if (!advice.try_finalize()) return calls;
  for (const Descriptor& config : advice.get(kHeuristicResults, kEngineConfig, count))
    calls.push_back(call_of(meaning, config));
  return calls;
}

class CudnnRoutine final : public LibraryRoutine {
 public:
  CudnnRoutine(const CudnnCall& call, const BoundCall& step, const std::string& origin) {
    const std::lock_guard<std::mutex> lock(handle_mutex());
    auto graph = operation_graph(call, step);
    if (!graph) throw refused_by_library(call, origin, "its windows are not those of the library's tensors");
    std::string why;
    auto plan = make_plan(*graph, call, why);
    if (!plan) throw refused_by_library(call, origin, why);
    const int64_t bytes = plan->plan.get(kPlanWorkspace);
    if (bytes > call.workspace_bytes)
      throw refused_by_library(call, origin,
                               "the engine needs " + std::to_string(bytes) + " bytes of workspace");
    graph_ = std::move(graph);
    plan_ = std::move(plan);
  }

  void enqueue(const BoundCall& call, void* workspace, StreamHandle stream) override {
    std::vector<int64_t> ids;
    std::vector<void*> addresses;
    for (auto& [id, operand] : graph_->operands) {
      const auto number = static_cast<size_t>(operand.number);
      ids.push_back(id);
      addresses.push_back(operand.kind == GraphOperand::Kind::kValue   ? &operand.value
                          : operand.kind == GraphOperand::Kind::kInput ? call.inputs[number].data
                                                                       : call.outputs[number].data);
    }
    Descriptor pack(kVariantPack);
    pack.set(kPackIds, ids);
    pack.set(kPackPointers, kPointerType, static_cast<int64_t>(addresses.size()), addresses.data());
    pack.set(kPackWorkspace, kPointerType, 1, &workspace);
    pack.finalize();
    const std::lock_guard<std::mutex> lock(handle_mutex());
    check_status(api().set_stream(handle(), stream), "cudnnSetStream");
    check_status(api().execute(handle(), plan_->plan.raw(), pack.raw()), "cudnnBackendExecute");
  }

 private:
  std::optional<OperationGraph> graph_;
  std::optional<EnginePlan> plan_;
};

}  // namespace

int64_t cudnn_version() { return static_cast<int64_t>(api().version()); }

std::unique_ptr<LibraryRoutine> make_cudnn_routine(const CudnnCall& call, const BoundCall& step,
                                                   const std::string& origin) {
  return std::make_unique<CudnnRoutine>(call, step, origin);
}

std::vector<CudnnCall> cudnn_engines(const CudnnCall& meaning, const BoundCall& step, int count,
                                     int64_t most_workspace) {
  const std::lock_guard<std::mutex> lock(handle_mutex());
  std::vector<CudnnCall> served;
  try {
    const auto graph = operation_graph(meaning, step);
    if (!graph) return served;
    std::vector<CudnnCall> calls = advised(meaning, *graph, kHeuristicA, count);
    for (const CudnnCall& call : advised(meaning, *graph, kHeuristicFallback, count)) calls.push_back(call);
    for (CudnnCall& call : calls) {
      if (static_cast<int>(served.size()) == count) break;
      std::string why;
      const auto plan = make_plan(*graph, call, why);
      if (!plan) {
        log_at(LogLevel::kDebug, [&] { return "cuDNN, " + to_string(call) + ": " + why; });
        continue;
      }
      call.workspace_bytes = plan->plan.get(kPlanWorkspace);
      const bool known = std::find(served.begin(), served.end(), call) != served.end();
      if (!known && call.workspace_bytes <= most_workspace) served.push_back(call);
    }
  } catch (const EnvironmentError& error) {
    log_at(LogLevel::kInfo, [&] { return "cuDNN has no graph for a step: " + error.actual; });
  }
  return served;
}

}  // namespace aicf::cuda
