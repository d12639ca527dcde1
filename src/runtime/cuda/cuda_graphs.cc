#include "runtime/cuda/cuda_graphs.h"

#include "base/error.h"

namespace aicf::cuda {
namespace {

void set_cluster(GraphNode node, int blocks) {
  if (blocks == 1) return;
  LaunchAttribute::Value value{};
  value.cluster[0] = static_cast<unsigned>(blocks);
  value.cluster[1] = value.cluster[2] = 1;
  AICF_CUDA(driver().graph_node_set_attribute(node, kClusterDimension, &value));
}

// Adds a kernel, or a library's routine as a graph within the graph, after `before`.
GraphNode add_node(Graph graph, Launches& launches, Launches::Kernel& kernel, const GraphNode* before,
                   const EdgeData* edge) {
  GraphNodeParams params;
  GraphNode node = nullptr;
  const size_t edges = before != nullptr;
  if (kernel.library != nullptr) {
    params.type = kChildGraphNode;
    params.child = launches.capture(kernel);
    const int result = driver().graph_add_node(&node, graph, before, nullptr, edges, &params);
    driver().graph_destroy(params.child);
    AICF_CUDA(result);
    return node;
  }
  params.kernel = kernel.node;
  AICF_CUDA(
      driver().graph_add_node(&node, graph, before, before != nullptr ? edge : nullptr, edges, &params));
  set_cluster(node, kernel.cluster);
  return node;
}

}  // namespace

OwnedGraph::OwnedGraph() { AICF_CUDA(driver().graph_create(&handle_, 0)); }
OwnedGraph::~OwnedGraph() { driver().graph_destroy(handle_); }

CapturedGraph::CapturedGraph(Launches& launches, bool programmatic) {
  add_nodes(launches, programmatic);
  AICF_CUDA(driver().graph_instantiate(&exec_, graph_.handle(), 0));
}
CapturedGraph::~CapturedGraph() { driver().graph_exec_destroy(exec_); }

void CapturedGraph::update(Launches& launches) {
  if (!launches.changed()) return;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Launches::Kernel& kernel = launches.kernels()[i];
    if (!kernel.changed) continue;
    if (kernel.library != nullptr) {
      Graph child = launches.capture(kernel);
      const int result = driver().graph_exec_set_child(exec_, nodes_[i], child);
      driver().graph_destroy(child);
      AICF_CUDA(result);
    } else {
      AICF_CUDA(driver().graph_exec_set_kernel(exec_, nodes_[i], &kernel.node));
    }
    kernel.changed = false;
  }
  launches.settle();
}

void CapturedGraph::launch(StreamHandle stream) { AICF_CUDA(driver().graph_launch(exec_, stream)); }

void CapturedGraph::add_nodes(Launches& launches, bool programmatic) {
  EdgeData early;
  early.from_port = kProgrammaticPort;
  early.type = kProgrammaticEdge;
  const EdgeData full;
  bool after_library = false;
  for (Launches::Kernel& kernel : launches.kernels()) {
    const bool overlaps = programmatic && !after_library;  // a library's kernels tell nobody that they end
    nodes_.push_back(add_node(graph_.handle(), launches, kernel, nodes_.empty() ? nullptr : &nodes_.back(),
                              overlaps ? &early : &full));
    after_library = kernel.library != nullptr;
    kernel.changed = false;
  }
  launches.settle();
}

OwnedEvent::OwnedEvent() { AICF_CUDA(driver().event_create(&handle_, 0)); }
OwnedEvent::~OwnedEvent() { driver().event_destroy(handle_); }

TimedGraph::TimedGraph(Launches& launches) : stamps_(launches.kernels().size() + 1) {
  const OwnedGraph graph;
  add_stamp(graph.handle(), stamps_[0].handle());
  for (size_t i = 0; i < launches.kernels().size(); ++i) {
    const EdgeData full;
    last_ = add_node(graph.handle(), launches, launches.kernels()[i], &last_, &full);
    add_stamp(graph.handle(), stamps_[i + 1].handle());
  }
  AICF_CUDA(driver().graph_instantiate(&exec_, graph.handle(), 0));
}
TimedGraph::~TimedGraph() { driver().graph_exec_destroy(exec_); }

std::vector<double> TimedGraph::run(StreamHandle stream) {
  AICF_CUDA(driver().graph_launch(exec_, stream));
  AICF_CUDA(driver().stream_synchronize(stream));
  std::vector<double> times;
  for (size_t i = 1; i < stamps_.size(); ++i) {
    float milliseconds = 0;
    AICF_CUDA(driver().event_elapsed(&milliseconds, stamps_[i - 1].handle(), stamps_[i].handle()));
    times.push_back(1e3 * static_cast<double>(milliseconds));
  }
  return times;
}

void TimedGraph::add_stamp(Graph graph, Event event) {
  GraphNodeParams params;
  params.type = kEventRecordNode;
  params.event = event;
  GraphNode node = nullptr;
  AICF_CUDA(driver().graph_add_node(&node, graph, last_ == nullptr ? nullptr : &last_, nullptr,
                                    last_ != nullptr, &params));
  last_ = node;
}

}  // namespace aicf::cuda
