// Shape rules as a table: op, operand types, attributes, and the result types or the error code. `n`, `m`,
// `k` are symbolic.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "ir/graph.h"

namespace aicf {
namespace {

struct Case {
  Op op;
  const char* operands;  // "f32[2, n]; -; i64[3]"; '-' is an absent operand
  Attrs attrs;
  const char* expected;  // "f32[n]; i64[n]" or the name of an error
  std::vector<Graph> bodies = {};
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  for (char c : text + separator) {
    if (c == separator) {
      parts.push_back(part);
      part.clear();
    } else if (c != ' ') {
      part += c;
    }
  }
  return parts;
}

TensorType parse_type(const std::string& text) {
  const size_t bracket = text.find('[');
  TensorType type;
  type.dtype = dtype_from_name(text.substr(0, bracket)).value();
  const std::string sizes = text.substr(bracket + 1, text.size() - bracket - 2);
  std::string item;
  int depth = 0;  // commas inside floordiv(a, b) do not separate sizes
  for (char c : sizes.empty() ? sizes : sizes + ",") {
    depth += (c == '(') - (c == ')');
    if (c != ',' || depth != 0) {
      item += c;
      continue;
    }
    type.shape.push_back(Dim::parse(item));
    item.clear();
  }
  return type;
}

std::string join_types(const Graph& graph, const std::vector<ValueId>& ids) {
  std::string text;
  for (ValueId id : ids) text += (text.empty() ? "" : "; ") + to_string(graph.type(id));
  return text;
}

std::string run(const Case& c) {
  Graph graph;
  std::vector<ValueId> operands;
  if (*c.operands)
    for (const std::string& text : split(c.operands, ';'))
      operands.push_back(
          text == "-" ? kNoValue : graph.add_input("i" + std::to_string(operands.size()), parse_type(text)));
  try {
    const NodeId id = graph.add_node(c.op, operands, c.attrs, c.bodies);
    return join_types(graph, graph.node(id).results);
  } catch (const UserError& error) {
    EXPECT_FALSE(error.op.empty()) << error.what();
    EXPECT_FALSE(error.expected.empty() && error.actual.empty()) << error.what();
    return std::string(error_info(error.code).name);
  }
}

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(run(c), c.expected) << op_info(c.op).name << " " << c.operands;
  }
}

Attr i(int64_t value) { return value; }
Attr s(const char* text) { return std::string(text); }
Shape dims(std::initializer_list<const char*> texts) {
  Shape shape;
  for (const char* text : texts) shape.push_back(Dim::parse(text));
  return shape;
}

std::vector<Case> pointwise_cases() {
  std::vector<Case> cases = {
      {Op::add, "f32[2, 3]; f32[3]", {}, "f32[2, 3]"},
      {Op::add, "f32[]; i64[]", {}, "bad_dtype"},
      {Op::add, "f32[n, 1]; f32[1, m]", {}, "f32[n, m]"},
      {Op::add, "f32[n, 4]; f32[n, 4]", {}, "f32[n, 4]"},
      {Op::add, "f32[0]; f32[1]", {}, "f32[0]"},
      {Op::add, "f32[0]; f32[2]", {}, "bad_shape"},
      {Op::add, "f32[n]; f32[m]", {}, "bad_shape"},
      {Op::add, "f32[n]; f32[4]", {}, "bad_shape"},
      {Op::add, "f32[2]; f32[3]", {}, "bad_shape"},
      {Op::select, "bool[n, 1]; f32[]; f32[4]", {}, "f32[n, 4]"},
      {Op::select, "bool[2]; f32[3]; f32[3]", {}, "bad_shape"},
      {Op::clamp, "i32[2, n]; i32[]; i32[n]", {}, "i32[2, n]"},
      {Op::cast, "f32[n]", {{"dtype", DType::boolean}}, "bool[n]"},
      {Op::gelu, "f32[n]", {{"approximate", s("tanh")}}, "f32[n]"},
      {Op::gelu, "f32[n]", {{"approximate", s("fast")}}, "bad_attribute"},
      {Op::is_inf, "f16[n]", {{"positive", false}}, "bool[n]"},
  };
  return cases;
}

