#include "plan/plan_builder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"
#include "plan/arena.h"
#include "plan/control_layout.h"
#include "select/layout.h"

namespace aicf {
namespace {

Dim byte_count(const TensorType& type) { return element_count(type.shape) * Dim(dtype_bytes(type.dtype)); }

int32_t intern(const TileProgram& program, std::vector<TileProgram>& programs) {
  const auto at = std::find(programs.begin(), programs.end(), program);
  if (at != programs.end()) return static_cast<int32_t>(at - programs.begin());
  programs.push_back(program);
  return static_cast<int32_t>(programs.size()) - 1;
}

std::string to_text(const Window& w) {
  return w.offset.to_string() + to_string(w.sizes) + to_string(w.strides);
}

// A call of several has none.
void set_params(const KernelCall& call, Step& step) {
  if (const RowCall* row = own_row(call)) step.params = plan_params(*row), step.fparams = row->fparams;
  if (const auto* control = std::get_if<ControlRun>(&call.what)) step.params = control->params;
  if (const auto* custom = std::get_if<CustomRun>(&call.what))
    step.params = custom->params, step.fparams = custom->fparams;
}

}  // namespace

struct PlanBuilder::EntryState {
  const CallGraph& calls;
  EntryPlan plan;
  std::map<ValueId, int32_t> buffers;                         // root value → buffer
  std::map<ValueId, int64_t> packed_offset;                   // extra packed values
  std::map<ValueId, size_t> last_read;                        // by root: the last call that reads it
  std::map<ValueId, size_t> outputs;                          // by root: the first output that it is
  std::map<ValueId, std::vector<const KernelCall*>> made_by;  // by root: the steps of init that write it
  OpenLanes open = {};                                        // at the call that is planned
  std::vector<size_t> last_beside = {};                       // by call
};

PlanBuilder::PlanBuilder(const Program& program, std::map<std::string, Array>& constants)
    : constants_(constants) {
  plan_.sizes = program.sizes;
  for (const auto& [name, variable] : program.variables)
    plan_.variables.push_back(
        {name, variable.type.dtype, variable.type.shape, variable.role == Role::kState});
  init_.name = kInitEntry;
}

int32_t PlanBuilder::intern_program(const TileProgram& program) { return intern(program, plan_.programs); }

std::string PlanBuilder::intern_constant(const Array& array) {
  for (const auto& [name, known] : constants_)
    if (known == array) return name;
  std::string name = "aicf.constant." + std::to_string(constants_.size());
  constants_.emplace(name, array);
  return name;
}

Buffer PlanBuilder::variable_or_constant(const Value& value) {
  Buffer buffer;
  buffer.kind = value.role == Role::kConstant ? BufferKind::kConstant : BufferKind::kVariable;
  buffer.name = value.role == Role::kConstant ? intern_constant(value.constant) : value.name;
  buffer.bytes = byte_count(value.type);
  return buffer;
}

int32_t PlanBuilder::buffer_of(EntryState& state, ValueId root) {
  if (auto at = state.buffers.find(root); at != state.buffers.end()) return at->second;
  Buffer buffer;
  if (state.calls.is_extra(root)) {
    const ExtraValue& extra = state.calls.extra_of(root);
    buffer.name = extra.name;
    buffer.bytes = byte_count(extra.type);
    if (extra.kind == ExtraValue::Kind::kPacked) {
      buffer.kind = BufferKind::kPacked;
      buffer.offset = state.packed_offset.at(root);
    }
  } else {
    const Value& value = state.calls.graph.value(root);
    if (value.role == Role::kTemp || value.role == Role::kInput) {
      buffer.kind = value.role == Role::kInput ? BufferKind::kInput : BufferKind::kArena;
      buffer.name = value.name;
      buffer.bytes = byte_count(value.type);
    } else {
      buffer = variable_or_constant(value);
    }
  }
  if (const auto at = state.outputs.find(root); at != state.outputs.end()) {
    buffer.kind = BufferKind::kOutput;
    buffer.name = state.calls.graph.output_names()[at->second];
  }
  buffer.max_bytes = bounds(buffer.bytes, ranges_).hi;
  buffer.first_step = INT32_MAX;
  buffer.last_step = -1;
  const auto index = static_cast<int32_t>(state.plan.buffers.size());
  state.plan.buffers.push_back(std::move(buffer));
  state.buffers.emplace(root, index);
  return index;
}

// An output that begins to live where an input of the same window ends takes its memory.
void PlanBuilder::reuse_input(EntryState& state, size_t index, const Window& output) {
  const bool is_temp = !state.calls.is_extra(output.root) && state.calls.is_temp(output.root) &&
                       !state.buffers.contains(output.root);
  if (!is_temp || state.outputs.contains(output.root)) return;
  const KernelCall& call = state.calls.calls[index];
  const Dim bytes = byte_count(state.calls.graph.type(output.root));
  const auto read_beside = [&](ValueId root) {
    bool found = false;
    state.open.visit_beside(call.lane, [&](size_t other) {
      const std::vector<Window>& inputs = state.calls.calls[other].inputs;
      found =
          found || std::any_of(inputs.begin(), inputs.end(), [&](const Window& w) { return w.root == root; });
    });
    return found;
  };
  for (int32_t number : call.elementwise) {
    Window input = call.inputs[static_cast<size_t>(number)];
    const ValueId root = std::exchange(input.root, output.root);
    if (!(input == output) || state.last_read.at(root) != index || read_beside(root)) continue;
    Buffer& buffer = state.plan.buffers[static_cast<size_t>(buffer_of(state, root))];
    if (buffer.kind != BufferKind::kArena || !(buffer.bytes == bytes)) continue;
    // The step may not read these bytes in any other way, nor write them twice.
    bool alone = true;
    for (size_t i = 0; i < call.inputs.size(); ++i)
      alone = alone && (call.inputs[i].root != root || static_cast<int32_t>(i) == number);
    for (const Window& w : call.outputs)
      alone = alone && (w.root == output.root || !state.buffers.contains(w.root) ||
                        state.buffers.at(w.root) != state.buffers.at(root));
    if (!alone) continue;
    state.buffers.emplace(output.root, state.buffers.at(root));
    if (buffer.note.empty()) buffer.note = "reused in place by " + origin_text(call);
    return;
  }
}

TensorRef PlanBuilder::tensor_ref(int32_t buffer, const Window& window) const { return {{window}, buffer}; }

// What a packed value holds, the same in every entry that packs it: the steps that write it, by what they
// read and compute.
std::string PlanBuilder::packed_key(const EntryState& state, ValueId root) {
  std::string key;
  for (const KernelCall* call : state.made_by.at(root))
    for (size_t output = 0; output < call->outputs.size(); ++output) {
      if (call->outputs[output].root != root) continue;
      const RowCall& row = *row_call(*call);
      key += row.row + to_string(row.params) + " " + std::to_string(output) + to_text(call->outputs[output]);
      if (!row.programs.empty())
        key += " program " + std::to_string(intern(state.calls.program_of(*call), init_programs_));
      for (const Window& w : call->inputs) {
        // What an earlier step of init makes is known by where it lies.
        const auto made = state.packed_offset.find(w.root);
        key +=
            " " +
            (made != state.packed_offset.end() ? "packed at " + std::to_string(made->second)
                                               : variable_or_constant(state.calls.graph.value(w.root)).name) +
            to_text(w);
      }
      key += "\n";
    }
  return key;
}

// A buffer of init for a value that is packed for the first time, at the end of the packed area.
int32_t PlanBuilder::packed_buffer(const EntryState& state, ValueId root) {
  Buffer buffer;
  const ExtraValue& extra = state.calls.extra_of(root);
  buffer.kind = BufferKind::kPacked;
  buffer.name = extra.name;
  buffer.bytes = byte_count(extra.type);
  buffer.max_bytes = buffer.bytes.require_constant("the size of packed weights");
  buffer.offset = plan_.packed_bytes;
  // Empty values have offsets of their own too.
  plan_.packed_bytes = checked_add(
      plan_.packed_bytes, checked_round_up(std::max<int64_t>(buffer.max_bytes, 1), kLargeBufferAlignment));
  const auto index = static_cast<int32_t>(init_.buffers.size());
  init_packed_.emplace(buffer.offset, index);
  init_.buffers.push_back(std::move(buffer));
  return index;
}

int32_t PlanBuilder::init_source(const EntryState& state, ValueId root) {
  if (const auto made = state.packed_offset.find(root); made != state.packed_offset.end())
    return init_packed_.at(made->second);
  Buffer from = variable_or_constant(state.calls.graph.value(root));
  from.max_bytes = bounds(from.bytes, ranges_).hi;
  init_.buffers.push_back(std::move(from));
  return static_cast<int32_t>(init_.buffers.size()) - 1;
}

void PlanBuilder::add_init(EntryState& state, const std::vector<StepLaunches>& launches) {
  const CallGraph& calls = state.calls;
  for (const KernelCall& call : calls.init_calls)
    for (const Window& w : call.outputs) {
      std::vector<const KernelCall*>& makers = state.made_by[w.root];
      if (makers.empty() || makers.back() != &call) makers.push_back(&call);
    }
  std::map<ValueId, int32_t> fresh;  // packed values that are new to the plan → buffer of init
  for (size_t i = 0; i < calls.init_calls.size(); ++i) {
    const KernelCall& call = calls.init_calls[i];
    for (const Window& w : call.outputs) {
      if (state.packed_offset.contains(w.root)) continue;
      const auto [known, is_new] = packed_offsets_.emplace(packed_key(state, w.root), plan_.packed_bytes);
      state.packed_offset[w.root] = known->second;
      if (is_new) fresh[w.root] = packed_buffer(state, w.root);
    }
    // Results of one step are new together.
    if (!fresh.contains(call.outputs[0].root)) continue;
    Step step;
    const RowCall& row = *row_call(call);
    step.kernel = row.row;
    for (const Window& w : call.inputs) step.inputs.push_back(tensor_ref(init_source(state, w.root), w));
    for (const Window& w : call.outputs) step.outputs.push_back(tensor_ref(fresh.at(w.root), w));
    step.params = plan_params(row);
    step.fparams = row.fparams;
    step.origin = origin_text(call);
    if (!launches.empty()) {
      AICF_CHECK(launches[i].workspace_bytes == Dim(0), "a kernel of init has no workspace");
      step.module = launches[i].module;
      step.launches = launches[i].launches;
      plan_.modules = std::max(plan_.modules, step.module + 1);
    } else if (!row.programs.empty()) {
      step.program = intern_program(calls.program_of(call));
    }
    init_.steps.push_back(std::move(step));
  }
}

void PlanBuilder::add_launches(EntryState& state, const StepLaunches& launches, Step& step) {
  step.module = launches.module;
  step.launches = launches.launches;
  plan_.modules = std::max(plan_.modules, launches.module + 1);
  if (launches.workspace_bytes == Dim(0)) return;
  Buffer buffer;
  buffer.name = "workspace";
  buffer.bytes = launches.workspace_bytes;
  buffer.max_bytes = bounds(buffer.bytes, ranges_).hi;
  buffer.first_step = INT32_MAX;
  buffer.last_step = -1;
  step.outputs.push_back(
      {DType::u8, Dim(0), {buffer.bytes}, {Dim(1)}, static_cast<int32_t>(state.plan.buffers.size())});
  state.plan.buffers.push_back(std::move(buffer));
}

void PlanBuilder::add_library(EntryState& state, const LibraryRun& library, Step& step) {
  step.library.call = library.text;
  if (library.workspace_bytes > 0)
    step.library.workspace = add_workspace(state, "library workspace", library.workspace_bytes);
}

// A buffer of the arena for the step that comes next.
int32_t PlanBuilder::add_workspace(EntryState& state, std::string name, int64_t bytes) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.bytes = Dim(bytes);
  buffer.max_bytes = bytes;
  buffer.first_step = static_cast<int32_t>(state.plan.steps.size());
  buffer.last_step = static_cast<int32_t>(state.last_beside[state.plan.steps.size()]);
  state.plan.buffers.push_back(std::move(buffer));
  return static_cast<int32_t>(state.plan.buffers.size()) - 1;
}

