// Conditions of a loop that its counters decide, as TensorFlow writes them: i < n, where i grows by one
// number each step. They say no more than the number of steps does, if they hold at every step but the last.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "ir/graph.h"

namespace aicf::onnx {

// slope · step + base
struct Line {
  int64_t slope = 0;
  Dim base;
};
using Lines = std::map<ValueId, Line>;

// By how much a carried integer grows each step: `next` is what the body makes of its input.
std::optional<int64_t> growth(const Graph& body, ValueId input, ValueId next);
// Whether the condition holds at the steps 0 to `last`, by comparisons of lines over `known` values.
bool holds_until(const Graph& graph, ValueId condition, const Lines& known, const Dim& last,
                 const std::function<Interval(const Dim&)>& bounds);

}  // namespace aicf::onnx
