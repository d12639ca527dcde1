#include "ir/testing/decompose_cases.h"

#include "ir/decompose.h"
#include "ir/testing/decompose_operands.h"

namespace aicf::testing {
namespace {

using enum OperandKind;

const CaseOperand kNone = {kAbsent, {}, 0, 0, false};

Attrs reduction(Ints axes, bool keepdims) { return {{"axes", std::move(axes)}, {"keepdims", keepdims}}; }
Attrs on_axis(int64_t axis) { return {{"axis", axis}}; }

void add_pointwise(std::vector<DecomposeCase>& cases) {
  for (Op op : {Op::relu, Op::leaky_relu, Op::elu, Op::sigmoid, Op::silu, Op::gelu, Op::softplus}) {
    const std::string name(op_info(op).name);
    cases.push_back({name, op, {tensor({2, 37}, -12, 12)}, {}, {{2, "b"}}});
    cases.push_back({name + "_scalar", op, {tensor({})}, {}, {}});
    cases.push_back({name + "_empty", op, {tensor({0, 3})}, {}, {{0, "b"}}});
  }
  cases.push_back({"stop_gradient", Op::stop_gradient, {tensor({2, 7})}, {}, {{2, "n"}}});
  cases.push_back({"relu_i8", Op::relu, {of(kInt8, {50}, -128, 127)}, {}, {}});
  cases.push_back({"leaky_relu_steep", Op::leaky_relu, {tensor({40})}, {{"alpha", 1.5}}, {}});
  cases.push_back({"elu_alpha", Op::elu, {tensor({40})}, {{"alpha", 0.3}}, {}});
  cases.push_back(
      {"gelu_tanh", Op::gelu, {tensor({2, 37}, -12, 12)}, {{"approximate", std::string("tanh")}}, {}});
  cases.push_back({"clamp", Op::clamp, {tensor({3, 7}), tensor({7}), tensor({3, 1})}, {}, {{3, "n"}}});
  cases.push_back({"clamp_i64",
                   Op::clamp,
                   {of(kInt64, {9}, -99, 99), of(kInt64, {}, -5, 5), of(kInt64, {9}, 0, 50)},
                   {},
                   {}});
}

void add_reductions(std::vector<DecomposeCase>& cases) {
  for (Op op : {Op::reduce_mean, Op::reduce_logsumexp}) {
    const std::string name(op_info(op).name);
    cases.push_back({name, op, {tensor({2, 5, 3})}, reduction({1}, false), {{2, "b"}, {5, "t"}}});
    cases.push_back(
        {name + "_keep", op, {tensor({2, 5, 3})}, reduction({-1, 0}, true), {{2, "b"}, {3, "n"}}});
    cases.push_back({name + "_none", op, {tensor({4})}, reduction({}, false), {}});
    cases.push_back({name + "_empty", op, {tensor({2, 0})}, reduction({1}, false), {{0, "n"}}});
  }
  cases.push_back(
      {"reduce_mean_large", Op::reduce_mean, {tame({3, 40}, 3000, 4000)}, reduction({1}, false), {}});
  cases.push_back({"reduce_logsumexp_large",
                   Op::reduce_logsumexp,
                   {tame({3, 40}, 3000, 4000)},
                   reduction({1}, false),
                   {}});
  for (OperandKind kind : {kInt8, kUInt8, kInt64})
    cases.push_back({"reduce_mean_int",
                     Op::reduce_mean,
                     {of(kind, {2, 300}, kind == kUInt8 ? 0 : -128, 127)},
                     reduction({1}, false),
                     {{300, "n"}}});
  cases.push_back(
      {"reduce_mean_int_empty", Op::reduce_mean, {of(kInt64, {2, 0}, 0, 1)}, reduction({1}, false), {}});
  for (Op op : {Op::softmax, Op::log_softmax}) {
    const std::string name(op_info(op).name);
    cases.push_back({name, op, {tensor({3, 11}, -20, 20)}, {}, {{3, "n"}}});
    cases.push_back({name + "_axis", op, {tensor({2, 5, 3})}, on_axis(1), {{5, "t"}}});
    cases.push_back({name + "_large", op, {tame({3, 11}, 3000, 3020)}, {}, {}});
    cases.push_back({name + "_empty", op, {tensor({2, 0})}, {}, {{0, "n"}}});
  }
  cases.push_back({"cross_entropy",
                   Op::cross_entropy,
                   {tensor({6, 5}), of(kIndex, {6}, 0, 4)},
                   {},
                   {{6, "n"}, {5, "c"}}});
  cases.push_back({"cross_entropy_i32",
                   Op::cross_entropy,
                   {tensor({6, 5}), of(kIndex32, {6}, 0, 4)},
                   {{"ignore_index", int64_t{4294967296}}},
                   {}});
  cases.push_back({"cross_entropy_ignore",
                   Op::cross_entropy,
                   {tensor({9, 3}), of(kIndex, {9}, -1, 2)},
                   {{"ignore_index", int64_t{-1}}},
                   {{9, "n"}}});
  cases.push_back({"cross_entropy_all_ignored",
                   Op::cross_entropy,
                   {tensor({4, 3}), of(kIndex, {4}, 2, 2)},
                   {{"ignore_index", int64_t{2}}},
                   {}});
  cases.push_back(
      {"cross_entropy_empty", Op::cross_entropy, {tensor({0, 3}), of(kIndex, {0}, 0, 1)}, {}, {{0, "n"}}});
}

void add_linear_cross_entropies(std::vector<DecomposeCase>& cases) {
  const auto attrs = [](bool transpose_w, int64_t chunk, int64_t ignored = -100) {
    return Attrs{
        {"dtype", DType::f32}, {"transpose_w", transpose_w}, {"ignore_index", ignored}, {"chunk", chunk}};
  };
  const CaseOperand x = tensor({7, 4}), w = tame({4, 5}), turned = tame({5, 4});
  const CaseOperand labels = of(kIndex, {7}, 0, 4), some = of(kIndex, {7}, -1, 4);
  for (int64_t chunk : {0, 3, 7}) {
    const std::string name = "_chunk_" + std::to_string(chunk);
    cases.push_back(
        {"linear_cross_entropy" + name, Op::linear_cross_entropy, {x, w, labels}, attrs(false, chunk), {}});
    cases.push_back({"linear_cross_entropy_backward" + name,
                     Op::linear_cross_entropy_backward,
                     {x, w, labels, tame({})},
                     attrs(false, chunk),
                     {}});
    cases.push_back({"linear_cross_entropy_backward_turned" + name,
                     Op::linear_cross_entropy_backward,
                     {x, turned, some, tame({})},
                     attrs(true, chunk, -1),
                     {}});
  }
  cases.push_back({"linear_cross_entropy_turned",
                   Op::linear_cross_entropy,
                   {x, turned, some},
                   attrs(true, 2, -1),
                   {{7, "n"}}});
  cases.push_back({"linear_cross_entropy_empty",
                   Op::linear_cross_entropy,
                   {tensor({0, 4}), w, of(kIndex, {0}, 0, 1)},
                   attrs(false, 0),
                   {{0, "n"}}});
}

void add_norms(std::vector<DecomposeCase>& cases) {
  const CaseOperand scale = tame({16}), bias = tame({16});
  cases.push_back(
      {"layer_norm", Op::layer_norm, {tensor({2, 3, 16}), scale, bias}, {}, {{2, "b"}, {3, "t"}}});
  cases.push_back({"layer_norm_plain", Op::layer_norm, {tensor({4, 16})}, {{"epsilon", 1e-3}}, {{16, "d"}}});
  cases.push_back({"layer_norm_bias", Op::layer_norm, {tensor({4, 16}), kNone, bias}, {}, {}});
  cases.push_back({"layer_norm_axes",
                   Op::layer_norm,
                   {tensor({2, 3, 4}), tame({3, 4}), tame({3, 4})},
                   on_axis(1),
                   {{2, "b"}}});
  cases.push_back({"layer_norm_offset", Op::layer_norm, {tame({4, 16}, 500, 501)}, {}, {}, 50});
  cases.push_back({"layer_norm_empty", Op::layer_norm, {tensor({0, 16}), scale, bias}, {}, {{0, "b"}}});
  cases.push_back({"rms_norm", Op::rms_norm, {tensor({2, 3, 16}), scale}, {}, {{2, "b"}, {3, "t"}}});
  cases.push_back({"rms_norm_axes",
                   Op::rms_norm,
                   {tensor({2, 3, 4})},
                   {{"axis", int64_t{-2}}, {"epsilon", 1e-6}},
                   {{3, "t"}}});
  const CaseOperand channels = tame({4}), variance = tame({4}, 0.1, 2);
  cases.push_back({"batch_norm",
                   Op::batch_norm,
                   {tensor({2, 4, 3, 5}), channels, channels, channels, variance},
                   {},
                   {{2, "b"}, {3, "h"}}});
  cases.push_back({"batch_norm_flat",
                   Op::batch_norm,
                   {tensor({6, 4}), channels, channels, channels, variance},
                   {{"epsilon", 0.01}},
                   {{6, "b"}}});
  cases.push_back({"batch_norm_train",
                   Op::batch_norm_train,
                   {tame({3, 4, 5, 2}), channels, channels},
                   {},
                   {{3, "b"}, {5, "h"}}});
  cases.push_back({"batch_norm_train_flat",
                   Op::batch_norm_train,
                   {tame({6, 4}), channels, channels},
                   {{"epsilon", 0.01}},
                   {{6, "b"}}});
  cases.push_back({"group_norm",
                   Op::group_norm,
                   {tensor({2, 4, 3, 5}), channels, channels},
                   {{"groups", int64_t{2}}},
                   {{3, "h"}, {5, "w"}}});
  cases.push_back({"group_norm_plain",
                   Op::group_norm,
                   {tensor({3, 6, 7})},
                   {{"groups", int64_t{6}}},
                   {{3, "b"}, {7, "w"}}});
  cases.push_back(
      {"group_norm_one", Op::group_norm, {tensor({2, 4}), kNone, channels}, {{"groups", int64_t{1}}}, {}});
  cases.push_back(
      {"group_norm_channels", Op::group_norm, {tensor({3, 6, 2})}, {{"groups", int64_t{3}}}, {{6, "c"}}});
}

void add_layers(std::vector<DecomposeCase>& cases) {
  const Attrs stored_transposed = {{"transpose_w", true}};
  cases.push_back(
      {"linear", Op::linear, {tensor({2, 3, 8}), tame({8, 6}), tame({6})}, {}, {{2, "b"}, {3, "t"}}});
  cases.push_back(
      {"linear_plain", Op::linear, {tensor({4, 8}), tame({6, 8})}, stored_transposed, {{4, "b"}}});
  cases.push_back(
      {"linear_vector", Op::linear, {tensor({8}), tame({6, 8}), tame({6})}, stored_transposed, {}});
  cases.push_back({"linear_empty", Op::linear, {tensor({0, 8}), tame({8, 6}), tame({6})}, {}, {{0, "b"}}});
  const auto depth = [](int64_t size, int64_t axis) { return Attrs{{"depth", Shape{size}}, {"axis", axis}}; };
  const CaseOperand on = tame({}), off = tame({});
  cases.push_back(
      {"one_hot", Op::one_hot, {of(kIndex, {2, 5}, -6, 6), on, off}, depth(4, -1), {{2, "b"}, {4, "d"}}});
  cases.push_back(
      {"one_hot_first", Op::one_hot, {of(kIndex32, {2, 5}, -6, 6), on, off}, depth(4, 0), {{5, "t"}}});
  cases.push_back({"one_hot_scalar", Op::one_hot, {of(kIndex, {}, 0, 3), on, off}, depth(3, 0), {}});
  cases.push_back({"one_hot_bool",
                   Op::one_hot,
                   {of(kIndex, {5}, -3, 3), of(kBool, {}, 1, 1), of(kBool, {}, 0, 0)},
                   depth(3, 1),
                   {}});
  const auto windows = [](Shape kernel, Ints strides, Ints pads, Ints dilations, int64_t groups = 1) {
    return Attrs{{"kernel", std::move(kernel)},
                 {"strides", std::move(strides)},
                 {"pads", std::move(pads)},
                 {"dilations", std::move(dilations)},
                 {"groups", groups}};
  };
  cases.push_back({"conv_weight_gradient",
                   Op::conv_weight_gradient,
                   {tensor({2, 3, 7, 9}), tame({2, 4, 7, 9})},
                   windows({3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}),
                   {{2, "n"}, {7, "h"}, {9, "w"}}});
  cases.push_back({"conv_weight_gradient_strides",
                   Op::conv_weight_gradient,
                   {tensor({2, 4, 8, 9}), tame({2, 6, 4, 4})},
                   windows({2, 2}, {2, 2}, {0, 1, 0, 0}, {1, 2}, 2),
                   {}});
  cases.push_back({"conv_weight_gradient_depthwise",
                   Op::conv_weight_gradient,
                   {tensor({2, 5, 9}), tame({2, 5, 4})},
                   windows({3}, {2}, {0, 0}, {1}, 5),
                   {{2, "n"}}});
  const auto adamw = [](double beta1, double beta2, double decay) {
    return Attrs{{"beta1", beta1}, {"beta2", beta2}, {"weight_decay", decay}};
  };
  for (double step : {1.0, 2.0, 1000.0}) {
    const std::vector<CaseOperand> operands = {
        tensor({3, 5}),      tensor({3, 5}), tame({3, 5}), tame({3, 5}, 0, 1), of(kInt64, {}, step, step),
        tame({}, 1e-4, 1e-2)};
    cases.push_back({"adamw_step", Op::adamw_step, operands, adamw(0.9, 0.999, 0.01), {{3, "n"}}});
    cases.push_back({"adamw_step_other", Op::adamw_step, operands, adamw(0, 0.95, 0), {}});
  }
}

}  // namespace

const std::vector<DecomposeCase>& decompose_cases() {
  static const std::vector<DecomposeCase> cases = [] {
    std::vector<DecomposeCase> list;
    add_pointwise(list);
    add_reductions(list);
    add_linear_cross_entropies(list);
    add_norms(list);
    add_attention(list);
    add_attention_backward(list);
    add_ropes(list);
    add_layers(list);
    add_recurrent(list);
    return list;
  }();
  return cases;
}

DType operand_dtype(const CaseOperand& operand, DType dtype) {
  switch (operand.kind) {
    case kIndex:
    case kInt64:
      return DType::i64;
    case kIndex32:
      return DType::i32;
    case kInt8:
      return DType::i8;
    case kUInt8:
      return DType::u8;
    case kBool:
      return DType::boolean;
    default:
      return dtype;
  }
}

Program both_forms(const DecomposeCase& test, DType dtype, bool symbolic) {
  Program program;
  Graph g;
  const auto size = [&](int64_t value) {
    const auto at = test.symbols.find(value);
    if (!symbolic || at == test.symbols.end()) return Dim(value);
    program.sizes[at->second] = {0, 1000};
    return Dim::symbol(at->second);
  };
  std::vector<ValueId> operands;
  for (const CaseOperand& operand : test.operands) {
    TensorType type{operand_dtype(operand, dtype), {}};
    for (int64_t value : operand.sizes) type.shape.push_back(size(value));
    operands.push_back(operand.kind == kAbsent ? kNoValue
                                               : g.add_input("x" + std::to_string(operands.size()), type));
  }
  Attrs attrs = test.attrs;
  for (const auto& [name, attr] : test.attrs.items())
    if (const Shape* dims = std::get_if<Shape>(&attr)) {
      Shape mapped;
      for (const Dim& dim : *dims) mapped.push_back(size(dim.constant_part()));
      attrs.set(name, mapped);
    }
  const Node whole = g.node(g.add_node(test.op, operands, attrs, {}, "here"));
  const std::vector<ValueId> parts = decompose(g, whole, whole.operands);
  for (size_t i = 0; i < whole.results.size(); ++i)
    g.add_output(whole.results[i], "whole" + std::to_string(i));
  for (size_t i = 0; i < parts.size(); ++i) g.add_output(parts[i], "parts" + std::to_string(i));
  program.entries.push_back(std::move(g));
  return program;
}

}  // namespace aicf::testing
