// A call: what runs for which nodes, over which windows of which values, and why. Plain data over value ids
// of the graph; no buffer, address or code exists yet. call_program.h holds the calls of a graph and of a
// program.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/indirect.h"
#include "base/strided.h"
#include "ir/graph.h"
#include "kernels/common/lanes.h"
#include "kernels/common/library_call.h"
#include "kernels/common/way.h"
#include "select/problem_key.h"

namespace aicf {

struct CustomCuda;  // kernels/common/custom_kernel.h

// A strided view of a value's storage; `root` is the value that owns the bytes (row-major when it was made).
struct Window : Strided<Dim> {
  ValueId root = kNoValue;
  bool operator==(const Window&) const = default;
};

// How a region runs. Barriers between the stages of a CPU region are "same thread"; GPU schedules add scopes
// here.
struct Schedule {
  int inner_rank = 0;                     // trailing axes of the domain that one row covers
  std::vector<int64_t> domain_axes = {};  // domain axis i is axis domain_axes[i] of the region's full shape
  bool operator==(const Schedule&) const = default;
};

// A region to be turned into code: the nodes of `body` over its inputs. Inputs that are scalar constants
// become immediates.
struct Region {
  Graph body;
  Shape full_shape;  // the shape that every value of the body broadcasts to
};

// One way to run a call: a row of the kernel table in one of its ways, or a library's routine. Its two times
// are in microseconds. The estimate is physics, from the problem and facts of the named target alone, and is
// what people are shown. The price decides between calls together and apart: it begins as the estimate, and
// measurements, of this problem or of others, change it and nothing else.
struct Candidate {
  std::string kernel;  // the row, or library_kernel() of the routine
  Way way = {};        // of the row; nothing: it has one
  double estimate_us = 0;
  double price_us = estimate_us;
  std::optional<LibraryCall> library = {};
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

// ---- what runs

// A region's program is all that the call does. An epilogue's gets the products' sums as its first inputs. A
// prologue's makes the updates of a scatter.
enum class ProgramRole : uint8_t { kRegion, kEpilogue, kPrologue };

struct ProgramUse {
  ProgramRole role = ProgramRole::kRegion;
  int index = -1;         // into CallGraph::programs
  int first_operand = 0;  // the call's input that is the program's first, behind the sums
  bool operator==(const ProgramUse&) const = default;
};

// A row of a kernel table.
struct RowCall {
  std::string row = {};  // its name
  Way way = {};          // of the row; nothing: it has one, or chooses
  std::vector<Dim> params = {};
  std::vector<double> fparams = {};
  std::optional<Schedule> schedule = {};  // of a region
  std::vector<ProgramUse> programs = {};
  std::optional<int32_t> indexed = {};  // the input of which the last one numbers the rows
  bool operator==(const RowCall&) const = default;
};

// A library's routine.
struct LibraryRun {
  std::string text;  // of the routine's call (kernels/common/library_call.h)
  int64_t workspace_bytes = 0;
  RowCall fallback;  // runs where the library is not wanted
  bool operator==(const LibraryRun&) const = default;
};

struct KernelCall;
struct BundleMember;

// Of calls that share one launch (calls/), the inputs and outputs of the whole are theirs, every window once.

// Small calls. Members of one stage run side by side, those of the next begin when all of them have ended.
struct Bundle {
  std::vector<BundleMember> members;  // in the order of their stages, which count from 0
  bool operator==(const Bundle&) const;
};

// Products that differ in their buffers alone, as the batches of one: calls of one row in one way.
struct GroupedProducts {
  std::vector<KernelCall> members;
  bool operator==(const GroupedProducts&) const;
};

// A call of a row whose every block computes the first input itself: the producer is the consumer's prologue.
struct PrologueFusion {
  Indirect<KernelCall> producer, consumer;
  bool operator==(const PrologueFusion&) const;
};

// Control flow: the runtime runs the bodies.
struct ControlRun {
  Op kind = Op::if_else;         // or while_loop, scan
  std::vector<int> bodies = {};  // indices into CallGraph::bodies
  std::vector<Dim> params = {};  // of the step (plan/control_layout.h)
  bool operator==(const ControlRun&) const = default;
};

// An op of the user's.
struct CustomRun {
  std::string op;
  std::vector<Dim> params = {};
  std::vector<double> fparams = {};
  std::shared_ptr<const CustomCuda> cuda = {};  // the kernel that the model brings, for a GPU
  bool operator==(const CustomRun&) const = default;
};

// None: the call was removed (calls/legality.h).
using WhatRuns = std::variant<std::monostate, RowCall, LibraryRun, Bundle, GroupedProducts, PrologueFusion,
                              ControlRun, CustomRun>;

struct KernelCall {
  std::vector<Window> inputs, outputs;
  // Inputs of which an element is read only before the element of an output at the same index is written: an
  // output with the same window may take their memory.
  std::vector<int32_t> elementwise;
  std::vector<std::string> origins;  // the nodes that it came from; joins unite them
  Choice choice;                     // empty for calls that selection itself makes
  std::string reason;
  WhatRuns what;
  Lane lane = {};
  bool operator==(const KernelCall&) const;
};

struct BundleMember {
  KernelCall call;
  int stage = 0;
  bool operator==(const BundleMember&) const = default;
};

// ---- asked of calls

// What runs, as plans and reports say it: "matmul_tensor_core/mma 64x64 stages 4", "bundle/4 calls in 2
// stages".
struct RunName {
  std::string kernel, way = {};
};
std::string to_string(const RunName& name);
// A name that a record or a caller holds, in today's words: that of a way of before is the way's
// (kernels/common/way.h).
std::string current_name(const std::string& name);

// Names of plans and reports for calls that no single row runs.
inline constexpr char kBundleKernel[] = "bundle", kProductGroup[] = "matmul_group";
inline constexpr char kRegionProduct[] = "region_product", kRopeAttention[] = "rope_attention";
// The row that runs a region as it is.
inline constexpr std::string_view kRegionRow = "tile";

// The row that runs; null if anything else does.
template <class Call>
auto* row_call(Call&& call) {
  return std::get_if<RowCall>(&call.what);
}
// The same, but of a library's call the row in its place.
template <class Call>
auto* own_row(Call&& call) {
  auto* library = std::get_if<LibraryRun>(&call.what);
  return library != nullptr ? &library->fallback : row_call(call);
}

inline bool is_removed(const KernelCall& call) { return call.what.index() == 0; }
bool is_row(const KernelCall& call, std::string_view row);
// Whether the row's program plays this role.
bool has_program(const KernelCall& call, ProgramRole role);
// Whether it is a region and nothing else.
bool is_region(const KernelCall& call);

// The row that runs the region with this program as it is.
RowCall region_row(Schedule schedule, int program);
// The params as a plan has them: the number of an indexed input is the last.
std::vector<Dim> plan_params(const RowCall& row);

// The calls that a launch consists of, with their stages; none if it is one call.
struct StagedCall {
  const KernelCall* call;
  int stage;
};
std::vector<StagedCall> members_of(const KernelCall& call);

// What runs, as plans and reports name it: {"custom:my::op", ""}, {"bundle", "3 calls in 1 stage"}.
RunName named(const KernelCall& call);
// The nodes that it came from. Of calls side by side, those of the first and the last.
std::string origin_text(const KernelCall& call);

}  // namespace aicf
