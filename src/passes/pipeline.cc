#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/option_text.h"
#include "base/training_names.h"
#include "ir/hash.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/pass.h"

namespace aicf {
namespace {

template <Op... ops>
bool has_op(const Graph& graph, const PassContext&) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node& node) { return ((node.op == ops) || ...); });
}

bool masks_attention(const Graph& graph, const PassContext&) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    if (node.op != Op::attention && node.op != Op::attention_lse && node.op != Op::attention_backward)
      return false;
    return node.operands.back() != kNoValue;
  });
}

bool narrows(const Graph&, const PassContext& context) { return context.precision != Precision::kF32; }

// An attention or a gelu that is written out in halves, or will be narrowed to them, is one op whose inside
// is not rounded (docs/precision.md). Finding it needs constants folded and equal values made one.
bool may_hold_half_composites(const Graph& graph, const PassContext& context) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    if (node.op != Op::erf && node.op != Op::softmax) return false;
    return is_half(graph.dtype(node.results[0])) || contraction_dtype(context.precision).has_value();
  });
}

bool runs_on_gpu(const Graph&, const PassContext& context) { return context.target.is_cuda(); }

bool sums_on_gpu(const Graph& graph, const PassContext& context) {
  return context.target.is_cuda() && has_op<Op::reduce_sum>(graph, context);
}

bool convolves_on_gpu(const Graph& graph, const PassContext& context) {
  return context.target.is_cuda() && has_op<Op::conv>(graph, context);
}

bool multiplies_on_gpu(const Graph& graph, const PassContext& context) {
  return context.target.is_cuda() && has_op<Op::matmul>(graph, context);
}

bool trains_on_gpu(const Graph&, const PassContext& context) {
  return context.target.is_cuda() && context.gradients;
}

}  // namespace

const std::vector<PassInfo>& pass_table() {
  static const std::vector<PassInfo> table = {
      // No kernel runs a branch; its nodes then take part in everything below.
      {"inline_branches", inline_branches, true, 0, has_op<Op::if_else>},
      // Imported graphs carry shape arithmetic and constants that later patterns must not have to see
      // through.
      {"fold_constants", fold_constants, false, 1, nullptr, may_hold_half_composites},
      {"simplify", simplify, false, 1, nullptr, may_hold_half_composites},
      // Equal nodes would be decomposed and fused twice.
      {"eliminate_common_subexpressions", eliminate_common_subexpressions, false, 1, nullptr,
       may_hold_half_composites},
      // While the ops that exporters write stand as written, and before decomposition could make alike ones.
      {"match_gelu", match_gelu, false, 2, has_op<Op::erf>, may_hold_half_composites},
      // Needs softmax whole; the transposes it adds meet the importer's in the next simplify.
      {"match_attention", match_attention, false, 2, has_op<Op::softmax>, may_hold_half_composites},
      // Masks may be of values that the patterns made, and leave some that simplify ends.
      {"narrow_attention_masks", narrow_attention_masks, false, 1, masks_attention},
      // What the patterns left.
      {"simplify", simplify, false, 1},
      // Needs attention whole, and equal positions as one value.
      {"match_rope_append", match_rope_append, false, 2, has_op<Op::attention>},
      // Casts around the parts of an attention would hide it.
      {"narrow_contractions", narrow_contractions, true, 0, narrows},
      // Needs cross entropy whole, and operands of its gradients that are known to be those of the loss.
      {"fuse_linear_cross_entropy", fuse_linear_cross_entropy, false, 2,
       has_op<Op::cross_entropy, Op::linear_cross_entropy>},
      // Patterns over composites come before this point, patterns over primitives after it.
      {"decompose_composites", decompose_composites, true, 0},
      // Products that were narrowed, also those of decomposed gradients; what it makes of constant kernels
      // folds
      // below.
      {"decompose_conv_transpose", decompose_conv_transpose, false, 1, has_op<Op::conv_transpose>},
      // What it makes may be a product.
      {"patches_to_channels", patches_to_channels, false, 2, convolves_on_gpu},
      // Wants every convolution, and norms as the reductions that they are.
      {"multiply_pointwise_convs", multiply_pointwise_convs, false, 2, convolves_on_gpu},
      // Products of convolutions too; reductions of its own are given their axes below.
      {"reduce_vector_products", reduce_vector_products, false, 2, multiplies_on_gpu},
      // Every product is there; rounded constants fold below.
      {"round_tf32_operands", round_tf32_operands, true, 0},
      // Regions index every value by one domain, so a reduction must keep its axes as size 1.
      {"keep_reduced_axes", keep_reduced_axes, true, 0},
      // Axes that reductions keep stand in their places.
      {"unroll_window_sums", unroll_window_sums, false, 2, sums_on_gpu},
      // Gathers and scatters of derivatives and decompositions share their indices by now; what it counts
      // folds below.
      {"match_one_hot", match_one_hot, false, 1, has_op<Op::scatter_elements>},
      // Decompositions of neighbours share work (the same mean, the same cast) and leave foldable scalars.
      {"fold_constants", fold_constants, false, 1},
      {"simplify", simplify, false, 1},
      {"eliminate_common_subexpressions", eliminate_common_subexpressions, false, 1},
      {"remove_dead_code", remove_dead_code, true, 0},
      // Wants linear and its like decomposed, and equal operands to be one value; regions would hide the
      // products.
      {"merge_contractions", merge_contractions, false, 2},
      // Every sum is there that gradients add; a region would take a part of it along.
      {"merge_scalar_sums", merge_scalar_sums, false, 2, runs_on_gpu},
      // No simplification may come behind it; a region then stores what it makes as often as it is asked for.
      {"separate_outputs", separate_outputs, false, 1, repeats_outputs},
      // After all others: a region hides its nodes from every pass above.
      {"fuse_regions", fuse_regions, false, 1},
      // What regions store for each other is known only now.
      {"recompute_values", recompute_values, false, 2, runs_on_gpu},
      // Reads the same values only after what stood between was computed again.
      {"merge_reductions", merge_reductions, false, 2, trains_on_gpu},
      // Sums over the rows as merge_reductions left them.
      {"merge_column_sums", merge_column_sums, false, 2, trains_on_gpu},
  };
  return table;
}

