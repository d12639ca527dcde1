#include "runtime/model.h"

#include <algorithm>
#include <functional>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/jit.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/option_text.h"
#include "base/profiler_range.h"
#include "base/rounding.h"
#include "runtime/variant_fit.h"

namespace aicf {

std::set<std::string> owned_variables(const Plan& plan) {
  std::set<std::string> owned;
  for (const PlanVariable& v : plan.variables)
    if (v.is_state) owned.insert(v.name);
  for (const auto* list : {&plan.entries, &plan.buckets})
    for (const EntryPlan& entry : *list)
      for (const Step& step : entry.steps)
        for (const TensorRef& ref : step.outputs)
          if (const Buffer& b = entry.buffers[static_cast<size_t>(ref.buffer)];
              b.kind == BufferKind::kVariable)
            owned.insert(b.name);
  return owned;
}

namespace {

constexpr int64_t kPlaceAlignment = 256;               // full cache lines and sectors of a GPU
constexpr int64_t kPassingBytes = int64_t{256} << 20;  // of weights that init packs, at a time

// By number; no_variant if none can run on the device, or only PTX where nothing may be compiled.
size_t best_variant(const Artifact& artifact, const Device& device) {
  const bool jit = jit_allowed();
  int best = 0;
  size_t chosen = 0;
  for (size_t i = 0; i < artifact.variants.size(); ++i) {
    const std::string& target = artifact.variants[i].target;
    const int fitness = jit || !target.starts_with("compute_") ? device.fitness(target) : 0;
    if (fitness > best) best = fitness, chosen = i;
  }
  if (best > 0) return chosen;
  const std::string wanted = target_for(device.name());
  throw UserError(ErrorCode::kU_no_variant, "the artifact has no variant for this device")
      .with_expected(std::string(device.name()) + (jit ? "" : ", and no PTX because of AICF_JIT=0"))
      .with_actual(comma_list(artifact.variants, &Variant::target))
      .with_remedy(wanted.empty()    ? "GPUs before sm_80 are not supported"
                   : wanted == "cpu" ? "compile with " + option_text(Option::kTarget, "cpu") +
                                           ", or run it on a GPU: device cuda"
                                     : "compile with " + option_text(Option::kTarget, wanted));
}

}  // namespace

std::shared_ptr<const Model> Model::load(Artifact artifact, std::shared_ptr<Device> device) {
  const ProfilerRange range("load");
  std::shared_ptr<Model> model(new Model);
  model->variant_ = best_variant(artifact, *device);
  model->artifact_ = std::move(artifact);
  model->device_ = std::move(device);
  model->code_ = model->device_->load_code(model->variant());
  model->prepare_weights();
  log_at(LogLevel::kInfo, [&] {
    const Plan& plan = model->plan();
    return "loaded a model for " + std::string(model->device().name()) + ": " +
           std::to_string(model->weights().size()) + " weights, " + std::to_string(plan.entries.size()) +
           " entries, " + std::to_string(plan.packed_bytes) + " bytes packed";
  });
  return model;
}

const Array* Model::array_of(const Buffer& buffer) const {
  if (buffer.kind != BufferKind::kConstant && buffer.kind != BufferKind::kVariable) return nullptr;
  const auto& arrays = buffer.kind == BufferKind::kConstant ? artifact_.constants : artifact_.weights;
  const auto at = arrays.find(buffer.name);
  return at == arrays.end() ? nullptr : &at->second;
}

std::vector<std::byte*> Model::addresses(const EntryPlan& entry) const { return addresses(entry, {}); }

std::vector<std::byte*> Model::addresses(const EntryPlan& entry, const Uploaded& passing) const {
  std::vector<std::byte*> addresses(entry.buffers.size(), nullptr);
  for (size_t i = 0; i < entry.buffers.size(); ++i) {
    const Buffer& buffer = entry.buffers[i];
    if (buffer.kind == BufferKind::kPacked && packed_->data() != nullptr)
      addresses[i] = packed_->data() + buffer.offset;
    if (buffer.kind != BufferKind::kConstant && buffer.kind != BufferKind::kVariable) continue;
    const Array* array = array_of(buffer);
    if (array == nullptr && buffer.kind == BufferKind::kVariable)
      continue;  // a state that begins as zeros: the Executable owns it
    if (array == nullptr || array->bytes() < buffer.max_bytes)
      throw UserError(ErrorCode::kU_bad_artifact, "a buffer of the plan has no data of its size in the file")
          .with_op(buffer.name);
    // Kernels get mutable addresses; check_plan made sure that no step writes to a constant.
    if (device_->uses_host_memory())
      addresses[i] = static_cast<std::byte*>(const_cast<void*>(array->data()));
    else if (addresses[i] = resident_.find(array); addresses[i] == nullptr)
      addresses[i] = passing.find(array);
  }
  return addresses;
}

std::vector<std::vector<std::byte*>> Model::body_addresses() const {
  std::vector<std::vector<std::byte*>> list;
  for (const EntryPlan& body : plan().bodies) list.push_back(addresses(body));
  return list;
}

std::byte* Model::Uploaded::find(const Array* array) const {
  const auto at = offsets.find(array);
  return at == offsets.end() ? nullptr : memory->data() + at->second;
}

Model::Uploaded Model::upload(const std::set<const Array*>& arrays) const {
  Uploaded uploaded;
  int64_t bytes = 0;
  for (const Array* array : arrays) {
    uploaded.offsets[array] = bytes;
    bytes = checked_add(bytes, checked_round_up(array->bytes(), kPlaceAlignment));
  }
  uploaded.memory = device_->allocate(bytes);
  std::vector<Transfer> transfers;
  for (const Array* array : arrays)
    transfers.push_back({uploaded.find(array), array->data(), array->bytes()});
  // A mapped file is read from its beginning to its end.
  std::sort(transfers.begin(), transfers.end(),
            [](const Transfer& a, const Transfer& b) { return std::less<>()(a.from, b.from); });
  device_->upload_all(transfers);
  return uploaded;
}

void Model::require_unchanged_files() const {
  for (const auto& file : mapped_) file->require_unchanged();
}

void Model::prepare_weights() {
  for (const auto* arrays : {&artifact_.weights, &artifact_.constants})
    for (const auto& [name, array] : *arrays)
      if (auto file = MappedFile::mapping_of(array.data());
          file != nullptr && std::find(mapped_.begin(), mapped_.end(), file) == mapped_.end())
        mapped_.push_back(std::move(file));
  place_weights();
  run_init();
  require_unchanged_files();
}

void Model::place_weights() {
  if (device_->uses_host_memory()) return;
  const std::set<std::string> owned = owned_variables(plan());
  std::set<const Array*> arrays;
  for (const auto* list : {&plan().entries, &plan().buckets, &plan().bodies})
    for (const EntryPlan& entry : *list)
      for (const Buffer& buffer : entry.buffers)
        if (const Array* array = array_of(buffer);
            array != nullptr && entry.name != kInitEntry && !owned.contains(buffer.name))
          arrays.insert(array);
  resident_ = upload(arrays);
}

void Model::run_init() {
  if (device_->uses_host_memory()) require_memory(plan().packed_bytes, "packed weights");
  packed_ = device_->allocate(plan().packed_bytes);
  packed_->will_fill(0, plan().packed_bytes);
  const EntryPlan* init = plan().entry(kInitEntry);
  if (init == nullptr) return;
  size_t first = 0;
  while (first < init->steps.size()) {
    std::set<const Array*> arrays;  // that pass through the device's memory for these steps
    int64_t bytes = 0;
    size_t end = first;
    for (; end < init->steps.size() && (end == first || bytes < kPassingBytes); ++end)
      for (const TensorRef& ref : init->steps[end].inputs) {
        const Buffer& buffer = init->buffers[static_cast<size_t>(ref.buffer)];
        const Array* array = device_->uses_host_memory() ? nullptr : array_of(buffer);
        if (array == nullptr || resident_.find(array) != nullptr) continue;
        if (arrays.insert(array).second) bytes = checked_add(bytes, array->bytes());
      }
    run_init_steps(*init, first, end, upload(arrays));
    first = end;
  }
}

void Model::run_init_steps(const EntryPlan& init, size_t first, size_t end, const Uploaded& passing) const {
  EntryPlan part = init;
  const auto at = [&](size_t step) { return init.steps.begin() + static_cast<std::ptrdiff_t>(step); };
  part.steps.assign(at(first), at(end));
  const std::vector<std::byte*> where = addresses(part, passing);
  for (const Step& step : part.steps)
    for (const TensorRef& ref : step.inputs)
      if (const Buffer& buffer = part.buffers[static_cast<size_t>(ref.buffer)];
          where[static_cast<size_t>(ref.buffer)] == nullptr && buffer.max_bytes > 0)
        throw UserError(ErrorCode::kU_bad_artifact, "init reads a variable that the file does not hold")
            .with_op(buffer.name);
  const auto sequence = device_->bind(plan(), part, code(), {}, {where});
  sequence->run({});
  sequence->finish({});
}

std::shared_ptr<const Model> Model::with_weights(const std::map<std::string, Array>& weights) const {
  std::shared_ptr<Model> model(new Model);
  model->artifact_ = artifact_;
  model->variant_ = variant_;
  model->device_ = device_;
  model->code_ = code_;
  for (const auto& [name, array] : weights) {
    auto at = model->artifact_.weights.find(name);
    if (at == model->artifact_.weights.end())
      throw UserError(ErrorCode::kU_unknown_param, "the model has no param or state of this name")
          .with_value(name);
    if (at->second.dtype() != array.dtype())
      throw UserError(ErrorCode::kU_input_dtype, "a weight has the wrong dtype")
          .with_value(name)
          .with_expected(std::string(dtype_name(at->second.dtype())))
          .with_actual(std::string(dtype_name(array.dtype())));
    if (at->second.sizes() != array.sizes())
      throw UserError(ErrorCode::kU_input_shape, "a weight has the wrong shape")
          .with_value(name)
          .with_expected(to_string(at->second.sizes()))
          .with_actual(to_string(array.sizes()));
    at->second = array;
  }
  model->prepare_weights();
  return model;
}

}  // namespace aicf
