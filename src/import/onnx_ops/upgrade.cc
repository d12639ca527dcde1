// The one table of old ONNX forms: each row says below which opset version an op had another form, and the
// function that rewrites it into the form of the newest version. Rows of one op apply from the oldest version
// on.
#include "base/error.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// An attribute that later became input `i`: a list of integers as i64[n].
void ints_to_input(NodeContext& n, std::string_view name, size_t i) {
  if (!n.has_attr(name)) return;
  const std::vector<int64_t> values = n.attr_ints(name);
  n.set_input(i, Array::from<int64_t>(DType::i64, {static_cast<int64_t>(values.size())}, values));
}

void axes_to_input(NodeContext& n) { ints_to_input(n, "axes", 1); }
void split_to_input(NodeContext& n) { ints_to_input(n, "split", 1); }

void slice_to_inputs(NodeContext& n) {
  ints_to_input(n, "starts", 1);
  ints_to_input(n, "ends", 2);
  ints_to_input(n, "axes", 3);
}

void pad_to_inputs(NodeContext& n) {
  ints_to_input(n, "pads", 1);
  n.set_input(2, Array::scalar_f64(n.dtype(0), n.attr_float("value", 0.0)));
}

void clip_to_inputs(NodeContext& n) {
  if (n.has_attr("min")) n.set_input(1, Array::scalar_f64(n.dtype(0), n.attr_float("min", 0)));
  if (n.has_attr("max")) n.set_input(2, Array::scalar_f64(n.dtype(0), n.attr_float("max", 0)));
}

void k_to_input(NodeContext& n) { n.set_input(1, Array::from<int64_t>(DType::i64, {1}, {n.attr_int("k")})); }

// Before 12 the ratio was an attribute; at inference it means nothing.
// Whether it drops was an attribute before 7 and is an input from 12 on. A model that does not say is meant
// for inference.
void dropout_before_13(NodeContext& n) {
  if (n.attr_int("is_test", 1) == 0 && n.attr_float("ratio", 0.5) != 0) n.unsupported("is_test=0");
  n.ignore("ratio");
}

// Before 13 the axes from `axis` on were one, and `axis` defaulted to 1.
void softmax_flatten(NodeContext& n) {
  if (!n.has_attr("axis")) n.set_attr_int("axis", 1);
  n.set_attr_int("flatten", 1);
}

// Upsample and Resize 10 knew one coordinate rule: x / scale.
void old_resize(NodeContext& n) {
  n.set_attr_str("coordinate_transformation_mode", "asymmetric");
  n.set_attr_str("nearest_mode", n.op_type == "Resize" ? "by_scale" : "floor");
  if (n.has(1)) {
    n.insert_input(1);
  } else if (const AttributeProto* scales = n.attr("scales")) {
    n.set_input(
        2, Array::from<float>(DType::f32, {static_cast<int64_t>(scales->floats.size())}, scales->floats));
  }
  n.op_type = "Resize";
}

void rename_scatter(NodeContext& n) { n.op_type = "ScatterElements"; }

// Before 7, y was broadcast only if asked, aligned at `axis` (default: to the right).
void old_broadcast(NodeContext& n) {
  const bool wanted = n.attr_int("broadcast", 0) != 0;
  const int64_t axis = n.attr_int("axis", -1);
  if (!wanted || axis < 0 || !n.has(1)) return;
  Shape shape = n.shape(1);
  const int64_t trailing = n.rank(0) - axis - n.rank(1);
  if (trailing < 0) n.bad("axis is out of range", "operands that overlap", std::to_string(axis));
  shape.insert(shape.end(), static_cast<size_t>(trailing), Dim(1));
  n.set_input(1, n.reshape(n.in(1), shape));
}

