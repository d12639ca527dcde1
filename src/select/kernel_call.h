// A call of a kernel: which one runs for which nodes, over which windows of which values, and why. Plain data
// over value ids of the graph; no buffer, address or code exists yet. call_program.h holds the calls of a
// graph and of a program.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "kernels/custom_kernel.h"
#include "select/problem_key.h"

namespace aicf {

// A strided view of a value's storage; `root` is the value that owns the bytes (row-major when it was made).
struct Window {
  ValueId root = kNoValue;
  DType dtype = DType::f32;
  Dim offset;  // elements
  Shape sizes;
  std::vector<Dim> strides;  // elements
  bool operator==(const Window&) const = default;
};

// How a region runs. Barriers between the stages of a CPU region are "same thread"; GPU schedules add scopes
// here.
struct Schedule {
  int inner_rank = 0;                // trailing axes of the domain that one row covers
  std::vector<int64_t> domain_axes;  // domain axis i is axis domain_axes[i] of the region's full shape
  bool operator==(const Schedule&) const = default;
};

// A region to be turned into code: the nodes of `body` over its inputs. Inputs that are scalar constants
// become immediates.
struct Region {
  Graph body;
  Shape full_shape;  // the shape that every value of the body broadcasts to
};

// One way to run a call: a row of the kernel table and, where it has several, one of its variants.
struct Candidate {
  std::string kernel, variant;
  double microseconds = 0;  // estimated
  bool operator==(const Candidate&) const = default;
};
// Its name in records and on the command line: "matmul_simt", "matmul_tensor_core/mma 64x64 stages 4".
std::string to_string(const Candidate& candidate);

enum class ChoiceSource : uint8_t { kRank, kRecord, kForced };

struct Choice {
  std::vector<Candidate> candidates;  // as ranked without records
  size_t chosen = 0;
  ChoiceSource source = ChoiceSource::kRank;
  std::optional<ProblemKey> key;  // if there is more than one candidate
  bool operator==(const Choice&) const = default;
};

// A library's routine that runs in place of the kernel, by the text of its call
// (kernels/library_call.h).
struct LibraryUse {
  std::string call;  // "": none
  int64_t workspace_bytes = 0;
  bool operator==(const LibraryUse&) const = default;
};

inline constexpr char kBundleKernel[] = "bundle";  // KernelCall::kernel of what the pass bundle_calls makes

struct KernelCall {
  std::string kernel;
  std::string variant;  // of the kernel; "": it has none, or chooses
  LibraryUse library;   // then the kernel is what runs where the library is not wanted
  std::vector<Window> inputs, outputs;
  std::vector<Dim> params;
  std::vector<double> fparams;
  int region = -1;                           // index into CallGraph::programs
  std::vector<int> bodies;                   // control flow: indices into CallGraph::bodies
  std::shared_ptr<const CustomCuda> custom;  // the kernel that the model brings, for a GPU
  // Inputs of which an element is read only before the element of an output at the same index is written: an
  // output with the same window may take their memory.
  std::vector<int32_t> elementwise;
  Schedule schedule;
  // Calls that share one launch (calls/). The inputs and outputs of the whole are theirs, every
  // window once. Members of one stage run side by side, those of the next begin when all of them have ended.
  std::vector<KernelCall> members;
  int stage = 0;  // of a member; they are in the order of their stages, which count from 0
  std::string origin;
  std::string reason;
  Choice choice;  // empty for calls that selection itself makes
  bool operator==(const KernelCall&) const = default;
};

}  // namespace aicf
