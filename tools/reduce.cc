#include "reduce.h"

#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/mapped_file.h"
#include "import/onnx.h"
#include "import/onnx_cut.h"
#include "ir/reference/evaluator.h"

namespace aicf::cli {
namespace {

using Nodes = std::vector<size_t>;

class Reducer {
 public:
  Reducer(const OnnxCut& cut, std::map<std::string, Array> values, const Judge& judge)
      : cut_(cut), values_(std::move(values)), judge_(judge) {}

  Reduction build(const Nodes& nodes) const {
    Reduction reduction;
    std::vector<std::string> names;
    reduction.model = cut_.make(nodes, cut_.sinks(nodes), values_, &names);
    for (const std::string& name : names) reduction.inputs.emplace(name, values_.at(name));
    reduction.nodes = nodes.size();
    reduction.nodes_before = cut_.node_count();
    return reduction;
  }

  // A part that cannot be imported on its own does not fail in the same way.
  std::string outcome(const Nodes& nodes) const {
    try {
      const Reduction part = build(nodes);
      return judge_(part.model, part.inputs);
    } catch (const UserError& error) {
      return std::string(error_info(error.code).text) + " of the part";
    }
  }

 private:
  const OnnxCut& cut_;
  std::map<std::string, Array> values_;
  const Judge& judge_;
};

// What every node makes, by the reference, from a model whose every value is an output.
std::map<std::string, Array> all_values(const OnnxCut& cut, const std::map<std::string, Array>& inputs) {
  Nodes all(cut.node_count());
  std::iota(all.begin(), all.end(), size_t{0});
  std::vector<std::string> float_inputs;
  const std::string model = cut.make(all, cut.made_by(all), inputs, &float_inputs);
  const Program program = import_onnx_bytes(model);
  std::map<std::string, Array> given;
  for (const std::string& name : float_inputs) given.emplace(name, inputs.at(name));
  std::map<std::string, Array> values = evaluate(program, program.entries[0], {given, {}}).outputs;
  values.insert(inputs.begin(), inputs.end());
  return values;
}

Nodes without(const Nodes& nodes, size_t first, size_t count) {
  Nodes rest;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (i < first || i >= first + count) rest.push_back(nodes[i]);
  return rest;
}

}  // namespace

// Zeller & Hildebrandt 2002, "Simplifying and Isolating Failure-Inducing Input": complements only, from
// halves down to single nodes, until no single node can go.
Reduction reduce_model(const std::string& path, const std::map<std::string, Array>& inputs,
                       const Judge& judge, const std::function<void(size_t left, size_t of)>& progress) {
  const auto parent = std::filesystem::path(path).parent_path();
  const OnnxCut cut(std::string(MappedFile::open(path)->text()), parent.empty() ? "." : parent.string());
  const Reducer reducer(cut, all_values(cut, inputs), judge);
  Nodes nodes(cut.node_count());
  std::iota(nodes.begin(), nodes.end(), size_t{0});
  const std::string wanted = reducer.outcome(nodes);
  if (wanted.empty())
    throw UserError(ErrorCode::kU_bad_option,
                    "the model passes with these inputs and tolerances: nothing to reduce")
        .with_value("--reduce");
  for (size_t chunk = (nodes.size() + 1) / 2; chunk > 0;) {
    bool smaller = false;
    for (size_t first = 0; first < nodes.size() && nodes.size() > 1;) {
      const Nodes rest = without(nodes, first, chunk);
      if (!rest.empty() && reducer.outcome(rest) == wanted) {
        nodes = rest;
        smaller = true;
        progress(nodes.size(), cut.node_count());
      } else {
        first += chunk;
      }
    }
    if (chunk > 1)
      chunk = (chunk + 1) / 2;
    else if (!smaller)
      break;
  }
  Reduction reduction = reducer.build(nodes);
  reduction.outcome = wanted;
  return reduction;
}

}  // namespace aicf::cli
