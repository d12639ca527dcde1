#include "ir/reference/evaluator.h"

#include <set>

#include "base/dim_solve.h"
#include "base/error.h"
#include "ir/reference/error_rules.h"
#include "ir/reference/ref_op.h"
#include "ir/reference/rounding_noise.h"

namespace aicf {
namespace reference {

using RefFunction = RefResults (*)(const RefContext&);

RefFunction ref_function(Op op) {
  static constexpr RefFunction kFunctions[] = {
#define AICF_OP(name, operands, types, attributes, results, traits, shape_rule, meaning) ref_##name,
#include "ir/ops.def"
#undef AICF_OP
  };
  return kFunctions[static_cast<size_t>(op)];
}

int64_t RefContext::axis(std::string_view name, int64_t rank) const {
  const int64_t given = attrs().get_int(name);
  AICF_CHECK(given >= -rank && given < rank, "an axis lies inside its tensor");
  return given < 0 ? given + rank : given;
}

std::vector<int64_t> RefContext::axes(std::string_view name, int64_t rank) const {
  std::vector<int64_t> axes = attrs().get_ints(name);
  for (int64_t& axis : axes) {
    AICF_CHECK(axis >= -rank && axis < rank, "an axis lies inside its tensor");
    if (axis < 0) axis += rank;
  }
  return axes;
}

int64_t checked_index(const RefContext& context, int64_t index, int64_t size) {
  if (index < -size || index >= size)
    throw UserError(ErrorCode::kU_index_out_of_range, "an index lies outside the indexed axis")
        .with_op(context.op())
        .with_value(context.node.origin)
        .with_expected("-" + std::to_string(size) + " <= index < " + std::to_string(size))
        .with_actual(std::to_string(index))
        .with_remedy("check the index input, or clamp it in the model");
  return index < 0 ? index + size : index;
}

void fail_sizes(const RefContext& context, const std::string& expected, const std::string& actual) {
  throw UserError(ErrorCode::kU_bad_shape, "the sizes bound in this run do not fit the op")
      .with_op(context.op())
      .with_value(context.node.origin)
      .with_expected(expected)
      .with_actual(actual);
}

RefResults call_reference(const RefContext& context) { return ref_function(context.node.op)(context); }

RefResults run_node(const Graph& graph, const Node& node, std::vector<RefValue> operands,
                    const SymbolValues& sizes, const EvalOptions& options, bool moved) {
  RefContext context{node, std::move(operands), {}, {}, sizes, options};
  for (ValueId result : node.results) {
    context.result_dtypes.push_back(graph.dtype(result));
    context.result_sizes.push_back(evaluate(graph.shape(result), sizes));
  }
  const auto compute = [&] {
    RefResults results = call_reference(context);
    AICF_CHECK(results.size() == node.results.size(), "a reference gives every result: " + context.op());
    for (size_t k = 0; k < results.size(); ++k) {
      AICF_CHECK(results[k].dtype == context.result_dtypes[k] && results[k].sizes == context.result_sizes[k],
                 "a reference agrees with the shape rule: " + context.op() + " gives " +
                     to_string(results[k].sizes) + ", the rule " + to_string(context.result_sizes[k]));
      normalize(results[k], options.round_to_dtype && options.noise == nullptr);
    }
    return results;
  };
  return options.noise == nullptr ? compute() : options.noise->results(context, moved, compute);
}

namespace {

// Runs a graph's nodes over an environment of values; a value is dropped after its last reader.
class GraphRun {
 public:
  GraphRun(const Graph& graph, const SymbolValues& sizes, const EvalOptions& options)
      : graph_(graph),
        sizes_(sizes),
        options_(options),
        uses_(graph.use_counts()),
        values_(static_cast<size_t>(graph.value_count())),
        moved_(static_cast<size_t>(graph.value_count())) {}

  // `moved`: noise may have moved the value.
  void set(ValueId id, RefValue value, bool moved) {
    values_[static_cast<size_t>(id)] = std::move(value);
    moved_[static_cast<size_t>(id)] = moved;
  }

  void run() {
    for (const Node& node : graph_.nodes()) {
      std::vector<RefValue> operands;
      bool moved = !node.bodies.empty();
      for (ValueId operand : node.operands) {
        operands.push_back(operand == kNoValue ? nullptr : get(operand));
        moved = moved || (operand != kNoValue && moved_[static_cast<size_t>(operand)]);
      }
      RefResults results = run_node(graph_, node, std::move(operands), sizes_, options_, moved);
      for (size_t k = 0; k < results.size(); ++k)
        set(node.results[k], std::make_shared<RefTensor>(std::move(results[k])),
            moved || error_rule(node.op) != ErrorRule::kNone);
      for (ValueId operand : node.operands) release(operand);
    }
  }

  RefValue get(ValueId id) {
    RefValue& value = values_[static_cast<size_t>(id)];
    const Value& info = graph_.value(id);
    if (value == nullptr && info.role == Role::kConstant)
      value = std::make_shared<RefTensor>(from_array(info.constant, info.type.dtype));
    AICF_CHECK(value != nullptr, "a value is defined before it is read: " + info.name);
    return value;
  }

