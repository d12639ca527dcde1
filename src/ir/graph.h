// Program, Graph, Node, Value: what a model computes, never how. A Graph is a list of nodes in topological
// order over SSA values; it is only ever appended to, so passes build a new graph from an old one. Every node
// is checked and typed by the op table when added (add()); verify.h checks a whole program at a border.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/array.h"
#include "base/dim.h"
#include "ir/attr.h"
#include "ir/op.h"

namespace aicf {

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
  int rank() const { return static_cast<int>(shape.size()); }
};
std::string to_string(const TensorType& type);  // "f32[batch, 384]"

// Where a value comes from. temp: produced by a node (outputs are temps listed in Graph::outputs).
enum class Role : uint8_t { kInput, kParam, kState, kConstant, kTemp };
std::string_view role_name(Role role);

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an absent optional operand

struct Value {
  TensorType type;
  Role role = Role::kTemp;
  std::string name;  // input, param, state: its name in the program; else a hint for people (may be empty)
  NodeId producer = -1;  // temps only
  int result = 0;        // which result of the producer
  Array constant;        // constants: the contents; inputs: the only value accepted, null if any is
};

class Graph;

struct Node {
  Op op;
  std::vector<ValueId> operands;  // kNoValue for an absent optional operand
  std::vector<ValueId> results;
  Attrs attrs;  // complete: defaults filled in
  std::vector<Graph>
      bodies;  // fused, call, if_else, while_loop, scan; a body's inputs are its operands in order
  std::string
      origin;  // where the exporter said it came from ("/encoder/layer.0/Add", a source line); may be empty
};

// `update` writes `value` to the param or state `variable` when the entry has finished all reads of it.
struct Update {
  ValueId variable, value;
  bool operator==(const Update&) const = default;
};

class Graph {
 public:
  explicit Graph(std::string name = "main") : name_(std::move(name)) {}

  // --- building; each returns the new value's id, UserError if the op table refuses
  // `only_value`: the value this input decided shapes with when the graph was made; no other may be bound to
  // it.
  ValueId add_input(std::string name, TensorType type, Array only_value = {});
  ValueId add_param(std::string name,
                    TensorType type);  // the program must hold a variable of this name and type
  ValueId add_state(std::string name, TensorType type);
  ValueId add_constant(Array array, std::string name = "");
  // Appends a node: checks operand count and dtypes, fills attribute defaults, normalises negative axes,
  // infers types. `origin` is kept for messages.
  NodeId add_node(Op op, std::vector<ValueId> operands, Attrs attrs = {}, std::vector<Graph> bodies = {},
                  std::string origin = "");
  // Appends a copy of a node of `from` without bodies over operands of the types that it has there, which the
  // op table therefore need not check again; its results keep their names.
  NodeId add_copy(const Graph& from, const Node& node, std::vector<ValueId> operands);
  // add_node for the one-result case.
  ValueId add(Op op, std::vector<ValueId> operands, Attrs attrs = {}, std::string origin = "");
  void add_output(ValueId value, std::string name);
  void add_update(ValueId variable, ValueId value);

  // --- reading
  const std::string& name() const { return name_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  int value_count() const { return static_cast<int>(values_.size()); }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  const Shape& shape(ValueId id) const { return value(id).type.shape; }
  DType dtype(ValueId id) const { return value(id).type.dtype; }
  // Producer of a temp, or null.
  const Node* producer(ValueId id) const;
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  const std::vector<Update>& updates() const { return updates_; }
  // Leaf values in the order added: inputs, params, states, constants.
  const std::vector<ValueId>& leaves() const { return leaves_; }
  // How often each value is read by nodes, outputs and updates.
  std::vector<int> use_counts() const;

  void set_name(ValueId id, std::string hint) { values_[static_cast<size_t>(id)].name = std::move(hint); }

 private:
  ValueId add_value(Value value);
  ValueId add_named(std::string name, TensorType type, Role role);
  std::string name_;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> inputs_, outputs_, leaves_;
  std::unordered_map<std::string, ValueId> named_;  // inputs, params and states
  std::vector<std::string> output_names_;
  std::vector<Update> updates_;
  // Names and variables already taken by outputs_ and updates_.
  std::unordered_set<std::string> taken_output_names_;
  std::unordered_set<ValueId> updated_;
};

// A param (trained weight) or state (optimizer moment, KV cache, counter) shared by a program's entries.
struct Variable {
  std::string name;
  Role role = Role::kParam;  // kParam or kState
  TensorType type;
  Array data;  // initial contents; a null array (data() == nullptr) means zeros
};

// Named entries over one set of variables. Sizes used by any type are declared in `sizes` with their ranges.
struct Program {
  std::map<std::string, Variable, std::less<>> variables;
  std::vector<Graph> entries;  // the first is the default
  SymbolRanges sizes;
  // Where the range of a size is compiled in parts: the last size of each, ascending up to the range's end.
  std::map<std::string, std::vector<int64_t>, std::less<>> buckets;
  std::map<std::string, std::string>
      metadata;  // free text that travels with the model (vocabulary, producer)

  const Graph* entry(std::string_view name) const;
};

// Copies a graph while a pass decides, node by node, what to emit. `value(old)` is the new id of an old
// value.
class GraphRewriter {
 public:
  explicit GraphRewriter(const Graph& old);
  const Graph& old() const { return old_; }
  Graph& graph() { return new_; }
  ValueId value(ValueId old_id) const;
  bool has(ValueId old_id) const { return map_[static_cast<size_t>(old_id)] != kNoValue; }
  std::vector<ValueId> values(const std::vector<ValueId>& old_ids) const;
  void map(ValueId old_id, ValueId new_id) { map_[static_cast<size_t>(old_id)] = new_id; }
  // Emits the node unchanged over mapped operands and maps its results.
  NodeId copy(const Node& node);
  // Adds outputs and updates, drops what nothing reads, returns the graph. Inputs always stay.
  Graph finish();

 private:
  const Graph& old_;
  Graph new_;
  std::vector<ValueId> map_;
};

// The graph without nodes, params, states and constants that no output or update depends on.
Graph eliminate_dead_code(Graph graph);
// Appends the nodes of `body` to `graph` over `operands`; returns the values of its outputs.
std::vector<ValueId> inline_body(Graph& graph, const Graph& body, const std::vector<ValueId>& operands);

}  // namespace aicf