std::vector<Case> view_cases() {
  const Attr steps = Ints{1, 2};
  return {
      {Op::reshape, "f32[2, 6]", {{"shape", Ints{3, 4}}}, "f32[3, 4]"},
      {Op::reshape, "f32[n, 12]", {{"shape", dims({"n", "3", "4"})}}, "f32[n, 3, 4]"},
      {Op::reshape, "f32[n, 12]", {{"shape", dims({"12*n"})}}, "f32[12*n]"},
      {Op::reshape, "f32[n, m]", {{"shape", dims({"m*n"})}}, "f32[m*n]"},
      {Op::reshape, "f32[0, 3]", {{"shape", Ints{5, 0}}}, "f32[5, 0]"},
      {Op::reshape, "f32[]", {{"shape", Ints{1, 1}}}, "f32[1, 1]"},
      {Op::reshape, "f32[n]", {{"shape", dims({"floordiv(n, 2)", "2"})}}, "f32[floordiv(n, 2), 2]"},
      {Op::reshape, "f32[n]", {{"shape", dims({"2", "k"})}}, "f32[2, k]"},
      {Op::reshape, "f32[2, 6]", {{"shape", Ints{13}}}, "bad_shape"},
      {Op::reshape, "f32[n, 4]", {{"shape", dims({"n", "6"})}}, "bad_shape"},
      {Op::reshape, "f32[n]", {{"shape", dims({"n+1"})}}, "bad_shape"},
      {Op::reshape, "f32[4]", {{"shape", Ints{-1}}}, "bad_attribute"},
      {Op::transpose, "f32[2, n, 4]", {{"perm", Ints{2, 0, 1}}}, "f32[4, 2, n]"},
      {Op::transpose, "f32[]", {{"perm", Ints{}}}, "f32[]"},
      {Op::transpose, "f32[2, 3]", {{"perm", Ints{0, 0}}}, "bad_attribute"},
      {Op::transpose, "f32[2, 3]", {{"perm", Ints{0}}}, "bad_attribute"},
      {Op::transpose, "f32[2, 3]", {{"perm", Ints{0, 2}}}, "bad_attribute"},
      {Op::broadcast_to, "f32[1, n]", {{"shape", dims({"m", "4", "n"})}}, "f32[m, 4, n]"},
      {Op::broadcast_to, "f32[1]", {{"shape", Ints{0}}}, "f32[0]"},
      {Op::broadcast_to, "f32[3]", {{"shape", Ints{4}}}, "bad_shape"},
      {Op::broadcast_to, "f32[3, 4]", {{"shape", Ints{4}}}, "bad_shape"},
      {Op::slice,
       "f32[8, n]",
       {{"starts", Ints{2, 0}}, {"limits", dims({"7", "n"})}, {"steps", steps}},
       "f32[5, floordiv(n+1, 2)]"},
      {Op::slice,
       "f32[4, 4]",
       {{"starts", Ints{2, 4}}, {"limits", Ints{2, 4}}, {"steps", steps}},
       "f32[0, 0]"},
      {Op::slice,
       "f32[8, 8]",
       {{"starts", Ints{2, 0}}, {"limits", Ints{9, 8}}, {"steps", steps}},
       "bad_shape"},
      {Op::slice,
       "f32[8, n]",
       {{"starts", Ints{0, 0}}, {"limits", dims({"8", "n+1"})}, {"steps", steps}},
       "bad_shape"},
      {Op::slice,
       "f32[8, 8]",
       {{"starts", Ints{3, 0}}, {"limits", Ints{2, 8}}, {"steps", steps}},
       "bad_shape"},
      {Op::slice,
       "f32[8, 8]",
       {{"starts", Ints{-1, 0}}, {"limits", Ints{8, 8}}, {"steps", steps}},
       "bad_attribute"},
      {Op::slice, "f32[8]", {{"starts", Ints{0}}, {"limits", Ints{8}}, {"steps", Ints{0}}}, "bad_attribute"},
      {Op::slice,
       "f32[8]",
       {{"starts", Ints{0, 0}}, {"limits", Ints{8}}, {"steps", Ints{1}}},
       "bad_attribute"},
      {Op::reverse, "f32[2, n]", {{"axes", Ints{-1}}}, "f32[2, n]"},
      {Op::reverse, "f32[2, n]", {{"axes", Ints{1, -1}}}, "bad_attribute"},
      {Op::pad, "f32[2, n]", {{"low", Ints{1, 0}}, {"high", dims({"0", "m"})}}, "f32[3, m+n]"},
      {Op::pad, "f32[0]; f32[]", {{"low", Ints{1}}, {"high", Ints{1}}}, "f32[2]"},
      {Op::pad, "f32[4]", {{"low", Ints{1}}, {"high", Ints{1}}, {"mode", s("reflect")}}, "f32[6]"},
      {Op::pad, "f32[0]", {{"low", Ints{1}}, {"high", Ints{1}}, {"mode", s("edge")}}, "bad_shape"},
      {Op::pad, "f32[4]", {{"low", Ints{1}}, {"high", Ints{-1}}}, "bad_attribute"},
      {Op::pad, "f32[4]", {{"low", Ints{1}}, {"high", Ints{1}}, {"mode", s("mirror")}}, "bad_attribute"},
      {Op::pad, "f32[4]; f32[]", {{"low", Ints{1}}, {"high", Ints{1}}, {"mode", s("edge")}}, "bad_attribute"},
      {Op::pad, "f32[4]; f32[1]", {{"low", Ints{1}}, {"high", Ints{1}}}, "bad_shape"},
      {Op::concat, "f32[2, n]; f32[3, n]; f32[m, n]", {{"axis", i(0)}}, "f32[m+5, n]"},
      {Op::concat, "f32[0]; f32[0]", {{"axis", i(-1)}}, "f32[0]"},
      {Op::concat, "f32[2, n]; f32[2, m]", {{"axis", i(0)}}, "bad_shape"},
      {Op::concat, "f32[2]; f32[2, 1]", {{"axis", i(0)}}, "bad_shape"},
      {Op::concat, "f32[]; f32[]", {{"axis", i(0)}}, "bad_attribute"},
      {Op::iota, "", {{"shape", dims({"n", "3"})}, {"axis", i(-2)}, {"dtype", DType::i64}}, "i64[n, 3]"},
      {Op::iota, "", {{"shape", Ints{0}}, {"axis", i(0)}, {"dtype", DType::f32}}, "f32[0]"},
      {Op::iota, "", {{"shape", Ints{3}}, {"axis", i(1)}, {"dtype", DType::i64}}, "bad_attribute"},
      {Op::iota, "", {{"shape", Ints{3}}, {"axis", i(0)}, {"dtype", DType::boolean}}, "bad_attribute"},
      {Op::size_of, "", {{"size", dims({"2*n"})}}, "i64[]"},
      {Op::size_of, "", {{"size", Ints{2, 3}}}, "bad_attribute"},
      {Op::random_bits, "i64[]; i64[]", {{"shape", dims({"n", "3"})}, {"stream", i(1)}}, "i32[n, 3]"},
      {Op::random_bits, "i64[]; i64[1]", {{"shape", Ints{3}}, {"stream", i(1)}}, "bad_shape"},
      {Op::random_bits,
       "i64[]; i64[]",
       {{"shape", Ints{3}}, {"stream", i(1)}, {"dtype", DType::u8}},
       "bad_attribute"},
  };
}

