// What a converter of one ONNX node sees: its inputs as IR values, their sizes and constants where known, its
// attributes, and the graph to emit into. An ONNX value is emitted only when somebody reads it as data; shape
// arithmetic stays symbolic.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "import/onnx.h"
#include "import/onnx_types.h"
#include "import/onnx_wire.h"
#include "ir/graph.h"

namespace aicf::onnx {

class GraphContext;

// One ONNX value. It may be known as data (`array`), as sizes (`sizes`), as emitted IR values, or several of
// these.
struct OnnxValue {
  std::string name;
  TensorType type;
  const CarriedType* carried = nullptr;   // what its values are, if `type` only carries them
  std::optional<Array> array;             // initialiser, or input with a known value
  std::optional<std::vector<Dim>> sizes;  // content of a small integer value, row-major
  std::optional<std::vector<Dim>>
      folded;  // content of an emitted value that depends on nothing, once asked for
  // A sequence of known length; such a value has no type of its own.
  std::optional<std::vector<std::shared_ptr<OnnxValue>>> items;
  bool param = false;                  // `array` is a weight: emitted as a param
  std::optional<size_t> failure;       // why it could not be made: Importer's number of the reason
  std::map<int64_t, ValueId> emitted;  // its IR value by GraphContext::serial()
};
using ValueRef = std::shared_ptr<OnnxValue>;

// Shape-deciding content is tracked up to this many elements.
inline constexpr int64_t kMaxSymbolicElements = 1024;

// A Graph under construction, with what has been folded so far. A body graph reads values of its parent as
// captures.
class GraphContext {
 public:
  GraphContext(Program& program, std::string name, GraphContext* parent = nullptr)
      : program_(program), graph_(std::move(name)), parent_(parent), serial_(next_serial()) {}

  Graph& graph() { return graph_; }
  int64_t serial() const { return serial_; }
  Program& program() { return program_; }
  // The IR value of `value` in this graph: emits constants, params and size_of nodes, or captures from the
  // parent.
  ValueId materialize(OnnxValue& value);
  // Content that does not depend on inputs, folded by the reference evaluator; nullopt if it does.
  std::optional<Array> constant(OnnxValue& value);
  std::optional<Array> constant(ValueId id);
  // What `id` is computed from.
  struct Sources {
    std::set<std::string> inputs, sizes;  // names of the model's inputs, and of sizes that are values
  };
  Sources sources(ValueId id) const;
  // Emits `sizes` as an integer value of rank 0 or 1.
  ValueId emit_sizes(const std::vector<Dim>& sizes, const TensorType& type);

  // Values of the parent that this body reads; its inputs in the same order (after those added by the
  // converter).
  std::vector<ValueRef>& captures() { return captures_; }
  ValueId capture(const ValueRef& value);
  // Captures if this is a body and `value` cannot be emitted here afresh.
  void capture_if_outer(const ValueRef& value);

 private:
  static int64_t next_serial();
  bool is_foldable(ValueId id);
  Program& program_;
  Graph graph_;
  GraphContext* parent_;
  std::vector<ValueRef> captures_;
  const int64_t serial_;
  std::vector<char> foldable_;  // per value, filled up to its size
  std::map<ValueId, Array> folded_;
  double folded_work_ = 0;  // evaluation_work of what was folded
};

// Largest constant that a converter makes itself (weights of a resize, taps of a window).
inline constexpr int64_t kMaxGeneratedElements = int64_t{1} << 26;

class NodeContext;
// Converts nested graphs (If, Loop, Scan): emits `graph` into `target` with `inputs` bound to its inputs.
using ConvertBody = std::function<std::vector<ValueRef>(
    const GraphProto& graph, const std::vector<ValueRef>& inputs, GraphContext& target)>;

// Thrown by a converter that meets something it does not support; collected by the importer.
struct Unsupported {
  std::string reason;
};
// Thrown where a body gives what could not be made, for the reason of this number.
struct FailedBody {
  size_t failure;
};

class NodeContext {
 public:
  NodeContext(GraphContext& context, const NodeProto& proto, std::vector<AttributeProto> attributes,
              std::vector<ValueRef> inputs, int64_t opset, ConvertBody convert_body);

  std::string op_type;
  const NodeProto& proto() const { return proto_; }
  int64_t opset() const { return opset_; }
  GraphContext& context() { return context_; }
  Graph& graph() { return context_.graph(); }
  const std::string& origin() const { return origin_; }

