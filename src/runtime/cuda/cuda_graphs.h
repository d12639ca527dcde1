// The kernels of an entry as graphs of the driver: one that replays, and one that takes the time of every
// kernel.
#pragma once

#include <vector>

#include "runtime/cuda/launches.h"

namespace aicf::cuda {

// The launches of an entry as a chain of nodes; `programmatic` as of NodeChain, from sm_90 on.
class CapturedGraph {
 public:
  CapturedGraph(Launches& launches, bool programmatic);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  // Gives changed arguments to the nodes; launches under way keep the old ones.
  void update(Launches& launches);
  void launch(StreamHandle stream);

 private:
  OwnedGraph graph_;  // its nodes name those of `exec_` when arguments change, so it lives as long
  GraphExec exec_ = nullptr;
  std::vector<GraphNode> nodes_;
};

// Enqueues control flow, which only a graph can run, as a graph of its own.
void run_control(Launches& launches, Launches::Kernel& kernel, StreamHandle stream);

// An event that takes the time.
class OwnedEvent {
 public:
  OwnedEvent();
  ~OwnedEvent();
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;
  Event handle() const { return handle_; }

 private:
  Event handle_ = nullptr;
};

// A graph with a time stamp before the first and after every kernel.
class TimedGraph {
 public:
  explicit TimedGraph(Launches& launches);
  ~TimedGraph();
  TimedGraph(const TimedGraph&) = delete;
  TimedGraph& operator=(const TimedGraph&) = delete;

  // Microseconds of each kernel in one run.
  std::vector<double> run(StreamHandle stream);

 private:
  std::vector<OwnedEvent> stamps_;
  GraphExec exec_ = nullptr;
};

}  // namespace aicf::cuda
