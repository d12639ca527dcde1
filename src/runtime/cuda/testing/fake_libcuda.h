// What the CUDA driver made up by fake_libcuda.cc counts and can be told. It computes nothing; its memory is
// the host's.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

namespace aicf::cuda {

// A node of a graph: those that it follows, by their number among all nodes, and those of them that end while
// it begins.
struct FakeNode {
  std::vector<size_t> follows, early;
};

struct FakeCuda {
  const char* failing = nullptr;     // this function fails,
  int result = 1;                    // with this CUresult,
  std::atomic<int> sound_calls = 0;  // after so many calls of it
  int arch = 90;                     // what the device is
  bool gone = false;                 // the driver has shut down with its process: every function fails
  // What is alive.
  int contexts = 0, blocks = 0, host_blocks = 0, streams = 0, events = 0, modules = 0, graphs = 0, execs = 0;
  // What was done.
  int graph_launches = 0, kernel_launches = 0, instantiations = 0, conditionals = 0, node_updates = 0;
  std::vector<FakeNode> nodes;         // of all graphs
  int dynamic_shared = 0;              // bytes that launches may have, as it was set last
  std::map<void*, size_t> host_bytes;  // of page-locked memory that is alive
};

}  // namespace aicf::cuda
