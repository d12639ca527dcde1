// Reductions, scans and order.
#include <numeric>

#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// The reduced axes from input 1; nullopt if the node reduces nothing.
std::optional<Ints> reduced_axes(NodeContext& n) {
  const bool noop = n.attr_int("noop_with_empty_axes", 0) != 0;
  Ints axes;
  if (n.has(1))
    for (int64_t axis : n.require_ints(1, "axes")) axes.push_back(n.axis(axis, n.rank(0)));
  if (!axes.empty()) return axes;
  if (noop) return std::nullopt;
  axes.resize(static_cast<size_t>(n.rank(0)));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// pre(x) reduced, then post. With nothing to reduce, pre and post still apply.
template <Op op, typename Pre, typename Post>
void reduce_with(NodeContext& n, Pre pre, Post post) {
  const bool keepdims = n.attr_int("keepdims", 1) != 0;
  const auto axes = reduced_axes(n);
  ValueId x = pre(n.in(0));
  if (axes && !axes->empty()) x = n.add(op, {x}, {{"axes", *axes}, {"keepdims", keepdims}});
  n.out(0, post(x));
}

const auto kSame = [](ValueId x) { return x; };

template <Op op>
void plain(NodeContext& n) {
  reduce_with<op>(n, kSame, kSame);
}

void l1(NodeContext& n) {
  reduce_with<Op::reduce_sum>(n, [&](ValueId x) { return n.add(Op::abs, {x}); }, kSame);
}

void sum_square(NodeContext& n) {
  reduce_with<Op::reduce_sum>(n, [&](ValueId x) { return n.add(Op::mul, {x, x}); }, kSame);
}

// Integers go through f64, where squares and logarithms exist, halves through f32, and back.
template <typename Inner>
void in_float(NodeContext& n, Inner inner) {
  const DType dtype = n.dtype(0);
  const ValueId x = is_float(dtype) ? n.widened(n.in(0)) : n.cast(n.in(0), DType::f64);
  if (n.dtype_of(x) == dtype) return inner();
  n.set_input(0, x);
  inner();
  n.out(0, n.cast(n.context().materialize(*n.outputs()[0]), dtype));
}

void l2(NodeContext& n) {
  in_float(n, [&] {
    reduce_with<Op::reduce_sum>(
        n, [&](ValueId x) { return n.add(Op::mul, {x, x}); },
        [&](ValueId x) { return n.add(Op::sqrt, {x}); });
  });
}

void log_sum(NodeContext& n) {
  in_float(n, [&] { reduce_with<Op::reduce_sum>(n, kSame, [&](ValueId x) { return n.add(Op::log, {x}); }); });
}

// Of a single element each, log(e^x) is x.
void log_sum_exp(NodeContext& n) {
  in_float(n, [&] { plain<Op::reduce_logsumexp>(n); });
}

template <Op op>
void arg_reduce(NodeContext& n) {
  n.out(0, n.add(op, {n.in(0)},
                 {{"axis", n.axis(n.attr_int("axis", 0), n.rank(0))},
                  {"keepdims", n.attr_int("keepdims", 1) != 0},
                  {"select_last", n.attr_int("select_last_index", 0) != 0}}));
}

template <Op op>
void cumulative(NodeContext& n) {
  const Ints axis = n.require_ints(1, "axis");
  if (axis.size() != 1) n.bad("axis has the wrong size", "one number", std::to_string(axis.size()));
  n.out(0, n.add(op, {n.in(0)},
                 {{"axis", n.axis(axis[0], n.rank(0))},
                  {"exclusive", n.attr_int("exclusive", 0) != 0},
                  {"reverse", n.attr_int("reverse", 0) != 0}}));
}

// `sorted=0` allows any order, so the sorted one is right too.
void top_k(NodeContext& n) {
  n.ignore("sorted");
  const std::vector<Dim> k = n.require_sizes(1, "k");
  if (k.size() != 1) n.bad("k has the wrong size", "one number", std::to_string(k.size()));
  const NodeId node = n.graph().add_node(Op::top_k, {n.in(0)},
                                         {{"k", Shape{k[0]}},
                                          {"axis", n.axis(n.attr_int("axis", -1), n.rank(0))},
                                          {"largest", n.attr_int("largest", 1) != 0}},
                                         {}, n.origin());
  n.out(0, n.graph().node(node).results[0]);
  n.out(1, n.graph().node(node).results[1]);
}

}  // namespace

std::vector<OpRule> reduce_rules() {
  return {
      {"ReduceSum", plain<Op::reduce_sum>},
      {"ReduceProd", plain<Op::reduce_prod>},
      {"ReduceMax", plain<Op::reduce_max>},
      {"ReduceMin", plain<Op::reduce_min>},
      {"ReduceMean", plain<Op::reduce_mean>},
      {"ReduceL1", l1},
      {"ReduceL2", l2},
      {"ReduceSumSquare", sum_square},
      {"ReduceLogSum", log_sum},
      {"ReduceLogSumExp", log_sum_exp},
      {"ArgMax", arg_reduce<Op::argmax>},
      {"ArgMin", arg_reduce<Op::argmin>},
      {"CumSum", cumulative<Op::cumsum>},
      {"CumProd", cumulative<Op::cumprod>},
      {"TopK", top_k},
  };
}

}  // namespace aicf::onnx
