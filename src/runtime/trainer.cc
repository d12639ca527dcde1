#include "runtime/trainer.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/safetensors.h"
#include "base/training_names.h"

namespace aicf {
namespace {

constexpr const char* kFormatKey = "aicf.checkpoint";
constexpr const char* kHashKey = "aicf.checkpoint.hash";  // of the tensors; a file without it is not checked
constexpr const char* kFormat = "1";

bool has_state(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

int64_t read_accumulate(const std::map<std::string, std::string>& metadata) {
  const auto at = metadata.find(kAccumulateKey);
  const int64_t count = at == metadata.end() ? 0 : std::atoll(at->second.c_str());
  if (count < 1)
    throw UserError(ErrorCode::kU_bad_artifact, "the file does not say how many batches make a step")
        .with_value(kAccumulateKey);
  return count;
}

std::string line_of(const std::string& text, int64_t number) {
  size_t begin = 0;
  for (int64_t i = 0; i < number; ++i) {
    begin = text.find('\n', begin);
    if (begin == std::string::npos) return "tensor " + std::to_string(number);
    ++begin;
  }
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::string type_text(const Array& array) {
  return std::string(dtype_name(array.dtype())) + to_string(array.sizes());
}

// One line for each name that stands on one side only or has another type.
std::string differences(const std::map<std::string, Array>& mine, const std::map<std::string, Array>& given) {
  std::string text;
  const auto add = [&](const std::string& line) { text += (text.empty() ? "" : "; ") + line; };
  for (const auto& [name, array] : mine) {
    const auto at = given.find(name);
    if (at == given.end()) {
      add("'" + name + "' " + type_text(array) + " is missing");
    } else if (type_text(at->second) != type_text(array)) {
      add("'" + name + "' is " + type_text(at->second) + " and should be " + type_text(array));
    }
  }
  for (const auto& [name, array] : given)
    if (!mine.contains(name)) add("'" + name + "' " + type_text(array) + " is unknown");
  return text;
}

}  // namespace

Trainer::Trainer(Executable& executable) : executable_(executable) {
  const Plan& plan = executable_.model().plan();
  const std::vector<std::string> names = executable_.state_names();
  if (plan.entry(kStepEntry) == nullptr || !has_state(names, kStepState))
    throw UserError(ErrorCode::kU_not_trainable, "the model has no train step")
        .with_expected("an entry 'step' and a state 'opt.step'")
        .with_remedy("compile it with aicf.compile_train_step or aicf::compile_train_step");
  accumulate_ = read_accumulate(executable_.model().metadata());
  has_micro_ = has_state(names, kMicroState);
  has_flag_ = has_state(names, kBadTensorState);
  if (accumulate_ > 1 && (!has_micro_ || plan.entry(kAccumulateEntry) == nullptr))
    throw UserError(ErrorCode::kU_bad_artifact, "the model accumulates gradients and has no entry for it");
}

Trainer::Turn::Turn(Trainer& trainer)
    : trainer_(trainer),
      guard_(trainer.stepping_, "call it from one thread", "the train step already has a call in flight") {
  if (trainer_.micro_ == kUnknown) trainer_.micro_ = trainer_.has_micro_ ? trainer_.counter(kMicroState) : 0;
}

const char* Trainer::Turn::entry() const {
  return trainer_.micro_ + 1 >= trainer_.accumulate_ ? kStepEntry : kAccumulateEntry;
}

void Trainer::Turn::done() {
  trainer_.micro_ = trainer_.micro_ + 1 >= trainer_.accumulate_ ? 0 : trainer_.micro_ + 1;
  done_ = true;
}

Trainer::Snapshot::~Snapshot() {
  try {
    restore();
  } catch (const Error& error) {
    log_at(LogLevel::kError, [&] { return "the states of a train step stay changed: " + error.text(); });
  }
}

int64_t Trainer::counter(const std::string& name) const { return executable_.state(name).get_i64(0); }

std::vector<Array> Trainer::step(const std::vector<TensorView>& inputs, const RunOptions& options) {
  const EntryPlan& plan = entry();
  const SymbolValues sizes = executable_.bind_sizes(plan, inputs);
  std::vector<Array> outputs;
  std::vector<TensorView> views;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    outputs.push_back(Array::uninitialized(plan.outputs[i].dtype, executable_.output_sizes(plan, i, sizes)));
    views.push_back(view_of(outputs.back()));
  }
  step_into(inputs, views, options);
  return outputs;
}

void Trainer::step_into(const std::vector<TensorView>& inputs, const std::vector<TensorView>& outputs,
                        const RunOptions& options) {
  Turn turn(*this);
  executable_.run_into(turn.entry(), inputs, outputs, options);
  turn.done();
}

std::string Trainer::hash(const std::vector<Array>& outputs) const {
  std::map<std::string, Array> all = states();
  for (size_t i = 0; i < outputs.size(); ++i) all.emplace("output " + std::to_string(i), outputs[i]);
  return hash_arrays(all);
}

int64_t Trainer::skipped() const { return has_flag_ ? counter(kSkippedState) : 0; }

bool Trainer::scales_loss() const { return has_state(executable_.state_names(), kLossScaleState); }

std::string Trainer::bad_tensor() const {
  const int64_t number = has_flag_ ? counter(kBadTensorState) : -1;
  if (number < 0) return {};
  const auto& metadata = executable_.model().metadata();
  const auto names = metadata.find(kCheckedKey);
  return line_of(names == metadata.end() ? std::string() : names->second, number);
}

void Trainer::require_finite() const {
  const std::string name = bad_tensor();
  if (name.empty()) return;
  throw UserError(ErrorCode::kU_bad_tensor, "a tensor of a step was not finite; params and moments were kept")
      .with_value(name)
      .with_actual(std::to_string(skipped()) + " steps skipped, " + std::to_string(steps()) + " finished")
      .with_remedy("look for NaN in the data, or lower the rate; clear the flag to go on");
}

void Trainer::clear_bad_tensor() {
  if (has_flag_) executable_.set_state(kBadTensorState, Array::scalar_i64(DType::i64, -1));
}

std::map<std::string, Array> Trainer::states() const { return executable_.states(); }

void Trainer::set_states(const std::map<std::string, Array>& states) {
  const Turn turn(*this);
  const std::string text = differences(this->states(), states);
  if (!text.empty())
    throw UserError(ErrorCode::kU_bad_checkpoint, "the states belong to another model").with_actual(text);
  check_counters(states);
  executable_.set_states(states);
}

void Trainer::check_counters(const std::map<std::string, Array>& states) const {
  const auto check = [&](const char* name, double low, double high) {
    const auto at = states.find(name);
    if (at == states.end()) return;
    const double value = at->second.get_f64(0);
    if (value >= low && value <= high) return;
    throw UserError(ErrorCode::kU_bad_checkpoint, "a counter of the states is out of range")
        .with_value(name)
        .with_expected(format_number(low) + " to " + format_number(high))
        .with_actual(format_number(value));
  };
  constexpr double kMost = 0x1p62;
  const auto& metadata = executable_.model().metadata();
  const auto names = metadata.find(kCheckedKey);
  const auto checked =
      names == metadata.end() ? 0 : std::count(names->second.begin(), names->second.end(), '\n');
  check(kStepState, 0, kMost);
  check(kMicroState, 0, static_cast<double>(accumulate_ - 1));
  check(kBadTensorState, -1, static_cast<double>(checked));
  check(kSkippedState, 0, kMost);
  check(kGoodStepsState, 0, kMost);
  check(kLossScaleState, 0, std::numeric_limits<float>::max());
}

void Trainer::save_checkpoint(const std::string& path,
                              const std::map<std::string, std::string>& metadata) const {
  const std::map<std::string, Array> now = states();
  std::vector<SafetensorsTensor> tensors;
  for (auto& [name, array] : now) tensors.push_back({name, array});
  sort_for_safetensors(tensors);
  SafetensorsMetadata text = metadata;
  text[kFormatKey] = kFormat;
  text[kHashKey] = hash_arrays(now);
  write_safetensors(path, tensors, text);
}

std::map<std::string, std::string> Trainer::load_checkpoint(const std::string& path) {
  SafetensorsFile file = read_safetensors(path);
  if (!file.metadata.contains(kFormatKey) || file.metadata.at(kFormatKey) != kFormat)
    throw UserError(ErrorCode::kU_bad_checkpoint, "the file is not a checkpoint of a training run")
        .with_value(path)
        .with_expected(std::string(kFormatKey) + " = " + kFormat + " in its metadata");
  std::erase_if(file.tensors, [](const auto& item) { return item.first.starts_with(kSafetensorsFiller); });
  const auto written = file.metadata.find(kHashKey);
  const std::string found = written == file.metadata.end() ? "" : hash_arrays(file.tensors);
  if (written != file.metadata.end() && written->second != found)
    throw UserError(ErrorCode::kU_bad_checkpoint, "the checkpoint's tensors are not those that were written")
        .with_value(path)
        .with_expected(std::string(kHashKey) + " = " + written->second)
        .with_actual(found)
        .with_remedy(
            "go on from another copy; if it was changed on purpose, take the hash out of its metadata");
  set_states(file.tensors);
  return file.metadata;
}

Artifact Trainer::artifact() const {
  Artifact artifact = executable_.model().artifact();
  for (auto& [name, array] : states()) artifact.weights[name] = array;
  return artifact;
}

VerifyResult Trainer::verify(int64_t steps, int64_t runs,
                             const std::function<std::vector<TensorView>(int64_t)>& batch) {
  Snapshot before(*this);
  VerifyResult result;
  for (int64_t run = 0; run < runs; ++run) {
    std::vector<Array> outputs;
    for (int64_t i = 0; i < steps; ++i) outputs = step(batch(i));
    ++result.hashes[hash(outputs)];
    ++result.replays;
    before.restore();
  }
  return result;
}

}  // namespace aicf