void PlanBuilder::add_bodies(EntryState& state, const KernelCall& call, Step& step) {
  const auto* control = std::get_if<ControlRun>(&call.what);
  if (control == nullptr) return;
  for (int body : control->bodies)
    step.bodies.push_back(numbers_[static_cast<size_t>(state.calls.bodies[static_cast<size_t>(body)])]);
  const Dim bytes(control_layout(step, plan_.bodies).bytes);
  const int32_t buffer = add_workspace(state, "workspace of " + origin_text(call), bytes.constant_part());
  step.outputs.push_back({DType::u8, Dim(0), {bytes}, {Dim(1)}, buffer});
}

void PlanBuilder::add(const CallGraph& calls, const CodedGraph& code) {
  const std::string& name = calls.graph.name();
  if (!calls.is_body && name == kInitEntry)
    throw UserError(ErrorCode::kU_bad_graph, "an entry has a reserved name").with_value(name);
  ranges_ = calls.bucket;
  ranges_.insert(plan_.sizes.begin(), plan_.sizes.end());
  EntryPlan plan = plan_graph(calls, code);
  numbers_.push_back(calls.is_body ? static_cast<int32_t>(plan_.bodies.size()) : -1);
  if (calls.is_body) {
    plan_.bodies.push_back(std::move(plan));
    return;
  }
  plan.bucket = calls.bucket;
  (calls.bucket.empty() ? plan_.entries : plan_.buckets).push_back(std::move(plan));
}

