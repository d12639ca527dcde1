#include <algorithm>

#include "ir/literal.h"
#include "ir/text.h"

namespace aicf {
namespace {

bool is_bare_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || !letter(name[0])) return false;  // a leading digit is a number given by the printer
  for (char c : name)
    if (!letter(c) && !(c >= '0' && c <= '9') && c != '.') return false;
  return true;
}

void append_name(std::string& out, std::string_view name) {
  if (is_bare_name(name)) {
    out += name;
  } else {
    append_quoted(out, name);
  }
}

template <typename List, typename Append>
void append_list(std::string& out, const List& list, Append append) {
  bool first = true;
  for (const auto& item : list) {
    if (!first) out += ", ";
    first = false;
    append(item);
  }
}

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  static std::string buckets(const Program& program, const std::string& size) {
    const auto at = program.buckets.find(size);
    return at == program.buckets.end() ? "" : " buckets " + to_string(at->second);
  }

  void program(const Program& program) {
    out_ += "program {\n";
    for (const auto& [name, range] : program.sizes)
      out_ += "  size " + name + " in " + std::to_string(range.lo) + ".." + std::to_string(range.hi) +
              buckets(program, name) + "\n";
    for (const auto& [key, value] : program.metadata) {
      out_ += "  meta ";
      append_quoted(out_, key);
      out_ += " = ";
      append_quoted(out_, value);
      out_ += "\n";
    }
    for (const auto& [name, variable] : program.variables) {
      out_ += variable.role == Role::kState ? "  state " : "  param ";
      append_quoted(out_, name);
      out_ += " : " + to_string(variable.type) + "\n";
    }
    for (const Graph& graph : program.entries) entry(graph, 1);
    out_ += "}\n";
  }

  void entry(const Graph& graph, int depth) {
    indent(depth);
    out_ += "entry ";
    append_name(out_, graph.name());
    graph_text(graph, depth, false);
    out_ += "\n";
  }

  std::string take() { return std::move(out_); }

 private:
  // Values are numbered in printing order; inputs of an entry go by their name, which is part of its
  // interface.
  struct Scope {
    const Graph& graph;
    bool body;
    std::vector<std::string> names;
    int next = 0;

    Scope(const Graph& g, bool is_body)
        : graph(g), body(is_body), names(static_cast<size_t>(g.value_count())) {}
    std::string& name(ValueId id) { return names[static_cast<size_t>(id)]; }
    void number(ValueId id) { name(id) = "%" + std::to_string(next++); }
  };

  void indent(int depth) { out_.append(static_cast<size_t>(2 * depth), ' '); }

  void hint(const Graph& graph, const std::vector<ValueId>& ids) {
    if (!options_.hints) return;
    bool any = false;
    for (ValueId id : ids) any |= !graph.value(id).name.empty();
    if (!any) return;
    out_ += " as ";
    append_list(out_, ids, [&](ValueId id) { append_quoted(out_, graph.value(id).name); });
  }

  void graph_text(const Graph& graph, int depth, bool body) {
    Scope scope(graph, body);
    out_ += "(";
    append_list(out_, graph.inputs(), [&](ValueId id) { input(scope, id); });
    out_ += ") {\n";
    for (ValueId id : graph.leaves())
      if (graph.value(id).role != Role::kInput) leaf(scope, id, depth + 1);
    for (const Node& node : graph.nodes()) this->node(scope, node, depth + 1);
    for (const Update& update : graph.updates()) {
      indent(depth + 1);
      out_ += "update ";
      append_quoted(out_, graph.value(update.variable).name);
      out_ += " = " + scope.name(update.value) + "\n";
    }
    returns(scope, depth + 1);
    indent(depth);
    out_ += "}";
  }

  void input(Scope& scope, ValueId id) {
    const Value& value = scope.graph.value(id);
    if (scope.body) {
      scope.number(id);
    } else {
      scope.name(id) = "%";
      append_name(scope.name(id), value.name);
    }
    out_ += scope.name(id) + ": " + to_string(value.type);
    if (value.constant.data() != nullptr) {
      out_ += " only ";
      contents(value.constant);
    }
    if (scope.body && options_.hints && scope.name(id) != "%" + value.name) {
      out_ += " as ";
      append_quoted(out_, value.name);
    }
  }

  void leaf(Scope& scope, ValueId id, int depth) {
    const Value& value = scope.graph.value(id);
    scope.number(id);
    indent(depth);
    out_ += scope.name(id) + " = ";
    if (value.role == Role::kConstant) {
      constant(value.constant);
      hint(scope.graph, {id});
    } else {
      out_ += value.role == Role::kState ? "state " : "param ";
      append_quoted(out_, value.name);
      out_ += " : " + to_string(value.type);
    }
    out_ += "\n";
  }

  void constant(const Array& array) {
    out_ += "constant " + std::string(dtype_name(array.dtype())) + to_string(array.sizes()) + " = ";
    contents(array);
  }

  void contents(const Array& array) {
    if (array.count() > kInlineElements) {
      out_ += "blob 0x" + to_string(hash_content(array));
      return;
    }
    out_ += "[";
    for (int64_t i = 0; i < array.count(); ++i) {
      if (i) out_ += ", ";
      append_element(out_, array, i);
    }
    out_ += "]";
  }

  void node(Scope& scope, const Node& node, int depth) {
    for (ValueId id : node.results) scope.number(id);
    indent(depth);
    append_list(out_, node.results, [&](ValueId id) { out_ += scope.name(id); });
    if (!node.results.empty()) out_ += " = ";
    const OpInfo& info = op_info(node.op);
    out_ += info.name;
    operands(scope, node);
    attributes(info, node.attrs);
    for (const Graph& body : node.bodies) {
      out_ += "\n";
      indent(depth + 1);
      out_ += "body";
      graph_text(body, depth + 1, true);
    }
    if (!node.results.empty()) out_ += " : ";
    append_list(out_, node.results, [&](ValueId id) { out_ += to_string(scope.graph.type(id)); });
    hint(scope.graph, node.results);
    if (options_.origins && !node.origin.empty()) {
      out_ += " @";
      append_quoted(out_, node.origin);
    }
    out_ += "\n";
  }

  // Absent operands at the end are left out: they mean the same as operands that were never given.
  void operands(Scope& scope, const Node& node) {
    size_t count = node.operands.size();
    while (count > 0 && node.operands[count - 1] == kNoValue) --count;
    out_ += "(";
    for (size_t i = 0; i < count; ++i) {
      if (i) out_ += ", ";
      out_ += node.operands[i] == kNoValue ? std::string("none") : scope.name(node.operands[i]);
    }
    out_ += ")";
  }

  void attributes(const OpInfo& info, const Attrs& attrs) {
    bool first = true;
    for (const auto& [name, value] : attrs.items()) {
      const AttrInfo* declared = info.attribute(name);
      if (declared && declared->default_value && same_bits(*declared->default_value, value)) continue;
      out_ += (first ? " {" : ", ") + name + " = ";
      first = false;
      std::visit([&](const auto& x) { attribute(x); }, value);
    }
    if (!first) out_ += "}";
  }

  void attribute(int64_t value) { out_ += std::to_string(value); }
  void attribute(double value) { append_float(out_, value); }
  void attribute(bool value) { out_ += value ? "true" : "false"; }
  void attribute(const std::string& value) { append_quoted(out_, value); }
  void attribute(DType value) { out_ += dtype_name(value); }
  void attribute(const Shape& value) { out_ += to_string(value); }
  void attribute(const Ints& value) { out_ += to_string(value); }
  void attribute(const Floats& value) {
    out_ += "[";
    append_list(out_, value, [&](double x) { append_float(out_, x); });
    out_ += "]";
  }

  void returns(Scope& scope, int depth) {
    indent(depth);
    out_ += "return";
    const Graph& graph = scope.graph;
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      out_ += i ? ", " : " ";
      if (!scope.body) {
        append_quoted(out_, graph.output_names()[i]);
        out_ += " = ";
      }
      out_ += scope.name(graph.outputs()[i]);
    }
    out_ += "\n";
  }

  const PrintOptions& options_;
  std::string out_;
};

