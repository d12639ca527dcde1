// The graph builder for tracing: symbolic sizes, graphs whose values are numbers, and the op op_rows.
// aicf.tracing wraps it.
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "autodiff/vjp.h"
#include "base/error.h"
#include "base/printable.h"
#include "bindings.h"
#include "ir/graph.h"
#include "ir/rounding.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace aicf::python {
namespace {

constexpr const char* kAttrTypeNames[] = {"int", "float", "bool", "str", "ints", "floats", "dtype", "dims"};

Dim to_dim(nb::handle object) {
  if (nb::isinstance<Dim>(object)) return nb::cast<Dim>(object);
  if (nb::isinstance<nb::str>(object)) return Dim::parse(nb::cast<std::string>(object));
  if (PyIndex_Check(object.ptr())) return Dim(nb::cast<int64_t>(nb::steal(PyNumber_Index(object.ptr()))));
  throw UserError(ErrorCode::kU_bad_option, "this is not a size")
      .with_actual(nb::type_name(object.type()).c_str())
      .with_expected("an int, an aicf.Dim or the name of a size");
}

nb::object from_dim(const Dim& dim) {
  if (const auto value = dim.constant()) return nb::int_(*value);
  return nb::cast(dim);
}

Shape to_shape(nb::handle object) {
  Shape shape;
  for (nb::handle item : object) shape.push_back(to_dim(item));
  return shape;
}

}  // namespace

nb::tuple from_shape(const Shape& shape) {
  nb::list sizes;
  for (const Dim& dim : shape) sizes.append(from_dim(dim));
  return nb::tuple(sizes);
}

namespace {

TensorType to_type(const std::string& dtype, nb::handle shape) {
  return {dtype_by_name(dtype), to_shape(shape)};
}

template <typename T>
std::vector<T> to_list(nb::handle object) {
  std::vector<T> list;
  for (nb::handle item : object) list.push_back(nb::cast<T>(item));
  return list;
}

Attr to_attr(const AttrInfo& info, nb::handle value) {
  switch (info.type) {
    case AttrType::kInt:
      return nb::cast<int64_t>(value);
    case AttrType::kFloat:
      return nb::cast<double>(value);
    case AttrType::kBool:
      return nb::cast<bool>(value);
    case AttrType::kStr:
      return nb::cast<std::string>(value);
    case AttrType::kInts:
      return to_list<int64_t>(value);
    case AttrType::kFloats:
      return to_list<double>(value);
    case AttrType::kDType:
      return dtype_by_name(nb::cast<std::string>(value));
    case AttrType::kDims:
      return to_shape(value);
  }
  return int64_t{0};
}

UserError bad_attribute(const OpInfo& info, const std::string& name, std::string expected) {
  return UserError(ErrorCode::kU_bad_attribute,
                   std::string(info.name) + " has a wrong attribute '" + name + "'")
      .with_op(std::string(info.name))
      .with_value(name)
      .with_expected(std::move(expected));
}

}  // namespace

Attrs to_attrs(const OpInfo& info, nb::dict given) {
  Attrs attrs;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    const AttrInfo* row = info.attribute(name);
    if (row == nullptr) throw bad_attribute(info, name, "an attribute that the op has");
    try {
      attrs.set(name, to_attr(*row, value));
    } catch (const nb::cast_error&) {
      throw bad_attribute(info, name, kAttrTypeNames[static_cast<int>(row->type)])
          .with_actual(nb::repr(value).c_str());
    } catch (const nb::python_error&) {
      throw bad_attribute(info, name, kAttrTypeNames[static_cast<int>(row->type)])
          .with_actual(nb::repr(value).c_str());
    }
  }
  return attrs;
}

