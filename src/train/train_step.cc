#include "train/train_step.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "ir/linear_cross_entropy.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "train/schedules.h"
#include "train/train_entries.h"

namespace aicf {
namespace {

UserError bad_program(const std::string& message) { return {ErrorCode::kU_bad_graph, message}; }

const ParamGroup* group_of(const TrainOptions& options, const std::string& name) {
  for (const ParamGroup& group : options.groups)
    for (const std::string& pattern : group.patterns)
      if (matches_pattern(pattern, name)) return &group;
  return nullptr;
}

// Each pattern names a param, and each group gets one: groups before it may take them all.
void check_groups(const Program& forward, const TrainOptions& options) {
  std::set<const ParamGroup*> taken;
  for (const auto& [name, variable] : forward.variables)
    if (variable.role == Role::kParam) taken.insert(group_of(options, name));
  for (const ParamGroup& group : options.groups)
    for (const std::string& pattern : group.patterns) {
      const bool used =
          std::any_of(forward.variables.begin(), forward.variables.end(), [&](const auto& item) {
            return item.second.role == Role::kParam && matches_pattern(pattern, item.first);
          });
      if (!used)
        throw UserError(ErrorCode::kU_bad_option, "a parameter group matches no parameter")
            .with_value(pattern);
      if (taken.count(&group) == 0)
        throw UserError(ErrorCode::kU_bad_option,
                        "groups before this one take every parameter that it matches")
            .with_value(pattern)
            .with_remedy("put it before them: the first group that matches a name holds for it");
    }
}

std::vector<TrainedParam> trained_params(const Program& forward, const TrainOptions& options) {
  check_groups(forward, options);
  std::vector<TrainedParam> params;
  for (const auto& [name, variable] : forward.variables) {
    if (variable.role != Role::kParam) continue;
    const ParamGroup* group = group_of(options, name);
    if (group != nullptr && !group->trainable) continue;
    TrainedParam trained{name, variable.type, 1, options.optimizer};
    if (group != nullptr) {
      trained.rate_factor = group->rate_factor;
      trained.optimizer.weight_decay = group->weight_decay.value_or(options.optimizer.weight_decay);
    }
    params.push_back(std::move(trained));
  }
  if (params.empty())
    throw UserError(ErrorCode::kU_no_params, "there is nothing to train")
        .with_expected("a named param that the loss depends on")
        .with_remedy("give the model params, or leave one out of the groups that are not trainable");
  return params;
}

void check_forward(const Program& forward) {
  verify(forward, Fault::kUser);
  if (forward.entries.empty()) throw bad_program("a program without an entry cannot be trained");
  for (size_t i = 1; i < forward.entries.size(); ++i)
    for (const char* reserved : {kStepEntry, kAccumulateEntry, kGradientsEntry})
      if (forward.entries[i].name() == reserved)
        throw bad_program("an entry has a name that training gives").with_value(reserved);
  for (const auto& [name, variable] : forward.variables)
    if (name.starts_with("opt."))
      throw bad_program("a variable has a name that training gives")
          .with_value(name)
          .with_expected("not opt.*");
}

void require_option(bool holds, const char* name, double value, const char* expected) {
  if (!holds)
    throw UserError(ErrorCode::kU_bad_option, "a training option is out of range")
        .with_value(name)
        .with_expected(expected)
        .with_actual(format_number(value));
}

void check_options(const TrainOptions& options) {
  const LossScale& scale = options.loss_scale;
  check_optimizer(options.optimizer);
  check_schedule(options.schedule);
  check_loss_scale(scale);
  for (const ParamGroup& group : options.groups) check_group(group);
  require_option(options.accumulate >= 1, "accumulate", static_cast<double>(options.accumulate), "1 or more");
  require_option(options.clip_norm >= 0, "clip_norm", options.clip_norm, "0 or more");
  if (scale.initial != 0 && !options.skip_bad_steps)
    throw UserError(ErrorCode::kU_bad_option, "a scaled loss needs steps that can be skipped")
        .with_value("skip_bad_steps")
        .with_expected("true")
        .with_actual("false");
}

std::string checked_names(const std::vector<TrainedParam>& params) {
  std::string names = "loss";
  for (const TrainedParam& param : params) names += "\nd_" + param.name;
  return names;
}

}  // namespace

void check_loss_scale(const LossScale& scale) {
  require_option(scale.initial >= 0 && std::isfinite(scale.initial), "loss_scale.initial", scale.initial,
                 "0 or more, finite");
  require_option(scale.growth >= 1 && std::isfinite(scale.growth), "loss_scale.growth", scale.growth,
                 "1 or more, finite");
  require_option(scale.backoff > 0 && scale.backoff <= 1, "loss_scale.backoff", scale.backoff,
                 "above 0, at most 1");
  require_option(scale.interval >= 1, "loss_scale.interval", static_cast<double>(scale.interval),
                 "1 or more");
}

// bf16-pure leaves out the f32 copies of half params: without one it would train in f32 without a word.
void check_pure(const std::vector<TrainedParam>& params, Precision precision) {
  if (precision != Precision::kBf16Pure) return;
  for (const TrainedParam& param : params)
    if (is_half(param.type.dtype)) return;
  throw UserError(ErrorCode::kU_unsupported_option, "bf16-pure trains params of halves, and there are none")
      .with_value(std::string("precision ") + precision_name(precision))
      .with_expected("a trained param of bf16 or f16")
      .with_actual(params.front().name + " is " + std::string(dtype_name(params.front().type.dtype)))
      .with_remedy("make the model's params bf16, or take bf16-mixed, which keeps them in f32");
}

Program make_train_program(const Program& forward, const TrainOptions& options) {
  check_options(options);
  check_forward(forward);
  const std::vector<TrainedParam> params = trained_params(forward, options);
  check_pure(params, options.precision);
  const std::optional<DType> narrow = contraction_dtype(options.precision);
  const Graph entry = fuse_linear_cross_entropy(narrow ? narrow_contractions(forward.entries[0], *narrow)
                                                       : forward.entries[0]);
  Program program{forward.variables, {}, forward.sizes, forward.buckets, forward.metadata};
  const EntryParts parts{entry, options, params, program};
  program.entries.push_back(step_entry(parts));
  if (options.accumulate > 1) program.entries.push_back(accumulate_entry(parts));
  if (options.gradients_entry) program.entries.push_back(gradients_entry(parts));
  if (options.precision == Precision::kTf32)
    for (Graph& built : program.entries) built = multiply_in_tf32(built);
  program.entries.insert(program.entries.end(), forward.entries.begin() + 1, forward.entries.end());
  program.metadata[kAccumulateKey] = std::to_string(options.accumulate);
  if (options.skip_bad_steps) program.metadata[kCheckedKey] = checked_names(params);
  // A table too large to stand in the text is left out: nothing of the run depends on it.
  if (collect_blobs(Program{{}, {options.schedule}, {}, {}, {}}).empty())
    program.metadata[kScheduleKey] = print(options.schedule, {.hints = false, .origins = false});
  verify(program, Fault::kInternal);
  return program;
}

}  // namespace aicf
