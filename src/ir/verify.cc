#include "ir/verify.h"

#include <algorithm>
#include <set>

#include "base/comma_list.h"
#include "base/error.h"
#include "ir/literal.h"
#include "ir/text.h"
#include "ir/type_node.h"

namespace aicf {
namespace {

[[noreturn]] void fail(Fault fault, const std::string& where, const std::string& rule,
                       std::string expected = "", std::string actual = "") {
  if (fault == Fault::kUser)
    throw UserError(ErrorCode::kU_bad_graph, rule)
        .with_value(where)
        .with_expected(std::move(expected))
        .with_actual(std::move(actual));
  throw InternalError(ErrorCode::kI_verifier_failed, rule)
      .with_value(where)
      .with_expected(std::move(expected))
      .with_actual(std::move(actual))
      .with_remedy("please report this with the model or the command that led here");
}

// Types the graph again, value by value in id order, and compares what the op table gives with what is
// stored.
class GraphVerifier {
 public:
  GraphVerifier(const Graph& graph, const Program& program, Fault fault, std::string where, int depth)
      : graph_(graph),
        program_(program),
        fault_(fault),
        where_(std::move(where)),
        depth_(depth),
        leaves_(graph.name()) {}

  void run() {
    if (depth_ > kMaxBodyDepth)
      fail_here("bodies are nested too deeply", std::to_string(kMaxBodyDepth) + " at most");
    try {
      check_values();
      check_outputs();
      check_updates();
    } catch (const UserError& error) {
      if (error.code == ErrorCode::kU_bad_graph && fault_ == Fault::kUser) throw;
      fail(fault_, where_ + (error.op.empty() ? "" : ", op " + error.op), error.message, error.expected,
           error.actual);
    }
    check_leaf_lists();
    if (depth_ == 0) check_interface();
  }

 private:
  [[noreturn]] void fail_here(const std::string& rule, std::string expected = "",
                              std::string actual = "") const {
    fail(fault_, where_, rule, std::move(expected), std::move(actual));
  }
  std::string place(ValueId id) const {
    const Value& value = graph_.value(id);
    std::string text = where_ + ", " + std::string(role_name(value.role)) + " " + std::to_string(id);
    if (!value.name.empty()) text += " '" + value.name + "'";
    if (const Node* node = value.role == Role::kTemp ? graph_.producer(id) : nullptr)
      text += " of " + std::string(op_info(node->op).name) +
              (node->origin.empty() ? "" : " (" + node->origin + ")");
    return text;
  }

  void check_values() {
    for (ValueId id = 0; id < graph_.value_count(); ++id) {
      const Value& value = graph_.value(id);
      check_sizes(value.type.shape, id);
      if (value.role == Role::kTemp) {
        if (value.producer < 0 || value.producer >= static_cast<NodeId>(graph_.nodes().size()))
          fail(fault_, place(id), "a temp has no producer");
        check_nodes_up_to(value.producer);
        if (id >= defined_) fail(fault_, place(id), "a value is not a result of its producer");
      } else {
        add_leaf(id, value);
        if (leaves_.value_count() != ++leaf_count_)
          fail(fault_, place(id), "a param or state is listed twice");
        ++defined_;
      }
    }
    check_nodes_up_to(static_cast<NodeId>(graph_.nodes().size()) - 1);
  }

  void add_leaf(ValueId id, const Value& value) {
    switch (value.role) {
      case Role::kInput:
        leaves_.add_input(value.name, value.type, value.constant);
        return;
      case Role::kParam:
      case Role::kState:
        add_variable(id, value);
        return;
      case Role::kConstant:
        add_constant(id, value);
        return;
      case Role::kTemp:
        break;
    }
    AICF_CHECK(false, "a temp is no leaf");
  }

  void add_variable(ValueId id, const Value& value) {
    if (depth_ > 0)
      fail(fault_, place(id), "a body reads a param or state", "an operand of the op that owns the body");
    const auto at = program_.variables.find(value.name);
    if (at == program_.variables.end())
      fail(fault_, place(id), "the program has no param or state of this name");
    if (at->second.role != value.role)
      fail(fault_, place(id), "a variable is read in another role", std::string(role_name(at->second.role)),
           std::string(role_name(value.role)));
    if (at->second.type != value.type)
      fail(fault_, place(id), "a variable is read with another type", to_string(at->second.type),
           to_string(value.type));
    if (value.role == Role::kParam) {
      leaves_.add_param(value.name, value.type);
    } else {
      leaves_.add_state(value.name, value.type);
    }
  }

