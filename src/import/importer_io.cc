#include <algorithm>
#include <set>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/option_text.h"
#include "import/importer.h"

namespace aicf::onnx {
namespace {

// A name that Dim::parse reads back.
std::string symbol_name(const std::string& name) {
  std::string symbol;
  for (char c : name) symbol += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? c : '_';
  if (symbol.empty() || std::isdigit(static_cast<unsigned char>(symbol[0]))) symbol = "d" + symbol;
  return symbol;
}

// torch writes sizes that follow from others as expressions: "past_length + 1". None if it is a name that
// only looks like one: "rows/2", "-1".
std::optional<Dim> parse_expression(const std::string& name) {
  if (name.find_first_of("+-*/() ") == std::string::npos) return std::nullopt;
  try {
    const Dim dim = Dim::parse(name);
    return dim.as_symbol() == name || dim.constant().value_or(0) < 0 ? std::nullopt : std::optional(dim);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// By its own name or by its input and axis.
bool has_size(const GraphProto& graph, const std::string& name) {
  for (const ValueInfo& info : graph.inputs)
    for (size_t axis = 0; axis < info.shape.size(); ++axis)
      if (info.shape[axis].param == name || info.name + ":" + std::to_string(axis) == name) return true;
  return false;
}

// What a run leaves behind for the next one is placed once, so its size cannot change between them.
void require_fixed(const std::string& state, const Shape& shape) {
  const bool fixed =
      std::all_of(shape.begin(), shape.end(), [](const Dim& dim) { return dim.is_constant(); });
  if (fixed) return;
  throw UserError(ErrorCode::kU_bad_shape, "a state has a size that changes from run to run")
      .with_op(state)
      .with_expected("a fixed shape")
      .with_actual(to_string(shape))
      .with_remedy("give one value for each of its sizes: " + dims_text({{"NAME", "8"}}));
}

// The option that gives each of these sizes the value.
std::string dim_options(const std::vector<std::string>& names, const std::string& value) {
  std::vector<std::pair<std::string, std::string>> sizes;
  for (const std::string& name : names) sizes.emplace_back(name, value);
  return dims_text(sizes);
}

bool fits(const Shape& shape, const std::vector<int64_t>& sizes) {
  if (shape.size() != sizes.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (shape[i].is_constant() && *shape[i].constant() != sizes[i]) return false;
  return true;
}

}  // namespace

UserError not_a_size(const std::string& text) {
  return UserError(ErrorCode::kU_bad_option, "not a size")
      .with_value(text)
      .with_expected("8, 1,8, 16..512, the name of another size, or arithmetic on such names");
}

Dim Importer::declare_symbol(const std::string& name, Interval range) {
  std::string symbol = symbol_name(name);
  while (program_.sizes.count(symbol)) symbol += "_";
  program_.sizes.emplace(symbol, range);
  return Dim::symbol(symbol);
}

void Importer::name_sizes(UserError& error) const {
  std::vector<std::string> names;
  for (size_t at = 0; at < error.value.size();) {
    const size_t comma = std::min(error.value.find(", ", at), error.value.size());
    const Dim symbol = Dim::symbol(error.value.substr(at, comma - at));
    const auto named =
        std::find_if(dims_.begin(), dims_.end(), [&](const auto& item) { return item.second == symbol; });
    if (named == dims_.end()) return;
    names.push_back(named->first);
    at = comma + 2;
  }
  if (!names.empty()) error.with_remedy("give one value for each of these sizes: " + dim_options(names, "8"));
}

// A size that the model or another option names, arithmetic, or a name that still needs a value.
void Importer::require_reference(const std::string& text) const {
  if (options_.dims.count(text) || has_size(model_.graph, text) || parse_expression(text)) return;
  if (symbol_name(text) != text) throw not_a_size(text);
}

Dim Importer::resolve_dim(const std::string& name, int depth) {
  if (auto at = dims_.find(name); at != dims_.end()) return at->second;
  if (depth > 16)
    throw UserError(ErrorCode::kU_bad_option, "sizes refer to each other in a circle").with_value(name);
  Dim dim;
  if (auto at = options_.dims.find(name); at != options_.dims.end()) {
    const DimOption& option = at->second;
    if (!option.same_as.empty()) {
      require_reference(option.same_as);
      dim = resolve_dim(option.same_as, depth + 1);
    } else if (option.range) {
      dim = declare_symbol(name, *option.range);
    } else {
      const std::set<int64_t> ends(option.values.begin(), option.values.end());
      dim = ends.size() == 1 ? Dim(*ends.begin()) : declare_symbol(name, {*ends.begin(), *ends.rbegin()});
      if (ends.size() > 1) program_.buckets[*dim.as_symbol()].assign(ends.begin(), ends.end());
    }
  } else if (auto expression = parse_expression(name)) {
    std::map<std::string, int> symbols;
    expression->collect_symbols(symbols);
    std::map<std::string, Dim, std::less<>> values;
    for (const auto& [symbol, count] : symbols) values.emplace(symbol, resolve_dim(symbol, depth + 1));
    dim = substitute(*expression, values);
  } else {
    if (!unset_) unset_sizes_.push_back(name);
    const Interval range = unset_.value_or(Interval{1, 1});
    dim = unset_ && range.lo == range.hi ? Dim(range.lo) : declare_symbol(name, range);
  }
  return dims_[name] = dim;
}

Shape Importer::input_shape(const ValueInfo& info) {
  Shape shape;
  for (size_t axis = 0; axis < info.shape.size(); ++axis) {
    const Dimension& dimension = info.shape[axis];
    const std::string key = info.name + ":" + std::to_string(axis);
    if (dimension.has_value && dimension.value >= 0) {
      shape.emplace_back(dimension.value);
      continue;
    }
    const bool by_axis = options_.dims.count(key) || dimension.param.empty();
    shape.push_back(resolve_dim(by_axis ? key : dimension.param, 0));
    if (by_axis && options_.dims.count(dimension.param) && resolve_dim(dimension.param, 0) != shape.back())
      throw UserError(ErrorCode::kU_bad_option,
                      "a size is given by its name and by its axis, not as the same")
          .with_op(info.name)
          .with_value(dimension.param + " and " + key)
          .with_expected("one of the two, or " + key + "=" + dimension.param)
          .with_remedy("leave out " + dims_text({{key, "…"}}) + " or " + dims_text({{dimension.param, "…"}}));
  }
  return shape;
}

ValueRef Importer::known_input(const ValueInfo& info, const TensorType& type) {
  auto value = std::make_shared<OnnxValue>();
  value->name = info.name;
  value->type = type;
  auto known = options_.input_values.find(info.name);
  if (known == options_.input_values.end()) return value;
  const Array& array = known->second;
  if (array.dtype() != type.dtype)
    throw UserError(ErrorCode::kU_input_dtype,
                    "the value given for input '" + info.name + "' has the wrong dtype")
        .with_expected(std::string(dtype_name(type.dtype)))
        .with_actual(std::string(dtype_name(array.dtype())));
  if (!fits(type.shape, array.sizes()))
    throw UserError(ErrorCode::kU_input_shape,
                    "the value given for input '" + info.name + "' has the wrong shape")
        .with_expected(to_string(type.shape))
        .with_actual(to_string(array.sizes()));
  value->array = array;
  value->type.shape = to_shape(array.sizes());
  return value;
}

void Importer::add_input(const ValueInfo& info, Scope& scope) {
  const auto dtype = storage_dtype(info.elem_type);
  if (info.kind != "tensor" || !dtype || !info.has_shape) {
    const std::string reason = info.kind != "tensor" ? "its type is " + info.kind
                               : !dtype              ? "data type " + data_type_name(info.elem_type)
                                                     : "it has no shape";
    report({"input", 1, info.name, reason});
    auto value = std::make_shared<OnnxValue>();
    value->failure = add_failure({});
    return define(info.name, value, scope);
  }
  const TensorType type = {*dtype, input_shape(info)};
  ValueRef value = known_input(info, type);
  value->carried = carried_type(info.elem_type);
  const bool is_state = std::any_of(options_.states.begin(), options_.states.end(),
                                    [&](const auto& pair) { return pair.first == info.name; });
  ValueId id = kNoValue;
  if (is_state) {
    require_fixed(info.name, type.shape);
    program_.variables.emplace(info.name, Variable{info.name, Role::kState, type, Array()});
    id = main_.graph().add_state(info.name, type);
  } else {
    id = main_.graph().add_input(info.name, value->type, value->array.value_or(Array()));
  }
  if (!value->array) value->emitted.emplace(main_.serial(), id);
  define(info.name, std::move(value), scope);
}

// An initialiser is the default of an input of its name, so it has the input's type.
void Importer::check_default(const ValueInfo& info, const OnnxValue& value) const {
  if (info.kind != "tensor" || value.failure) return;
  const auto dtype = storage_dtype(info.elem_type);
  bool same = (!dtype || *dtype == value.type.dtype) &&
              (!info.has_shape || info.shape.size() == value.type.shape.size());
  for (size_t i = 0; same && info.has_shape && i < info.shape.size(); ++i) {
    const Dimension& dimension = info.shape[i];
    same = !dimension.has_value || dimension.value < 0 || Dim(dimension.value) == value.type.shape[i];
  }
  if (same) return;
  throw UserError(ErrorCode::kU_bad_model_file,
                  "an input and the initialiser of its name have different types")
      .with_value(info.name)
      .with_actual("the initialiser is " + to_string(value.type));
}

void Importer::add_inputs(Scope& scope) {
  std::set<std::string> names;
  for (const ValueInfo& info : model_.graph.inputs) {
    if (!names.insert(info.name).second)
      throw UserError(ErrorCode::kU_bad_model_file, "the graph declares an input twice")
          .with_value(info.name);
    auto initializer = scope.values.find(info.name);
    if (initializer == scope.values.end()) {
      add_input(info, scope);
      continue;
    }
    check_default(info, *initializer->second);
    if (initializer->second->array) initializer->second->param = is_float(initializer->second->type.dtype);
  }
  if (unset_sizes_.empty()) return;
  throw UserError(ErrorCode::kU_unset_size, "the model has dynamic sizes without a value or range")
      .with_value(comma_list(unset_sizes_))
      .with_expected("a value or a range for each")
      .with_actual("none for " + comma_list(unset_sizes_))
      .with_remedy("add values, " + dim_options(unset_sizes_, "8") + ", or ranges, " +
                   dim_options(unset_sizes_, "1..512"));
}

void Importer::check_options() const {
  std::set<std::string> names, inputs;
  for (const ValueInfo& info : model_.graph.inputs) {
    inputs.insert(info.name);
    for (size_t axis = 0; axis < info.shape.size(); ++axis)
      if (!info.shape[axis].has_value || info.shape[axis].value < 0) {
        names.insert(info.name + ":" + std::to_string(axis));
        names.insert(info.shape[axis].param);
      }
  }
  for (const auto& [name, option] : options_.dims)
    if (!names.count(name) && !dims_.count(name))
      throw UserError(ErrorCode::kU_bad_option, "the model has no dynamic size of this name")
          .with_value(name)
          .with_expected(comma_list(names));
  auto check_input = [&](const std::string& name) {
    if (inputs.count(name)) return;
    throw UserError(ErrorCode::kU_unknown_input, "the model has no input of this name")
        .with_value(name)
        .with_expected(comma_list(inputs));
  };
  for (const auto& [name, array] : options_.input_values) check_input(name);
  std::set<std::string> outputs;
  for (const ValueInfo& info : model_.graph.outputs) outputs.insert(info.name);
  for (const auto& [past, present] : options_.states) {
    check_input(past);
    if (!outputs.count(present))
      throw UserError(ErrorCode::kU_unknown_input, "the model has no output of this name")
          .with_value(present)
          .with_expected(comma_list(outputs));
  }
}

void Importer::add_outputs(Scope& scope) {
  NodeProto self;
  self.name = model_.graph.name;
  std::vector<size_t> failed;
  for (const ValueInfo& info : model_.graph.outputs) {
    const ValueRef value = lookup(info.name, scope, main_, self);
    if (!value) report({"output", 1, info.name, "nothing defines it"});
    if (value && value->failure) failed.push_back(*value->failure);
    if (value && value->items) report({"output", 1, info.name, "its type is sequence"});
  }
  settle(std::move(failed));
  if (!unsupported_.empty() || !errors_.empty()) return;
  for (const ValueInfo& info : model_.graph.outputs) {
    const ValueRef value = lookup(info.name, scope, main_, self);
    const ValueId id = main_.materialize(*value);
    auto state = std::find_if(options_.states.begin(), options_.states.end(),
                              [&](const auto& pair) { return pair.second == info.name; });
    if (state == options_.states.end()) {
      main_.graph().add_output(id, info.name);
      continue;
    }
    const ValueRef past = lookup(state->first, scope, main_, self);
    if (past->type != value->type)
      throw UserError(ErrorCode::kU_bad_shape, "a state and its next value have different types")
          .with_value(state->first + "=" + state->second)
          .with_expected(to_string(past->type))
          .with_actual(to_string(value->type))
          .with_remedy("a state keeps its type: export the model with a fixed-size cache");
    main_.graph().add_update(main_.materialize(*past), id);
  }
}

}  // namespace aicf::onnx
