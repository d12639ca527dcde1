#include <unordered_map>

#include "base/comma_list.h"
#include "base/error.h"
#include "ir/cursor.h"
#include "ir/literal_parser.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace aicf {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const BlobResolver& blobs) : in_(text), literals_(in_, blobs) {}

  Program program() {
    Program program;
    in_.expect_word("program");
    in_.expect('{');
    while (!in_.take('}')) item(program);
    in_.expect_end();
    return program;
  }

  Graph lone_entry() {
    in_.expect_word("entry");
    Graph result = entry();
    in_.expect_end();
    return result;
  }

 private:
  // Names of a graph's values; a body starts a scope of its own because bodies are closed.
  struct Scope {
    Graph graph;
    std::unordered_map<std::string, ValueId> values, variables;
  };

  void item(Program& program) {
    const size_t at = in_.position();
    const std::string_view word = in_.word();
    if (word == "size") return size(program);
    if (word == "meta") return meta(program);
    if (word == "param") return variable(program, Role::kParam);
    if (word == "state") return variable(program, Role::kState);
    if (word == "entry") {
      program.entries.push_back(entry());
      return;
    }
    in_.fail_at(at, "unexpected item", "size, meta, param, state, entry or '}'");
  }

  void size(Program& program) {
    const size_t at = in_.position();
    std::string name(in_.symbol_name());
    in_.expect_word("in");
    Interval range;
    range.lo = literals_.integer();
    in_.expect('.');
    in_.expect('.');
    range.hi = literals_.integer();
    if (in_.take_word("buckets")) program.buckets[name] = literals_.integers();
    if (!program.sizes.emplace(std::move(name), range).second) in_.fail_at(at, "this size is declared twice");
  }

  void meta(Program& program) {
    const size_t at = in_.position();
    std::string key = in_.quoted();
    in_.expect('=');
    if (!program.metadata.emplace(std::move(key), in_.quoted()).second)
      in_.fail_at(at, "this key is given twice");
  }

  void variable(Program& program, Role role) {
    const size_t at = in_.position();
    Variable variable;
    variable.name = in_.quoted();
    variable.role = role;
    in_.expect(':');
    variable.type = literals_.type();
    const std::string name = variable.name;
    if (!program.variables.emplace(name, std::move(variable)).second)
      in_.fail_at(at, "this param or state is declared twice");
  }

  // A body's inputs may have a name besides the one that the text calls them by.
  void inputs(Scope& scope, bool renames) {
    in_.expect('(');
    if (in_.take(')')) return;
    do {
      const size_t at = in_.position();
      const ValueName name = value_name();
      in_.expect(':');
      const TensorType input_type = literals_.type();
      const Array only = in_.take_word("only") ? literals_.contents(at, input_type) : Array();
      const std::string own_name = renames && in_.take_word("as") ? in_.quoted() : name.text;
      define(scope, at, name.key,
             in_.checked(at, [&] { return scope.graph.add_input(own_name, input_type, only); }));
    } while (in_.take(','));
    in_.expect(')');
  }

  Graph entry() {
    Scope scope{Graph(in_.peek('"') ? in_.quoted() : std::string(in_.word())), {}, {}};
    inputs(scope, false);
    block(scope, false, 0);
    return std::move(scope.graph);
  }

  Graph body(int depth) {
    if (depth > kMaxBodyDepth)
      in_.fail("bodies are nested too deeply", std::to_string(kMaxBodyDepth) + " at most");
    Scope scope{Graph("body"), {}, {}};
    inputs(scope, true);
    block(scope, true, depth);
    return std::move(scope.graph);
  }

  void block(Scope& scope, bool is_body, int depth) {
    in_.expect('{');
    for (;;) {
      const size_t at = in_.position();
      if (in_.take_word("return")) break;
      if (in_.take_word("update")) {
        update(scope, at);
      } else {
        statement(scope, depth);
      }
    }
    returns(scope, is_body);
    in_.expect('}');
  }

  void returns(Scope& scope, bool is_body) {
    if (in_.peek('}')) return;
    do {
      const size_t at = in_.position();
      std::string name;
      if (!is_body) {
        name = in_.quoted();
        in_.expect('=');
      }
      const ValueId value = use(scope);
      in_.checked(at, [&] { return scope.graph.add_output(value, std::move(name)), 0; });
    } while (in_.take(','));
  }

  void update(Scope& scope, size_t at) {
    const std::string variable = in_.quoted();
    in_.expect('=');
    const ValueId value = use(scope);
    const auto leaf = scope.variables.find(variable);
    if (leaf == scope.variables.end())
      in_.fail_at(at, "the updated param or state is not read in this entry");
    in_.checked(at, [&] { return scope.graph.add_update(leaf->second, value), 0; });
  }

  // [%name (, %name)* =] (param | state | constant | op) …
  void statement(Scope& scope, int depth) {
    std::vector<std::pair<size_t, std::string>> names;
    if (in_.peek('%')) {
      do names.emplace_back(in_.position(), value_name().key);
      while (in_.take(','));
      in_.expect('=');
    }
    const size_t at = in_.position();
    const std::string_view word = in_.word();
    std::vector<ValueId> results;
    if (word == "param" || word == "state") {
      results = {variable_leaf(scope, at, word == "param" ? Role::kParam : Role::kState)};
    } else if (word == "constant") {
      results = {constant(scope, at)};
    } else {
      results = node(scope, at, word, depth);
    }
    if (results.size() != names.size())
      in_.fail_at(at, "wrong number of results", std::to_string(results.size()) + " names",
                  std::to_string(names.size()));
    for (size_t i = 0; i < names.size(); ++i) define(scope, names[i].first, names[i].second, results[i]);
  }

  ValueId variable_leaf(Scope& scope, size_t at, Role role) {
    const std::string name = in_.quoted();
    in_.expect(':');
    const TensorType leaf_type = literals_.type();
    const ValueId id = in_.checked(at, [&] {
      return role == Role::kParam ? scope.graph.add_param(name, leaf_type)
                                  : scope.graph.add_state(name, leaf_type);
    });
    scope.variables.emplace(name, id);
    return id;
  }

  ValueId constant(Scope& scope, size_t at) {
    const TensorType declared = literals_.type();
    in_.expect('=');
    Array array = literals_.contents(at, declared);
    std::string hint = in_.take_word("as") ? in_.quoted() : std::string();
    return in_.checked(at, [&] { return scope.graph.add_constant(std::move(array), std::move(hint)); });
  }

  // op(operands) {attributes} body… : types as hints @"origin"
  std::vector<ValueId> node(Scope& scope, size_t at, std::string_view name, int depth) {
    const auto op = op_from_name(name);
    if (!op)
      throw UserError(ErrorCode::kU_unknown_op, in_.place(at) + "no op of this name exists")
          .with_op(std::string(name));
    std::vector<ValueId> inputs = operands(scope);
    Attrs attrs = in_.peek('{') ? literals_.attributes(op_info(*op)) : Attrs();
    std::vector<Graph> bodies;
    while (in_.take_word("body")) bodies.push_back(body(depth + 1));
    std::vector<TensorType> declared;
    if (in_.take(':')) {
      do declared.push_back(literals_.type());
      while (in_.take(','));
    }
    std::vector<std::string> hints;
    if (in_.take_word("as")) {
      do hints.push_back(in_.quoted());
      while (in_.take(','));
    }
    std::string origin = in_.take('@') ? in_.quoted() : std::string();
    const NodeId id = in_.checked(at, [&] {
      return scope.graph.add_node(*op, std::move(inputs), std::move(attrs), std::move(bodies),
                                  std::move(origin));
    });
    const std::vector<ValueId> results = scope.graph.node(id).results;
    check_types(scope.graph, at, name, results, declared);
    if (!hints.empty() && hints.size() != results.size())
      in_.fail_at(at, "wrong number of value names after 'as'");
    for (size_t i = 0; i < hints.size(); ++i) scope.graph.set_name(results[i], std::move(hints[i]));
    return results;
  }

  void check_types(const Graph& graph, size_t at, std::string_view op, const std::vector<ValueId>& results,
                   const std::vector<TensorType>& declared) {
    std::vector<TensorType> inferred;
    for (ValueId id : results) inferred.push_back(graph.type(id));
    if (inferred == declared) return;
    const auto text = [](const std::vector<TensorType>& types) {
      return types.empty() ? "no type" : comma_list(types, [](const TensorType& t) { return to_string(t); });
    };
    in_.fail_at(at, "the stated type of " + std::string(op) + " is not what the op gives", text(inferred),
                text(declared));
  }

  std::vector<ValueId> operands(Scope& scope) {
    std::vector<ValueId> ids;
    in_.expect('(');
    if (in_.take(')')) return ids;
    do ids.push_back(in_.take_word("none") ? kNoValue : use(scope));
    while (in_.take(','));
    in_.expect(')');
    return ids;
  }

  // The text after '%': a bare run of name characters or a quoted string. An input may be called "0", which
  // is not the value that the printer numbers 0, so its key keeps a quote.
  struct ValueName {
    std::string text, key;
  };
  ValueName value_name() {
    in_.expect('%');
    if (!in_.peek_exactly('"')) {
      std::string token(in_.value_token());
      return {token, token};
    }
    std::string text = in_.quoted();
    const bool is_number = !text.empty() && text[0] >= '0' && text[0] <= '9';
    return {text, is_number ? '"' + text : text};
  }

  void define(Scope& scope, size_t at, const std::string& name, ValueId id) {
    if (!scope.values.emplace(name, id).second)
      in_.fail_at(at, "this value is defined twice", "", "%" + name);
  }

  ValueId use(Scope& scope) {
    const size_t at = in_.position();
    const std::string name = value_name().key;
    const auto found = scope.values.find(name);
    if (found == scope.values.end())
      in_.fail_at(at, "this value is not defined before its use", "", "%" + name);
    return found->second;
  }

  Cursor in_;
  LiteralParser literals_;
};

}  // namespace

Program parse(std::string_view text, const BlobResolver& blobs) {
  Program program = Parser(text, blobs).program();
  verify(program, Fault::kUser);
  return program;
}

Graph parse_graph(std::string_view text, const BlobResolver& blobs) {
  return Parser(text, blobs).lone_entry();
}

}  // namespace aicf