 private:
  void release(ValueId id) {
    if (id != kNoValue && --uses_[static_cast<size_t>(id)] == 0) values_[static_cast<size_t>(id)] = nullptr;
  }

  const Graph& graph_;
  const SymbolValues& sizes_;
  EvalOptions options_;
  std::vector<int> uses_;
  std::vector<RefValue> values_;
  std::vector<bool> moved_;
};

}  // namespace

std::vector<RefValue> run_body(const Graph& body, const std::vector<RefValue>& operands,
                               const SymbolValues& sizes, const EvalOptions& options) {
  AICF_CHECK(body.inputs().size() == operands.size(), "a body takes its node's operands");
  GraphRun run(body, sizes, options);
  for (size_t k = 0; k < operands.size(); ++k) run.set(body.inputs()[k], operands[k], true);
  run.run();
  std::vector<RefValue> results;
  for (ValueId output : body.outputs()) results.push_back(run.get(output));
  return results;
}

}  // namespace reference

namespace {

using reference::RefTensor;
using reference::RefValue;

std::string describe(const Value& value) {
  return std::string(role_name(value.role)) + " '" + value.name + "'";
}

void bind_symbol(const std::string& name, int64_t size, const Value& from, SymbolValues& sizes) {
  const auto [at, fresh] = sizes.emplace(name, size);
  if (!fresh && at->second != size)
    throw UserError(ErrorCode::kU_size_conflict, "two arrays give different values to size '" + name + "'")
        .with_value(describe(from))
        .with_expected(std::to_string(at->second))
        .with_actual(std::to_string(size));
}

// Binds axes that are a plain size, or a + c * size.
void bind_axis(const Dim& dim, int64_t size, const Value& from, SymbolValues& sizes) {
  const auto solved = solve(dim, size);
  if (solved && solved->value) bind_symbol(solved->name, *solved->value, from, sizes);
}

void check_array(const Value& value, const Array& array) {
  const DType want = value.type.dtype;
  if (array.dtype() != want && !(is_float(want) && array.dtype() == DType::f64))
    throw UserError(ErrorCode::kU_input_dtype, describe(value) + " has the wrong dtype")
        .with_expected(std::string(dtype_name(want)))
        .with_actual(std::string(dtype_name(array.dtype())));
  if (array.rank() != value.type.rank())
    throw UserError(ErrorCode::kU_input_shape, describe(value) + " has the wrong rank")
        .with_expected(to_string(value.type.shape))
        .with_actual(to_string(array.sizes()));
}

void check_sizes(const Value& value, const Array& array, const SymbolValues& sizes) {
  if (evaluate(value.type.shape, sizes) != array.sizes())
    throw UserError(ErrorCode::kU_input_shape, describe(value) + " has the wrong sizes")
        .with_expected(to_string(value.type.shape) + " = " + to_string(evaluate(value.type.shape, sizes)))
        .with_actual(to_string(array.sizes()));
}

void check_only_value(const Value& value, const Array& given) {
  const Array& only = value.constant;
  if (only.data() == nullptr) return;
  bool same = given.sizes() == only.sizes();
  for (int64_t i = 0; same && i < only.count(); ++i)
    same = given.get_f64(i) == only.get_f64(i) && given.get_i64(i) == only.get_i64(i);
  if (!same)
    throw UserError(ErrorCode::kU_input_value,
                    describe(value) + " accepts only the value it was compiled with");
}

void check_ranges(const Program& program, const SymbolValues& sizes) {
  for (const auto& [name, size] : sizes) {
    const auto range = program.sizes.find(name);
    if (range != program.sizes.end() && (size < range->second.lo || size > range->second.hi))
      throw UserError(ErrorCode::kU_size_out_of_range, "size '" + name + "' lies outside its range")
          .with_expected(std::to_string(range->second.lo) + ".." + std::to_string(range->second.hi))
          .with_actual(std::to_string(size));
  }
}

// The array behind every leaf but constants; nothing for a variable without contents (zeros).
std::map<ValueId, Array> leaf_arrays(const Program& program, const Graph& entry, const EvalInputs& inputs,
                                     const std::map<std::string, Array>* overrides) {
  std::map<ValueId, Array> arrays;
  std::set<std::string> known;
  for (ValueId id : entry.leaves()) {
    const Value& value = entry.value(id);
    if (value.role == Role::kInput) {
      const auto at = inputs.inputs.find(value.name);
      if (at == inputs.inputs.end())
        throw UserError(ErrorCode::kU_missing_input, "input '" + value.name + "' was not given")
            .with_expected(to_string(value.type));
      check_only_value(value, at->second);
      arrays[id] = at->second;
      known.insert(value.name);
    } else if (value.role == Role::kParam || value.role == Role::kState) {
      const auto variable = program.variables.find(value.name);
      if (variable == program.variables.end())
        throw UserError(ErrorCode::kU_unknown_param, "the program holds no " + describe(value));
      const Array* array = &variable->second.data;
      if (overrides != nullptr && overrides->count(value.name)) array = &overrides->at(value.name);
      if (array->data() != nullptr) arrays[id] = *array;
    }
  }
  for (const auto& [name, array] : inputs.inputs)
    if (!known.count(name)) throw UserError(ErrorCode::kU_unknown_input, "no input is named '" + name + "'");
  if (overrides != nullptr)
    for (const auto& [name, array] : *overrides)
      if (!program.variables.count(name))
        throw UserError(ErrorCode::kU_unknown_param, "the program holds no param or state '" + name + "'");
  return arrays;
}

RefTensor leaf_tensor(const Value& value, const std::map<ValueId, Array>& arrays, ValueId id,
                      const SymbolValues& sizes, bool round_to_dtype) {
  const auto at = arrays.find(id);
  if (at == arrays.end()) return reference::make_tensor(value.type.dtype, evaluate(value.type.shape, sizes));
  RefTensor tensor = reference::from_array(at->second, value.type.dtype);
  normalize(tensor, round_to_dtype);
  return tensor;
}

}  // namespace

EvalResult evaluate(const Program& program, const Graph& entry, const EvalInputs& inputs,
                    const EvalOptions& options, const std::map<std::string, Array>* variable_overrides) {
  EvalResult result;
  result.sizes = inputs.sizes;
  const std::map<ValueId, Array> arrays = leaf_arrays(program, entry, inputs, variable_overrides);
  for (const auto& [id, array] : arrays) {
    const Value& value = entry.value(id);
    check_array(value, array);
    for (int a = 0; a < array.rank(); ++a)
      bind_axis(value.type.shape[static_cast<size_t>(a)], array.sizes()[static_cast<size_t>(a)], value,
                result.sizes);
  }
  check_ranges(program, result.sizes);
  for (const auto& [id, array] : arrays) check_sizes(entry.value(id), array, result.sizes);

  const bool round = options.round_to_dtype;
  reference::GraphRun run(entry, result.sizes, options);
  for (ValueId id : entry.leaves())
    if (entry.value(id).role != Role::kConstant)
      run.set(id, std::make_shared<RefTensor>(leaf_tensor(entry.value(id), arrays, id, result.sizes, round)),
              false);
  run.run();
  for (size_t k = 0; k < entry.outputs().size(); ++k)
    result.outputs[entry.output_names()[k]] = to_array(*run.get(entry.outputs()[k]), !round);
  for (const Update& update : entry.updates())
    result.updated[entry.value(update.variable).name] = to_array(*run.get(update.value), !round);
  return result;
}

std::vector<Array> evaluate_node(const Graph& graph, const Node& node, const std::vector<Array>& operands,
                                 const SymbolValues& sizes) {
  std::vector<RefValue> values;
  for (size_t k = 0; k < node.operands.size(); ++k) {
    const ValueId id = node.operands[k];
    AICF_CHECK(id == kNoValue || k < operands.size(), "evaluate_node takes an array per operand");
    values.push_back(id == kNoValue
                         ? nullptr
                         : std::make_shared<RefTensor>(reference::from_array(operands[k], graph.dtype(id))));
  }
  std::vector<Array> arrays;
  for (const RefTensor& tensor : reference::run_node(graph, node, std::move(values), sizes, EvalOptions{}))
    arrays.push_back(to_array(tensor, false));
  return arrays;
}

double evaluation_work(const Graph& graph, const Node& node) {
  const auto count = [&](ValueId id) {
    double elements = 1;
    for (const Dim& dim : graph.shape(id))
      elements *= static_cast<double>(dim.require_constant("folded value"));
    return elements;
  };
  double work = 0, results = 0;
  for (ValueId id : node.operands) work += id == kNoValue ? 0 : count(id);
  for (ValueId id : node.results) results += count(id);
  // Products look at a row, or at a filter, for each of their results.
  double depth = 1;
  if (node.op == Op::matmul || node.op == Op::linear) {
    const Shape& x = graph.shape(node.operands[0]);
    const bool stored_across = node.op == Op::matmul && node.attrs.get_bool("transpose_x");
    depth = static_cast<double>(x[x.size() - (stored_across ? 2 : 1)].require_constant("folded value"));
  } else if (node.op == Op::conv || node.op == Op::conv_transpose || node.op == Op::attention ||
             node.op == Op::attention_lse) {
    depth = count(node.operands[1]);
  } else if (node.op == Op::recurrent || node.op == Op::recurrent_backward) {
    const Shape& w = graph.shape(node.operands[node.op == Op::recurrent ? 2 : 0]);
    depth = static_cast<double>(w[1].require_constant("folded value"));
  } else if (const Attr* kernel = node.attrs.find("kernel")) {
    for (const int64_t size : std::get<Ints>(*kernel)) depth *= static_cast<double>(size);
  }
  return work + results * depth;
}

}  // namespace aicf
