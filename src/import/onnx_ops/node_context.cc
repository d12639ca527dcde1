#include "import/onnx_ops/node_context.h"

#include <algorithm>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/option_text.h"

namespace aicf::onnx {

NodeContext::NodeContext(GraphContext& context, const NodeProto& proto,
                         std::vector<AttributeProto> attributes, std::vector<ValueRef> inputs, int64_t opset,
                         ConvertBody convert_body)
    : op_type(proto.op_type),
      context_(context),
      proto_(proto),
      attributes_(std::move(attributes)),
      inputs_(std::move(inputs)),
      outputs_(proto.outputs.size()),
      opset_(opset),
      convert_body_(std::move(convert_body)),
      origin_(!proto.name.empty()     ? proto.name
              : proto.outputs.empty() ? proto.op_type
                                      : proto.outputs[0]) {}

void NodeContext::bad(std::string what, std::string expected, std::string actual) const {
  throw UserError(ErrorCode::kU_bad_model_file, "node '" + origin_ + "': " + what)
      .with_op(proto_.op_type)
      .with_expected(std::move(expected))
      .with_actual(std::move(actual));
}

ValueRef NodeContext::any(size_t i) {
  if (!has(i))
    bad("input " + std::to_string(i) + " is missing", "at least " + std::to_string(i + 1) + " inputs",
        std::to_string(inputs_.size()));
  return inputs_[i];
}

ValueRef NodeContext::ref(size_t i) {
  ValueRef value = any(i);
  if (value->items) unsupported("a sequence as input " + std::to_string(i));
  return value;
}

void NodeContext::refuse_unknown_inputs() const {
  for (size_t i = known_inputs_; i < inputs_.size(); ++i)
    if (inputs_[i] != nullptr)
      bad("there are more inputs than the op has", "at most " + std::to_string(known_inputs_) + " inputs",
          std::to_string(inputs_.size()));
}

int64_t NodeContext::axis(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank)
    bad("axis is out of range", "-" + std::to_string(rank) + " <= axis < " + std::to_string(rank),
        std::to_string(axis));
  return axis < 0 ? axis + rank : axis;
}

std::optional<std::vector<Dim>> NodeContext::sizes(size_t i) {
  OnnxValue& value = *ref(i);
  if (value.sizes) return value.sizes;
  if (value.folded) return value.folded;
  if (!is_integer(value.type.dtype) && value.type.dtype != DType::boolean) return std::nullopt;
  const auto count = element_count(value.type.shape).constant();
  if (!count || *count > kMaxSymbolicElements) return std::nullopt;
  const auto array = context_.constant(value);
  if (!array) return std::nullopt;
  std::vector<Dim> sizes;
  for (int64_t k = 0; k < array->count(); ++k) sizes.emplace_back(array->get_i64(k));
  value.folded = sizes;  // not its sizes: a body that has captured it goes on reading the capture
  return sizes;
}

namespace {

// The first name is what a caller must give a value for; computed inputs are all named in the text.
[[noreturn]] void fail_not_static(NodeContext& node, size_t i, std::string_view what) {
  const auto [inputs, sizes] = node.context().sources(node.in(i));
  UserError error(ErrorCode::kU_size_not_static,
                  "node '" + node.origin() + "': " + std::string(what) + " must be known when compiling");
  error.with_op(node.proto().op_type).with_expected("a constant, or arithmetic on sizes");
  if (!inputs.empty()) {
    throw error.with_value(*inputs.begin())
        .with_actual("computed from input " + comma_list(inputs))
        .with_remedy(
            "fix the input to one value when compiling: " + values_text({inputs.begin(), inputs.end()}) +
            ", or export the model with a constant in its place");
  }
  if (!sizes.empty())
    throw error.with_value(comma_list(sizes)).with_actual("computed from size " + comma_list(sizes));
  throw error.with_value(node.ref(i)->name)
      .with_actual("computed by the graph")
      .with_remedy("export the model with a constant in its place");
}

}  // namespace

std::vector<Dim> NodeContext::require_sizes(size_t i, std::string_view what) {
  if (auto known = sizes(i)) return *known;
  if (auto array = constant(i); array && (is_integer(array->dtype()) || array->dtype() == DType::boolean)) {
    std::vector<Dim> sizes;
    for (int64_t k = 0; k < array->count(); ++k) sizes.emplace_back(array->get_i64(k));
    return sizes;
  }
  fail_not_static(*this, i, what);
}

