// What a pass is: a function from one entry graph to an equivalent one, but for what the precision asked for
// rounds. pipeline.cc lists them in order; the wrapper there gives each a name, a skip switch, timing, a dump
// when it changed something, and verification afterwards.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/precision.h"
#include "target/target.h"

namespace aicf {

struct PassContext {
  const Program& program;  // sizes and variables; the entry being rewritten is passed apart
  const Target& target;
  Precision precision = Precision::kF32;
  bool gradients = false;  // the entry is of a training step (computes_gradients)
  // Variables that entries write which are not in `program`; null: none.
  const std::set<std::string>* updated_elsewhere = nullptr;
};

struct PassInfo {
  std::string_view name;
  Graph (*run)(const Graph& graph, const PassContext& context);
  bool required;  // cannot be skipped: later stages rely on it
  int opt_level;  // runs at --opt >= this level (required ones: 0)
  // False: the pass would change nothing, which is cheaper to ask than to find out. Null: it always runs.
  bool (*may_change)(const Graph& graph, const PassContext& context) = nullptr;
  // True: what the pass does to this graph decides which halves are rounded, so that it runs at every level.
  bool (*decides_rounding)(const Graph& graph, const PassContext& context) = nullptr;
};

const std::vector<PassInfo>& pass_table();

struct PassRecord {
  std::string name, entry;
  double milliseconds = 0;
  int nodes_before = 0, nodes_after = 0;
};

std::string to_string(const PassRecord& record);  // "pass simplify of main: 0.12 ms, 40 to 31 nodes"

struct PipelineOptions {
  int opt_level = 2;
  Precision precision = Precision::kF32;
  std::set<std::string> skip;
  std::vector<std::string> later_passes;  // of stages after this one: `skip` may name them
  std::set<std::string> dump_after;       // pass names, or "all"
  std::function<void(const std::string& pass, const Graph& graph)> dump;
  bool verify = true;
  // Variables that entries write which the pipeline does not see: a bucket is a program of one entry.
  std::set<std::string> updated_elsewhere;
};

// Runs the pipeline over every entry. UserError bad_option for an unknown or required pass in `skip`, and for
// an unknown one in `dump_after`.
Program run_pipeline(Program program, const Target& target, const PipelineOptions& options,
                     std::vector<PassRecord>* records);

// Whether the entry writes params, or has an op of training alone: a training step, or a part of one.
bool computes_gradients(const Graph& graph);

// --- the passes, one file each
// Computes both branches of a condition on data and selects, where neither can fail.
Graph inline_branches(const Graph& graph, const PassContext& context);
// Gives reductions keepdims and a reshape after them; drops those over no axes.
Graph keep_reduced_axes(const Graph& graph, const PassContext& context);
// Expands composites that no kernel of the target claims.
Graph decompose_composites(const Graph& graph, const PassContext& context);
// Computes transposed convolutions as convolutions of stride 1, one for each phase of their strides.
Graph decompose_conv_transpose(const Graph& graph, const PassContext& context);
// Computes convolutions of patches of few channels as those of one tap over more channels.
Graph patches_to_channels(const Graph& graph, const PassContext& context);
// Computes convolutions of one tap as products where the values around them lie by rows.
Graph multiply_pointwise_convs(const Graph& graph, const PassContext& context);
// Sums over the rows or columns of a matrix in place of products of it with one row or column, but in halves.
Graph reduce_vector_products(const Graph& graph, const PassContext& context);
// Makes scatters of one update a row choices by index, where other nodes check the indices.
Graph match_one_hot(const Graph& graph, const PassContext& context);
// Adds the few elements of windows as slices.
Graph unroll_window_sums(const Graph& graph, const PassContext& context);
// Rounds the operands of products in tf32 that no kernel of the target multiplies so.
Graph round_tf32_operands(const Graph& graph, const PassContext& context);
// Evaluates nodes whose operands are all constants.
Graph fold_constants(const Graph& graph, const PassContext& context);
// Applies the algebra rules: identities, double transposes, chains of reshapes and casts.
Graph simplify(const Graph& graph, const PassContext& context);
// Recognises 0.5 x (1 + erf(x / sqrt(2))) as gelu.
Graph match_gelu(const Graph& graph, const PassContext& context);
// Recognises softmax(q k + masks) v, which then needs no stored scores.
Graph match_attention(const Graph& graph, const PassContext& context);
// Reads a repeated mask once, and none where it is causal or a window.
Graph narrow_attention_masks(const Graph& graph, const PassContext& context);
// Rotates q and k and writes k and v to their caches in one step.
Graph match_rope_append(const Graph& graph, const PassContext& context);
// Rounds operands of contractions to the type that the precision names.
Graph narrow_contractions(const Graph& graph, const PassContext& context);
// Computes a large cross entropy with its product, and a loss with its gradients, some rows at a time.
Graph fuse_linear_cross_entropy(const Graph& graph, const PassContext& context);
// Computes equal nodes once.
Graph eliminate_common_subexpressions(const Graph& graph, const PassContext& context);
// Computes contractions of one value with several weights as one.
Graph merge_contractions(const Graph& graph, const PassContext& context);
// Drops what no output or update needs.
Graph remove_dead_code(const Graph& graph, const PassContext& context);
// Makes a value of its own of each output that is another one already.
Graph separate_outputs(const Graph& graph, const PassContext& context);
bool repeats_outputs(const Graph& graph, const PassContext& context);
// Adds up many numbers as one vector instead of one after the other.
Graph merge_scalar_sums(const Graph& graph, const PassContext& context);
// Groups pointwise ops, reductions and contraction epilogues into regions.
Graph fuse_regions(const Graph& graph, const PassContext& context);
// Computes again in a region what is cheaper to compute than to store and read.
Graph recompute_values(const Graph& graph, const PassContext& context);
// Runs reductions together that read the same value.
Graph merge_reductions(const Graph& graph, const PassContext& context);
// Takes sums over all rows along with a region that goes through those rows.
Graph merge_column_sums(const Graph& graph, const PassContext& context);

}  // namespace aicf