std::vector<Case> indexing_cases() {
  const Attrs axis0 = {{"axis", i(0)}}, axis1 = {{"axis", i(1)}};
  return {
      {Op::gather, "f32[8, n]; i64[2, m]", {}, "f32[2, m, n]"},
      {Op::gather, "f32[8, n]; i32[]", {{"axis", i(-1)}}, "f32[8]"},
      {Op::gather, "f32[0, 4]; i64[0]", {}, "f32[0, 4]"},
      {Op::gather, "f32[]; i64[2]", {}, "bad_attribute"},
      {Op::gather, "f32[4]; f32[2]", {}, "bad_dtype"},
      {Op::gather, "f32[4]; i64[2]", axis1, "bad_attribute"},
      {Op::gather_elements, "f32[3, n]; i64[m, n]", axis0, "f32[m, n]"},
      {Op::gather_elements, "f32[3, 4]; i64[7, 2]", axis0, "f32[7, 2]"},
      {Op::gather_elements, "f32[3, 4]; i64[2, 5]", axis0, "bad_shape"},
      {Op::gather_elements, "f32[3, n]; i64[2, m]", axis0, "bad_shape"},
      {Op::gather_elements, "f32[3, 4]; i64[2]", axis0, "bad_shape"},
      {Op::gather_nd, "f32[2, 3, n]; i64[5, 2]", {}, "f32[5, n]"},
      {Op::gather_nd, "f32[n, 3, 4]; i64[n, m, 1]", {{"batch_dims", i(1)}}, "f32[n, m, 4]"},
      {Op::gather_nd, "f32[3]; i64[1]", {}, "f32[]"},
      {Op::gather_nd, "f32[3, 4]; i64[0, 2]", {}, "f32[0]"},
      {Op::gather_nd, "f32[3, 4]; i64[5, 3]", {}, "bad_shape"},
      {Op::gather_nd, "f32[3, 4]; i64[]", {}, "bad_shape"},
      {Op::gather_nd, "f32[3, 4]; i64[n]", {}, "size_not_static"},
      {Op::gather_nd, "f32[3, 4]; i64[5, 1]", {{"batch_dims", i(1)}}, "bad_shape"},
      {Op::gather_nd, "f32[3, 4]; i64[3, 1]", {{"batch_dims", i(2)}}, "bad_attribute"},
      {Op::scatter_elements, "f32[3, n]; i64[m, n]; f32[m, n]", axis0, "f32[3, n]"},
      {Op::scatter_elements, "f32[3, 4]; i64[0, 4]; f32[0, 4]", axis0, "f32[3, 4]"},
      {Op::scatter_elements, "f32[3, 4]; i64[2, 4]; f32[2, 3]", axis0, "bad_shape"},
      {Op::scatter_elements, "f32[3, 4]; i64[2, 5]; f32[2, 5]", axis0, "bad_shape"},
      {Op::scatter_elements,
       "f32[3]; i64[3]; f32[3]",
       {{"axis", i(0)}, {"reduction", s("sub")}},
       "bad_attribute"},
      {Op::scatter_elements,
       "bool[3]; i64[3]; bool[3]",
       {{"axis", i(0)}, {"reduction", s("add")}},
       "bad_attribute"},
      {Op::scatter_nd, "f32[8, n]; i64[m, 1]; f32[m, n]", {}, "f32[8, n]"},
      {Op::scatter_nd, "f32[8, 4]; i64[2]; f32[]", {{"reduction", s("max")}}, "f32[8, 4]"},
      {Op::scatter_nd, "f32[8, 4]; i64[0, 1]; f32[0, 4]", {}, "f32[8, 4]"},
      {Op::scatter_nd, "f32[8, n]; i64[m, 1]; f32[m, 4]", {}, "bad_shape"},
      {Op::one_hot, "i64[2, n]; f32[]; f32[]", {{"depth", Ints{5}}}, "f32[2, n, 5]"},
      {Op::one_hot, "i64[2, n]; f32[]; f32[]", {{"depth", dims({"m"})}, {"axis", i(0)}}, "f32[m, 2, n]"},
      {Op::one_hot, "i64[0]; f32[]; f32[]", {{"depth", Ints{0}}}, "f32[0, 0]"},
      {Op::one_hot, "i64[2]; f32[1]; f32[]", {{"depth", Ints{5}}}, "bad_shape"},
      {Op::one_hot, "i64[2]; f32[]; f32[]", {{"depth", Ints{5}}, {"axis", i(2)}}, "bad_attribute"},
      {Op::one_hot, "i64[2]; f32[]; f32[]", {{"depth", Ints{-5}}}, "bad_attribute"},
  };
}

