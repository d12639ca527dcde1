#include "train/losses.h"

#include <limits>
#include <utility>

#include "base/comma_list.h"
#include "base/error.h"
#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

constexpr std::pair<const char*, LossKind> kLosses[] = {{"mse", LossKind::kMse},
                                                        {"huber", LossKind::kHuber},
                                                        {"cross_entropy", LossKind::kCrossEntropy},
                                                        {"bce_with_logits", LossKind::kBceWithLogits},
                                                        {"kl_divergence", LossKind::kKlDivergence}};

std::string name_of(LossKind kind) {
  for (const auto& [name, known] : kLosses)
    if (known == kind) return name;
  AICF_CHECK(false, "a loss without a row in the table");
}

UserError bad_operands(LossKind kind, ErrorCode code, const TensorType& x, const TensorType& y,
                       const char* expected) {
  return UserError(code, "prediction and target do not fit the loss")
      .with_op(name_of(kind))
      .with_expected(expected)
      .with_actual("prediction " + to_string(x) + ", target " + to_string(y));
}

Ints all_axes(Emitter& e, ValueId x) { return axes_from(0, e.rank(x)); }

ValueId sum_all(Emitter& e, ValueId x) { return e.reduce(Op::reduce_sum, x, all_axes(e, x), false); }

ValueId reduce_all(Emitter& e, ValueId x, LossReduction reduction) {
  return reduction == LossReduction::kMean ? e.mean(x, all_axes(e, x), false) : sum_all(e, x);
}

ValueId squared_error(Emitter& e, ValueId x, ValueId y) {
  const ValueId d = e.sub(x, y);
  return e.mul(d, d);
}

ValueId huber(Emitter& e, ValueId x, ValueId y, double delta) {
  const DType dtype = e.dtype(x);
  const ValueId d = e.sub(x, y), size = e.op(Op::abs, {d});
  const ValueId near = e.mul(e.scalar(dtype, 0.5), e.mul(d, d));
  const ValueId far = e.mul(e.scalar(dtype, delta), e.sub(size, e.scalar(dtype, delta / 2)));
  return e.select(e.op(Op::le, {size, e.scalar(dtype, delta)}), near, far);
}

// y log y is 0 where y is.
ValueId kl_divergence(Emitter& e, ValueId x, ValueId y) {
  const ValueId zero = e.scalar(e.dtype(y), 0), one = e.scalar(e.dtype(y), 1);
  const ValueId log = e.op(Op::log, {e.select(e.op(Op::gt, {y, zero}), y, one)});
  return e.mul(y, e.sub(log, x));
}

// Logits as rows [n, C] and labels as a vector [n].
std::pair<ValueId, ValueId> class_rows(Emitter& e, ValueId logits, ValueId labels) {
  const Shape shape = e.shape(logits);
  const Dim rows = element_count(e.shape(labels));
  if (e.rank(logits) > 2) {
    Ints perm = {0};
    for (int64_t axis = 2; axis < e.rank(logits); ++axis) perm.push_back(axis);
    perm.push_back(1);
    logits = e.op(Op::transpose, {logits}, {{"perm", perm}});
  }
  return {e.reshape(logits, {rows, shape[1]}), e.reshape(labels, {rows})};
}

// NaN if a label is neither a class nor ignored: the run reports the label, and until then nothing takes the
// loss for one.
ValueId nan_if_outside(Emitter& e, ValueId loss, ValueId labels, const Dim& classes, int64_t ignored) {
  const DType dtype = e.dtype(labels);
  const ValueId low = e.op(Op::lt, {labels, e.scalar_int(dtype, 0)});
  const ValueId high = e.op(Op::ge, {labels, e.size(classes, dtype)});
  const ValueId kept = e.op(Op::ne, {labels, e.scalar_int(dtype, ignored)});
  const ValueId outside = e.op(Op::bit_and, {e.op(Op::bit_or, {low, high}), kept});
  const ValueId any = e.reduce(Op::reduce_max, outside, {0}, false);
  return e.select(any, e.scalar(e.dtype(loss), std::numeric_limits<double>::quiet_NaN()), loss);
}

