// What passes may know about a target: its name and which ops its kernels serve. A pure function of the
// kernel tables, so that compiling for a machine needs no such machine.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "kernels/common/kernel.h"

namespace aicf {

// What the cost model knows of a target: measured on, or taken from the data sheet of, its usual machine.
struct TargetFacts {
  int multiprocessors;  // 0 on the CPU
  double bytes_per_microsecond;
  double half_flops, float_flops;  // per microsecond
  double edge_microseconds;        // from the end of a kernel to the start of the next
  bool operator==(const TargetFacts&) const = default;
};

struct Target {
  std::string name = "cpu";
  int arch = 0;  // CUDA compute capability × 10; 0: the CPU

  // "cpu", architectures ("sm_90") and portable PTX ("compute_80").
  static std::vector<std::string> names();
  // unsupported_target for another name.
  static Target from_name(const std::string& name);
  bool is_cuda() const { return arch != 0; }
  // What the CUDA compiler calls it: architectures with instructions of their own have a suffix ("sm_90a").
  std::string code_target() const;
  const TargetFacts& facts() const;

  // Rows of the target's kernel table that can run the problem, best first.
  std::vector<const KernelRow*> candidates(const Problem& problem) const;

  // Whether a kernel serves this node as it stands. A claimed node always gets a kernel; an unclaimed
  // composite is decomposed, an unclaimed primitive is the error no_kernel.
  bool claims(const Graph& graph, const Node& node) const;
  // Whether generated code can compute this node as part of a region.
  bool fuses(const Graph& graph, const Node& node) const;
  // Whether a kernel for this contraction can run a region over its result while a tile of it is in cache.
  bool takes_epilogue(const Graph& graph, const Node& node) const;
};

}  // namespace aicf
