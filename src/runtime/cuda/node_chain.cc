#include "runtime/cuda/node_chain.h"

#include "base/error.h"
#include "base/option_text.h"
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

GraphNode NodeChain::append(GraphNodeParams& params, bool early) {
  EdgeData edge;
  if (early && programmatic_ && last_is_ours_) {
    edge.from_port = kProgrammaticPort;
    edge.type = kProgrammaticEdge;
  }
  GraphNode node = nullptr;
  const bool follows = last_ != nullptr;
  AICF_CUDA(driver().graph_add_node(&node, graph_, follows ? &last_ : nullptr, follows ? &edge : nullptr,
                                    follows, &params));
  last_ = node;
  last_is_ours_ = early;
  return node;
}

GraphNode NodeChain::add(Launches& launches, Launches::Kernel& kernel) {
  const CallsFor scope = launches.calls_for(kernel);
  if (kernel.control != nullptr) {
    const GraphNode before = last_;
    last_is_ours_ = false;  // also where it launches nothing: it was promised that the kernels before it end
    kernel.control->add_to(*this, launches.call(kernel));
    return last_ == before ? nullptr : last_;
  }
  GraphNodeParams params;
  if (kernel.library != nullptr) {
    const OwnedGraph child(launches.capture(kernel));
    params.type = kChildGraphNode;
    params.child = child.handle();
    return append(params, false);
  }
  params.kernel = kernel.node;
  const GraphNode node = append(params, true);
  set_cluster(node, kernel.cluster);
  return node;
}

void NodeChain::add_all(Launches& launches) {
  for (Launches::Kernel& kernel : launches.kernels()) add(launches, kernel);
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
