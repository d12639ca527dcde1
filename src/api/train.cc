#include "api/bridge.h"

#include "runtime/batches.h"
#include "runtime/trainer.h"
#include "train/losses.h"
#include "train/schedules.h"
#include "train/train_step.h"

namespace aicf::v1 {

// --- programs

Value add_loss(Builder& builder, const std::string& kind, Value prediction, Value target,
               const LossOptions& options) {
  return translated([&] {
    const core::LossOptions wanted{options.sum ? core::LossReduction::kSum : core::LossReduction::kMean,
                                   options.delta, options.label_smoothing, options.ignore_index};
    return Access::append(builder, {prediction, target},
                          [&](core::Graph& graph, const std::vector<core::ValueId>& ids) {
                            return core::add_loss(graph, core::loss_kind(kind), ids[0], ids[1], wanted);
                          });
  });
}

struct Schedule::Impl {
  core::Graph graph;
};

Schedule Access::schedule(core::Graph graph) {
  Schedule schedule;
  schedule.impl_ = std::make_shared<const Schedule::Impl>(Schedule::Impl{std::move(graph)});
  return schedule;
}
const core::Graph& Access::schedule(const Schedule& schedule) { return schedule.impl_->graph; }

Schedule Schedule::constant(double rate) {
  return translated([&] { return Access::schedule(core::constant_rate(rate)); });
}
Schedule Schedule::linear(double first, double last, int64_t total) {
  return translated([&] { return Access::schedule(core::linear_rate(first, last, total)); });
}
Schedule Schedule::cosine(double peak, int64_t total, double floor) {
  return translated([&] { return Access::schedule(core::cosine_rate(peak, total, floor)); });
}
Schedule Schedule::step(double rate, double factor, int64_t every) {
  return translated([&] { return Access::schedule(core::step_rate(rate, factor, every)); });
}
Schedule Schedule::warmup(int64_t steps) const {
  return translated([&] { return Access::schedule(core::with_warmup(impl_->graph, steps)); });
}

namespace {

core::TrainOptions to_core(const TrainOptions& options) {
  core::TrainOptions wanted;
  const OptimizerOptions& o = options.optimizer;
  wanted.optimizer = {
      core::optimizer_kind(o.kind), o.momentum, o.nesterov, o.beta1, o.beta2, o.epsilon, o.weight_decay};
  wanted.schedule = Access::schedule(options.schedule);
  for (const ParamGroup& group : options.groups) {
    core::ParamGroup row{group.patterns, group.rate_factor, {}, group.trainable};
    if (group.weight_decay >= 0) row.weight_decay = group.weight_decay;
    wanted.groups.push_back(std::move(row));
  }
  wanted.clip_norm = options.clip_norm;
  wanted.accumulate = options.accumulate;
  wanted.skip_bad_steps = options.skip_bad_steps;
  const LossScale& scale = options.loss_scale;
  wanted.loss_scale = {scale.initial, scale.dynamic, scale.growth, scale.backoff, scale.interval};
  wanted.precision = core::precision_of(options.precision);
  wanted.gradients_entry = options.gradients_entry;
  return wanted;
}

}  // namespace

Program make_train_program(const Program& forward, const TrainOptions& options) {
  return translated(
      [&] { return Access::program(core::make_train_program(Access::program(forward), to_core(options))); });
}

// --- runs

struct TrainStep::Impl {
  explicit Impl(Executable e) : executable(std::move(e)), trainer(Access::executable(executable)) {}
  Executable executable;
  core::Trainer trainer;
};

TrainStep::TrainStep(Executable executable)
    : impl_(translated([&] { return std::make_unique<Impl>(std::move(executable)); })) {}
TrainStep::TrainStep(const Artifact& artifact, const LoadOptions& options)
    : TrainStep(Executable(Model(artifact, options))) {}
TrainStep TrainStep::load(const std::string& path, const LoadOptions& options) {
  return TrainStep(Executable::load(path, options));
}
TrainStep::TrainStep(TrainStep&&) noexcept = default;
TrainStep& TrainStep::operator=(TrainStep&&) noexcept = default;
TrainStep::~TrainStep() = default;

std::vector<Tensor> TrainStep::run(const std::vector<TensorView>& inputs) {
  return translated([&] {
    std::vector<core::TensorView> views(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) assign(views[i], inputs[i]);
    std::vector<Tensor> results;
    for (const core::Array& array : impl_->trainer.step(views)) results.push_back(Access::tensor(array));
    return results;
  });
}
std::vector<Tensor> TrainStep::run_entry(const std::string& entry, const std::vector<TensorView>& inputs) {
  return impl_->executable.run(inputs, entry);
}

const Executable& TrainStep::executable() const { return impl_->executable; }
int64_t TrainStep::steps() const {
  return translated([&] { return impl_->trainer.steps(); });
}
int64_t TrainStep::skipped() const {
  return translated([&] { return impl_->trainer.skipped(); });
}
std::string TrainStep::bad_tensor() const {
  return translated([&] { return impl_->trainer.bad_tensor(); });
}
void TrainStep::require_finite() const {
  translated([&] { impl_->trainer.require_finite(); });
}
void TrainStep::clear_bad_tensor() {
  translated([&] { impl_->trainer.clear_bad_tensor(); });
}

std::map<std::string, Tensor> TrainStep::states() const {
  return translated([&] {
    std::map<std::string, Tensor> result;
    for (const auto& [name, array] : impl_->trainer.states()) result.emplace(name, Access::tensor(array));
    return result;
  });
}
void TrainStep::set_states(const std::map<std::string, Tensor>& states) {
  translated([&] {
    std::map<std::string, core::Array> arrays;
    for (const auto& [name, tensor] : states) arrays.emplace(name, Access::array(tensor));
    impl_->trainer.set_states(arrays);
  });
}
void TrainStep::save_checkpoint(const std::string& path,
                                const std::map<std::string, std::string>& metadata) const {
  translated([&] { impl_->trainer.save_checkpoint(path, metadata); });
}
std::map<std::string, std::string> TrainStep::load_checkpoint(const std::string& path) {
  return translated([&] { return impl_->trainer.load_checkpoint(path); });
}
void TrainStep::save(const std::string& path) const {
  translated([&] { core::write_artifact(path, impl_->trainer.artifact()); });
}
std::string TrainStep::hash() const {
  return translated([&] { return impl_->trainer.hash(); });
}

std::vector<int64_t> shuffled_rows(int64_t rows, uint64_t seed, int64_t epoch) {
  return translated([&] { return core::shuffled_rows(rows, seed, epoch); });
}

}  // namespace aicf::v1