ValueId smooth_cross_entropy(Emitter& e, ValueId logits, ValueId classes, const LossOptions& options) {
  const DType dtype = e.dtype(logits);
  const Attrs ignore = {{"ignore_index", options.ignore_index}};
  const bool sum = options.reduction == LossReduction::kSum;
  ValueId loss = e.op(Op::cross_entropy, {logits, classes}, ignore);
  if (!sum && options.label_smoothing == 0) return loss;

  const ValueId none = e.scalar_int(e.dtype(classes), options.ignore_index);
  const ValueId kept = e.cast(e.op(Op::ne, {classes, none}), dtype);
  const ValueId count = e.op(Op::max, {sum_all(e, kept), e.scalar(dtype, 1)});
  if (options.label_smoothing != 0) {
    // The even part: the mean over classes of -log p, over the rows kept.
    const ValueId log_p = e.op(Op::log_softmax, {logits}, {{"axis", int64_t{1}}});
    const ValueId even = e.op(Op::neg, {e.mean(log_p, {1}, false)});
    const ValueId mean = e.div(sum_all(e, e.mul(even, kept)), count);
    loss = e.add(e.mul(loss, e.scalar(dtype, 1 - options.label_smoothing)),
                 e.mul(mean, e.scalar(dtype, options.label_smoothing)));
  }
  return sum ? e.mul(loss, count) : loss;
}

ValueId cross_entropy(Emitter& e, ValueId x, ValueId labels, const LossOptions& options) {
  const auto [logits, classes] = class_rows(e, x, labels);
  const ValueId loss = smooth_cross_entropy(e, logits, classes, options);
  return nan_if_outside(e, loss, classes, e.shape(logits)[1], options.ignore_index);
}

void check(const Graph& graph, LossKind kind, ValueId x, ValueId y, const LossOptions& options) {
  const TensorType &prediction = graph.type(x), &target = graph.type(y);
  const auto bad = [&](ErrorCode code, const char* expected) {
    return bad_operands(kind, code, prediction, target, expected);
  };
  if (!is_float(prediction.dtype)) throw bad(ErrorCode::kU_bad_dtype, "a float prediction");
  if (kind == LossKind::kCrossEntropy) {
    Shape labels = prediction.shape;
    if (labels.size() < 2) throw bad(ErrorCode::kU_bad_shape, "logits [N, C, ...] and labels [N, ...]");
    labels.erase(labels.begin() + 1);
    if (!dtype_in_class(target.dtype, "index")) throw bad(ErrorCode::kU_bad_dtype, "labels of i64 or i32");
    if (!(labels == target.shape))
      throw bad(ErrorCode::kU_bad_shape, "logits [N, C, ...] and labels [N, ...]");
    if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
      throw UserError(ErrorCode::kU_bad_option, "label smoothing is out of range")
          .with_expected("0 to 1")
          .with_actual(std::to_string(options.label_smoothing));
    return;
  }
  if (prediction.dtype != target.dtype)
    throw bad(ErrorCode::kU_bad_dtype, "a target of the prediction's dtype");
  if (!(prediction.shape == target.shape))
    throw bad(ErrorCode::kU_bad_shape, "a target of the prediction's shape");
  if (kind == LossKind::kHuber && !(options.delta > 0))
    throw UserError(ErrorCode::kU_bad_option, "the delta of a Huber loss is out of range")
        .with_expected("more than 0")
        .with_actual(std::to_string(options.delta));
}

}  // namespace

LossKind loss_kind(const std::string& name) {
  for (const auto& [candidate, kind] : kLosses)
    if (name == candidate) return kind;
  throw UserError(ErrorCode::kU_bad_option, "there is no loss of this name")
      .with_value(name)
      .with_expected(comma_list(kLosses, [](const auto& row) { return row.first; }));
}

ValueId add_loss(Graph& graph, LossKind kind, ValueId prediction, ValueId target,
                 const LossOptions& options) {
  check(graph, kind, prediction, target, options);
  const std::string origin = "loss";
  Emitter e(graph, origin);
  const ValueId x = e.widen(prediction);
  if (kind == LossKind::kCrossEntropy) return cross_entropy(e, x, target, options);
  const ValueId y = e.widen(target);
  switch (kind) {
    case LossKind::kMse:
      return reduce_all(e, squared_error(e, x, y), options.reduction);
    case LossKind::kHuber:
      return reduce_all(e, huber(e, x, y, options.delta), options.reduction);
    case LossKind::kBceWithLogits:
      return reduce_all(e, e.sub(e.op(Op::softplus, {x}), e.mul(x, y)), options.reduction);
    default: {
      const ValueId total = sum_all(e, kl_divergence(e, x, y));
      const Dim rows = e.rank(x) == 0 ? Dim(1) : e.shape(x)[0];
      return options.reduction == LossReduction::kSum ? total : e.div(total, e.size(rows, e.dtype(x)));
    }
  }
}

}  // namespace aicf