std::vector<int64_t> NodeContext::require_ints(size_t i, std::string_view what) {
  std::vector<int64_t> values;
  for (const Dim& dim : require_sizes(i, what))
    values.push_back(dim.require_constant(std::string(what) + " of node '" + origin_ + "'"));
  return values;
}

Array NodeContext::require_constant(size_t i, std::string_view what) {
  if (auto array = constant(i)) return *array;
  fail_not_static(*this, i, what);
}

Array NodeContext::require_scalar(size_t i, std::string_view what) {
  Array array = require_constant(i, what);
  if (array.count() != 1) bad(std::string(what), "one element", std::to_string(array.count()));
  return array;
}

Dim NodeContext::require_size(size_t i, std::string_view what) {
  const std::vector<Dim> sizes = require_sizes(i, what);
  if (sizes.size() != 1) bad(std::string(what), "one element", std::to_string(sizes.size()));
  return sizes[0];
}

int64_t NodeContext::require_int(size_t i, std::string_view what) {
  return require_size(i, what).require_constant(std::string(what) + " of node '" + origin_ + "'");
}

void NodeContext::require_rank(size_t i, int expected) {
  if (rank(i) != expected)
    bad("the rank of input " + std::to_string(i), std::to_string(expected), std::to_string(rank(i)));
}

void NodeContext::set_input(size_t i, ValueRef value) {
  ignore_input(i);
  if (inputs_.size() <= i) inputs_.resize(i + 1);
  inputs_[i] = std::move(value);
}

void NodeContext::set_input(size_t i, Array array) {
  auto value = std::make_shared<OnnxValue>();
  value->type = {array.dtype(), to_shape(array.sizes())};
  value->array = std::move(array);
  set_input(i, std::move(value));
}

void NodeContext::set_input(size_t i, ValueId id) { set_input(i, wrap(id)); }
void NodeContext::insert_input(size_t i) {
  if (inputs_.size() < i) inputs_.resize(i);
  inputs_.insert(inputs_.begin() + static_cast<std::ptrdiff_t>(i), nullptr);
}

ValueRef NodeContext::wrap(ValueId id) {
  auto value = std::make_shared<OnnxValue>();
  value->type = graph().type(id);
  value->emitted.emplace(context_.serial(), id);
  return value;
}

const AttributeProto* NodeContext::attr(std::string_view name) {
  read_.insert(std::string(name));
  for (const AttributeProto& attribute : attributes_)
    if (attribute.name == name) return &attribute;
  return nullptr;
}

bool NodeContext::has_attr(std::string_view name) const {
  for (const AttributeProto& attribute : attributes_)
    if (attribute.name == name) return true;
  return false;
}

namespace {

void check_type(const NodeContext& node, const AttributeProto& attribute, AttributeType type,
                const char* expected) {
  if (attribute.type != type)
    node.bad("attribute '" + attribute.name + "' has the wrong type", expected,
             "type " + std::to_string(static_cast<int>(attribute.type)));
}

}  // namespace

int64_t NodeContext::attr_int(std::string_view name, int64_t absent) {
  const AttributeProto* a = attr(name);
  if (a) check_type(*this, *a, AttributeType::kInt, "an integer");
  return a ? a->i : absent;
}

int64_t NodeContext::attr_int(std::string_view name) {
  if (!attr(name)) bad("attribute '" + std::string(name) + "' is missing", "an integer", "nothing");
  return attr_int(name, 0);
}

double NodeContext::attr_float(std::string_view name, double absent) {
  const AttributeProto* a = attr(name);
  if (a) check_type(*this, *a, AttributeType::kFloat, "a number");
  return static_cast<double>(a ? a->f : static_cast<float>(absent));  // a default is an f32, too
}

std::string NodeContext::attr_str(std::string_view name, std::string absent) {
  const AttributeProto* a = attr(name);
  if (a) check_type(*this, *a, AttributeType::kString, "text");
  return a ? a->s : absent;
}

std::vector<int64_t> NodeContext::attr_ints(std::string_view name, std::vector<int64_t> absent) {
  const AttributeProto* a = attr(name);
  if (a) check_type(*this, *a, AttributeType::kInts, "a list of integers");
  return a ? a->ints : absent;
}

std::vector<float> NodeContext::attr_floats(std::string_view name, std::vector<float> absent) {
  const AttributeProto* a = attr(name);
  if (a) check_type(*this, *a, AttributeType::kFloats, "a list of numbers");
  return a ? a->floats : absent;
}