std::vector<Case> reduction_cases() {
  const Attrs keep = {{"axes", Ints{1, -1}}, {"keepdims", true}};
  std::vector<Case> cases = {
      {Op::top_k, "f32[2, 8]", {{"k", Ints{3}}, {"axis", i(-1)}}, "f32[2, 3]; i64[2, 3]"},
      {Op::top_k, "f32[n]", {{"k", dims({"m"})}, {"axis", i(0)}}, "f32[m]; i64[m]"},
      {Op::top_k, "f32[0]", {{"k", Ints{0}}, {"axis", i(0)}}, "f32[0]; i64[0]"},
      {Op::top_k, "f32[2]", {{"k", Ints{3}}, {"axis", i(0)}}, "bad_attribute"},
      {Op::top_k, "f32[2]", {{"k", Ints{1, 1}}, {"axis", i(0)}}, "bad_attribute"},
      {Op::sort, "i32[2, n]", {{"axis", i(1)}}, "i32[2, n]; i64[2, n]"},
      {Op::sort, "i32[]", {{"axis", i(0)}}, "bad_attribute"},
      {Op::reduce_max, "bool[n, 2]", {{"axes", Ints{0}}}, "bool[2]"},
      {Op::reduce_sum, "bool[n, 2]", {{"axes", Ints{0}}}, "bad_dtype"},
  };
  for (Op op : {Op::reduce_sum, Op::reduce_prod, Op::reduce_max, Op::reduce_min, Op::reduce_mean,
                Op::reduce_logsumexp}) {
    cases.push_back({op, "f32[2, n, 4]", {{"axes", Ints{-2}}}, "f32[2, 4]"});
    cases.push_back({op, "f32[2, n, 4]", keep, "f32[2, 1, 1]"});
    cases.push_back({op, "f32[2, n]", {{"axes", Ints{}}}, "f32[2, n]"});
    cases.push_back({op, "f32[0, n]", {{"axes", Ints{0}}}, "f32[n]"});
    cases.push_back({op, "f32[]", {{"axes", Ints{}}}, "f32[]"});
    cases.push_back({op, "f32[2, 3]", {{"axes", Ints{2}}}, "bad_attribute"});
    cases.push_back({op, "f32[2, 3]", {{"axes", Ints{1, -1}}}, "bad_attribute"});
  }
  for (Op op : {Op::argmax, Op::argmin}) {
    cases.push_back({op, "f32[2, n]", {{"axis", i(-1)}}, "i64[2]"});
    cases.push_back({op, "f32[2, n]", {{"axis", i(0)}, {"keepdims", true}}, "i64[1, n]"});
    cases.push_back({op, "f32[0, 3]", {{"axis", i(1)}}, "i64[0]"});
    cases.push_back({op, "f32[0, 3]", {{"axis", i(0)}}, "bad_shape"});
    cases.push_back({op, "f32[]", {{"axis", i(0)}}, "bad_attribute"});
  }
  for (Op op : {Op::cumsum, Op::cumprod, Op::softmax, Op::log_softmax}) {
    cases.push_back({op, "f32[2, n]", {{"axis", i(-1)}}, "f32[2, n]"});
    cases.push_back({op, "f32[0]", {{"axis", i(0)}}, "f32[0]"});
    cases.push_back({op, "f32[2, n]", {{"axis", i(2)}}, "bad_attribute"});
    cases.push_back({op, "f32[2, n]", {{"axis", i(-3)}}, "bad_attribute"});
  }
  return cases;
}

std::vector<Case> contraction_cases() {
  const Attrs scale = {{"scale", 0.125}};
#define AICF_QKV "f32[n, 8, t, 64]; f32[n, 2, s, 64]; f32[n, 2, s, 32]"
  const char* qkv = AICF_QKV;
  return {
      {Op::matmul, "f32[2, 3]; f32[3, 4]", {}, "f32[2, 4]"},
      {Op::matmul, "f32[n, 1, 2, k]; f32[5, k, 4]", {}, "f32[n, 5, 2, 4]"},
      {Op::matmul, "f32[k, n]; f32[m, k]", {{"transpose_x", true}, {"transpose_y", true}}, "f32[n, m]"},
      {Op::matmul, "f32[2, 0]; f32[0, 4]", {}, "f32[2, 4]"},
      {Op::matmul, "i32[0, 3]; i32[3, 4]", {}, "i32[0, 4]"},
      {Op::matmul, "f32[2, 3]; f32[4, 3]", {}, "bad_shape"},
      {Op::matmul, "f32[2, k]; f32[m, 3]", {}, "bad_shape"},
      {Op::matmul, "f32[3]; f32[3, 4]", {}, "bad_shape"},
      {Op::matmul, "f32[2, 2, 3]; f32[3, 3, 4]", {}, "bad_shape"},
      {Op::linear, "f32[n, 5, 3]; f32[3, 4]", {}, "f32[n, 5, 4]"},
      {Op::linear, "f32[3]; f32[4, 3]; f32[4]", {{"transpose_w", true}}, "f32[4]"},
      {Op::linear, "f32[0, 3]; f32[3, 4]; f32[4]", {}, "f32[0, 4]"},
      {Op::linear, "f32[n, 3]; f32[4, 3]", {}, "bad_shape"},
      {Op::linear, "f32[n, 3]; f32[3, 4]; f32[1]", {}, "bad_shape"},
      {Op::linear, "f32[]; f32[3, 4]", {}, "bad_shape"},
      {Op::linear, "f32[2, 3]; f32[2, 3, 4]", {}, "bad_shape"},
      {Op::attention, qkv, scale, "f32[n, 8, t, 32]"},
      {Op::attention, "f32[1, 4, 0, 8]; f32[1, 4, 0, 8]; f32[1, 4, 0, 8]", scale, "f32[1, 4, 0, 8]"},
      {Op::attention, "f32[n, h, t, 64]; f32[n, h, s, 64]; f32[n, h, s, 64]; bool[n, 1, 1, s]", scale,
       "f32[n, h, t, 64]"},
      {Op::attention, "f32[n, 3, t, 64]; f32[n, 2, s, 64]; f32[n, 2, s, 64]", scale, "bad_shape"},
      {Op::attention, "f32[n, 2, t, 64]; f32[n, 2, s, 32]; f32[n, 2, s, 64]", scale, "bad_shape"},
      {Op::attention, "f32[n, 2, t, 64]; f32[m, 2, s, 64]; f32[m, 2, s, 64]", scale, "bad_shape"},
      {Op::attention, "f32[n, 2, t, 64]; f32[n, 2, s, 64]; f32[n, 2, t, 64]", scale, "bad_shape"},
      {Op::attention, "f32[2, t, 64]; f32[2, s, 64]; f32[2, s, 64]", scale, "bad_shape"},
      {Op::attention, "f32[1, 2, t, 8]; f32[1, 2, s, 8]; f32[1, 2, s, 8]; f32[t, s, 1]", scale, "bad_shape"},
      {Op::attention, "f32[1, 2, t, 8]; f32[1, 2, s, 8]; f32[1, 2, s, 8]; f32[t, s]", scale,
       "f32[1, 2, t, 8]"},
      {Op::attention, "f32[1, 2, t, 8]; f32[1, 2, s, 8]; f32[1, 2, s, 8]; i64[t, s]", scale, "bad_dtype"},
      {Op::attention, qkv, {{"scale", 1.0}, {"softcap", -1.0}}, "bad_attribute"},
      {Op::attention, qkv, {}, "bad_attribute"},
      {Op::attention_backward, AICF_QKV "; f32[n, 8, t, 32]; f32[n, 8, t, 32]; bool[t, s]", scale,
       "f32[n, 8, t, 64]; f32[n, 2, s, 64]; f32[n, 2, s, 32]"},
      {Op::attention_backward, AICF_QKV "; f32[n, 8, t, 64]; f32[n, 8, t, 32]", scale, "bad_shape"},
      {Op::attention_backward, AICF_QKV "; f32[n, 8, t, 32]; f32[n, 8, s, 32]", scale, "bad_shape"},
      {Op::attention_backward, AICF_QKV "; f32[n, 8, t, 32]; f32[n, 8, t, 32]; bool[s, t]", scale,
       "bad_shape"},
  };
}