bool computes_gradients(const Graph& graph) {
  return std::any_of(
             graph.updates().begin(), graph.updates().end(),
             [&](const Update& update) { return graph.value(update.variable).role == Role::kParam; }) ||
         std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
           return node.op == Op::batch_norm_train || op_info(node.op).name.ends_with("_backward");
         });
}

namespace {

bool holds_op(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> pass_names(bool required_too) {
  std::vector<std::string> names;
  for (const PassInfo& pass : pass_table())
    if ((required_too || !pass.required) && !holds_op(names, std::string(pass.name)))
      names.emplace_back(pass.name);
  return names;
}

void check_names(const PipelineOptions& options) {
  const std::vector<std::string> all = pass_names(true);
  std::vector<std::string> skippable = pass_names(false);
  skippable.insert(skippable.end(), options.later_passes.begin(), options.later_passes.end());
  for (const std::string& name : options.skip) {
    if (holds_op(skippable, name)) continue;
    throw UserError(ErrorCode::kU_bad_option, holds_op(all, name)
                                                  ? "this pass is required and cannot be skipped"
                                                  : "no pass has this name")
        .with_value(option_text(Option::kSkipPass, name))
        .with_expected(comma_list(skippable));
  }
  for (const std::string& name : options.dump_after)
    if (name != "all" && !holds_op(all, name))
      throw UserError(ErrorCode::kU_bad_option, "no pass has this name")
          .with_value(option_text(Option::kDumpAfter, name))
          .with_expected(comma_list(all) + " or all");
}

}  // namespace

std::string to_string(const PassRecord& record) {
  return "pass " + record.name + " of " + record.entry + ": " + format_fixed(record.milliseconds, 2) +
         " ms, " + std::to_string(record.nodes_before) + " to " + std::to_string(record.nodes_after) +
         " nodes";
}

namespace {

bool same_values(const Graph& a, const Graph& b) {
  if (a.value_count() != b.value_count()) return false;
  for (ValueId id = 0; id < a.value_count(); ++id) {
    const Value &x = a.value(id), &y = b.value(id);
    if (x.role != y.role || x.producer != y.producer || x.result != y.result ||
        x.constant.data() != y.constant.data() || x.type != y.type || x.name != y.name)
      return false;
  }
  return true;
}

// Whether what is verified of one graph holds for the other: their parts are equal one by one.
bool same_parts(const Graph& a, const Graph& b) {
  const auto same_bodies = [](const Node& x, const Node& y) {
    return std::equal(x.bodies.begin(), x.bodies.end(), y.bodies.begin(), y.bodies.end(), same_parts);
  };
  const auto same_nodes = [&](const Node& x, const Node& y) {
    return x.op == y.op && x.operands == y.operands && x.results == y.results && x.attrs == y.attrs &&
           x.origin == y.origin && same_bodies(x, y);
  };
  return a.nodes().size() == b.nodes().size() && a.name() == b.name() && a.inputs() == b.inputs() &&
         a.leaves() == b.leaves() && a.outputs() == b.outputs() && a.output_names() == b.output_names() &&
         a.updates() == b.updates() &&
         std::equal(a.nodes().begin(), a.nodes().end(), b.nodes().begin(), same_nodes) && same_values(a, b);
}

// A body as an entry, whose inputs and outputs need names.
Graph named(const Graph& body) {
  Graph graph(body.name());
  std::vector<ValueId> inputs;
  for (ValueId id : body.inputs())
    inputs.push_back(graph.add_input("in" + std::to_string(inputs.size()), body.type(id)));
  const std::vector<ValueId> outputs = inline_body(graph, body, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) graph.add_output(outputs[i], "out" + std::to_string(i));
  return graph;
}

bool controls(const Node& node) {
  return node.op == Op::if_else || node.op == Op::while_loop || node.op == Op::scan;
}

// What control flow runs is optimised as a graph of its own, after the passes that may dissolve its node.
Graph optimise_bodies(const Graph& graph, const Program& program, const Target& target,
                      const PipelineOptions& options, std::vector<PassRecord>* records) {
  GraphRewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (!controls(node)) {
      rewriter.copy(node);
      continue;
    }
    std::vector<Graph> bodies;
    for (const Graph& body : node.bodies) {
      Program alone;
      alone.sizes = program.sizes;
      alone.metadata = program.metadata;
      alone.entries = {named(body)};
      bodies.push_back(run_pipeline(std::move(alone), target, options, records).entries[0]);
    }
    const NodeId id = rewriter.graph().add_node(node.op, rewriter.values(node.operands), node.attrs,
                                                std::move(bodies), node.origin);
    for (size_t i = 0; i < node.results.size(); ++i)
      rewriter.map(node.results[i], rewriter.graph().node(id).results[i]);
  }
  return rewriter.finish();
}

}  // namespace

