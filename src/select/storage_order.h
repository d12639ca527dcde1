// Where and in which order of axes values are stored, before any call is chosen. Row-major is the rule; a
// value whose only reader transposes it is stored as that reader wants it, and what convolutions (on CUDA: on
// matrix units, of f32 by parts where that gains) and the ops after them make is stored channels-last ([N,
// spatial..., C]), so that a convolution reads its windows where they lie. Only strides change: every kernel
// takes any, so the orders are a matter of speed.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "select/choose.h"
#include "target/target.h"

namespace aicf {

// By value: the axes from outermost to innermost, or none for row-major.
std::vector<Ints> stored_orders(const Graph& graph, const Target& target, const SelectOptions& options);

Ints channels_last_order(size_t rank);

// A value that is written straight into the storage of a concat that reads it.
struct ConcatPart {
  ValueId whole = kNoValue;  // the concat's result; it may be a part of another
  size_t axis = 0;
  Dim start = Dim(0);  // along the axis
  // Views from the concat's operand back to this value, if it is not the operand itself.
  std::vector<const Node*> views = {};
};

// By value. Values that a kernel writes and that nobody wants elsewhere: an output has a buffer of its own,
// and a reshape of a part could not be expressed by strides. A value is a part also through reshapes that
// insert or remove axes of one element, and what convolutions and attention's gradients write through any
// views, where strides can express them.
std::vector<ConcatPart> concat_parts(const Graph& graph);

// By value: its shape as it is stored; without axes for one that is stored as it is. Rows of what products
// read begin at whole units of 16 bytes, beyond which lie elements that nobody reads or writes: the copy
// engine and vectors of matrix units read operands from there only.
std::vector<Shape> padded_shapes(const Graph& graph, const Target& target);

// By value: the param or state whose storage it takes, kNoValue for all others. Such a result is written
// straight into the variable that an update gives it to, so that the update costs nothing: every read of the
// old value comes before the result is made, or the kernel that makes it reads an element only before it
// writes the same one.
std::vector<ValueId> update_targets(const Graph& graph, const Target& target);

// A convolution where it stands: in the graph, or in the body of a region.
struct Conv {
  const Graph& graph;
  const Node& node;
};
// That of a node, if it is one or begins with one.
std::optional<Conv> conv_of(const Graph& graph, const Node& node);
// Of halves, or of f32 in tf32.
bool is_narrow(const Conv& conv);
// Whether each of several groups has one channel.
bool is_depthwise(const Conv& conv);
// Whether it is for the matrix units of a GPU: a narrow one that is not depthwise.
bool wants_matrix_units(const Conv& conv);
// Whether a convolution of f32 takes clearly less time by parts on matrix units, channels last, than any does
// over channels first, by the estimates of the rows, or is to run so.
bool gains_by_parts(const Conv& conv, const Target& target, const SelectOptions& options);
// The row of products by parts among these; null: none.
const KernelRow* find_parts_row(const std::vector<const KernelRow*>& rows);
// Whether its weights have a form that is packed at load: f32 of static size, with enough output channels in
// a group to fill vectors. That they are weights at all is not asked.
bool has_packed_form(const Conv& conv);

}  // namespace aicf