Attrs windows(Ints strides, Ints pads, Ints dilations) {
  return {{"strides", std::move(strides)}, {"pads", std::move(pads)}, {"dilations", std::move(dilations)}};
}

Attrs with(Attrs attrs, const char* name, Attr value) {
  attrs.set(name, std::move(value));
  return attrs;
}

std::vector<Case> window_cases() {
  const Attrs same2 = windows({1, 1}, {1, 1, 1, 1}, {1, 1}), one = windows({1}, {0, 0}, {1}),
              two = windows({2}, {0, 0}, {1});
  std::vector<Case> cases = {
      {Op::conv, "f32[n, 3, h, w]; f32[16, 3, 3, 3]; f32[16]", same2, "f32[n, 16, h, w]"},
      {Op::conv, "f32[1, 4, 224]; f32[8, 2, 7]", with(windows({2}, {3, 3}, {1}), "groups", i(2)),
       "f32[1, 8, 112]"},
      {Op::conv, "f32[1, 3, n]; f32[8, 3, 3]", windows({2}, {0, 1}, {2}), "f32[1, 8, floordiv(n-4, 2)+1]"},
      {Op::conv, "f32[0, 3, 9]; f32[8, 3, 3]", one, "f32[0, 8, 7]"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 4, 3]", one, "bad_shape"},
      {Op::conv, "f32[1, 3, 2]; f32[8, 3, 3]", one, "bad_shape"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3]; f32[3]", one, "bad_shape"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3, 3]", one, "bad_shape"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 0]", one, "bad_shape"},
      {Op::conv, "f32[3, 9]; f32[8, 3]", one, "bad_shape"},
      {Op::conv, "f32[1, 4, 9]; f32[3, 2, 3]", with(one, "groups", i(2)), "bad_shape"},
      {Op::conv, "f32[1, 4, 9]; f32[3, 2, 3]", with(one, "groups", i(0)), "bad_attribute"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3]", windows({0}, {0, 0}, {1}), "bad_attribute"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3]", windows({1}, {0}, {1}), "bad_attribute"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3]", windows({1}, {-1, 0}, {1}), "bad_attribute"},
      {Op::conv, "f32[1, 3, 9]; f32[8, 3, 3]", windows({}, {}, {}), "bad_attribute"},
      {Op::conv_transpose, "f32[n, 4, h]; f32[4, 8, 3]; f32[8]",
       with(windows({2}, {1, 1}, {1}), "output_padding", Ints{1}), "f32[n, 8, 2*h]"},
      {Op::conv_transpose, "f32[1, 4, 5]; f32[4, 3, 2]",
       with(with(two, "output_padding", Ints{0}), "groups", i(2)), "f32[1, 6, 10]"},
      {Op::conv_transpose, "f32[0, 4, 5]; f32[4, 3, 2]", with(two, "output_padding", Ints{0}),
       "f32[0, 3, 10]"},
      {Op::conv_transpose, "f32[1, 4, 5]; f32[3, 3, 2]", with(two, "output_padding", Ints{0}), "bad_shape"},
      {Op::conv_transpose, "f32[1, 4, 5]; f32[4, 3, 2]", with(two, "output_padding", Ints{2}),
       "bad_attribute"},
      {Op::conv_transpose, "f32[1, 4, 1]; f32[4, 3, 2]",
       with(windows({1}, {2, 2}, {1}), "output_padding", Ints{0}), "bad_shape"},
  };
  for (Op op : {Op::max_pool, Op::avg_pool, Op::max_pool_indices}) {
    const bool indices = op == Op::max_pool_indices;
    const auto add = [&](const char* x, Ints kernel, Attrs attrs, bool ceil_mode, const char* values,
                         const char* positions) {
      cases.push_back(
          {op, x, with(with(attrs, "kernel", kernel), "ceil_mode", ceil_mode), indices ? positions : values});
    };
    add("f32[n, 3, 8]", {2}, two, false, "f32[n, 3, 4]", "i64[n, 3, 4]");
    add("f32[n, 3, 9]", {2}, two, false, "f32[n, 3, 4]", "i64[n, 3, 4]");
    add("f32[n, 3, 9]", {2}, two, true, "f32[n, 3, 5]", "i64[n, 3, 5]");
    // The third window would start in the right padding (5 + 1 <= 6): it is dropped.
    add("f32[n, 3, 5]", {2}, windows({3}, {1, 1}, {1}), true, "f32[n, 3, 2]", "i64[n, 3, 2]");
    add("f32[n, 3, h]", {2}, two, false, "f32[n, 3, floordiv(h-2, 2)+1]", "i64[n, 3, floordiv(h-2, 2)+1]");
    add("f32[n, 3, h]", {3}, windows({1}, {1, 1}, {1}), true, "f32[n, 3, h]", "i64[n, 3, h]");
    add("f32[0, 3, 8]", {2}, two, false, "f32[0, 3, 4]", "i64[0, 3, 4]");
    add("f32[n, 3, 1]", {2}, two, false, "bad_shape", "bad_shape");
    add("f32[3, 8]", {2}, two, false, "bad_shape", "bad_shape");
    add("f32[n, 3, 8]", {2, 2}, two, false, "bad_attribute", "bad_attribute");
    add("f32[n, 3, 8]", {0}, two, false, "bad_attribute", "bad_attribute");
  }
  return cases;
}

