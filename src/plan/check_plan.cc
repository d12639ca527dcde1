// Whether a plan that was read from a file is consistent: indices, lifetimes, areas, bodies. What depends on
// sizes is checked when they are bound.
#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "base/byte_range.h"
#include "base/error.h"
#include "kernels/common/abi.h"
#include "kernels/common/control_launches.h"
#include "plan/control_layout.h"

namespace aicf {
namespace {

UserError violation(const std::string& what, const std::string& where) {
  return UserError(ErrorCode::kU_bad_artifact, "the plan is not consistent: " + what)
      .with_op(where)
      .with_remedy("compile the model again");
}

// What a size, or a number of bytes or blocks, can be at all; nullopt beyond 63 bits, which binding refuses.
std::optional<Interval> range_of(const Dim& dim, const SymbolRanges& ranges) {
  try {
    return bounds(dim, ranges);
  } catch (const UserError& error) {
    if (error.code != ErrorCode::kU_size_overflow) throw;
    return std::nullopt;
  }
}

// A size may depend on others by more than its range says, so only one that is always negative is refused
// here. Binding checks the value.
void check_not_negative(const Dim& dim, const SymbolRanges& ranges, const char* what,
                        const std::string& where) {
  if (const auto range = range_of(dim, ranges); range && range->hi < 0)
    throw violation(what, where).with_actual(dim.to_string());
}

void check_sizes(const Shape& sizes, const SymbolRanges& ranges, const std::string& where) {
  for (const Dim& size : sizes) check_not_negative(size, ranges, "a size is negative", where);
}

void check_ranges(const SymbolRanges& ranges, const std::string& where) {
  for (const auto& [name, range] : ranges)
    if (range.lo < 0 || range.lo > range.hi) throw violation("a size has a bad range", where + name);
}

void check_ref(const TensorRef& ref, const EntryPlan& entry, const SymbolRanges& ranges,
               const std::string& where) {
  if (ref.buffer < 0 || ref.buffer >= static_cast<int32_t>(entry.buffers.size()))
    throw violation("a buffer index is out of range", where);
  if (ref.sizes.size() != ref.strides.size() || ref.sizes.size() > kMaxRank)
    throw violation("a window has a bad rank", where);
  check_sizes(ref.sizes, ranges, where);
}

// Boxes, steps and swizzles that the copy engine has.
bool has_box(const TensorMapSpec& map) {
  constexpr int64_t kMostBox = 256, kMostStep = 8;
  if (!map.steps.empty() && map.steps.size() != map.axes.size()) return false;
  for (size_t i = 0; i < map.box.size(); ++i) {
    const int64_t step = map.steps.empty() ? 1 : map.steps[i];
    if (step < 1 || step > kMostStep || map.box[i] < 1 || map.box[i] * step > kMostBox) return false;
  }
  constexpr int32_t kSwizzles[] = {0, 32, 64, 128};
  return std::find(std::begin(kSwizzles), std::end(kSwizzles), map.swizzle_bytes) != std::end(kSwizzles);
}

// What a launch asks of a device is within what any device can be asked; the code itself is trusted or not as
// a whole.
void check_launches(const Step& step, const Plan& plan, const std::string& where) {
  constexpr int kMaxBlock = 1024, kMaxCluster = 16, kMaxMapRank = 5;
  constexpr int64_t kMaxShared = 256 * 1024;
  if (step.module < -1 || step.module >= plan.modules || (step.module < 0 && !step.launches.empty()))
    throw violation("a module index is out of range", where);
  const auto operands = static_cast<int64_t>(step.inputs.size() + step.outputs.size());
  for (const CudaLaunch& launch : step.launches) {
    for (const Dim& blocks : launch.grid) check_not_negative(blocks, plan.sizes, "a grid is negative", where);
    if (launch.block < 1 || launch.block > kMaxBlock || launch.cluster < 1 || launch.cluster > kMaxCluster ||
        launch.shared_bytes < 0 || launch.shared_bytes > kMaxShared)
      throw violation("a launch asks for more than devices have", where);
    for (const TensorMapSpec& map : launch.tensor_maps) {
      if (map.operand < 0 || map.operand >= operands || map.axes.empty() || map.axes.size() > kMaxMapRank ||
          map.axes.size() != map.box.size() || !has_box(map))
        throw violation("a tensor map is malformed", where);
      const auto inputs = static_cast<int32_t>(step.inputs.size());
      const TensorRef& ref = map.operand < inputs ? step.inputs[static_cast<size_t>(map.operand)]
                                                  : step.outputs[static_cast<size_t>(map.operand - inputs)];
      for (int32_t axis : map.axes)
        if (axis < 0 || axis >= static_cast<int32_t>(ref.sizes.size()))
          throw violation("a tensor map names an axis that its operand does not have", where);
    }
  }
}

// Members name operands of the step and leave none out but a workspace, which is the last output; their
// stages ascend from 0, and only members of one stage have several launches. That no member of a stage
// touches what another one writes is checked with the sizes (bind_step.h).
void check_members(const Step& step, const EntryPlan& entry, const std::string& where) {
  if (step.members.empty()) return;
  if (step.launches.empty() || (step.launches.size() > 1 && step.members.back().stage != 0) ||
      step.program >= 0 || !step.library.call.empty() || !step.bodies.empty())
    throw violation("a bundle is not one launch, or several of one stage", where);
  std::vector<bool> inputs(step.inputs.size()), outputs(step.outputs.size());
  const auto mark = [&](const std::vector<int32_t>& numbers, std::vector<bool>& named) {
    for (const int32_t number : numbers) {
      if (number < 0 || number >= static_cast<int32_t>(named.size()))
        throw violation("a member of a bundle names an operand that the step does not have", where);
      named[static_cast<size_t>(number)] = true;
    }
  };
  int32_t stage = 0;
  for (const StepMember& member : step.members) {
    if (member.stage != stage && (member.stage != stage + 1 || &member == &step.members.front()))
      throw violation("the stages of a bundle do not ascend one by one from 0", where);
    stage = member.stage;
    mark(member.inputs, inputs);
    mark(member.outputs, outputs);
  }
  if (!outputs.empty() && !outputs.back()) {
    const Buffer& last = entry.buffers[static_cast<size_t>(step.outputs.back().buffer)];
    if (last.kind == BufferKind::kArena && last.name == "workspace") outputs.pop_back();
  }
  for (const auto* named : {&inputs, &outputs})
    if (std::find(named->begin(), named->end(), false) != named->end())
      throw violation("an operand of a bundle belongs to no member", where);
}

void check_step(const Step& step, size_t index, const EntryPlan& entry, const Plan& plan) {
  const std::string where = "step " + std::to_string(index) + " of entry " + entry.name;
  for (const auto* refs : {&step.inputs, &step.outputs})
    for (const TensorRef& ref : *refs) {
      check_ref(ref, entry, plan.sizes, where);
      const Buffer& buffer = entry.buffers[static_cast<size_t>(ref.buffer)];
      const auto at = static_cast<int32_t>(index);
      if (buffer.kind == BufferKind::kArena && (at < buffer.first_step || at > buffer.last_step))
        throw violation("a buffer is used outside its lifetime", where);
    }
  if (step.outputs.empty()) throw violation("a step writes nothing", where);
  for (const TensorRef& ref : step.outputs) {
    const BufferKind kind = entry.buffers[static_cast<size_t>(ref.buffer)].kind;
    const bool writable = kind == BufferKind::kArena || kind == BufferKind::kOutput ||
                          kind == BufferKind::kVariable ||
                          (kind == BufferKind::kPacked && entry.name == kInitEntry);
    if (!writable) throw violation("a step writes to a buffer that is read-only", where);
  }
  if (step.library.workspace < -1 || step.library.workspace >= static_cast<int32_t>(entry.buffers.size()))
    throw violation("a library's workspace is no buffer", where);
  if (step.library.workspace >= 0) {
    const Buffer& buffer = entry.buffers[static_cast<size_t>(step.library.workspace)];
    const auto at = static_cast<int32_t>(index);
    if (buffer.kind != BufferKind::kArena || at < buffer.first_step || at > buffer.last_step)
      throw violation("a library's workspace is not in the arena at its step", where);
  }
  if (step.program < -1 || step.program >= static_cast<int32_t>(plan.programs.size()))
    throw violation("a program index is out of range", where);
  check_launches(step, plan, where);
  check_members(step, entry, where);
  if (!step.bodies.empty() &&
      (step.program >= 0 || (step.module >= 0 && step.launches.size() != kControlLaunches)))
    throw violation("a step of control flow has other code", where);
}

void check_buffer(const Buffer& buffer, const EntryPlan& entry, const Plan& plan) {
  const std::string where = "buffer '" + buffer.name + "' of entry " + entry.name;
  const int64_t area = buffer.kind == BufferKind::kArena    ? entry.arena_bytes
                       : buffer.kind == BufferKind::kPacked ? plan.packed_bytes
                                                            : INT64_MAX;
  if (buffer.max_bytes < 0 || buffer.offset < 0 || buffer.offset % kBufferAlignment != 0)
    throw violation("a bad size or offset", where);
  check_not_negative(buffer.bytes, plan.sizes, "a size is negative", where);
  if (buffer.bytes.is_constant() && buffer.bytes.constant_part() > buffer.max_bytes)
    throw violation("a buffer is larger than planned", where);
  if (buffer.kind == BufferKind::kArena && buffer.first_step < 0)
    throw violation("a buffer lives before the first step", where);
  if (checked_add(buffer.offset, buffer.max_bytes) > area) throw violation("a buffer leaves its area", where);
}

// Whether no launch writes the buffer that can still be running when step `at` begins: those of the steps
// before it, back to the last that it follows and that launches whatever the sizes, which has waited for all
// before itself. A run's first launch begins when all that was queued before the run has ended.
bool is_ready(const EntryPlan& entry, size_t at, int32_t index) {
  const Lane& lane = entry.steps[at].lane;
  const auto name = [&](int32_t i) { return entry.buffers[static_cast<size_t>(i)].name; };
  const bool variable = entry.buffers[static_cast<size_t>(index)].kind == BufferKind::kVariable;
  while (at-- > 0) {
    const Step& before = entry.steps[at];
    for (const TensorRef& ref : before.outputs)
      if (ref.buffer == index || (variable && name(ref.buffer) == name(index))) return false;
    if (always_follows(lane, before.lane) &&
        std::any_of(before.launches.begin(), before.launches.end(), is_always_launched))
      break;
  }
  return true;
}

// What a kernel reads before the launches before it have finished: weights and constants that no step of the
// entry writes; a step's first launch also what is ready.
void check_early_inputs(const EntryPlan& entry) {
  std::set<int32_t> written;
  std::set<std::string> written_variables;
  for (const Step& step : entry.steps)
    for (const TensorRef& ref : step.outputs) {
      written.insert(ref.buffer);
      written_variables.insert(entry.buffers[static_cast<size_t>(ref.buffer)].name);
    }
  for (size_t at = 0; at < entry.steps.size(); ++at) {
    const Step& step = entry.steps[at];
    for (const CudaLaunch& launch : step.launches)
      for (const int32_t input : launch.early_inputs) {
        if (input < 0 || input >= static_cast<int32_t>(step.inputs.size()))
          throw violation("a launch names an early input that it does not have", step.kernel);
        const int32_t index = step.inputs[static_cast<size_t>(input)].buffer;
        const Buffer& buffer = entry.buffers[static_cast<size_t>(index)];
        const bool stored =
            buffer.kind == BufferKind::kConstant || buffer.kind == BufferKind::kPacked ||
            (buffer.kind == BufferKind::kVariable && !written_variables.contains(buffer.name));
        const bool first = &launch == step.launches.data();
        if ((!stored || written.contains(index)) && !(first && is_ready(entry, at, index)))
          throw violation("a launch reads early what the entry writes", "buffer '" + buffer.name + "'");
      }
  }
}

bool must_keep_order(const Step& a, const Step& b) {
  const auto meet = [](const std::vector<TensorRef>& x, const std::vector<TensorRef>& y) {
    return std::any_of(x.begin(), x.end(), [&](const TensorRef& one) {
      return std::any_of(y.begin(), y.end(), [&](const TensorRef& other) {
        return one.buffer == other.buffer && may_share_bytes(one, other);
      });
    });
  };
  return meet(a.outputs, b.outputs) || meet(a.outputs, b.inputs) || meet(a.inputs, b.outputs);
}

// Steps that may run at the same time write nothing of each other's, and their memory is theirs until they
// have ended.
void check_lanes(const EntryPlan& entry) {
  for (size_t at = 0; at < entry.steps.size(); ++at) {
    const Step& step = entry.steps[at];
    const auto is_lane = [](int32_t number) { return number >= 1 && number <= kMostLanes; };
    if (step.lane.number != 0 &&
        (!is_lane(step.lane.number) || !step.lane.joins.empty() || !step.bodies.empty()))
      throw violation("a step is in a bad lane", step.kernel).with_actual(to_string(step.lane));
    if (!std::all_of(step.lane.joins.begin(), step.lane.joins.end(), is_lane) ||
        (at == 0 && !step.lane.joins.empty()))
      throw violation("a step joins a bad lane", step.kernel).with_actual(to_string(step.lane));
  }
  const std::vector<size_t> last = last_beside(entry.steps);
  OpenLanes open;
  for (size_t at = 0; at < entry.steps.size(); ++at) {
    const Step& step = entry.steps[at];
    open.begin(step.lane, at);
    open.visit_beside(step.lane, [&](size_t other) {
      if (must_keep_order(entry.steps[other], step))
        throw violation("a step runs beside one whose memory it needs", step.kernel);
    });
    for (const auto* refs : {&step.inputs, &step.outputs})
      for (const TensorRef& ref : *refs) {
        const Buffer& buffer = entry.buffers[static_cast<size_t>(ref.buffer)];
        if (buffer.kind == BufferKind::kArena && static_cast<size_t>(buffer.last_step) < last[at])
          throw violation("a buffer ends before a step beside others has", "buffer '" + buffer.name + "'");
      }
  }
}

// Two buffers of the arena that live at the same step share no byte. A sweep over the steps with the live
// buffers in the order of their offsets: each newcomer is compared with its two neighbours only, because the
// others are apart already.
void check_arena(const EntryPlan& entry) {
  std::vector<const Buffer*> order;
  for (const Buffer& buffer : entry.buffers)
    if (buffer.kind == BufferKind::kArena && buffer.max_bytes > 0 && buffer.first_step <= buffer.last_step)
      order.push_back(&buffer);
  std::stable_sort(order.begin(), order.end(),
                   [](const Buffer* a, const Buffer* b) { return a->first_step < b->first_step; });
  const auto ends_later = [](const Buffer* a, const Buffer* b) { return a->last_step > b->last_step; };
  std::priority_queue<const Buffer*, std::vector<const Buffer*>, decltype(ends_later)> ending(ends_later);
  std::map<int64_t, const Buffer*> live;
  for (const Buffer* buffer : order) {
    for (; !ending.empty() && ending.top()->last_step < buffer->first_step; ending.pop())
      live.erase(ending.top()->offset);
    const auto next = live.lower_bound(buffer->offset);
    const bool meets_next = next != live.end() && next->first < buffer->offset + buffer->max_bytes;
    const bool meets_last =
        next != live.begin() && std::prev(next)->first + std::prev(next)->second->max_bytes > buffer->offset;
    if (meets_next || meets_last)
      throw violation("two buffers share bytes of the arena at the same step",
                      "buffer '" + buffer->name + "' of entry " + entry.name);
    live.emplace(buffer->offset, buffer);
    ending.push(buffer);
  }
}

// Runs of init have no caller and no arena: it reads weights, constants and what earlier steps packed, and
// writes packed weights.
void check_init(const EntryPlan& entry) {
  if (!entry.inputs.empty() || !entry.outputs.empty())
    throw violation("init has inputs or outputs", entry.name);
  for (const Buffer& buffer : entry.buffers)
    if (buffer.kind != BufferKind::kVariable && buffer.kind != BufferKind::kConstant &&
        buffer.kind != BufferKind::kPacked)
      throw violation("init uses a buffer that exists only in a run", buffer.name);
  const auto buffer_of = [&](const TensorRef& ref) -> const Buffer& {
    return entry.buffers[static_cast<size_t>(ref.buffer)];
  };
  std::set<int32_t> written;
  for (const Step& step : entry.steps) {
    for (const TensorRef& input : step.inputs) {
      const Buffer& from = buffer_of(input);
      if (from.kind != BufferKind::kPacked) continue;
      if (!written.contains(input.buffer))
        throw violation("init reads what it has not packed yet", step.kernel);
      for (const TensorRef& output : step.outputs) {
        const Buffer& to = buffer_of(output);
        if (from.offset < to.offset + to.max_bytes && to.offset < from.offset + from.max_bytes)
          throw violation("init reads what the same step writes", step.kernel);
      }
    }
    for (const TensorRef& output : step.outputs) {
      if (buffer_of(output).kind != BufferKind::kPacked)
        throw violation("init writes to a weight", step.kernel);
      written.insert(output.buffer);
    }
  }
}

// Every buffer of the caller belongs to exactly one input or output, which gives it its address and its size.
void check_callers_buffers(const EntryPlan& entry) {
  std::set<int32_t> claimed;
  for (const auto* list : {&entry.inputs, &entry.outputs})
    for (const IoTensor& io : *list)
      if (!claimed.insert(io.buffer).second)
        throw violation("two inputs or outputs have one buffer", "'" + io.name + "' of entry " + entry.name);
  for (size_t i = 0; i < entry.buffers.size(); ++i) {
    const BufferKind kind = entry.buffers[i].kind;
    if ((kind == BufferKind::kInput || kind == BufferKind::kOutput) &&
        !claimed.contains(static_cast<int32_t>(i)))
      throw violation("a buffer belongs to no input or output",
                      "buffer '" + entry.buffers[i].name + "' of entry " + entry.name);
  }
}

void check_names(const Plan& plan) {
  std::set<std::string> entries, variables;
  for (const EntryPlan& entry : plan.entries)
    if (!entries.insert(entry.name).second) throw violation("two entries have one name", entry.name);
  for (const PlanVariable& variable : plan.variables)
    if (!variables.insert(variable.name).second)
      throw violation("two variables have one name", variable.name);
  for (const EntryPlan& bucket : plan.buckets)
    if (!entries.contains(bucket.name) || bucket.name == kInitEntry)
      throw violation("a bucket belongs to no entry", bucket.name);
  for (const auto* list : {&plan.entries, &plan.buckets})
    for (const EntryPlan& entry : *list)
      for (const Buffer& buffer : entry.buffers)
        if (buffer.kind == BufferKind::kVariable && !variables.contains(buffer.name))
          throw violation("a buffer of a variable that the plan does not list", buffer.name);
}

void check_io(const std::vector<IoTensor>& list, BufferKind kind, const EntryPlan& entry,
              const SymbolRanges& ranges) {
  for (const IoTensor& io : list) {
    const std::string where = "'" + io.name + "' of entry " + entry.name;
    if (io.buffer < 0 || io.buffer >= static_cast<int32_t>(entry.buffers.size()))
      throw violation("a buffer index is out of range", where);
    if (entry.buffers[static_cast<size_t>(io.buffer)].kind != kind)
      throw violation("a buffer of the wrong kind", where);
    if (io.sizes.size() > kMaxRank) throw violation("a tensor has a bad rank", where);
    check_sizes(io.sizes, ranges, where);
  }
}

// Every body belongs to one step, and what it holds itself comes before it: bodies nest, and none runs
// itself.
void check_bodies(const Plan& plan) {
  constexpr int kMaxNesting = 64;
  std::vector<int> depth(plan.bodies.size(), 0);  // of nesting; -1: claimed
  const auto check = [&](const EntryPlan& entry, size_t known) {
    int below = 0;
    for (const Step& step : entry.steps) {
      for (int32_t body : step.bodies) {
        if (body < 0 || body >= static_cast<int32_t>(known) || depth[static_cast<size_t>(body)] < 0)
          throw violation("a body is out of range or runs in two steps", step.kernel + " of " + entry.name);
        below = std::max(below, std::exchange(depth[static_cast<size_t>(body)], -1));
      }
      if (!step.bodies.empty()) control_layout(step, plan.bodies);
    }
    return below + 1;
  };
  for (size_t i = 0; i < plan.bodies.size(); ++i) {
    if (plan.bodies[i].name == kInitEntry)
      throw violation("a body has the name of init", plan.bodies[i].name);
    if (depth[i] = check(plan.bodies[i], i); depth[i] > kMaxNesting)
      throw violation("bodies are nested too deeply", plan.bodies[i].name);
  }
  for (const auto* list : {&plan.entries, &plan.buckets})
    for (const EntryPlan& entry : *list) check(entry, entry.name == kInitEntry ? 0 : plan.bodies.size());
  for (const EntryPlan& body : plan.bodies)
    for (const Buffer& buffer : body.buffers)
      if (buffer.kind == BufferKind::kVariable) throw violation("a body uses a variable", buffer.name);
}

void check_entry(const EntryPlan& entry, const Plan& plan) {
  if (entry.arena_bytes < 0) throw violation("a bad arena size", entry.name);
  for (const Buffer& buffer : entry.buffers) check_buffer(buffer, entry, plan);
  check_ranges(entry.bucket, "a bucket of " + entry.name + ": ");
  check_io(entry.inputs, BufferKind::kInput, entry, plan.sizes);
  check_io(entry.outputs, BufferKind::kOutput, entry, plan.sizes);
  for (size_t i = 0; i < entry.steps.size(); ++i) check_step(entry.steps[i], i, entry, plan);
  check_lanes(entry);
  check_arena(entry);
  check_early_inputs(entry);
  check_callers_buffers(entry);
}

}  // namespace

void check_plan(const Plan& plan) {
  check_ranges(plan.sizes, "");
  if (plan.packed_bytes < 0) throw violation("a bad packed size", "plan");
  if (plan.modules < 0) throw violation("a bad number of modules", "plan");
  for (const PlanVariable& variable : plan.variables)
    for (const Dim& size : variable.sizes)
      if (!size.is_constant() || size.constant_part() < 0)
        throw violation("a variable has a size that is no number >= 0", variable.name);
  for (const TileProgram& program : plan.programs) check_tile_program(program);
  check_names(plan);
  for (const auto* list : {&plan.entries, &plan.buckets, &plan.bodies})
    for (const EntryPlan& entry : *list) check_entry(entry, plan);
  if (const EntryPlan* init = plan.entry(kInitEntry)) check_init(*init);
  check_bodies(plan);
}

}  // namespace aicf
