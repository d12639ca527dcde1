#include "runtime/model.h"

#include "base/comma_list.h"
#include "base/error.h"
#include "base/jit.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/profiler_range.h"
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
                   : wanted == "cpu" ? "compile with --target cpu, or run it on a GPU: device cuda"
                                     : "compile with --target " + wanted);
}

}  // namespace

std::shared_ptr<const Model> Model::load(Artifact artifact, std::shared_ptr<Device> device) {
  const ProfilerRange range("load");
  std::shared_ptr<Model> model(new Model);
  model->variant_ = best_variant(artifact, *device);
  model->artifact_ = std::move(artifact);
  model->device_ = std::move(device);
  model->code_ = model->device_->load_code(model->variant());
  model->place_weights();
  model->run_init();
  log_at(LogLevel::kInfo, [&] {
    const Plan& plan = model->plan();
    return "loaded a model for " + std::string(model->device().name()) + ": " +
           std::to_string(model->weights().size()) + " weights, " + std::to_string(plan.entries.size()) +
           " entries, " + std::to_string(plan.packed_bytes) + " bytes packed";
  });
  return model;
}

std::vector<std::byte*> Model::addresses(const EntryPlan& entry) const {
  std::vector<std::byte*> addresses(entry.buffers.size(), nullptr);
  for (size_t i = 0; i < entry.buffers.size(); ++i) {
    const Buffer& buffer = entry.buffers[i];
    const Array* array = nullptr;
    if (buffer.kind == BufferKind::kConstant) {
      auto at = artifact_.constants.find(buffer.name);
      if (at != artifact_.constants.end()) array = &at->second;
    } else if (buffer.kind == BufferKind::kVariable) {
      auto at = artifact_.weights.find(buffer.name);
      if (at == artifact_.weights.end()) continue;  // a state that begins as zeros: the Executable owns it
      array = &at->second;
    } else {
      if (buffer.kind == BufferKind::kPacked && packed_->data() != nullptr)
        addresses[i] = packed_->data() + buffer.offset;
      continue;
    }
    if (array == nullptr || array->bytes() < buffer.max_bytes)
      throw UserError(ErrorCode::kU_bad_artifact, "a buffer of the plan has no data of its size in the file")
          .with_op(buffer.name);
    addresses[i] = resident(*array, buffer.name);
  }
  return addresses;
}

std::vector<std::vector<std::byte*>> Model::body_addresses() const {
  std::vector<std::vector<std::byte*>> list;
  for (const EntryPlan& body : plan().bodies) list.push_back(addresses(body));
  return list;
}

std::byte* Model::resident(const Array& array, const std::string& name) const {
  // Kernels get mutable addresses; check_plan made sure that no step writes to a constant.
  if (device_->uses_host_memory()) return static_cast<std::byte*>(const_cast<void*>(array.data()));
  const auto at = resident_offsets_.find(name);
  return at == resident_offsets_.end() ? nullptr : resident_->data() + at->second;
}

void Model::place_weights() {
  if (device_->uses_host_memory()) return;
  constexpr int64_t kAlignment = 256;  // full cache lines and sectors of a GPU
  std::set<std::string> elsewhere = owned_variables(plan());
  if (const EntryPlan* init = plan().entry(kInitEntry))
    for (const Buffer& buffer : init->buffers) elsewhere.erase(buffer.name);
  int64_t bytes = 0;
  for (const auto* arrays : {&artifact_.weights, &artifact_.constants})
    for (const auto& [name, array] : *arrays) {
      if (elsewhere.contains(name)) continue;
      resident_offsets_[name] = bytes;
      bytes = checked_add(bytes, (array.bytes() + kAlignment - 1) / kAlignment * kAlignment);
    }
  resident_ = device_->allocate(bytes);
  std::vector<Transfer> transfers;
  for (const auto* arrays : {&artifact_.weights, &artifact_.constants})
    for (const auto& [name, array] : *arrays)
      if (std::byte* to = resident(array, name)) transfers.push_back({to, array.data(), array.bytes()});
  device_->upload_all(transfers);
}

void Model::run_init() {
  if (device_->uses_host_memory()) require_memory(plan().packed_bytes, "packed weights");
  packed_ = device_->allocate(plan().packed_bytes);
  packed_->will_fill(0, plan().packed_bytes);
  const EntryPlan* init = plan().entry(kInitEntry);
  if (init == nullptr) return;
  const std::vector<std::byte*> where = addresses(*init);
  for (size_t i = 0; i < where.size(); ++i)
    if (where[i] == nullptr && init->buffers[i].max_bytes > 0)
      throw UserError(ErrorCode::kU_bad_artifact, "init reads a variable that the file does not hold")
          .with_op(init->buffers[i].name);
  const auto sequence = device_->bind(plan(), *init, code(), {}, {where});
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
  model->place_weights();
  model->run_init();
  return model;
}

}  // namespace aicf
