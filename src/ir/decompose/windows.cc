// Composites over sliding windows.
#include <algorithm>

#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

Ints swapped(size_t rank) {
  Ints perm = axes_from(0, static_cast<int64_t>(rank));
  std::swap(perm[0], perm[1]);
  return perm;
}

}  // namespace

// A convolution with batch and channels exchanged, strides and dilations too: the channels of a group become
// the batch, the batch the summed channels.
Values decompose_conv_weight_gradient(Emitter& e, const Node& node, const Values& x) {
  const int64_t groups = node.attrs.get_int("groups");
  const Shape shape = e.shape(x[0]);
  const Dim channels = floordiv(shape[1], Dim(groups));
  Shape split = shape, merged = shape, limits = {channels, e.shape(x[1])[1]};
  split[1] = channels;
  split.insert(split.begin() + 1, Dim(groups));
  merged[0] = channels;
  merged[1] = Dim(groups) * shape[0];
  Ints exchange = axes_from(0, static_cast<int64_t>(split.size()));
  std::swap(exchange[0], exchange[2]);
  const ValueId apart = e.op(Op::transpose, {e.reshape(x[0], split)}, {{"perm", exchange}});
  const Attrs swap = {{"perm", swapped(shape.size())}};
  ValueId sums = e.op(Op::conv, {e.reshape(apart, merged), e.op(Op::transpose, {x[1]}, swap)},
                      {{"strides", node.attrs.get_ints("dilations")},
                       {"pads", node.attrs.get_ints("pads")},
                       {"dilations", node.attrs.get_ints("strides")},
                       {"groups", groups},
                       {"tf32", node.attrs.get_bool("tf32")}});
  const Shape& kernel = node.attrs.get_dims("kernel");
  limits.insert(limits.end(), kernel.begin(), kernel.end());
  if (!(e.shape(sums) == limits))
    sums = e.op(
        Op::slice, {sums},
        {{"starts", Shape(limits.size(), Dim(0))}, {"limits", limits}, {"steps", Ints(limits.size(), 1)}});
  return {e.op(Op::transpose, {sums}, swap)};
}

}  // namespace aicf