std::vector<Case> composite_cases() {
  std::vector<Case> cases = {
      {Op::rope, "f32[n, 8, t, 64]; f32[t, 32]; f32[t, 32]", {}, "f32[n, 8, t, 64]"},
      {Op::rope, "f32[n, 8, t, 64]; f32[n, 1, t, 16]; f32[n, 1, t, 16]", {}, "f32[n, 8, t, 64]"},
      {Op::rope, "f32[0, 4]; f32[0, 2]; f32[0, 2]", {}, "f32[0, 4]"},
      {Op::rope, "f32[t, 64]; f32[t, 33]; f32[t, 33]", {}, "bad_shape"},
      {Op::rope, "f32[t, 64]; f32[t, 32]; f32[32]", {}, "bad_shape"},
      {Op::rope, "f32[t, 64]; f32[s, 32]; f32[s, 32]", {}, "bad_shape"},
      {Op::rope, "f32[64]; f32[32]; f32[32]", {}, "bad_shape"},
      {Op::rope_append,
       "f32[n, 8, t, 64]; f32[n, 2, t, 64]; f32[n, 2, t, 32]; f32[t, 32]; f32[t, 32]; f32[n, 2, l, 64]; "
       "f32[n, 2, l, "
       "32]; i64[n]",
       {},
       "f32[n, 8, t, 64]; f32[n, 2, l, 64]; f32[n, 2, l, 32]"},
      {Op::rope_append,
       "f32[n, 8, t, 64]; f32[n, 2, t, 64]; f32[n, 2, t, 64]; f32[t, 32]; f32[t, 32]; f32[n, 2, l, 64]; "
       "f32[n, 3, l, "
       "64]; i64[1]",
       {},
       "bad_shape"},
      {Op::rope_append,
       "f32[n, 8, t, 64]; f32[n, 2, t, 64]; f32[n, 2, t, 64]; f32[8, t, 32]; f32[8, t, 32]; f32[n, 2, l, "
       "64]; f32[n, 2, "
       "l, 64]; i64[1]",
       {},
       "bad_shape"},
      {Op::batch_norm, "f32[n, 3, h]; f32[3]; f32[3]; f32[3]; f32[3]", {}, "f32[n, 3, h]"},
      {Op::batch_norm, "f32[0, c]; f32[c]; f32[c]; f32[c]; f32[c]", {}, "f32[0, c]"},
      {Op::batch_norm, "f32[n, 3, h]; f32[3]; f32[3]; f32[3]; f32[4]", {}, "bad_shape"},
      {Op::batch_norm_train, "f32[n, 3, h]; f32[3]; f32[3]", {}, "f32[n, 3, h]; f32[3]; f32[3]"},
      {Op::batch_norm_train, "f32[n, 3, h]; f32[3]; f32[2]", {}, "bad_shape"},
      {Op::batch_norm, "f32[3]; f32[3]; f32[3]; f32[3]; f32[3]", {}, "bad_shape"},
      {Op::batch_norm, "f32[n, 3]; f32[3]; f32[3]; f32[3]; f32[3]", {{"epsilon", -1.0}}, "bad_attribute"},
      {Op::group_norm, "f32[n, 6, h]; f32[6]; f32[6]", {{"groups", i(3)}}, "f32[n, 6, h]"},
      {Op::group_norm, "f32[0, c]", {{"groups", i(3)}}, "f32[0, c]"},
      {Op::group_norm, "f32[n, 6, h]; -; f32[6]", {{"groups", i(4)}}, "bad_shape"},
      {Op::group_norm, "f32[n, 6, h]; f32[1]", {{"groups", i(2)}}, "bad_shape"},
      {Op::group_norm, "f32[n, 6, h]", {{"groups", i(0)}}, "bad_attribute"},
      {Op::cross_entropy, "f32[n, 10]; i64[n]", {}, "f32[]"},
      {Op::cross_entropy, "f32[0, 10]; i32[0]", {}, "f32[]"},
      {Op::cross_entropy, "f32[n, 10]; i64[m]", {}, "bad_shape"},
      {Op::cross_entropy, "f32[n, 10, 3]; i64[n]", {}, "bad_shape"},
      {Op::cross_entropy, "f32[n, 10]; f32[n]", {}, "bad_dtype"},
      {Op::linear_cross_entropy, "bf16[n, 4]; bf16[4, 10]; i64[n]", {{"dtype", DType::f32}}, "f32[]"},
      {Op::linear_cross_entropy,
       "f32[0, 4]; f32[10, 4]; i32[0]",
       {{"dtype", DType::f32}, {"transpose_w", true}},
       "f32[]"},
      {Op::linear_cross_entropy, "f32[n, 4]; f32[10, 4]; i64[n]", {{"dtype", DType::f32}}, "bad_shape"},
      {Op::linear_cross_entropy, "f32[n, 4]; f32[4, 10]; i64[m]", {{"dtype", DType::f32}}, "bad_shape"},
      {Op::linear_cross_entropy, "f32[n, 4]; f32[4, 10]; i64[n]", {{"dtype", DType::i64}}, "bad_attribute"},
      {Op::linear_cross_entropy,
       "f32[n, 4]; f32[4, 10]; i64[n]",
       {{"dtype", DType::f32}, {"chunk", i(-1)}},
       "bad_attribute"},
      {Op::linear_cross_entropy_backward,
       "bf16[n, 4]; bf16[4, 10]; i64[n]; f32[]",
       {{"dtype", DType::f32}},
       "f32[]; bf16[n, 4]; bf16[4, 10]"},
      {Op::linear_cross_entropy_backward,
       "f32[n, 4]; f32[4, 10]; i64[n]; f32[1]",
       {{"dtype", DType::f32}},
       "bad_shape"},
      {Op::adamw_step,
       "f32[2, n]; f32[2, n]; f32[2, n]; f32[2, n]; i64[]; f32[]",
       {},
       "f32[2, n]; f32[2, n]; f32[2, n]"},
      {Op::adamw_step, "f32[0]; f32[0]; f32[0]; f32[0]; i64[]; f32[]", {}, "f32[0]; f32[0]; f32[0]"},
      {Op::adamw_step, "f32[2]; f32[3]; f32[2]; f32[2]; i64[]; f32[]", {}, "bad_shape"},
      {Op::adamw_step, "f32[2]; f32[2]; f32[2]; f32[2]; i64[1]; f32[]", {}, "bad_shape"},
      {Op::adamw_step, "f32[2]; f32[2]; f32[2]; f32[2]; i32[]; f32[]", {}, "bad_dtype"},
  };
  for (Op op : {Op::layer_norm, Op::rms_norm}) {
    cases.push_back({op, "f32[n, 3, 4]; f32[4]", {}, "f32[n, 3, 4]"});
    cases.push_back({op, "f32[n, 3, 4]; f32[3, 4]", {{"axis", i(1)}}, "f32[n, 3, 4]"});
    cases.push_back({op, "f32[0, 4]", {}, "f32[0, 4]"});
    cases.push_back({op, "f32[n, d]; f32[d]", {}, "f32[n, d]"});
    cases.push_back({op, "f32[n, 4]; f32[1]", {}, "bad_shape"});
    cases.push_back({op, "f32[n, 4]; f32[n, 4]", {}, "bad_shape"});
    cases.push_back({op, "f32[]", {}, "bad_attribute"});
  }
  cases.push_back({Op::layer_norm, "f32[n, 4]; -; f32[4]", {}, "f32[n, 4]"});
  return cases;
}