// A call's step, but for how it is launched.
Step PlanBuilder::step_of(EntryState& state, size_t number) {
  const KernelCall& call = state.calls.calls[number];
  Step step;
  const RunName name = named(call);
  step.kernel = name.kernel;
  step.variant = name.way;
  for (const Window& w : call.inputs) step.inputs.push_back(tensor_ref(buffer_of(state, w.root), w));
  for (const Window& w : call.outputs) {
    reuse_input(state, number, w);
    step.outputs.push_back(tensor_ref(buffer_of(state, w.root), w));
  }
  set_params(call, step);
  if (const auto* library = std::get_if<LibraryRun>(&call.what)) add_library(state, *library, step);
  for (const auto& [member, stage] : members_of(call)) {
    const RunName own = named(*member);
    step.members.push_back({own.kernel, own.way, origin_text(*member), stage,
                            operand_numbers(member->inputs, call.inputs),
                            operand_numbers(member->outputs, call.outputs)});
  }
  step.origin = origin_text(call);
  step.lane = call.lane;
  return step;
}

// Its buffers live while it runs.
void PlanBuilder::add_step(EntryState& state, Step step) {
  const auto index = static_cast<int32_t>(state.plan.steps.size());
  const auto end = static_cast<int32_t>(state.last_beside[state.plan.steps.size()]);
  for (const auto* refs : {&step.inputs, &step.outputs})
    for (const TensorRef& ref : *refs) {
      Buffer& buffer = state.plan.buffers[static_cast<size_t>(ref.buffer)];
      buffer.first_step = std::min(buffer.first_step, index);
      buffer.last_step = std::max(buffer.last_step, end);
    }
  state.plan.steps.push_back(std::move(step));
}

