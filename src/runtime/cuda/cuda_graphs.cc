#include "runtime/cuda/cuda_graphs.h"

#include "base/error.h"
#include "runtime/cuda/node_chain.h"

namespace aicf::cuda {

CapturedGraph::CapturedGraph(Launches& launches, bool programmatic) {
  nodes_ = NodeChain(graph_.handle(), launches.context(), programmatic).add_all(launches);
  launches.settle();
  AICF_CUDA(driver().graph_instantiate(&exec_, graph_.handle(), 0));
}
CapturedGraph::~CapturedGraph() { driver().graph_exec_destroy(exec_); }

void CapturedGraph::update(Launches& launches) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Launches::Kernel& kernel = launches.kernels()[i];
    if (!kernel.changed) continue;
    const CallsFor scope = launches.calls_for(kernel);
    if (kernel.library != nullptr) {
      const OwnedGraph child(launches.capture(kernel));
      AICF_CUDA(driver().graph_exec_set_child(exec_, nodes_[i], child.handle()));
    } else {
      AICF_CUDA(driver().graph_exec_set_kernel(exec_, nodes_[i], &kernel.node));
    }
  }
  launches.settle();
}

void CapturedGraph::launch(StreamHandle stream) { AICF_CUDA(driver().graph_launch(exec_, stream)); }

void run_control(Launches& launches, Launches::Kernel& kernel, StreamHandle stream) {
  const OwnedGraph graph;
  NodeChain chain(graph.handle(), launches.context(), false);
  chain.add(launches, kernel);
  GraphExec exec = nullptr;
  AICF_CUDA(driver().graph_instantiate(&exec, graph.handle(), 0));
  const int result = driver().graph_launch(exec, stream);
  driver().graph_exec_destroy(exec);  // once it has run
  check(result, "graph_launch");
}

OwnedEvent::OwnedEvent() { AICF_CUDA(driver().event_create(&handle_, 0)); }
OwnedEvent::~OwnedEvent() { driver().event_destroy(handle_); }

TimedGraph::TimedGraph(Launches& launches) : stamps_(launches.kernels().size() + 1) {
  const OwnedGraph graph;
  NodeChain chain(graph.handle(), launches.context(), false);
  chain.add(stamps_[0].handle());
  for (size_t i = 0; i < launches.kernels().size(); ++i) {
    chain.add(launches, launches.kernels()[i]);
    chain.add(stamps_[i + 1].handle());
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

}  // namespace aicf::cuda
