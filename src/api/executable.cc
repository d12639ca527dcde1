#include "api/bridge.h"

#include "runtime/open_device.h"
#include "runtime/random_inputs.h"
#include "runtime/run_guard.h"
#include "runtime/verify.h"

namespace aicf::v1 {
namespace {

std::shared_ptr<const core::Model> load_core(core::Artifact artifact, const LoadOptions& options) {
  return core::Model::load(std::move(artifact),
                           core::open_device({options.device,
                                              options.threads,
                                              options.isa,
                                              {options.allocator.allocate, options.allocator.release},
                                              options.device_memory_limit}));
}

const core::EntryPlan& find_entry(const core::Model& model, const std::string& name) {
  const core::Plan& plan = model.plan();
  const core::EntryPlan* found = name.empty() && !plan.entries.empty() ? &plan.entries[0] : plan.entry(name);
  if (found != nullptr) return *found;
  throw core::UserError(core::ErrorCode::kU_bad_option, "the model has no entry of this name")
      .with_value(name);
}

std::vector<TensorSpec> specs(const core::Plan& plan, const std::vector<core::IoTensor>& tensors) {
  std::vector<TensorSpec> result;
  for (const core::IoTensor& io : tensors) {
    TensorSpec spec{io.name, to_public(io.dtype), {}, {}};
    for (const core::Dim& dim : io.sizes) {
      const core::Interval range = core::bounds(dim, plan.sizes);
      spec.sizes.push_back(to_public(dim));
      spec.ranges.push_back({range.lo, range.hi});
    }
    result.push_back(std::move(spec));
  }
  return result;
}

std::map<std::string, core::Array> to_arrays(const std::map<std::string, TensorView>& views) {
  std::map<std::string, core::Array> arrays;
  for (const auto& [name, view] : views) arrays.emplace(name, to_array(view));
  return arrays;
}

void assign_all(std::vector<core::TensorView>& out, const std::vector<TensorView>& views,
                bool needs_data = true) {
  out.resize(views.size());
  for (size_t i = 0; i < views.size(); ++i) assign(out[i], views[i], needs_data);
}

VerifyResult verify_with(core::Executable& exe, const std::string& entry,
                         const std::map<std::string, core::Array>& inputs, int64_t replays) {
  if (replays < 1)
    throw core::UserError(core::ErrorCode::kU_bad_option, "verify needs at least one replay")
        .with_actual(std::to_string(replays));
  core::VerifyResult result = core::verify_replays(exe, entry, inputs, replays);
  return {result.replays, std::move(result.hashes)};
}

}  // namespace

// --- Model

Model Access::model(std::shared_ptr<const core::Model> model) {
  Model result;
  result.impl_ = std::make_shared<const Model::Impl>(Model::Impl{std::move(model)});
  return result;
}

const std::shared_ptr<const core::Model>& Access::model(const Model& model) { return model.impl_->model; }

Model Model::load(const std::string& path, const LoadOptions& options) {
  return translated([&] { return Access::model(load_core(core::read_artifact(path), options)); });
}

Model::Model(const Artifact& artifact, const LoadOptions& options) {
  *this = translated([&] { return Access::model(load_core(Access::artifact(artifact), options)); });
}

void Model::save(const std::string& path) const {
  translated([&] { core::write_artifact(path, impl_->model->artifact()); });
}
const std::map<std::string, std::string>& Model::metadata() const { return impl_->model->metadata(); }

std::vector<std::string> Model::entries() const {
  std::vector<std::string> names;
  for (const core::EntryPlan& entry : impl_->model->plan().entries)
    if (entry.name != core::kInitEntry) names.push_back(entry.name);
  return names;
}
std::vector<TensorSpec> Model::inputs(const std::string& entry) const {
  return translated([&] { return specs(impl_->model->plan(), find_entry(*impl_->model, entry).inputs); });
}
std::vector<TensorSpec> Model::outputs(const std::string& entry) const {
  return translated([&] { return specs(impl_->model->plan(), find_entry(*impl_->model, entry).outputs); });
}
std::map<std::string, SizeRange> Model::sizes() const {
  std::map<std::string, SizeRange> result;
  for (const auto& [name, range] : impl_->model->plan().sizes) result[name] = {range.lo, range.hi};
  return result;
}
std::string Model::plan_text() const {
  return translated([&] { return core::to_string(impl_->model->plan()); });
}
std::vector<std::string> Model::weight_names() const {
  std::vector<std::string> names;
  for (const auto& [name, array] : impl_->model->weights()) names.push_back(name);
  return names;
}
Model Model::with_weights(const std::map<std::string, Tensor>& weights) const {
  return translated([&] {
    std::map<std::string, core::Array> arrays;
    for (const auto& [name, tensor] : weights) arrays.emplace(name, Access::array(tensor.clone()));
    return Access::model(impl_->model->with_weights(arrays));
  });
}

// --- Executable

Executable::Executable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::Executable(const Model& model) {
  impl_ = translated([&] {
    return std::make_unique<Impl>(model, std::make_unique<core::Executable>(Access::model(model)));
  });
}
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;
Executable::~Executable() = default;

Executable Executable::load(const std::string& path, const LoadOptions& options) {
  return Executable(Model::load(path, options));
}
const Model& Executable::model() const { return impl_->model; }
core::Executable& Access::executable(Executable& executable) { return *executable.impl_->executable; }

std::map<std::string, Tensor> Executable::run(const std::map<std::string, TensorView>& inputs,
                                              const std::string& entry) {
  return translated([&] {
    std::map<std::string, Tensor> results;
    for (const auto& [name, array] : impl_->executable->run(entry, to_arrays(inputs)))
      results.emplace(name, Access::tensor(array));
    return results;
  });
}

std::vector<Tensor> Executable::run(const std::vector<TensorView>& inputs, const std::string& entry) {
  return translated([&] {
    std::vector<core::TensorView> views;
    assign_all(views, inputs);
    std::vector<Tensor> results;
    for (const core::Array& array : impl_->executable->run(entry, views))
      results.push_back(Access::tensor(array));
    return results;
  });
}

void Executable::run_into(const std::vector<TensorView>& inputs, const std::vector<TensorView>& outputs,
                          const RunOptions& options) {
  run_into(std::string(), inputs, outputs, options);
}

void Executable::run_into(const std::string& entry, const std::vector<TensorView>& inputs,
                          const std::vector<TensorView>& outputs, const RunOptions& options) {
  translated([&] {
    const core::RunGuard guard(impl_->running);
    assign_all(impl_->inputs, inputs);
    assign_all(impl_->outputs, outputs);
    impl_->executable->run_into(entry, impl_->inputs, impl_->outputs, {{options.stream}, options.wait});
  });
}

void Executable::finish() {
  translated([&] { impl_->executable->finish(); });
}

std::vector<DeviceTensor> Executable::run_on_device(const std::vector<TensorView>& inputs,
                                                    const RunOptions& options, const std::string& entry) {
  return translated([&] {
    const core::RunGuard guard(impl_->running);
    assign_all(impl_->inputs, inputs);
    std::vector<DeviceTensor> results;
    for (core::DeviceTensor& tensor :
         impl_->executable->run_on_device(entry, impl_->inputs, {{options.stream}, options.wait}))
      results.push_back(Access::device_tensor(std::move(tensor)));
    return results;
  });
}

DeviceTensor Executable::to_device(const TensorView& view, void* stream) {
  return translated([&] {
    const core::Array array = to_array(view);
    core::DeviceTensor tensor =
        impl_->executable->device_tensor(array.dtype(), array.sizes(), core::Stream{stream});
    tensor.device->upload(tensor.data(), array.data(), array.bytes(), tensor.stream);
    return Access::device_tensor(std::move(tensor));
  });
}

std::vector<std::vector<int64_t>> Executable::output_sizes(const std::vector<TensorView>& inputs,
                                                           const std::string& entry) const {
  return translated([&] {
    std::vector<core::TensorView> views;
    assign_all(views, inputs, /*needs_data=*/false);
    const core::EntryPlan& plan = impl_->executable->entry(entry);
    const core::SymbolValues sizes = impl_->executable->bind_sizes(plan, views);
    std::vector<std::vector<int64_t>> result;
    for (size_t i = 0; i < plan.outputs.size(); ++i)
      result.push_back(impl_->executable->output_sizes(plan, i, sizes));
    return result;
  });
}

std::vector<std::string> Executable::state_names() const { return impl_->executable->state_names(); }
Tensor Executable::state(const std::string& name) const {
  return translated([&] { return Access::tensor(impl_->executable->state(name)); });
}
void Executable::set_state(const std::string& name, const TensorView& value) {
  translated([&] { impl_->executable->set_state(name, to_array(value)); });
}
void Executable::reset() {
  translated([&] { impl_->executable->reset(); });
}
Executable Executable::clone() const {
  return translated(
      [&] { return Executable(std::make_unique<Impl>(impl_->model, impl_->executable->clone())); });
}

VerifyResult Executable::verify(int64_t replays, uint64_t seed) {
  return translated([&] {
    const core::Plan& plan = impl_->executable->model().plan();
    const core::EntryPlan& entry = impl_->executable->entry("");
    return verify_with(*impl_->executable, entry.name,
                       core::random_inputs(plan, entry, core::choose_sizes(plan, {}), seed), replays);
  });
}

VerifyResult Executable::verify(int64_t replays, const std::map<std::string, TensorView>& inputs,
                                const std::string& entry) {
  return translated([&] { return verify_with(*impl_->executable, entry, to_arrays(inputs), replays); });
}

}  // namespace aicf::v1