  void add_constant(ValueId id, const Value& value) {
    if (value.constant.data() == nullptr && value.constant.count() > 0)
      fail(fault_, place(id), "a constant has no contents");
    leaves_.add_constant(value.constant, value.name);
  }

  // Nodes without results stand between values; they are checked with the next value or at the end.
  void check_nodes_up_to(NodeId last) {
    for (; next_node_ <= last; ++next_node_) check_node(graph_.node(next_node_));
  }

  void check_node(const Node& node) {
    for (const auto& [name, attr] : node.attrs.items())
      if (const Shape* dims = std::get_if<Shape>(&attr))
        for (const Dim& dim : *dims)
          check_symbols(dim, where_ + ", op " + std::string(op_info(node.op).name));
    for (size_t i = 0; i < node.bodies.size(); ++i)
      GraphVerifier(node.bodies[i], program_, fault_,
                    where_ + ", body " + std::to_string(i) + " of " + std::string(op_info(node.op).name),
                    depth_ + 1)
          .run();
    Node again{node.op, node.operands, {}, node.attrs, {}, node.origin};
    const std::vector<TensorType> types = type_node(graph_, again, node.bodies, defined_);
    for (size_t i = 0; i < types.size(); ++i) again.results.push_back(defined_ + static_cast<ValueId>(i));
    if (again.operands != node.operands || again.results != node.results || !same_attrs(again, node))
      fail_here("a node is not what the builder makes of it", describe(again), describe(node));
    for (size_t i = 0; i < types.size(); ++i) check_result(static_cast<int>(i), types[i]);
  }

  // Of the node that is checked: the next value.
  void check_result(int number, const TensorType& type) {
    const ValueId id = defined_++;
    if (id >= graph_.value_count()) fail_here("nodes have results that the graph does not list");
    const Value& value = graph_.value(id);
    if (value.type != type)
      fail(fault_, place(id), "a value's type is not what its op gives", to_string(type),
           to_string(value.type));
    if (value.role != Role::kTemp || value.producer != next_node_ || value.result != number)
      fail(fault_, place(id), "a value disagrees with its producer");
  }

  bool is_defined(ValueId id) const { return id >= 0 && id < defined_; }

  void check_outputs() const {
    std::set<std::string_view> names;
    for (ValueId id : graph_.outputs())
      if (!is_defined(id)) fail_here("an output names a value that does not exist");
    for (const std::string& name : graph_.output_names())
      if (!name.empty() && !names.insert(name).second)
        fail_here("two outputs have one name", "", "'" + name + "'");
  }

  void check_updates() const {
    std::set<ValueId> updated;
    for (const Update& update : graph_.updates()) {
      if (!is_defined(update.variable) || !is_defined(update.value))
        fail_here("an update names a value that does not exist");
      const Value& variable = graph_.value(update.variable);
      if (variable.role != Role::kParam && variable.role != Role::kState)
        fail(fault_, place(update.variable), "only a param or a state can be updated");
      if (variable.type != graph_.type(update.value))
        fail(fault_, place(update.variable), "an update is of another type", to_string(variable.type),
             to_string(graph_.type(update.value)));
      if (!updated.insert(update.variable).second)
        fail(fault_, place(update.variable), "a variable is updated twice");
    }
  }

  static bool same_attrs(const Node& a, const Node& b) {
    const auto& x = a.attrs.items();
    const auto& y = b.attrs.items();
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& p, const auto& q) {
      return p.first == q.first && same_bits(p.second, q.second);
    });
  }

  static std::string describe(const Node& node) {
    const auto ids = [](const std::vector<ValueId>& list) {
      return comma_list(list, [](ValueId id) { return std::to_string(id); });
    };
    std::string text =
        ids(node.results) + " = " + std::string(op_info(node.op).name) + "(" + ids(node.operands) + ") {";
    for (const auto& item : node.attrs.items()) text += " " + item.first;
    return text + " }";
  }

  void check_sizes(const Shape& shape, ValueId id) {
    for (const Dim& dim : shape)
      if (!dim.is_constant()) check_symbols(dim, place(id));
  }

  void check_symbols(const Dim& dim, const std::string& where) {
    std::map<std::string, int> names;
    dim.collect_symbols(names);
    for (const auto& [name, count] : names)
      if (!program_.sizes.contains(name))
        fail(fault_, where, "a size has no declared range", "'" + name + "' in sizes");
  }

