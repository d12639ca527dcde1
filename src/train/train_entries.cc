#include "train/train_entries.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "autodiff/gradients.h"
#include "base/comma_list.h"
#include "base/error.h"
#include "base/option_text.h"
#include "ir/append.h"
#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

constexpr double kClipSlack = 1e-6;  // added to the norm before dividing by it, as torch does

TensorType wide_type(const TensorType& type) {
  return {is_half(type.dtype) ? DType::f32 : type.dtype, type.shape};
}

class EntryBuilder {
 public:
  EntryBuilder(const char* name, const EntryParts& parts)
      : options_(parts.options),
        params_(parts.params),
        forward_(parts.forward),
        program_(parts.program),
        graph_(name) {
    map_ = append_graph(graph_, forward_);
    for (ValueId leaf : graph_.leaves())
      if (const Value& value = graph_.value(leaf); value.role == Role::kParam || value.role == Role::kState)
        variables_[value.name] = leaf;
    std::vector<std::string> unused;
    for (const TrainedParam& param : params_)
      if (!variables_.contains(param.name)) unused.push_back(param.name);
    if (!unused.empty())
      throw UserError(ErrorCode::kU_unused_param, "a param does not take part in the loss")
          .with_value(comma_list(unused))
          .with_remedy("remove it, or put it into a group that is not trained: " + untrained_text(unused));
    loss_ = map_[static_cast<size_t>(forward_.outputs()[0])];
    for (size_t i = 0; i < forward_.outputs().size(); ++i)
      graph_.add_output(map_[static_cast<size_t>(forward_.outputs()[i])], forward_.output_names()[i]);
  }

  Graph gradients() && {
    std::vector<ValueId> values = differentiate(kNoValue);
    for (size_t i = 0; i < values.size(); ++i) graph_.add_output(values[i], "d_" + params_[i].name);
    return std::move(graph_);
  }

  Graph accumulate() && {
    std::vector<ValueId> sums = summed_gradients();
    if (options_.skip_bad_steps) spoil_if_loss_is_bad(sums);
    for (size_t i = 0; i < sums.size(); ++i) update("opt.acc." + params_[i].name, sums[i]);
    const ValueId micro = state(kMicroState, {DType::i64, {}});
    update(kMicroState, e_.add(micro, e_.scalar_int(DType::i64, 1)));
    forward_updates();
    return std::move(graph_);
  }

  Graph step() && {
    const std::vector<ValueId> gradients = summed_gradients();
    const std::vector<ValueId> sizes =
        options_.skip_bad_steps || options_.clip_norm > 0 ? magnitudes(gradients) : std::vector<ValueId>{};
    if (options_.skip_bad_steps) find_bad_tensor(sizes);
    const ValueId factor = gradient_factor(sizes);
    advance_params(gradients, factor);
    if (options_.accumulate > 1) clear_accumulated();
    if (options_.loss_scale.initial > 0 && options_.loss_scale.dynamic) advance_loss_scale();
    forward_updates();
    return std::move(graph_);
  }

 private:
  // The present value of a state, made known to the program at its first use.
  ValueId state(const std::string& name, TensorType type, Array initial = {}) {
    if (const auto at = variables_.find(name); at != variables_.end()) return at->second;
    program_.variables.try_emplace(name, Variable{name, Role::kState, type, std::move(initial)});
    return variables_[name] = graph_.add_state(name, std::move(type));
  }
  // After the step, whatever became of it.
  void update(const std::string& name, ValueId value) { graph_.add_update(variables_.at(name), value); }
  // After a good step; a bad one leaves the variable as it was.
  void advance(const std::string& name, ValueId value) {
    update(name, ok_ == kNoValue ? value : e_.select(ok_, value, variables_.at(name)));
  }

  std::vector<ValueId> differentiate(ValueId seed) {
    std::vector<ValueId> wanted;
    for (const TrainedParam& param : params_) wanted.push_back(variables_.at(param.name));
    GradientOptions options;
    options.seed = seed;
    return add_gradients(graph_, loss_, wanted, options);
  }