void NodeContext::set_attr_int(std::string name, int64_t value) {
  std::erase_if(attributes_, [&](const AttributeProto& a) { return a.name == name; });
  AttributeProto& a = attributes_.emplace_back();
  a.name = std::move(name);
  a.type = AttributeType::kInt;
  a.i = value;
}

void NodeContext::set_attr_str(std::string name, std::string value) {
  std::erase_if(attributes_, [&](const AttributeProto& a) { return a.name == name; });
  AttributeProto& a = attributes_.emplace_back();
  a.name = std::move(name);
  a.type = AttributeType::kString;
  a.s = std::move(value);
}

std::vector<std::string> NodeContext::unread_attributes() const {
  std::vector<std::string> names;
  for (const AttributeProto& attribute : attributes_)
    if (!read_.count(attribute.name)) names.push_back(attribute.name);
  return names;
}

void NodeContext::out(size_t i, ValueRef value) {
  if (outputs_.size() <= i) outputs_.resize(i + 1);  // an output nobody named
  outputs_[i] = std::move(value);
}

void NodeContext::out(size_t i, ValueId id) { out(i, wrap(id)); }

void NodeContext::out_sizes(size_t i, std::vector<Dim> sizes, TensorType type) {
  auto value = std::make_shared<OnnxValue>();
  value->type = std::move(type);
  value->sizes = std::move(sizes);
  out(i, std::move(value));
}

void NodeContext::out_array(size_t i, Array array) {
  auto value = std::make_shared<OnnxValue>();
  value->type = {array.dtype(), to_shape(array.sizes())};
  value->array = std::move(array);
  out(i, std::move(value));
}

ValueId NodeContext::cast(ValueId x, DType dtype) {
  return dtype_of(x) == dtype ? x : add(Op::cast, {x}, {{"dtype", dtype}});
}
ValueId NodeContext::reshape(ValueId x, Shape shape) {
  return shape_of(x) == shape ? x : add(Op::reshape, {x}, {{"shape", std::move(shape)}});
}
ValueId NodeContext::transpose(ValueId x, std::vector<int64_t> perm) {
  bool moves = false;
  for (size_t i = 0; i < perm.size(); ++i) moves = moves || perm[i] != static_cast<int64_t>(i);
  return moves ? add(Op::transpose, {x}, {{"perm", std::move(perm)}}) : x;
}
ValueId NodeContext::broadcast(ValueId x, Shape shape) {
  return shape_of(x) == shape ? x : add(Op::broadcast_to, {x}, {{"shape", std::move(shape)}});
}
Dim NodeContext::smaller(const Dim& a, const Dim& b) {
  const Interval difference = bounds_of(a - b);
  return difference.hi <= 0 ? a : difference.lo >= 0 ? b : min(a, b);
}
Dim NodeContext::larger(const Dim& a, const Dim& b) {
  const Interval difference = bounds_of(a - b);
  return difference.lo >= 0 ? a : difference.hi <= 0 ? b : max(a, b);
}
ValueId NodeContext::size_scalar(const Dim& dim, DType dtype) {
  if (auto known = dim.constant()) return cast(iscalar(DType::i64, *known), dtype);
  return cast(context_.emit_sizes({dim}, {DType::i64, {}}), dtype);
}

ValueId NodeContext::slice_axis(ValueId x, int64_t axis, Dim start, Dim limit, int64_t step) {
  const Shape shape = shape_of(x);
  if (axis < 0 || static_cast<size_t>(axis) >= shape.size())
    bad("operands", "more than " + std::to_string(axis) + " axes", to_string(shape));
  Shape starts(shape.size(), Dim(0)), limits = shape;
  std::vector<int64_t> steps(shape.size(), 1);
  const size_t at = static_cast<size_t>(axis);
  if (step == 1 && start == Dim(0) && limit == shape[at]) return x;
  starts[at] = std::move(start);
  limits[at] = std::move(limit);
  steps[at] = step;
  return add(Op::slice, {x}, {{"starts", starts}, {"limits", limits}, {"steps", steps}});
}

Array NodeContext::generated(DType dtype, std::vector<int64_t> sizes) const {
  if (element_count(sizes) > kMaxGeneratedElements)
    unsupported("a generated constant of size " + to_string(sizes));
  return Array(dtype, std::move(sizes));
}

}  // namespace aicf::onnx