  void check_leaf_lists() const {
    std::vector<ValueId> leaves, inputs;
    for (ValueId id = 0; id < graph_.value_count(); ++id) {
      const Role role = graph_.value(id).role;
      if (role != Role::kTemp) leaves.push_back(id);
      if (role == Role::kInput) inputs.push_back(id);
    }
    if (leaves != graph_.leaves()) fail_here("the leaves are not listed in the order added");
    if (inputs != graph_.inputs()) fail_here("the inputs are not listed in the order added");
  }

  void check_interface() const {
    for (ValueId id : graph_.inputs())
      if (graph_.value(id).name.empty()) fail(fault_, place(id), "an input of an entry has no name");
    for (const std::string& name : graph_.output_names())
      if (name.empty()) fail_here("an output of an entry has no name");
  }

  const Graph& graph_;
  const Program& program_;
  const Fault fault_;
  const std::string where_;
  const int depth_;
  Graph leaves_;  // those checked, built again
  int leaf_count_ = 0;
  ValueId defined_ = 0;  // values below are checked
  NodeId next_node_ = 0;
};

// Dim::parse must read the name back as this one symbol, and "//" would start a comment in the text form.
bool is_size_name(const std::string& name) {
  try {
    return name.find("//") == name.npos && Dim::parse(name).as_symbol() == name;
  } catch (const UserError&) {
    return false;
  }
}

void check_size(const std::string& name, const Interval& range, Fault fault) {
  if (!is_size_name(name))
    fail(fault, "size '" + name + "'", "the name of a size has other characters than allowed",
         "letters, digits and _ . $ : / without // or a leading digit");
  if (range.lo < 0 || range.lo > range.hi)
    fail(fault, "size '" + name + "'", "the range of a size is not legal", "0 <= lo <= hi",
         std::to_string(range.lo) + ".." + std::to_string(range.hi));
}

void check_buckets(const std::string& name, const std::vector<int64_t>& ends, const Program& program,
                   Fault fault) {
  const auto range = program.sizes.find(name);
  if (range == program.sizes.end())
    fail(fault, "size '" + name + "'", "a size with buckets has no declared range",
         "'" + name + "' in sizes");
  bool legal = !ends.empty() && ends.front() >= range->second.lo && ends.back() == range->second.hi;
  for (size_t i = 1; i < ends.size(); ++i) legal = legal && ends[i - 1] < ends[i];
  if (!legal)
    fail(
        fault, "size '" + name + "'", "the buckets of a size are not legal",
        "ascending ends from " + std::to_string(range->second.lo) + " to " + std::to_string(range->second.hi),
        to_string(ends));
}

void check_variable(const std::string& key, const Variable& variable, const Program& program, Fault fault) {
  const std::string where = "variable '" + key + "'";
  if (variable.name != key || key.empty())
    fail(fault, where, "a variable is filed under another name", key, variable.name);
  if (variable.role != Role::kParam && variable.role != Role::kState)
    fail(fault, where, "a variable has a wrong role", "param or state",
         std::string(role_name(variable.role)));
  std::map<std::string, int> names;
  for (const Dim& dim : variable.type.shape) dim.collect_symbols(names);
  for (const auto& [name, count] : names)
    if (!program.sizes.contains(name))
      fail(fault, where, "a size has no declared range", "'" + name + "' in sizes");
  const Array& data = variable.data;
  if (data.data() != nullptr && TensorType{data.dtype(), to_shape(data.sizes())} != variable.type)
    fail(fault, where, "the contents of a variable do not fit its type", to_string(variable.type),
         std::string(dtype_name(data.dtype())) + to_string(data.sizes()));
}

}  // namespace

void verify(const Graph& entry, const Program& program, Fault fault) {
  GraphVerifier(entry, program, fault, "entry '" + entry.name() + "'", 0).run();
}

void verify(const Program& program, Fault fault) {
  for (const auto& [name, range] : program.sizes) check_size(name, range, fault);
  for (const auto& [name, ends] : program.buckets) check_buckets(name, ends, program, fault);
  for (const auto& [name, variable] : program.variables) check_variable(name, variable, program, fault);
  std::set<std::string> names;
  for (const Graph& entry : program.entries) {
    if (entry.name().empty() || !names.insert(entry.name()).second)
      fail(fault, "entry '" + entry.name() + "'", "entries need unique names");
    verify(entry, program, fault);
  }
}

}  // namespace aicf