  // --- inputs
  size_t input_count() const { return inputs_.size(); }
  bool has(size_t i) const {
    known_inputs_ = std::max(known_inputs_, i + 1);
    return i < inputs_.size() && inputs_[i] != nullptr;
  }
  // An input that means nothing here.
  void ignore_input(size_t i) const { (void)has(i); }
  // Inputs behind all that the converter asked for, which the op does not have: bad_model_file.
  void refuse_unknown_inputs() const;
  ValueRef any(size_t i);                                       // a tensor or a sequence
  const ValueRef& input(size_t i) const { return inputs_[i]; }  // as it is: null if absent
  ValueRef ref(size_t i);                                       // a tensor
  ValueId in(size_t i) { return context_.materialize(*ref(i)); }
  ValueId in_or_none(size_t i) { return has(i) ? in(i) : kNoValue; }
  const TensorType& type(size_t i) { return ref(i)->type; }
  const Shape& shape(size_t i) { return type(i).shape; }
  DType dtype(size_t i) { return type(i).dtype; }
  int rank(size_t i) { return type(i).rank(); }
  void require_rank(size_t i, int rank);           // bad_model_file
  int64_t axis(int64_t axis, int64_t rank) const;  // non-negative; bad_attribute
  // Integer content as sizes if known, row-major; nullopt if it depends on data.
  std::optional<std::vector<Dim>> sizes(size_t i);
  std::vector<Dim> require_sizes(size_t i, std::string_view what);
  std::vector<int64_t> require_ints(size_t i, std::string_view what);
  std::optional<Array> constant(size_t i) { return context_.constant(*ref(i)); }
  Array require_constant(size_t i, std::string_view what);
  const CarriedType* carried(size_t i) { return ref(i)->carried; }
  // The same of exactly one element; bad_model_file for more or none.
  Dim require_size(size_t i, std::string_view what);
  int64_t require_int(size_t i, std::string_view what);
  Array require_scalar(size_t i, std::string_view what);
  void set_input(size_t i, Array array);
  void set_input(size_t i, ValueId id);
  void set_input(size_t i, ValueRef value);
  void insert_input(size_t i);  // an absent input before input i

  // --- attributes; every one must be read or ignored
  const AttributeProto* attr(std::string_view name);
  int64_t attr_int(std::string_view name, int64_t absent);
  int64_t attr_int(std::string_view name);
  double attr_float(std::string_view name, double absent);
  std::string attr_str(std::string_view name, std::string absent);
  std::vector<int64_t> attr_ints(std::string_view name, std::vector<int64_t> absent = {});
  std::vector<float> attr_floats(std::string_view name, std::vector<float> absent = {});
  bool has_attr(std::string_view name) const;
  void ignore(std::string_view name) { read_.insert(std::string(name)); }
  void set_attr_int(std::string name, int64_t value);
  void set_attr_str(std::string name, std::string value);
  std::vector<std::string> unread_attributes() const;

  // --- results
  bool wants(size_t i) const { return i < proto_.outputs.size() && !proto_.outputs[i].empty(); }
  size_t output_count() const { return proto_.outputs.size(); }
  void out(size_t i, ValueId id);
  void out(size_t i, ValueRef value);
  void out_sizes(size_t i, std::vector<Dim> sizes, TensorType type);
  void out_array(size_t i, Array array);
  const std::vector<ValueRef>& outputs() const { return outputs_; }

  // --- emitting
  ValueId add(Op op, std::vector<ValueId> operands, Attrs attrs = {}) {
    return graph().add(op, std::move(operands), std::move(attrs), origin_);
  }
  const Shape& shape_of(ValueId id) { return graph().shape(id); }
  DType dtype_of(ValueId id) { return graph().dtype(id); }
  ValueId constant_of(Array array) { return graph().add_constant(std::move(array)); }
  ValueId scalar(DType dtype, double value) { return constant_of(Array::scalar_f64(dtype, value)); }
  ValueId iscalar(DType dtype, int64_t value) { return constant_of(Array::scalar_i64(dtype, value)); }
  ValueId cast(ValueId x, DType dtype);
  // Halves as f32, for ops of several steps: only the result of an op is rounded.
  ValueId widened(ValueId x) {
    const DType dtype = dtype_of(x);
    return cast(x, dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype);
  }
  ValueId reshape(ValueId x, Shape shape);
  ValueId transpose(ValueId x, std::vector<int64_t> perm);
  ValueId broadcast(ValueId x, Shape shape);
  ValueId size_scalar(const Dim& dim, DType dtype);
  // x[..., start:limit, ...] on one axis.
  ValueId slice_axis(ValueId x, int64_t axis, Dim start, Dim limit, int64_t step = 1);

  std::vector<ValueRef> convert_body(const GraphProto& graph, const std::vector<ValueRef>& inputs,
                                     GraphContext& target) {
    return convert_body_(graph, inputs, target);
  }
  ValueRef wrap(ValueId id);

  [[noreturn]] void unsupported(std::string reason) const { throw Unsupported{std::move(reason)}; }
  [[noreturn]] void bad(std::string what, std::string expected, std::string actual) const;
  // Zero-filled; unsupported beyond kMaxGeneratedElements.
  Array generated(DType dtype, std::vector<int64_t> sizes) const;
  Interval bounds_of(const Dim& dim) { return aicf::bounds(dim, context_.program().sizes); }
  // The smaller or larger size where the ranges of the symbols tell, else a min or max expression.
  Dim smaller(const Dim& a, const Dim& b);
  Dim larger(const Dim& a, const Dim& b);

 private:
  GraphContext& context_;
  const NodeProto& proto_;
  std::vector<AttributeProto> attributes_;
  std::vector<ValueRef> inputs_;
  mutable size_t known_inputs_ = 0;  // the converter asked for no input from this one on
  std::vector<ValueRef> outputs_;
  int64_t opset_;
  ConvertBody convert_body_;
  std::string origin_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace aicf::onnx
