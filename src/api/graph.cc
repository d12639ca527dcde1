#include "api/bridge.h"

#include "import/onnx.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace aicf::v1 {

// --- Size

core::Dim to_core(const Size& size) { return core::Dim::parse(size.text()); }
Size to_public(const core::Dim& dim) { return Size(dim.to_string()); }

core::Shape to_core(const std::vector<Size>& sizes) {
  core::Shape shape;
  for (const Size& size : sizes) shape.push_back(to_core(size));
  return shape;
}

Size::Size(const std::string& expression) {
  text_ = translated([&] { return core::Dim::parse(expression).to_string(); });
}
bool Size::is_constant() const {
  return translated([&] { return to_core(*this).is_constant(); });
}
int64_t Size::value() const {
  return translated([&] { return to_core(*this).require_constant("Size::value"); });
}
Size operator+(const Size& a, const Size& b) {
  return translated([&] { return to_public(to_core(a) + to_core(b)); });
}
Size operator-(const Size& a, const Size& b) {
  return translated([&] { return to_public(to_core(a) - to_core(b)); });
}
Size operator*(const Size& a, const Size& b) {
  return translated([&] { return to_public(to_core(a) * to_core(b)); });
}
Size floordiv(const Size& a, const Size& b) {
  return translated([&] { return to_public(core::floordiv(to_core(a), to_core(b))); });
}

// --- Program

Program Access::program(core::Program program) {
  Program result;
  result.impl_ = std::make_shared<const Program::Impl>(Program::Impl{std::move(program)});
  return result;
}

const core::Program& Access::program(const Program& program) {
  if (program.impl_ == nullptr)
    throw core::UserError(core::ErrorCode::kU_misuse, "the program is empty")
        .with_remedy("make it with a Builder");
  return program.impl_->program;
}

std::string Program::text() const {
  return translated([&] { return core::print(Access::program(*this)); });
}

Program Program::parse(const std::string& text) {
  return translated([&] { return Access::program(core::parse(text)); });
}

std::vector<std::string> Program::entries() const {
  return translated([&] {
    std::vector<std::string> names;
    for (const core::Graph& entry : Access::program(*this).entries) names.push_back(entry.name());
    return names;
  });
}

Program import_onnx(const std::string& path, const ImportOptions& options) {
  return translated([&] {
    core::ImportOptions wanted;
    for (const auto& [name, text] : options.dims) wanted.dims.emplace(name, core::parse_dim_option(text));
    wanted.states = options.states;
    for (const auto& [name, tensor] : options.input_values)
      wanted.input_values.emplace(name, Access::array(tensor));
    wanted.results = options.results;
    return Access::program(core::import_onnx(path, wanted));
  });
}

// --- Builder

namespace {

// The attribute in the type that the op declares: an integer where a float is wanted, numbers where sizes are
// wanted.
core::Attr convert(const Attr& attr, const core::AttrInfo* wanted) {
  const core::AttrType type = wanted != nullptr ? wanted->type : core::AttrType::kInt;
  return std::visit(
      [&](const auto& value) -> core::Attr {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, DType>)
          return to_core(value);
        else if constexpr (std::is_same_v<T, std::vector<Size>>)
          return to_core(value);
        else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          if (type == core::AttrType::kDims) return core::to_shape(value);
          if (type == core::AttrType::kFloats) return core::Floats(value.begin(), value.end());
          return value;
        } else if constexpr (std::is_same_v<T, int64_t>) {
          if (type == core::AttrType::kFloat) return static_cast<double>(value);
          return value;
        } else
          return value;
      },
      attr.any());
}

core::Op find_op(const std::string& name) {
  if (const auto op = core::op_from_name(name)) return *op;
  throw core::UserError(core::ErrorCode::kU_unknown_op, "no op of this name exists")
      .with_value(name)
      .with_remedy("docs/ops.md lists the ops");
}

}  // namespace

struct Builder::Impl {
  core::Program program;

  core::Graph& graph() { return program.entries.back(); }
  Value made(core::ValueId id) const { return {static_cast<int32_t>(program.entries.size()) - 1, id}; }
  // The id in the current entry.
  core::ValueId id(Value value) const {
    if (value.id < 0) return core::kNoValue;
    if (value.entry != static_cast<int32_t>(program.entries.size()) - 1 ||
        value.id >= program.entries.back().value_count())
      throw core::UserError(core::ErrorCode::kU_bad_graph, "a value belongs to another entry or builder")
          .with_remedy("use variable(name) to read a param or state in a further entry");
    return value.id;
  }
  const core::Graph& graph_of(Value value) const {
    if (value.entry < 0 || static_cast<size_t>(value.entry) >= program.entries.size() || value.id < 0 ||
        value.id >= program.entries[static_cast<size_t>(value.entry)].value_count())
      throw core::UserError(core::ErrorCode::kU_misuse, "this value is not of this builder");
    return program.entries[static_cast<size_t>(value.entry)];
  }
  core::NodeId add(const std::string& name, const std::vector<Value>& operands,
                   const Attributes& attributes) {
    const core::Op op = find_op(name);
    std::vector<core::ValueId> ids;
    for (const Value& value : operands) ids.push_back(id(value));
    core::Attrs attrs;
    for (const auto& [key, attr] : attributes)
      attrs.set(key, convert(attr, core::op_info(op).attribute(key)));
    return graph().add_node(op, std::move(ids), std::move(attrs));
  }
  Value declare(const std::string& name, core::Role role, const Tensor& contents) {
    const core::Array array = Access::array(contents.clone());
    const core::TensorType type{array.dtype(), core::to_shape(array.sizes())};
    if (program.variables.find(name) != program.variables.end())
      throw core::UserError(core::ErrorCode::kU_bad_graph, "a param or state is declared twice")
          .with_value(name)
          .with_remedy("use variable(name) for a second use");
    program.variables[name] = {name, role, type, array};
    return variable(name);
  }
  Value variable(const std::string& name) {
    const auto at = program.variables.find(name);
    if (at == program.variables.end())
      throw core::UserError(core::ErrorCode::kU_unknown_param, "no param or state of this name was declared")
          .with_value(name);
    const bool param = at->second.role == core::Role::kParam;
    return made(param ? graph().add_param(name, at->second.type) : graph().add_state(name, at->second.type));
  }
};