EntryPlan PlanBuilder::plan_graph(const CallGraph& calls, const CodedGraph& code) {
  const Graph& graph = calls.graph;
  EntryState state{calls, {}, {}, {}, {}, {}, {}};
  for (size_t i = 0; i < calls.output_roots.size(); ++i) state.outputs.emplace(calls.output_roots[i], i);
  add_init(state, code.init);
  for (size_t i = 0; i < calls.calls.size(); ++i)
    for (const Window& w : calls.calls[i].inputs) state.last_read[w.root] = i;
  state.plan.name = graph.name();
  for (ValueId id : graph.inputs())
    state.plan.inputs.push_back({graph.value(id).name, graph.dtype(id), graph.shape(id), buffer_of(state, id),
                                 graph.value(id).constant});
  state.last_beside = last_beside(calls.calls);
  for (size_t i = 0; i < calls.calls.size(); ++i) {
    state.open.begin(calls.calls[i].lane, i);
    Step step = step_of(state, i);
    if (!code.calls.empty()) {
      add_launches(state, code.calls[i], step);
    } else if (const RowCall* row = own_row(calls.calls[i]); row != nullptr && !row->programs.empty()) {
      step.program = intern_program(calls.program_of(calls.calls[i]));
    }
    add_bodies(state, calls.calls[i], step);
    add_step(state, std::move(step));
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ValueId id = graph.outputs()[i];
    state.plan.outputs.push_back(
        {graph.output_names()[i], graph.dtype(id), graph.shape(id), buffer_of(state, calls.output_roots[i])});
  }
  // Inputs, variables and unused inputs live through the whole entry.
  const auto last = static_cast<int32_t>(state.plan.steps.size()) - 1;
  for (Buffer& buffer : state.plan.buffers)
    if (buffer.kind != BufferKind::kArena) buffer.first_step = 0, buffer.last_step = std::max(last, 0);
  state.plan.arena_bytes = assign_arena_offsets(state.plan.buffers);
  return std::move(state.plan);
}

Plan PlanBuilder::finish() {
  if (!init_.steps.empty()) plan_.entries.push_back(std::move(init_));
  return std::move(plan_);
}

}  // namespace aicf