namespace {

std::vector<ValueId> add_node(Graph& graph, const std::string& name, const std::vector<ValueId>& operands,
                              nb::dict attrs, const std::string& origin, nb::list bodies) {
  const auto op = op_from_name(name);
  if (!op) throw UserError(ErrorCode::kU_unknown_op, "no op of this name").with_value(name);
  std::vector<Graph> graphs;
  for (nb::handle body : bodies) graphs.push_back(eliminate_dead_code(nb::cast<const Graph&>(body)));
  const NodeId node = graph.add_node(*op, operands, to_attrs(op_info(*op), attrs), std::move(graphs), origin);
  return graph.node(node).results;
}

nb::object default_of(const AttrInfo& info) {
  if (!info.default_value) return nb::none();
  struct ToPython {
    nb::object operator()(int64_t v) const { return nb::int_(v); }
    nb::object operator()(double v) const { return nb::float_(v); }
    nb::object operator()(bool v) const { return nb::bool_(v); }
    nb::object operator()(const std::string& v) const { return nb::cast(v); }
    nb::object operator()(DType v) const { return nb::cast(std::string(dtype_name(v))); }
    nb::object operator()(const Ints& v) const { return nb::tuple(nb::cast(v)); }
    nb::object operator()(const Floats& v) const { return nb::tuple(nb::cast(v)); }
    nb::object operator()(const Shape& v) const { return from_shape(v); }
  };
  return std::visit(ToPython{}, *info.default_value);
}

nb::list trait_names(const OpInfo& info) {
  constexpr std::pair<OpTrait, const char*> kNames[] = {
      {kPointwise, "pointwise"}, {kCommutative, "commutative"}, {kComposite, "composite"}, {kView, "view"},
      {kReduction, "reduction"}, {kHasBody, "has_body"},        {kRandom, "random"},       {kExact, "exact"},
      {kStepwise, "stepwise"}};
  nb::list names;
  for (const auto& [trait, name] : kNames)
    if (info.has(trait)) names.append(name);
  return names;
}

// One dict for each row of ops.def.
nb::list op_rows() {
  nb::list rows;
  for (const OpInfo& info : op_table()) {
    nb::dict row;
    nb::list operands, types, attributes;
    for (const OperandInfo& o : info.operands)
      operands.append(nb::make_tuple(o.name, o.type, o.optional, o.variadic));
    for (const auto& [variable, cls] : info.types) types.append(nb::make_tuple(variable, cls));
    for (const AttrInfo& a : info.attributes)
      attributes.append(nb::make_tuple(a.name, kAttrTypeNames[static_cast<int>(a.type)],
                                       a.default_value.has_value(), default_of(a)));
    row["name"] = std::string(info.name);
    row["operands"] = operands;
    row["types"] = types;
    row["attributes"] = attributes;
    row["results"] = info.results;
    row["traits"] = trait_names(info);
    row["shape_rule"] = std::string(info.shape_rule);
    row["meaning"] = std::string(info.meaning);
    row["derivative"] = derivative_text(info.op);
    rows.append(row);
  }
  return rows;
}

void bind_dim(nb::module_& module) {
  const auto binary = [](Dim (*f)(const Dim&, const Dim&)) {
    return [f](const Dim& a, nb::object b) { return from_dim(f(a, to_dim(b))); };
  };
  const auto reflected = [](Dim (*f)(const Dim&, const Dim&)) {
    return [f](const Dim& a, nb::object b) { return from_dim(f(to_dim(b), a)); };
  };
  constexpr auto add = +[](const Dim& a, const Dim& b) { return a + b; };
  constexpr auto sub = +[](const Dim& a, const Dim& b) { return a - b; };
  constexpr auto mul = +[](const Dim& a, const Dim& b) { return a * b; };
  nb::class_<Dim>(
      module, "Dim",
      "A symbolic size: a polynomial of named sizes. Arithmetic with ints and other sizes gives sizes.")
      .def("__init__", [](Dim* self, const std::string& text) { new (self) Dim(Dim::parse(text)); })
      .def("__str__", [](const Dim& d) { return d.to_string(); })
      .def("__repr__", [](const Dim& d) { return "aicf.Dim('" + printable_name(d.to_string()) + "')"; })
      .def("__hash__", [](const Dim& d) { return std::hash<std::string>{}(d.to_string()); })
      .def(
          "__eq__",
          [](const Dim& a, nb::object b) {
            if (nb::isinstance<nb::str>(b)) return a.to_string() == nb::cast<std::string>(b);
            if (!nb::isinstance<Dim>(b) && !PyLong_Check(b.ptr())) return false;
            return a == to_dim(b);
          },
          nb::arg().none())
      .def("__add__", binary(add))
      .def("__radd__", reflected(add))
      .def("__sub__", binary(sub))
      .def("__rsub__", reflected(sub))
      .def("__mul__", binary(mul))
      .def("__rmul__", reflected(mul))
      .def("__floordiv__", binary(&floordiv))
      .def("__rfloordiv__", reflected(&floordiv))
      .def("__mod__", binary(&mod))
      .def("__rmod__", reflected(&mod))
      .def("__neg__", [](const Dim& d) { return from_dim(Dim(0) - d); })
      .def_prop_ro("symbols", [](const Dim& d) {
        std::map<std::string, int> names;
        d.collect_symbols(names);
        nb::list list;
        for (const auto& [name, count] : names) list.append(name);
        return nb::tuple(list);
      });
  module.def("dim_min", [](nb::object a, nb::object b) { return from_dim(min(to_dim(a), to_dim(b))); });
  module.def("dim_max", [](nb::object a, nb::object b) { return from_dim(max(to_dim(a), to_dim(b))); });
  // None if no whole quotient can be shown.
  module.def("dim_divide", [](nb::object a, nb::object b) -> nb::object {
    const auto quotient = divide_exactly(to_dim(a), to_dim(b));
    return quotient ? from_dim(*quotient) : nb::none();
  });
  module.def("substitute", [](nb::object dim, nb::dict values) {
    std::map<std::string, Dim, std::less<>> map;
    for (const auto& [key, value] : values) map[nb::cast<std::string>(key)] = to_dim(value);
    return from_dim(substitute(to_dim(dim), map));
  });
}

Role role_of(bool is_state) { return is_state ? Role::kState : Role::kParam; }

}  // namespace