Value Access::append(
    Builder& builder, const std::vector<Value>& values,
    const std::function<core::ValueId(core::Graph&, const std::vector<core::ValueId>&)>& add) {
  std::vector<core::ValueId> ids;
  for (const Value& value : values) ids.push_back(builder.impl_->id(value));
  return builder.impl_->made(add(builder.impl_->graph(), ids));
}

Builder::Builder(const std::string& entry) : impl_(std::make_unique<Impl>()) {
  impl_->program.entries.emplace_back(entry);
}
Builder::Builder(Builder&&) noexcept = default;
Builder& Builder::operator=(Builder&&) noexcept = default;
Builder::~Builder() = default;

Size Builder::size(const std::string& name, int64_t lo, int64_t hi) {
  return translated([&] {
    if (lo < 0 || lo > hi)
      throw core::UserError(core::ErrorCode::kU_bad_option, "the range of a size is not legal")
          .with_op(name)
          .with_actual(std::to_string(lo) + ".." + std::to_string(hi));
    const Size size = to_public(core::Dim::symbol(name));
    const auto [at, fresh] = impl_->program.sizes.emplace(name, core::Interval{lo, hi});
    if (!fresh && at->second != core::Interval{lo, hi})
      throw core::UserError(core::ErrorCode::kU_bad_graph, "a size is declared twice with different ranges")
          .with_value(name);
    return size;
  });
}

Value Builder::input(const std::string& name, DType dtype, const std::vector<Size>& sizes) {
  return translated(
      [&] { return impl_->made(impl_->graph().add_input(name, {to_core(dtype), to_core(sizes)})); });
}
Value Builder::param(const std::string& name, const Tensor& contents) {
  return translated([&] { return impl_->declare(name, core::Role::kParam, contents); });
}
Value Builder::state(const std::string& name, const Tensor& initial) {
  return translated([&] { return impl_->declare(name, core::Role::kState, initial); });
}
Value Builder::variable(const std::string& name) {
  return translated([&] { return impl_->variable(name); });
}
Value Builder::constant(const Tensor& contents) {
  return translated(
      [&] { return impl_->made(impl_->graph().add_constant(Access::array(contents.clone()))); });
}
Value Builder::scalar(DType dtype, double value) {
  return translated([&] {
    return impl_->made(impl_->graph().add_constant(core::Array::scalar_f64(to_core(dtype), value)));
  });
}

Value Builder::op(const std::string& name, const std::vector<Value>& operands, const Attributes& attributes) {
  const std::vector<Value> results = op_results(name, operands, attributes);
  return translated([&] {
    if (results.size() == 1) return results[0];
    throw core::UserError(core::ErrorCode::kU_misuse, "the op has several results")
        .with_op(name)
        .with_actual(std::to_string(results.size()))
        .with_remedy("use op_results()");
  });
}

std::vector<Value> Builder::op_results(const std::string& name, const std::vector<Value>& operands,
                                       const Attributes& attributes) {
  return translated([&] {
    const core::NodeId node = impl_->add(name, operands, attributes);
    std::vector<Value> results;
    for (const core::ValueId id : impl_->graph().node(node).results) results.push_back(impl_->made(id));
    return results;
  });
}

void Builder::output(const std::string& name, Value value) {
  translated([&] { impl_->graph().add_output(impl_->id(value), name); });
}
void Builder::update(Value variable, Value value) {
  translated([&] { impl_->graph().add_update(impl_->id(variable), impl_->id(value)); });
}
void Builder::entry(const std::string& name) {
  translated([&] {
    if (impl_->program.entry(name) != nullptr)
      throw core::UserError(core::ErrorCode::kU_bad_graph, "two entries have one name").with_value(name);
    impl_->program.entries.emplace_back(name);
  });
}
void Builder::metadata(const std::string& key, const std::string& value) {
  translated([&] { impl_->program.metadata[key] = value; });
}

DType Builder::dtype(Value value) const {
  return translated([&] { return to_public(impl_->graph_of(value).dtype(value.id)); });
}
std::vector<Size> Builder::sizes(Value value) const {
  return translated([&] {
    std::vector<Size> sizes;
    for (const core::Dim& dim : impl_->graph_of(value).shape(value.id)) sizes.push_back(to_public(dim));
    return sizes;
  });
}

Program Builder::finish() const {
  return translated([&] {
    core::verify(impl_->program, core::Fault::kUser);
    return Access::program(impl_->program);
  });
}

}  // namespace aicf::v1