// Before 7 a slope [C] went with axis 1.
void old_prelu(NodeContext& n) {
  if (n.rank(1) != 1 || n.shape(1)[0] == Dim(1) || n.rank(0) < 3) return;
  Shape shape(static_cast<size_t>(n.rank(0) - 1), Dim(1));
  shape[0] = n.shape(1)[0];
  n.set_input(1, n.reshape(n.in(1), shape));
}

void old_gemm(NodeContext& n) { n.ignore("broadcast"); }

void old_batch_norm(NodeContext& n) {
  n.ignore("is_test");
  if (n.attr_int("spatial", 1) != 1) n.unsupported("spatial=0");
}

// Before 14, outputs beyond the first stood for training.
void batch_norm_outputs(NodeContext& n) {
  for (size_t i = 1; i < n.output_count(); ++i)
    if (n.wants(i)) n.unsupported("training outputs");
}

// Before 21 scale and bias were per group.
void group_norm_per_group(NodeContext& n) {
  const int64_t groups = n.attr_int("num_groups");
  if (groups < 1 || n.rank(0) < 2)
    n.bad("num_groups or x", "num_groups >= 1, rank >= 2", std::to_string(groups));
  for (size_t i : {size_t{1}, size_t{2}}) {
    const Dim channels = n.shape(0)[1];
    const Dim each = floordiv(channels, Dim(groups));
    const ValueId column = n.reshape(n.in(i), {Dim(groups), Dim(1)});
    n.set_input(i, n.reshape(n.broadcast(column, {Dim(groups), each}), {channels}));
  }
}

struct UpgradeRow {
  std::string_view op;
  int64_t below;
  void (*apply)(NodeContext&);
};

constexpr UpgradeRow kUpgrades[] = {
    {"Add", 7, old_broadcast},
    {"Sub", 7, old_broadcast},
    {"Mul", 7, old_broadcast},
    {"Div", 7, old_broadcast},
    {"Pow", 7, old_broadcast},
    {"And", 7, old_broadcast},
    {"Or", 7, old_broadcast},
    {"Xor", 7, old_broadcast},
    {"Equal", 7, old_broadcast},
    {"Greater", 7, old_broadcast},
    {"Less", 7, old_broadcast},
    {"PRelu", 7, old_prelu},
    {"Gemm", 7, old_gemm},
    {"BatchNormalization", 9, old_batch_norm},
    {"BatchNormalization", 14, batch_norm_outputs},
    {"Dropout", 12, dropout_before_13},
    {"Upsample", 11, old_resize},
    {"Resize", 11, old_resize},
    {"Slice", 10, slice_to_inputs},
    {"TopK", 10, k_to_input},
    {"Clip", 11, clip_to_inputs},
    {"Pad", 11, pad_to_inputs},
    {"Scatter", 1000, rename_scatter},
    {"Softmax", 13, softmax_flatten},
    {"LogSoftmax", 13, softmax_flatten},
    {"Hardmax", 13, softmax_flatten},
    {"Squeeze", 13, axes_to_input},
    {"Unsqueeze", 13, axes_to_input},
    {"Split", 13, split_to_input},
    {"ReduceSum", 13, axes_to_input},
    {"ReduceMax", 18, axes_to_input},
    {"ReduceMin", 18, axes_to_input},
    {"ReduceMean", 18, axes_to_input},
    {"ReduceProd", 18, axes_to_input},
    {"ReduceL1", 18, axes_to_input},
    {"ReduceL2", 18, axes_to_input},
    {"ReduceLogSum", 18, axes_to_input},
    {"ReduceLogSumExp", 18, axes_to_input},
    {"ReduceSumSquare", 18, axes_to_input},
    {"GroupNormalization", 21, group_norm_per_group},
};

}  // namespace

void upgrade(NodeContext& node) {
  if (!node.proto().domain.empty()) return;
  for (const UpgradeRow& row : kUpgrades)
    if (row.op == node.proto().op_type && node.opset() < row.below) row.apply(node);
}

}  // namespace aicf::onnx