void bind_graph(nb::module_& module) {
  bind_dim(module);
  nb::class_<Graph>(module, "Graph")
      .def(nb::init<std::string>())
      .def("add_input", [](Graph& g, const std::string& name, const std::string& dtype,
                           nb::object shape) { return g.add_input(name, to_type(dtype, shape)); })
      .def("add_variable",
           [](Graph& g, const std::string& name, bool is_state, const std::string& dtype, nb::object shape) {
             return is_state ? g.add_state(name, to_type(dtype, shape))
                             : g.add_param(name, to_type(dtype, shape));
           })
      .def("add_constant",
           [](Graph& g, nb::object array) { return g.add_constant(copy_array(array, "constant")); })
      .def("add_scalar",
           [](Graph& g, const std::string& dtype_text, nb::object value) {
             const DType dtype = dtype_by_name(dtype_text);
             return g.add_constant(is_float(dtype)
                                       ? Array::scalar_f64(dtype, nb::cast<double>(value))
                                       : Array::scalar_i64(dtype, nb::cast<int64_t>(nb::int_(value))));
           })
      .def("add_node", add_node)
      .def("add_output", &Graph::add_output)
      .def("add_update", &Graph::add_update)
      .def("dtype", [](const Graph& g, ValueId id) { return std::string(dtype_name(g.dtype(id))); })
      .def("shape", [](const Graph& g, ValueId id) { return from_shape(g.shape(id)); })
      .def("__str__", [](const Graph& g) { return print(g); });
  module.def("make_program", [](nb::dict sizes, nb::list variables, nb::list graphs) {
    Program p;
    for (const auto& [name, range] : sizes)
      p.sizes[nb::cast<std::string>(name)] = {nb::cast<int64_t>(range[0]), nb::cast<int64_t>(range[1])};
    for (nb::handle row : variables) {
      const auto name = nb::cast<std::string>(row[0]);
      const bool is_state = nb::cast<bool>(row[1]);
      Variable variable{name, role_of(is_state), to_type(nb::cast<std::string>(row[2]), row[3]), {}};
      nb::object data = row[4];
      if (!data.is_none()) variable.data = copy_array(data, "parameter '" + name + "'");
      p.variables.emplace(name, std::move(variable));
    }
    for (nb::handle graph : graphs) p.entries.push_back(eliminate_dead_code(nb::cast<const Graph&>(graph)));
    verify(p, Fault::kUser);
    return p;
  });
  // A size of the program gets another range, compiled in buckets up to each of `ends` if there are any.
  module.def("set_range", [](Program& p, const std::string& name, int64_t lo, int64_t hi,
                             const std::vector<int64_t>& ends) {
    auto at = p.sizes.find(name);
    if (at == p.sizes.end())
      throw UserError(ErrorCode::kU_unset_size, "the program has no size of this name").with_value(name);
    at->second = {lo, hi};
    p.buckets.erase(name);
    if (!ends.empty()) p.buckets.emplace(name, ends);
    verify(p, Fault::kUser);
  });
  module.def("op_table", op_rows);
  module.def("dtype_name",
             [](const std::string& name) { return std::string(dtype_name(dtype_by_name(name))); });
  module.def("array_type", [](nb::object array) {
    const ReadableArray source = readable(array, "array");
    const TensorView view = view_of(source, "array");
    return nb::make_tuple(std::string(dtype_name(view.dtype)), from_shape(aicf::to_shape(view.sizes)));
  });
}

}  // namespace aicf::python