// A body over inputs of the given types whose outputs are the listed inputs.
Graph passing(const char* types, std::vector<int> outputs) {
  Graph body("body");
  if (*types)
    for (const std::string& text : split(types, ';'))
      body.add_input("a" + std::to_string(body.inputs().size()), parse_type(text));
  for (int output : outputs) body.add_output(body.inputs()[static_cast<size_t>(output)], "");
  return body;
}

Attrs custom(const char* dtypes, Ints ranks, Shape sizes) {
  return {
      {"name", s("my::op")}, {"dtypes", s(dtypes)}, {"ranks", std::move(ranks)}, {"sizes", std::move(sizes)}};
}

std::vector<Case> control_flow_cases() {
  const Dim n = Dim::symbol("n");
  const Attrs kind = {{"kind", s("chain")}}, name = {{"name", s("f")}};
  const Graph both = passing("f32[n]; i64[]", {0, 1}), swapped = passing("f32[n]; i64[]", {1, 0});
  const Graph test = passing("bool[]; f32[0]", {0}), next = passing("bool[]; f32[0]", {0, 1});
  const Graph step = passing("f32[4]; f32[m]; i64[]", {0, 2, 1});
  return {
      {Op::fused, "f32[n]; i64[]", kind, "f32[n]; i64[]", {both}},
      {Op::fused, "f32[0]", kind, "f32[0]", {passing("f32[0]", {0})}},
      {Op::fused, "f32[m]; i64[]", kind, "bad_graph", {both}},
      {Op::fused, "f32[n]", kind, "bad_graph", {both}},
      {Op::fused, "f32[n]; i64[]", kind, "bad_graph", {}},
      {Op::call, "f32[n]; i64[]", name, "i64[]; f32[n]", {swapped}},
      {Op::call, "f32[n]; i64[]", name, "bad_graph", {both, both}},
      {Op::custom, "f32[n]; i64[]", custom("i64,f32", {0, 2}, {n, 3}), "i64[]; f32[n, 3]"},
      {Op::custom, "f32[0]", custom("bool", {1}, {0}), "bool[0]"},
      {Op::custom, "f32[n]", custom("f31", {1}, {n}), "bad_attribute"},
      {Op::custom, "f32[n]", custom("f32,f32", {1}, {n}), "bad_attribute"},
      {Op::custom, "f32[n]", custom("f32", {2}, {n}), "bad_attribute"},
      {Op::custom, "f32[n]", custom("f32", {1}, {-1}), "bad_attribute"},
      {Op::if_else, "bool[]; f32[n]; i64[]", {}, "f32[n]; i64[]", {both, both}},
      {Op::if_else, "bool[]", {}, "", {passing("", {}), passing("", {})}},
      {Op::if_else, "bool[]; f32[n]; i64[]", {}, "bad_graph", {both, swapped}},
      {Op::if_else, "bool[]; f32[m]; i64[]", {}, "bad_graph", {both, both}},
      {Op::if_else, "bool[1]; f32[n]; i64[]", {}, "bad_shape", {both, both}},
      {Op::if_else, "bool[]; f32[n]; i64[]", {}, "bad_graph", {both}},
      {Op::while_loop, "bool[]; f32[0]", {}, "bool[]; f32[0]", {test, next}},
      {Op::while_loop, "bool[]; f32[0]", {}, "bad_graph", {next, next}},
      {Op::while_loop, "bool[]; f32[0]", {}, "bad_graph", {test, test}},
      {Op::while_loop, "bool[]; f32[1]", {}, "bad_graph", {test, next}},
      {Op::scan, "f32[4]; f32[t, m]; i64[t]", {{"carried", i(1)}}, "f32[4]; i64[t]; f32[t, m]", {step}},
      {Op::scan, "f32[4]; f32[0, m]; i64[0]", {{"carried", i(1)}}, "f32[4]; i64[0]; f32[0, m]", {step}},
      {Op::scan, "f32[4]; f32[t, m]; i64[s]", {{"carried", i(1)}}, "bad_shape", {step}},
      {Op::scan, "f32[4]; f32[t, m]; i64[]", {{"carried", i(1)}}, "bad_shape", {step}},
      {Op::scan, "f32[4]; f32[t, m]; i64[t]", {{"carried", i(3)}}, "bad_attribute", {step}},
      {Op::scan, "f32[4]; f32[t, m]; i64[t]", {{"carried", i(2)}}, "bad_graph", {step}},
      {Op::scan, "f32[4]; f32[t, 4]", {{"carried", i(1)}}, "bad_graph", {passing("f32[4]; f32[4]", {})}},
  };
}

