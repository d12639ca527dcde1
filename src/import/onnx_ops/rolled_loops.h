// Loop and Scan that stay loops: the body becomes a graph of its own, and the node a while_loop if the data
// decides how often it runs, else a scan. What it carries must keep its type.
#pragma once

#include "import/onnx_ops/node_context.h"

namespace aicf::onnx {

// Whether the body of a Loop declares the number of the step as [1], as tf2onnx does, and not as a scalar.
bool counts_in_one_axis(const GraphProto& body);

// Loop with inputs M, condition, carried...; the first `carried` results are the values at the end, the
// others are stacked.
void rolled_loop(NodeContext& n, const GraphProto& body, size_t carried);

// How one value that a Scan walks along lies.
struct ScanAxis {
  int64_t axis = 0;
  bool reverse = false;
};
// Scan with inputs carried..., walked (one per `in`); results carried..., stacked (one per `out`).
void rolled_scan(NodeContext& n, const GraphProto& body, size_t carried, const std::vector<ScanAxis>& in,
                 const std::vector<ScanAxis>& out);

}  // namespace aicf::onnx
