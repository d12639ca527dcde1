// The plan: every byte and every step decided. Plain, printable, comparable data; the runtime needs nothing
// else and never sees the IR. Sizes may be symbolic; they are evaluated at bind. A plan read from a file is
// untrusted: check_plan must accept it (indices, alignment, arena bounds over the whole range of sizes)
// before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/array.h"
#include "base/dim.h"
#include "base/dtype.h"
#include "base/strided.h"
#include "kernels/common/cuda_launch.h"
#include "kernels/common/lanes.h"
#include "kernels/common/tile_program.h"

namespace aicf {

inline constexpr int64_t kBufferAlignment = 64;  // bytes
// Of larger buffers: two lines of a GPU's cache, since a tile whose rows of 128 bytes straddle lines is read
// twice from it. On an H100 products of 8,192 x 768 x 50,304 took 1,190 us so, and 795 aligned.
inline constexpr int64_t kLargeBuffer = 4096, kLargeBufferAlignment = 256;
// The entry that packs weights. It belongs to the model: run at load and after a param change, never by a
// caller.
inline constexpr std::string_view kInitEntry = "init";

enum class BufferKind : uint8_t { kInput, kOutput, kVariable, kConstant, kPacked, kArena };
std::string_view buffer_kind_name(BufferKind kind);

struct Buffer {
  BufferKind kind = BufferKind::kArena;
  std::string name;       // input, output, variable or constant name; for people in packed and arena buffers
  Dim bytes;              // at the bound sizes
  int64_t max_bytes = 0;  // over the declared ranges
  int64_t offset = 0;     // in the arena (kArena) or the packed area (kPacked)
  int32_t first_step = 0, last_step = 0;  // lifetime, inclusive (kArena)
  std::string note;                       // why it shares bytes with another, if it does
  bool operator==(const Buffer&) const = default;
};

struct TensorRef : Strided<Dim> {
  int32_t buffer = -1;
  bool operator==(const TensorRef&) const = default;
};

// A library's routine that runs in place of the launches.
struct LibraryStep {
  std::string call;        // its text (kernels/common/library_call.h); "": none
  int32_t workspace = -1;  // a buffer of the arena; -1: none
  bool operator==(const LibraryStep&) const = default;
};

// One of several calls that a step runs in one launch: those of a stage side by side, the stages one after
// the other. Operands are numbers of the step's.
struct StepMember {
  std::string kernel, variant, origin;
  int32_t stage = 0;
  std::vector<int32_t> inputs, outputs;
  bool operator==(const StepMember&) const = default;
};

struct Step {
  std::string kernel;        // a row of the target's kernel table
  std::string variant = {};  // of the row, as it was chosen; for people where `launches` say what runs
  std::vector<TensorRef> inputs, outputs;
  std::vector<Dim> params;
  std::vector<double> fparams;
  int32_t program = -1;  // index into Plan::programs, -1 if none
  // CUDA: what runs, in order, and the module (of Plan::modules) with its functions. The addresses of a
  // launch are those of inputs and outputs; a workspace is the last output.
  int32_t module = -1;
  std::vector<CudaLaunch> launches = {};
  LibraryStep library = {};
  // Control flow (if_else, while_loop, scan): indices into Plan::bodies of the entries that the step runs.
  // Its last output is their workspace (control_layout.h).
  std::vector<int32_t> bodies = {};
  // CUDA: empty, or what the launch consists of, in the order of the stages; every operand is some member's.
  std::vector<StepMember> members = {};
  std::string origin;  // node or region it came from
  Lane lane = {};      // CUDA: beside which steps it runs
  bool operator==(const Step&) const = default;
};

struct IoTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape sizes;
  int32_t buffer = -1;
  Array only_value = {};  // inputs: the only value accepted, null if any is
  bool operator==(const IoTensor&) const = default;
};

struct EntryPlan {
  std::string name;     // "main"; "init" runs once at load and after a param change
  SymbolRanges bucket;  // of Plan::buckets: the sizes that this plan runs
  std::vector<IoTensor> inputs, outputs;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  int64_t arena_bytes = 0;  // at the largest sizes
  bool operator==(const EntryPlan&) const = default;
};

struct PlanVariable {
  std::string name;
  DType dtype = DType::f32;
  Shape sizes;
  bool is_state = false;
  bool operator==(const PlanVariable&) const = default;
};

struct Plan {
  SymbolRanges sizes;
  std::vector<PlanVariable> variables;
  std::vector<TileProgram> programs;
  std::vector<EntryPlan> entries;
  // Plans of entries, by the entry's name, for a part of their sizes; the entry runs those of no bucket.
  std::vector<EntryPlan> buckets;
  // What steps of control flow run. Each belongs to one step, of an entry or of a body after it; its arena
  // lies in that step's workspace.
  std::vector<EntryPlan> bodies;
  int64_t packed_bytes = 0;  // area that `init` fills
  int32_t modules = 0;       // modules of machine code that travel beside the plan
  bool operator==(const Plan&) const = default;

  const EntryPlan* entry(std::string_view name) const;
  // The plan that runs the entry at these sizes: that of a bucket, or the entry's own.
  const EntryPlan& at_sizes(const EntryPlan& entry, const SymbolValues& sizes) const;
};

std::string to_string(
    const Plan& plan);  // tables for people: steps, buffers with offsets, lifetimes and notes
std::string to_string(const SymbolRanges& ranges);  // "batch in 1..8, sequence in 16..512"
// Throws UserError bad_artifact naming the first violation.
void check_plan(const Plan& plan);

}  // namespace aicf