std::vector<std::vector<Case>> all_cases() {
  return {pointwise_cases(),   view_cases(),   indexing_cases(),  reduction_cases(),
          contraction_cases(), window_cases(), composite_cases(), control_flow_cases()};
}

TEST(ShapeRules, Pointwise) { check(pointwise_cases()); }
TEST(ShapeRules, Views) { check(view_cases()); }
TEST(ShapeRules, Indexing) { check(indexing_cases()); }
TEST(ShapeRules, Reductions) { check(reduction_cases()); }
TEST(ShapeRules, Contractions) { check(contraction_cases()); }
TEST(ShapeRules, Windows) { check(window_cases()); }
TEST(ShapeRules, Composites) { check(composite_cases()); }
TEST(ShapeRules, ControlFlow) { check(control_flow_cases()); }

// A dtype of the operand's class; every class but bool and integer_or_bool has one of these first.
DType sample_dtype(const OpInfo& info, const OperandInfo& operand) {
  std::string cls = operand.type;
  for (const auto& [variable, type_class] : info.types)
    if (variable == operand.type) cls = type_class;
  for (DType dtype : {DType::f32, DType::i32, DType::boolean})
    if (dtype_in_class(dtype, cls)) return dtype;
  return DType::i64;
}

std::string run_pointwise(const OpInfo& info, const std::vector<Shape>& shapes) {
  Graph graph;
  std::vector<ValueId> operands;
  for (const OperandInfo& operand : info.operands)
    operands.push_back(graph.add_input(
        operand.name, {sample_dtype(info, operand), shapes[operands.size() % shapes.size()]}));
  Attrs attrs;
  if (info.attribute("dtype")) attrs.set("dtype", DType::f16);
  try {
    return to_string(graph.shape(graph.add(info.op, operands, attrs)));
  } catch (const UserError& error) {
    return std::string(error_info(error.code).name);
  }
}

TEST(ShapeRules, EveryPointwiseOpBroadcasts) {
  const Dim n = Dim::symbol("n");
  for (const OpInfo& info : op_table()) {
    if (!info.has(kPointwise)) continue;
    SCOPED_TRACE(info.name);
    const bool unary = info.operands.size() == 1;
    EXPECT_EQ(run_pointwise(info, {{n, 3}}), "[n, 3]");
    EXPECT_EQ(run_pointwise(info, {{0}}), "[0]");
    EXPECT_EQ(run_pointwise(info, {{}}), "[]");
    EXPECT_EQ(run_pointwise(info, {{n, 3}, {3}}), "[n, 3]");
    EXPECT_EQ(run_pointwise(info, {{2}, {3}}), unary ? "[2]" : "bad_shape");
  }
}

TEST(ShapeRules, EveryOpIsTested) {
  std::set<Op> tested;
  for (const std::vector<Case>& cases : all_cases())
    for (const Case& c : cases) tested.insert(c.op);
  std::string untested;
  for (const OpInfo& info : op_table())
    if (!info.has(kPointwise) && !tested.count(info.op)) untested += " " + std::string(info.name);
  EXPECT_EQ(untested, "");
}

TEST(ShapeRules, ErrorsNameSizesOpAndOrigin) {
  Graph graph;
  const ValueId a = graph.add_input("a", parse_type("f32[n, 3]")),
                b = graph.add_input("b", parse_type("f32[m, 3]"));
  try {
    graph.add(Op::add, {a, b}, {}, "encoder/Add");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.op, "add (encoder/Add)");
    EXPECT_EQ(error.value, "x f32[n, 3], y f32[m, 3]");
    EXPECT_EQ(error.actual, "n and m");
  }
}

}  // namespace
}  // namespace aicf
