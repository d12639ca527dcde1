// Gathers, scatters and one-hot.
#include "base/error.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

void gather(NodeContext& n) {
  n.out(0, n.add(Op::gather, {n.in(0), n.in(1)}, {{"axis", n.axis(n.attr_int("axis", 0), n.rank(0))}}));
}

void gather_elements(NodeContext& n) {
  n.out(0,
        n.add(Op::gather_elements, {n.in(0), n.in(1)}, {{"axis", n.axis(n.attr_int("axis", 0), n.rank(0))}}));
}

void gather_nd(NodeContext& n) {
  n.out(0, n.add(Op::gather_nd, {n.in(0), n.in(1)}, {{"batch_dims", n.attr_int("batch_dims", 0)}}));
}

void scatter_elements(NodeContext& n) {
  n.out(0, n.add(Op::scatter_elements, {n.in(0), n.in(1), n.in(2)},
                 {{"axis", n.axis(n.attr_int("axis", 0), n.rank(0))},
                  {"reduction", n.attr_str("reduction", "none")}}));
}

void scatter_nd(NodeContext& n) {
  n.out(0,
        n.add(Op::scatter_nd, {n.in(0), n.in(1), n.in(2)}, {{"reduction", n.attr_str("reduction", "none")}}));
}

void one_hot(NodeContext& n) {
  // Depth may be a float, then its value must be known.
  const std::vector<Dim> depth = is_float(n.dtype(1))
                                     ? std::vector<Dim>{Dim(n.require_scalar(1, "depth").get_i64(0))}
                                     : n.require_sizes(1, "depth");
  if (depth.size() != 1) n.bad("depth", "one number", std::to_string(depth.size()));
  const ValueId values = n.in(2);
  const ValueId off = n.reshape(n.slice_axis(values, 0, 0, 1), {}),
                on = n.reshape(n.slice_axis(values, 0, 1, 2), {});
  const DType index = n.dtype(0) == DType::i32 ? DType::i32 : DType::i64;
  const int64_t axis = n.axis(n.attr_int("axis", -1), n.rank(0) + 1);
  n.out(0,
        n.add(Op::one_hot, {n.cast(n.in(0), index), on, off}, {{"depth", Shape{depth[0]}}, {"axis", axis}}));
}

// The indices of what is not zero, [rank, count]: how many there are must be known.
void non_zero(NodeContext& n) {
  const auto known = n.constant(0);
  if (!known) n.unsupported("a result whose size depends on data");
  const auto rank = static_cast<int64_t>(known->sizes().size());
  std::vector<int64_t> found;
  for (int64_t i = 0; i < known->count(); ++i)
    if (known->get_f64(i) != 0) found.push_back(i);
  const auto count = static_cast<int64_t>(found.size());
  Array indices = n.generated(DType::i64, {rank, count});
  for (int64_t k = 0; k < count; ++k) {
    int64_t rest = found[static_cast<size_t>(k)];
    for (int64_t axis = rank; axis-- > 0;) {
      const int64_t size = known->sizes()[static_cast<size_t>(axis)];
      indices.set_i64(axis * count + k, rest % size);
      rest /= size;
    }
  }
  n.out_array(0, indices);
}

// Keeps the elements whose condition holds; how many there are must be known.
void compress(NodeContext& n) {
  const Array condition = n.require_constant(1, "condition");
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < condition.count(); ++i)
    if (condition.get_i64(i) != 0) kept.push_back(i);
  const ValueId indices =
      n.constant_of(Array::from<int64_t>(DType::i64, {static_cast<int64_t>(kept.size())}, kept));
  const bool flat = !n.has_attr("axis");
  const ValueId x = flat ? n.reshape(n.in(0), {element_count(n.shape(0))}) : n.in(0);
  const int64_t axis = flat ? 0 : n.axis(n.attr_int("axis", 0), n.rank(0));
  n.out(0, n.add(Op::gather, {x, indices}, {{"axis", axis}}));
}

// Each batch's first lengths[b] steps reversed: index t becomes length - 1 - t where t < length.
void reverse_sequence(NodeContext& n) {
  const int64_t time = n.axis(n.attr_int("time_axis", 0), n.rank(0)),
                batch = n.axis(n.attr_int("batch_axis", 1), n.rank(0));
  if (time + batch != 1) n.bad("time_axis and batch_axis", "0 and 1 in some order", std::to_string(time));
  const Shape shape = n.shape(0);
  const Shape plane = {shape[0], shape[1]};
  const ValueId t = n.add(Op::iota, {}, {{"shape", plane}, {"axis", time}, {"dtype", DType::i64}});
  const ValueId lengths =
      n.reshape(n.cast(n.in(1), DType::i64), time == 0 ? Shape{1, shape[1]} : Shape{shape[0], 1});
  const ValueId mirrored = n.add(Op::sub, {n.add(Op::sub, {lengths, n.iscalar(DType::i64, 1)}), t});
  const ValueId index = n.add(Op::select, {n.add(Op::lt, {t, lengths}), mirrored, t});
  Shape thin = plane;
  thin.resize(shape.size(), Dim(1));
  const ValueId wide = n.broadcast(n.reshape(index, thin), shape);
  n.out(0, n.add(Op::gather_elements, {n.in(0), wide}, {{"axis", time}}));
}

// data with updates written at write_indices[b] + t along `axis`.
void tensor_scatter(NodeContext& n) {
  const std::string mode = n.attr_str("mode", "linear");
  if (mode != "linear" && mode != "circular") n.unsupported("mode=" + mode);
  const int64_t axis = n.axis(n.attr_int("axis", -2), n.rank(0));
  if (axis == 0) n.bad("axis", "not the batch axis", "0");
  n.require_rank(1, n.rank(0));
  const Shape updates = n.shape(1);
  ValueId index = n.add(Op::iota, {}, {{"shape", updates}, {"axis", axis}, {"dtype", DType::i64}});
  if (n.has(2)) {
    n.require_rank(2, 1);
    Shape thin(updates.size(), Dim(1));
    thin[0] = n.shape(2)[0];
    index = n.add(Op::add, {index, n.reshape(n.cast(n.in(2), DType::i64), thin)});
  }
  if (mode == "circular")
    index = n.add(Op::mod, {index, n.size_scalar(n.shape(0)[static_cast<size_t>(axis)], DType::i64)});
  n.out(0, n.add(Op::scatter_elements, {n.in(0), index, n.in(1)},
                 {{"axis", axis}, {"reduction", std::string("none")}}));
}

}  // namespace

std::vector<OpRule> index_rules() {
  return {
      {"Gather", gather},
      {"GatherElements", gather_elements},
      {"GatherND", gather_nd},
      {"ScatterElements", scatter_elements},
      {"Scatter", scatter_elements, 9, "", 10},
      {"ScatterND", scatter_nd},
      {"OneHot", one_hot},
      {"Compress", compress},
      {"NonZero", non_zero},
      {"ReverseSequence", reverse_sequence},
      {"TensorScatter", tensor_scatter},
  };
}

}  // namespace aicf::onnx
