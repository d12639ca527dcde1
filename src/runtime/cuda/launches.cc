#include "runtime/cuda/launches.h"

#include <algorithm>
#include <cstring>

#include "base/dynamic_library.h"
#include "base/error.h"
#include "runtime/bind_launch.h"
#include "runtime/cuda/control_flow.h"
#include "runtime/cuda/first_error.h"

namespace aicf::cuda {
namespace {

constexpr int kPortableCluster = 8;

TensorMap encode_map(const TensorMapGeometry& map, void* address) {
  constexpr int kPromoteTo256Bytes = 3;
  TensorMap encoded;
  AICF_CUDA(driver().tensor_map_encode(&encoded, map.dtype, map.rank, address, map.sizes.data(),
                                       map.strides.data(), map.box.data(), map.steps.data(), 0, map.swizzle,
                                       kPromoteTo256Bytes, 0));
  return encoded;
}

}  // namespace

OwnedGraph::OwnedGraph() { AICF_CUDA(driver().graph_create(&handle_, 0)); }
OwnedGraph::~OwnedGraph() { driver().graph_destroy(handle_); }

Launches::Launches(std::shared_ptr<DeviceContext> context, const Plan& plan, const EntryPlan& entry,
                   const Modules& modules, const SymbolValues& sizes, const BodyAddresses& bodies)
    : context_(std::move(context)),
      entry_(entry),
      name_("entry " + entry.name),
      calls_(entry.steps.size()),
      kernels_of_step_(entry.steps.size()),
      addresses_(entry.buffers.size(), nullptr) {
  for (const Step& step : entry.steps)
    first_error_.push_back(first_error_.back() + std::max<size_t>(step.members.size(), 1));
  errors_ = std::make_unique<MappedMemory>(context_, sizeof(DeviceError) * (first_error_.back() + 1));
  for (size_t i = 0; i < entry.steps.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    const CallsFor scope(entry.steps[i].origin, entry.steps[i].kernel);
    bind_step(plan, entry, index, sizes, calls_[i], patches_);
    if (!entry.steps[i].bodies.empty()) {
      Kernel kernel;
      kernel.step = index;
      kernel.control =
          std::make_shared<ControlFlow>(context_, plan, entry.steps[i], calls_[i], modules, sizes, bodies);
      add_other(std::move(kernel));
      continue;
    }
    if (add_library(entry.steps[i], index)) continue;
    if (entry.steps[i].launches.empty())
      throw UserError(ErrorCode::kU_bad_artifact, "a step of a CUDA plan launches nothing")
          .with_op(entry.steps[i].origin);
    for (const CudaLaunch& launch : entry.steps[i].launches)
      add(entry.steps[i], index, launch, modules, sizes);
  }
  for (const Kernel& kernel : kernels_)
    if (kernel.reports_errors &&
        (reporting_.empty() || reporting_.back() != static_cast<size_t>(kernel.step)))
      reporting_.push_back(static_cast<size_t>(kernel.step));
  std::stable_sort(patches_.begin(), patches_.end(),
                   [](const AddressPatch& a, const AddressPatch& b) { return a.buffer < b.buffer; });
}

Launches::~Launches() = default;

CallsFor Launches::calls_for(const Kernel& kernel) const {
  const Step& of = step(kernel);
  return CallsFor(of.origin, of.kernel, kernel.function);
}

void Launches::add(const Step& step, int32_t index, const CudaLaunch& launch, const Modules& modules,
                   const SymbolValues& sizes) {
  Kernel kernel;
  kernel.step = index;
  kernel.cluster = launch.cluster;
  kernel.function = launch.function;
  const CallsFor scope(step.origin, step.kernel, kernel.function);
  const BoundLaunch bound = bind_launch(step, launch, sizes);
  if (bound.empty()) return;
  std::copy(bound.grid.begin(), bound.grid.end(), kernel.node.grid);
  kernel.node.func = modules.function(step.module, launch.function);
  kernel.node.block[0] = static_cast<unsigned>(launch.block);
  kernel.node.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
  modules.allow_shared(kernel.node.func, launch.shared_bytes);
  if (launch.cluster > kPortableCluster)
    AICF_CUDA(driver().function_set_attribute(kernel.node.func, kNonPortableCluster, 1));

  auto arguments = std::make_unique<Arguments>();
  arguments->launch = &launch;
  const size_t operands = step.inputs.size() + step.outputs.size();
  arguments->words.resize(operands);
  arguments->words.insert(arguments->words.end(), bound.words.begin(), bound.words.end());
  const size_t words = arguments->words.size();
  kernel.reports_errors = launch.reports_errors;
  if (launch.reports_errors)
    arguments->words.push_back(errors_->device() +
                               sizeof(DeviceError) * first_error_[static_cast<size_t>(index)]);
  arguments->maps.resize(launch.tensor_maps.size());
  for (size_t i = 0; i < words; ++i) arguments->pointers.push_back(&arguments->words[i]);
  for (TensorMap& map : arguments->maps) arguments->pointers.push_back(&map);
  if (launch.reports_errors) arguments->pointers.push_back(&arguments->words.back());
  kernel.node.params = arguments->pointers.data();
  kernels_of_step_[static_cast<size_t>(index)].push_back(kernels_.size());
  kernels_.push_back(kernel);
  arguments_.push_back(std::move(arguments));
}

// False if the step's own kernels are to run.
bool Launches::add_library(const Step& step, int32_t index) {
  const std::optional<LibraryCall> call = bound_library_call(entry_, step);
  if (!call || !vendor_libraries_allowed()) return false;
  const BoundCall& bound = calls_[static_cast<size_t>(index)];
  Kernel kernel;
  kernel.step = index;
  kernel.library = open_library_routine(*call, bound, step.origin);
  if (kernel.library == nullptr) return false;
  add_other(std::move(kernel));
  return true;
}

void Launches::add_other(Kernel kernel) {
  kernels_of_step_[static_cast<size_t>(kernel.step)].push_back(kernels_.size());
  kernels_.push_back(std::move(kernel));
  arguments_.push_back(nullptr);
}

size_t Launches::kernel_count() const {
  size_t count = 0;
  for (const Kernel& kernel : kernels_)
    count += kernel.control != nullptr ? kernel.control->kernel_count() : 1;
  return count;
}

bool Launches::needs_capture() const {
  return changed_ && std::any_of(kernels_.begin(), kernels_.end(),
                                 [](const Kernel& kernel) { return kernel.control && kernel.changed; });
}

void Launches::settle() {
  if (!changed_) return;
  for (Kernel& kernel : kernels_) kernel.changed = false;
  changed_ = false;
}

void Launches::enqueue(Kernel& kernel, StreamHandle stream) {
  const BoundCall& call = calls_[static_cast<size_t>(kernel.step)];
  const int32_t workspace = step(kernel).library.workspace;
  kernel.library->enqueue(call, workspace < 0 ? nullptr : address(workspace), stream);
}

Graph Launches::capture(Kernel& kernel) {
  StreamHandle stream = nullptr;
  AICF_CUDA(driver().stream_create(&stream, kStreamNonBlocking));
  Graph graph = nullptr;
  const CallsFor scope = calls_for(kernel);
  try {
    AICF_CUDA(driver().stream_begin_capture(stream, kCaptureRelaxed));
    enqueue(kernel, stream);
    AICF_CUDA(driver().stream_end_capture(stream, &graph));
  } catch (...) {
    Graph broken = nullptr;
    driver().stream_end_capture(stream, &broken);
    if (broken != nullptr) driver().graph_destroy(broken);
    driver().stream_destroy(stream);
    throw;
  }
  driver().stream_destroy(stream);
  return graph;
}

void Launches::encode_maps(Arguments& arguments, int32_t step) {
  const BoundCall& call = calls_[static_cast<size_t>(step)];
  for (size_t i = 0; i < arguments.maps.size(); ++i) {
    const TensorMapSpec& spec = arguments.launch->tensor_maps[i];
    const TensorArg& arg = operand_of(call, spec.operand);
    const Step& of = entry_.steps[static_cast<size_t>(step)];
    const CallsFor scope(of.origin, of.kernel, arguments.launch->function);
    if (arg.data != nullptr) arguments.maps[i] = encode_map(tensor_map_geometry(of, spec, call), arg.data);
  }
}

void Launches::set_address(int32_t buffer, std::byte* address) {
  if (addresses_[static_cast<size_t>(buffer)] == address) return;
  addresses_[static_cast<size_t>(buffer)] = address;
  auto at = std::lower_bound(patches_.begin(), patches_.end(), buffer,
                             [](const AddressPatch& p, int32_t b) { return p.buffer < b; });
  for (; at != patches_.end() && at->buffer == buffer; ++at) {
    BoundCall& call = calls_[static_cast<size_t>(at->step)];
    const auto operand = static_cast<size_t>(at->operand);
    TensorArg& arg = (at->output ? call.outputs : call.inputs)[operand];
    arg.data = address == nullptr ? nullptr : address + at->byte_offset;
    const size_t word = operand + (at->output ? call.inputs.size() : 0);
    for (size_t index : kernels_of_step_[static_cast<size_t>(at->step)]) {
      kernels_[index].changed = changed_ = true;
      if (arguments_[index] == nullptr) continue;
      arguments_[index]->words[word] = reinterpret_cast<uint64_t>(arg.data);
      encode_maps(*arguments_[index], at->step);
    }
  }
}

void Launches::report_errors() {
  FirstError first;
  for (const Kernel& kernel : kernels_)
    if (kernel.control != nullptr) first.note([&] { kernel.control->report_errors(); });
  first.note([&] { report_own_errors(); });
  first.rethrow();
}

void Launches::report_own_errors() {
  auto* errors = static_cast<DeviceError*>(errors_->host());
  for (const size_t i : reporting_) {
    const auto raised = std::find_if(errors + first_error_[i], errors + first_error_[i + 1],
                                     [](const DeviceError& error) { return error.raised != 0; });
    if (raised == errors + first_error_[i + 1]) continue;
    const DeviceError error = *raised;
    const auto member = static_cast<size_t>(raised - errors) - first_error_[i];
    std::memset(errors, 0, sizeof(DeviceError) * first_error_.back());
    const Step& of = entry_.steps[i];
    throw UserError(ErrorCode::kU_index_out_of_range, "an index in the data is out of range")
        .with_op(of.members.empty() ? of.origin : of.members[member].origin)
        .with_expected("-" + std::to_string(error.bound) + " <= index < " + std::to_string(error.bound))
        .with_actual(std::to_string(error.value))
        .with_remedy("check the values of the inputs");
  }
}

}  // namespace aicf::cuda