Program run_pipeline(Program program, const Target& target, const PipelineOptions& options,
                     std::vector<PassRecord>* records) {
  check_names(options);
  std::vector<bool> gradients;
  for (const Graph& entry : program.entries)
    gradients.push_back(computes_gradients(entry) || program.metadata.contains(kGradientsKey));
  for (const PassInfo& pass : pass_table()) {
    if (!pass.required && options.skip.contains(std::string(pass.name))) continue;
    for (size_t i = 0; i < program.entries.size(); ++i) {
      Graph& entry = program.entries[i];
      const auto start = std::chrono::steady_clock::now();
      const PassContext context{program, target, options.precision, gradients[i], &options.updated_elsewhere};
      const bool below = !pass.required && options.opt_level < pass.opt_level;
      if (below && (pass.decides_rounding == nullptr || !pass.decides_rounding(entry, context))) continue;
      std::optional<Graph> before;  // none: the pass had nothing to do
      if (pass.may_change == nullptr || pass.may_change(entry, context)) {
        Graph after = pass.run(entry, context);
        before = std::exchange(entry, std::move(after));
      }
      const auto stop = std::chrono::steady_clock::now();
      // Most passes find nothing to do in most graphs.
      const bool is_changed = before && !same_parts(*before, entry);
      const PassRecord record{std::string(pass.name), entry.name(),
                              std::chrono::duration<double, std::milli>(stop - start).count(),
                              static_cast<int>((before ? *before : entry).nodes().size()),
                              static_cast<int>(entry.nodes().size())};
      debug_print(2, [&] { return to_string(record); });
      debug_print(4, [&] {
        const std::string text = print(entry);
        return !before || text == print(*before) ? std::string("unchanged") : text;
      });
      before.reset();
      if (options.verify && is_changed) verify(entry, program, Fault::kInternal);
      if (records != nullptr) records->push_back(record);
      const bool wanted =
          options.dump_after.contains("all") || options.dump_after.contains(std::string(pass.name));
      if (wanted && options.dump) options.dump(std::string(pass.name), entry);
    }
  }
  for (Graph& entry : program.entries)
    if (std::any_of(entry.nodes().begin(), entry.nodes().end(), controls))
      entry = optimise_bodies(entry, program, target, options, records);
  return program;
}

}  // namespace aicf