  // Gradients of the scaled loss, f32 for half precision params, with those accumulated before.
  std::vector<ValueId> summed_gradients() {
    std::vector<ValueId> gradients = differentiate(loss_scale() == kNoValue ? kNoValue : seed());
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = e_.widen(gradients[i]);
      if (options_.accumulate > 1)
        gradients[i] = e_.add(gradients[i], state("opt.acc." + params_[i].name, wide_type(params_[i].type)));
    }
    return gradients;
  }

  ValueId loss_scale() {
    if (options_.loss_scale.initial == 0) return kNoValue;
    return state(kLossScaleState, {DType::f32, {}},
                 Array::scalar_f64(DType::f32, options_.loss_scale.initial));
  }
  ValueId seed() { return e_.cast(loss_scale(), graph_.dtype(loss_)); }

  // A vector with one number per gradient that is finite if and only if the gradient is (and its square in
  // range): the sum of squares where a norm is needed, else the largest magnitude.
  std::vector<ValueId> magnitudes(const std::vector<ValueId>& gradients) {
    std::vector<ValueId> parts;
    for (ValueId gradient : gradients) {
      const bool norm = options_.clip_norm > 0;
      const ValueId size = norm ? e_.mul(gradient, gradient) : e_.op(Op::abs, {gradient});
      const ValueId whole =
          e_.reduce(norm ? Op::reduce_sum : Op::reduce_max, size, axes_from(0, e_.rank(gradient)), false);
      parts.push_back(e_.cast(e_.reshape(whole, {Dim(1)}), scalar_dtype()));
    }
    return {e_.op(Op::concat, std::move(parts), {{"axis", int64_t{0}}})};
  }

  DType scalar_dtype() const {
    return std::any_of(params_.begin(), params_.end(),
                       [](const TrainedParam& p) { return p.type.dtype == DType::f64; })
               ? DType::f64
               : DType::f32;
  }

  // Sets ok_ and the flag. The loss counts as tensor 0, the gradients from 1 on.
  void find_bad_tensor(const std::vector<ValueId>& sizes) {
    const auto count = static_cast<int64_t>(params_.size());
    const DType dtype = scalar_dtype();
    const double infinity = std::numeric_limits<double>::infinity();
    const ValueId numbers = e_.add(
        e_.op(Op::iota, {}, {{"shape", Shape{Dim(count)}}, {"axis", int64_t{0}}, {"dtype", DType::i64}}),
        e_.scalar_int(DType::i64, 1));
    const ValueId none = e_.scalar_int(DType::i64, count + 1);
    const ValueId finite = e_.op(Op::lt, {sizes[0], e_.scalar(dtype, infinity)});
    const ValueId first = e_.reduce(Op::reduce_min, e_.select(finite, none, numbers), {0}, false);
    const ValueId found = e_.select(loss_is_finite(), first, e_.scalar_int(DType::i64, 0));
    ok_ = e_.op(Op::eq, {found, none});

    note_bad_tensor(e_.select(ok_, e_.scalar_int(DType::i64, -1), found));
    const ValueId skipped = state(kSkippedState, {DType::i64, {}});
    update(kSkippedState, e_.select(ok_, skipped, e_.add(skipped, e_.scalar_int(DType::i64, 1))));
  }

  ValueId loss_is_finite() {
    const DType dtype = scalar_dtype();
    const ValueId infinity = e_.scalar(dtype, std::numeric_limits<double>::infinity());
    return e_.op(Op::lt, {e_.op(Op::abs, {e_.cast(loss_, dtype)}), infinity});
  }

  // `number` is -1 if there is none; the first since the flag was cleared stays.
  void note_bad_tensor(ValueId number) {
    const ValueId flag = state(kBadTensorState, {DType::i64, {}}, Array::scalar_i64(DType::i64, -1));
    update(kBadTensorState, e_.select(e_.op(Op::lt, {flag, e_.scalar_int(DType::i64, 0)}), number, flag));
  }

  // Sets ok_. The gradients of a loss that is not finite may be: the whole step is skipped, because the
  // shortest of its sums becomes NaN.
  void spoil_if_loss_is_bad(std::vector<ValueId>& sums) {
    ok_ = loss_is_finite();
    note_bad_tensor(e_.select(ok_, e_.scalar_int(DType::i64, -1), e_.scalar_int(DType::i64, 0)));
    const auto length = [&](ValueId sum) {
      return element_count(graph_.type(sum).shape).constant().value_or(std::numeric_limits<int64_t>::max());
    };
    ValueId& sum = *std::min_element(sums.begin(), sums.end(),
                                     [&](ValueId a, ValueId b) { return length(a) < length(b); });
    sum = e_.select(ok_, sum, e_.scalar(graph_.dtype(sum), std::numeric_limits<double>::quiet_NaN()));
  }

  // What every gradient is multiplied with: 1 / (scale accumulated), and less where the norm is too large.
  // kNoValue: 1.
  ValueId gradient_factor(const std::vector<ValueId>& sizes) {
    const DType dtype = scalar_dtype();
    const ValueId scale = loss_scale();
    ValueId factor = kNoValue;
    if (options_.accumulate > 1 || scale != kNoValue)
      factor = e_.scalar(dtype, 1.0 / static_cast<double>(options_.accumulate));
    if (scale != kNoValue) factor = e_.div(factor, e_.cast(scale, dtype));
    if (options_.clip_norm == 0) return factor;
    ValueId norm = e_.op(Op::sqrt, {e_.reduce(Op::reduce_sum, sizes[0], {0}, false)});
    if (factor != kNoValue) norm = e_.mul(norm, factor);
    const ValueId ratio =
        e_.div(e_.scalar(dtype, options_.clip_norm), e_.add(norm, e_.scalar(dtype, kClipSlack)));
    const ValueId clip = e_.op(Op::min, {ratio, e_.scalar(dtype, 1)});
    return factor == kNoValue ? clip : e_.mul(factor, clip);
  }

  void advance_params(const std::vector<ValueId>& gradients, ValueId factor) {
    const ValueId finished = state(kStepState, {DType::i64, {}});
    const ValueId step = e_.add(finished, e_.scalar_int(DType::i64, 1));
    const ValueId rate = inline_body(graph_, options_.schedule, {finished})[0];
    for (size_t i = 0; i < params_.size(); ++i) advance_param(params_[i], gradients[i], factor, rate, step);
    advance(kStepState, step);
  }

  // Whether the param has an f32 master copy.
  bool has_master(const TrainedParam& param) const {
    return is_half(param.type.dtype) && options_.precision != Precision::kBf16Pure;
  }

  void advance_param(const TrainedParam& param, ValueId gradient, ValueId factor, ValueId rate,
                     ValueId step) {
    const TensorType type = wide_type(param.type), stored = has_master(param) ? type : param.type;
    ParamStep at{e_.widen(variables_.at(param.name)), gradient, e_.cast(rate, type.dtype), step};
    const std::string master = "opt.master." + param.name;
    if (has_master(param)) at.param = state(master, type, widened(param));
    // The gradient waits for the verdict: the whole update then is one region, in place, instead of being in
    // part an epilogue of the contraction that makes the gradient.
    if (ok_ != kNoValue) at.gradient = e_.select(ok_, gradient, e_.scalar(type.dtype, 0));
    if (factor != kNoValue) at.gradient = e_.mul(at.gradient, e_.cast(factor, type.dtype));
    if (param.rate_factor != 1) at.rate = e_.mul(at.rate, e_.scalar(type.dtype, param.rate_factor));
    const std::vector<std::string> names = optimizer_slots(param.optimizer);
    std::vector<ValueId> slots;
    for (const std::string& name : names)
      slots.push_back(e_.widen(state("opt." + name + "." + param.name, stored)));
    const Stepped next = add_optimizer_step(graph_, param.optimizer, at, slots);
    if (has_master(param)) advance(master, next.param);
    advance(param.name, e_.cast(next.param, param.type.dtype));
    for (size_t i = 0; i < names.size(); ++i)
      advance("opt." + names[i] + "." + param.name, e_.cast(next.slots[i], stored.dtype));
  }

  Array widened(const TrainedParam& param) const {
    const Array& half = program_.variables.at(param.name).data;
    if (half.data() == nullptr) return {};
    Array wide(DType::f32, half.sizes());
    for (int64_t i = 0; i < half.count(); ++i) wide.set_f64(i, half.get_f64(i));
    return wide;
  }

  void clear_accumulated() {
    for (const TrainedParam& param : params_) {
      const TensorType type = wide_type(param.type);
      update("opt.acc." + param.name,
             e_.op(Op::broadcast_to, {e_.scalar(type.dtype, 0)}, {{"shape", type.shape}}));
    }
    state(kMicroState, {DType::i64, {}});
    update(kMicroState, e_.scalar_int(DType::i64, 0));
  }

  // After `interval` good steps the scale grows; after a bad one it shrinks at once (Micikevicius et al.
  // 2018).
  void advance_loss_scale() {
    const LossScale& options = options_.loss_scale;
    const ValueId scale = loss_scale(), good = state(kGoodStepsState, {DType::i64, {}});
    const ValueId zero = e_.scalar_int(DType::i64, 0);
    const ValueId next = e_.add(good, e_.scalar_int(DType::i64, 1));
    const ValueId full = e_.op(Op::ge, {next, e_.scalar_int(DType::i64, options.interval)});
    const ValueId larger = e_.mul(scale, e_.scalar(DType::f32, options.growth));
    const ValueId fits =
        e_.op(Op::lt, {larger, e_.scalar(DType::f32, std::numeric_limits<double>::infinity())});
    const ValueId grown = e_.select(e_.op(Op::bit_and, {full, fits}), larger, scale);
    update(kLossScaleState, e_.select(ok_, grown, e_.mul(scale, e_.scalar(DType::f32, options.backoff))));
    update(kGoodStepsState, e_.select(ok_, e_.select(full, zero, next), zero));
  }

  void forward_updates() {
    for (const Update& u : forward_.updates()) {
      const std::string& name = forward_.value(u.variable).name;
      const ValueId value = map_[static_cast<size_t>(u.value)];
      name.starts_with(kCounterPrefix) ? update(name, value) : advance(name, value);
    }
  }

  const TrainOptions& options_;
  const std::vector<TrainedParam>& params_;
  const Graph& forward_;
  Program& program_;
  const std::string origin_ = "train";
  Graph graph_;
  Emitter e_{graph_, origin_};
  std::vector<ValueId> map_;
  std::map<std::string, ValueId> variables_;  // params and states of graph_ by name
  ValueId loss_ = kNoValue, ok_ = kNoValue;
};

}  // namespace

Graph step_entry(const EntryParts& parts) { return EntryBuilder(kStepEntry, parts).step(); }
Graph accumulate_entry(const EntryParts& parts) { return EntryBuilder(kAccumulateEntry, parts).accumulate(); }
Graph gradients_entry(const EntryParts& parts) { return EntryBuilder(kGradientsEntry, parts).gradients(); }

}  // namespace aicf
