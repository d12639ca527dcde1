#include "runtime/cuda/node_chain.h"

#include "base/error.h"
#include "base/option_text.h"
#include "kernels/common/custom_kernel.h"
#include "runtime/cuda/control_flow.h"

namespace aicf::cuda {
namespace {

void set_cluster(GraphNode node, int blocks) {
  if (blocks == 1) return;
  LaunchAttribute::Value value{};
  value.cluster[0] = static_cast<unsigned>(blocks);
  value.cluster[1] = value.cluster[2] = 1;
  AICF_CUDA(driver().graph_node_set_attribute(node, kClusterDimension, &value));
}

}  // namespace

// What follows one node may begin while that ends; what follows several waits for the end of all.
GraphNode NodeChain::append(GraphNodeParams& params, bool early) {
  const std::vector<GraphNode>& before = end_.nodes;
  std::vector<EdgeData> edges(before.size());
  if (early && programmatic_ && end_.is_ours && before.size() == 1) {
    edges[0].from_port = kProgrammaticPort;
    edges[0].type = kProgrammaticEdge;
  }
  GraphNode node = nullptr;
  AICF_CUDA(driver().graph_add_node(&node, graph_, before.empty() ? nullptr : before.data(),
                                    before.empty() ? nullptr : edges.data(), before.size(), &params));
  end_ = {{node}, early};
  return node;
}

GraphNode NodeChain::add(Launches& launches, Launches::Kernel& kernel) {
  const CallsFor scope = launches.calls_for(kernel);
  if (kernel.control != nullptr) {
    const std::vector<GraphNode> before = end_.nodes;
    end_.is_ours = false;  // also where it launches nothing: it was promised that the kernels before it end
    kernel.control->add_to(*this, launches.call(kernel));
    return end_.nodes == before ? nullptr : end_.nodes[0];
  }
  GraphNodeParams params;
  if (kernel.library != nullptr) {
    const OwnedGraph child(launches.capture(kernel));
    params.type = kChildGraphNode;
    params.child = child.handle();
    return append(params, false);
  }
  params.kernel = kernel.node;
  // A custom op's text may let loads pass its wait.
  const GraphNode node = append(params, !is_custom_kernel(launches.step(kernel).kernel));
  set_cluster(node, kernel.cluster);
  return node;
}

std::vector<GraphNode> NodeChain::add_all(Launches& launches) {
  std::vector<LaneEnd> lanes(kMostLanes + 1);
  const auto join = [&](int32_t number) {
    LaneEnd& lane = lanes[static_cast<size_t>(number)];
    if (lane.end.nodes.empty()) return;
    end_.nodes.insert(end_.nodes.end(), lane.end.nodes.begin(), lane.end.nodes.end());
    lane = {};
  };
  std::vector<GraphNode> nodes;
  size_t step = 0;
  for (Launches::Kernel& kernel : launches.kernels()) {
    // A step joins lanes although it launches nothing.
    for (; step <= static_cast<size_t>(kernel.step); ++step)
      for (const int32_t joined : launches.step(step).lane.joins) join(joined);
    const int32_t number = launches.step(kernel).lane.number;
    if (number == 0) {
      nodes.push_back(add(launches, kernel));
      continue;
    }
    LaneEnd& lane = lanes[static_cast<size_t>(number)];
    if (lane.end.nodes.empty() || lane.fork != end_.nodes)
      lane.end.nodes.insert(lane.end.nodes.end(), end_.nodes.begin(), end_.nodes.end());
    lane.fork = end_.nodes;
    std::swap(lane.end, end_);
    nodes.push_back(add(launches, kernel));
    std::swap(lane.end, end_);
  }
  for (int32_t number = 1; number <= kMostLanes; ++number) join(number);
  return nodes;
}

void NodeChain::add(const KernelNodeParams& kernel) {
  GraphNodeParams params;
  params.kernel = kernel;
  append(params, false);
}

void NodeChain::add(Event event) {
  GraphNodeParams params;
  params.type = kEventRecordNode;
  params.event = event;
  append(params, false);
}

ConditionalHandle NodeChain::make_handle() {
  const auto create = driver().conditional_handle_create;
  if (create == nullptr)
    throw EnvironmentError(ErrorCode::kE_driver_too_old,
                           "the CUDA driver has no conditional nodes, which control flow needs")
        .with_expected("a driver for CUDA 12.4 or later")
        .with_remedy("update the driver, or run the CPU's variant with " +
                     option_text(Option::kDevice, "cpu"));
  ConditionalHandle handle = 0;
  AICF_CUDA(create(&handle, graph_, context_, 0, 0));
  return handle;
}

Graph NodeChain::add_conditional(ConditionalHandle handle, ConditionalType type) {
  GraphNodeParams params;
  params.type = kConditionalNode;
  params.conditional = {};
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = 1;
  params.conditional.context = context_;
  append(params, false);
  return *params.conditional.bodies;
}

}  // namespace aicf::cuda
