// Nodes of a driver's graph, one after the other.
#pragma once

#include "runtime/cuda/launches.h"

namespace aicf::cuda {

class NodeChain {
 public:
  // `programmatic`: where a kernel follows a kernel of ours, its launch may overlap the end of that one; each
  // waits for the one before by itself (the launch ABI asks every kernel to).
  NodeChain(Graph graph, Context context, bool programmatic)
      : graph_(graph), context_(context), programmatic_(programmatic) {}

  // A kernel, a library's routine as a graph within the graph, or the nodes of control flow; null if that
  // launches nothing.
  GraphNode add(Launches& launches, Launches::Kernel& kernel);
  void add_all(Launches& launches);
  // A kernel that does not wait by itself.
  void add(const KernelNodeParams& kernel);
  void add(Event event);

  // What kernels tell by which a conditional node whether it runs.
  ConditionalHandle make_handle();
  // The graph within a node that runs if, or while, the handle was last given a value other than 0.
  Graph add_conditional(ConditionalHandle handle, ConditionalType type);

 private:
  GraphNode append(GraphNodeParams& params, bool early);

  Graph graph_;
  Context context_;
  bool programmatic_;
  GraphNode last_ = nullptr;
  bool last_is_ours_ = false;  // a kernel of the launch ABI: it tells when it ends
};

}  // namespace aicf::cuda
