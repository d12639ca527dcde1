// Nodes of a driver's graph, one after the other or in lanes (kernels/common/lanes.h).
#pragma once

#include <vector>

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
  // All of them, in the lanes of their steps; what is added next follows all. One node each, as of add.
  std::vector<GraphNode> add_all(Launches& launches);
  // A kernel that does not wait by itself.
  void add(const KernelNodeParams& kernel);
  void add(Event event);

  // What kernels tell by which a conditional node whether it runs.
  ConditionalHandle make_handle();
  // The graph within a node that runs if, or while, the handle was last given a value other than 0.
  Graph add_conditional(ConditionalHandle handle, ConditionalType type);

 private:
  // What a node that is appended follows.
  struct End {
    std::vector<GraphNode> nodes = {};
    bool is_ours = false;  // one kernel of the launch ABI: it tells when it ends
  };
  struct LaneEnd {
    End end = {};
    std::vector<GraphNode> fork = {};  // what lane 0 ended with when the lane last went on
  };
  GraphNode append(GraphNodeParams& params, bool early);

  Graph graph_;
  Context context_;
  bool programmatic_;
  End end_;
};

}  // namespace aicf::cuda