void collect_blobs(const Graph& graph, Blobs& blobs) {
  for (ValueId id : graph.leaves()) {
    const Value& value = graph.value(id);
    if (value.constant.count() > kInlineElements) blobs.emplace(hash_content(value.constant), value.constant);
  }
  for (const Node& node : graph.nodes())
    for (const Graph& body : node.bodies) collect_blobs(body, blobs);
}

}  // namespace

std::string print(const Program& program, const PrintOptions& options) {
  Printer printer(options);
  printer.program(program);
  return printer.take();
}

std::string print(const Graph& graph, const PrintOptions& options) {
  Printer printer(options);
  printer.entry(graph, 0);
  return printer.take();
}

// A line of the program itself is indented once; what follows an entry's, up to its brace, more.
std::string keep_entries(std::string_view program, const std::set<std::string>& entries,
                         std::string_view dropped) {
  std::set<std::string, std::less<>> heads, variables;
  for (const std::string& name : entries) {
    std::string head = "  entry ";
    append_name(head, name);
    heads.insert(head + "(");
  }
  std::string lost = "  meta ";
  append_quoted(lost, dropped);
  lost.pop_back();  // the quote that ends it
  const auto for_each_line = [&](const auto& visit) {
    bool kept = true;  // of the entry that the line stands in
    for (size_t begin = 0, end; begin < program.size(); begin = end) {
      end = std::min(program.find('\n', begin), program.size() - 1) + 1;
      const std::string_view line = program.substr(begin, end - begin);
      if (line.starts_with("  entry "))
        kept =
            std::any_of(heads.begin(), heads.end(), [&](const auto& head) { return line.starts_with(head); });
      if (kept) visit(line);
      if (line == "  }\n") kept = true;
    }
  };
  // "    %0 = param "0.W" : f32[384, 1536]" reads what "  param "0.W" : f32[384, 1536]" declares.
  for_each_line([&](std::string_view line) {
    const size_t at = line.find(" = ");
    if (!line.starts_with("    %") || at == std::string_view::npos) return;
    const std::string_view rest = line.substr(at + 3);
    if (rest.starts_with("param ") || rest.starts_with("state ")) variables.emplace(rest);
  });
  std::string text;
  for_each_line([&](std::string_view line) {
    const bool variable = line.starts_with("  param ") || line.starts_with("  state ");
    if (variable && !variables.contains(line.substr(2))) return;
    if (!dropped.empty() && line.starts_with(lost)) return;
    text += line;
  });
  return text;
}

Blobs collect_blobs(const Program& program) {
  Blobs blobs;
  for (const Graph& graph : program.entries) collect_blobs(graph, blobs);
  return blobs;
}

BlobResolver resolver_of(Blobs blobs) {
  return [blobs = std::move(blobs)](const Hash128& hash) {
    const auto at = blobs.find(hash);
    return at == blobs.end() ? Array() : at->second;
  };
}

}  // namespace aicf
