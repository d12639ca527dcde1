// A plan whose every number is in turn what no plan has: check_plan refuses it before anything is allocated.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "plan/control_layout.h"
#include "plan/plan.h"
#include "plan/plan_json.h"

namespace aicf {
namespace {

const Dim kBatch = Dim::symbol("batch");

Buffer buffer(BufferKind kind, const std::string& name, Dim bytes, int64_t max_bytes) {
  Buffer made;
  made.kind = kind;
  made.name = name;
  made.bytes = std::move(bytes);
  made.max_bytes = max_bytes;
  made.last_step = kind == BufferKind::kArena ? 1 : 0;
  return made;
}

IoTensor tensor(const std::string& name, int32_t at) { return {name, DType::f32, {kBatch, Dim(4)}, at}; }

TensorMapSpec map_of(int32_t operand, int32_t axis, int32_t box) {
  TensorMapSpec map;
  map.operand = operand;
  map.axes = {axis};
  map.box = {box};
  return map;
}

TensorRef window(int32_t buffer) { return {DType::f32, Dim(0), {kBatch, Dim(4)}, {Dim(4), Dim(1)}, buffer}; }

// y = f(x + w) over a batch, with a state and a bucket.
Plan sound_plan() {
  Plan plan;
  plan.sizes = {{"batch", {1, 8}}};
  plan.variables = {{"w", DType::f32, {Dim(4)}, false}, {"s", DType::f32, {Dim(2), Dim(3)}, true}};
  EntryPlan entry;
  entry.name = "main";
  entry.inputs = {tensor("x", 0)};
  entry.outputs = {tensor("y", 1)};
  entry.buffers = {buffer(BufferKind::kInput, "x", kBatch * Dim(16), 128),
                   buffer(BufferKind::kOutput, "y", kBatch * Dim(16), 128),
                   buffer(BufferKind::kVariable, "w", Dim(16), 16),
                   buffer(BufferKind::kArena, "t", kBatch * Dim(16), 128)};
  entry.arena_bytes = 128;
  Step first, second;
  first.kernel = second.kernel = "tile";
  first.inputs = {window(0), {DType::f32, Dim(0), {kBatch, Dim(4)}, {Dim(0), Dim(1)}, 2}};
  first.outputs = {window(3)};
  second.inputs = {window(3)};
  second.outputs = {window(1)};
  second.module = 0;
  CudaLaunch launch;
  launch.function = "f";
  launch.grid[0] = kBatch;
  second.launches = {launch};
  entry.steps = {first, second};
  plan.modules = 1;
  plan.buckets = {entry};
  plan.buckets[0].bucket = {{"batch", {1, 2}}};
  plan.entries = {entry};
  return plan;
}

ErrorCode code_of(const Plan& plan) {
  try {
    check_plan(plan);
  } catch (const UserError& error) {
    return error.code;
  }
  return ErrorCode::kI_check_failed;
}

TEST(CheckPlan, ASoundPlanPasses) {
  EXPECT_NO_THROW(check_plan(sound_plan()));
  EXPECT_NO_THROW(check_plan(plan_from_json(plan_to_json(sound_plan()))));
}

// Bodies within bodies, so many, in one step of the entry.
Plan nested_plan(int depth) {
  Plan plan = sound_plan();
  plan.buckets.clear();
  EntryPlan entry = plan.entries[0];
  entry.buffers.resize(2);
  entry.arena_bytes = 0;
  entry.steps = {entry.steps[0]};
  entry.steps[0].inputs = {window(0)};
  entry.steps[0].outputs = {window(1)};
  for (int32_t i = 0; i < depth; ++i) {
    plan.bodies.push_back(entry);
    plan.bodies.back().name = "body" + std::to_string(i);
    Step scan;
    scan.kernel = kScan;
    scan.params = {Dim(0), Dim(0)};
    scan.outputs = {window(1)};
    scan.bodies = {i};
    entry.steps = {scan};
  }
  plan.entries = {entry};
  return plan;
}

TEST(CheckPlan, BodiesNestOnlySoDeep) {
  EXPECT_NO_THROW(check_plan(nested_plan(64)));
  EXPECT_EQ(code_of(nested_plan(65)), ErrorCode::kU_bad_artifact);
}

TEST(CheckPlan, NumbersThatNoPlanHasAreRefused) {
  const std::pair<const char*, std::function<void(Plan&, EntryPlan&)>> changes[] = {
      {"a range below 0", [](Plan& p, EntryPlan&) { p.sizes["batch"] = {-1, 8}; }},
      {"a range that ends before it begins", [](Plan& p, EntryPlan&) { p.sizes["batch"] = {8, 1}; }},
      {"packed bytes", [](Plan& p, EntryPlan&) { p.packed_bytes = -1; }},
      {"modules", [](Plan& p, EntryPlan&) { p.modules = -1; }},
      {"a param's size", [](Plan& p, EntryPlan&) { p.variables[0].sizes = {Dim(-4)}; }},
      {"a state's sizes", [](Plan& p, EntryPlan&) { p.variables[1].sizes = {Dim(-2), Dim(-3)}; }},
      {"a variable's symbol", [](Plan& p, EntryPlan&) { p.variables[1].sizes = {kBatch}; }},
      {"arena bytes", [](Plan&, EntryPlan& e) { e.arena_bytes = -128; }},
      {"a bucket", [](Plan&, EntryPlan& e) { e.bucket = {{"batch", {-2, 2}}}; }},
      {"a bucket's end", [](Plan&, EntryPlan& e) { e.bucket = {{"batch", {2, 1}}}; }},
      {"an input's size", [](Plan&, EntryPlan& e) { e.inputs[0].sizes[1] = Dim(-4); }},
      {"an input's symbol", [](Plan&, EntryPlan& e) { e.inputs[0].sizes[0] = Dim(0) - kBatch; }},
      {"an output's size", [](Plan&, EntryPlan& e) { e.outputs[0].sizes[1] = Dim(INT64_MIN); }},
      {"an input's buffer", [](Plan&, EntryPlan& e) { e.inputs[0].buffer = -1; }},
      {"an output's buffer", [](Plan&, EntryPlan& e) { e.outputs[0].buffer = 4; }},
      {"bytes", [](Plan&, EntryPlan& e) { e.buffers[0].bytes = Dim(-16); }},
      {"bytes by a symbol", [](Plan&, EntryPlan& e) { e.buffers[0].bytes = Dim(-16) * kBatch; }},
      {"bytes beyond the most", [](Plan&, EntryPlan& e) { e.buffers[2].bytes = Dim(17); }},
      {"the most bytes", [](Plan&, EntryPlan& e) { e.buffers[0].max_bytes = -1; }},
      {"most bytes that overflow", [](Plan&, EntryPlan& e) { e.buffers[3].max_bytes = INT64_MAX; }},
      {"an offset", [](Plan&, EntryPlan& e) { e.buffers[3].offset = -64; }},
      {"an offset off its alignment", [](Plan&, EntryPlan& e) { e.buffers[3].offset = 1; }},
      {"a first step", [](Plan&, EntryPlan& e) { e.buffers[3].first_step = -1; }},
      {"a last step", [](Plan&, EntryPlan& e) { e.buffers[3].last_step = 0; }},
      {"a window's buffer", [](Plan&, EntryPlan& e) { e.steps[0].inputs[0].buffer = -2; }},
      {"a window's size", [](Plan&, EntryPlan& e) { e.steps[0].inputs[0].sizes[1] = Dim(-1); }},
      {"an output window's size", [](Plan&, EntryPlan& e) { e.steps[1].outputs[0].sizes[0] = Dim(-8); }},
      {"a window's rank", [](Plan&, EntryPlan& e) { e.steps[0].inputs[0].strides.pop_back(); }},
      {"a program", [](Plan&, EntryPlan& e) { e.steps[0].program = -2; }},
      {"a module", [](Plan&, EntryPlan& e) { e.steps[1].module = 1; }},
      {"a workspace", [](Plan&, EntryPlan& e) { e.steps[0].library.workspace = -2; }},
      {"a body", [](Plan&, EntryPlan& e) { e.steps[0].bodies = {-1}; }},
      {"a lane", [](Plan&, EntryPlan& e) { e.steps[1].lane.number = kMostLanes + 1; }},
      {"a lane below 0", [](Plan&, EntryPlan& e) { e.steps[1].lane.number = -1; }},
      {"a lane that is joined", [](Plan&, EntryPlan& e) { e.steps[1].lane.joins = {0}; }},
      {"a lane that joins", [](Plan&, EntryPlan& e) { e.steps[1].lane = {1, {2}}; }},
      {"a lane beside what it reads", [](Plan&, EntryPlan& e) { e.steps[0].lane.number = 1; }},
      {"a grid", [](Plan&, EntryPlan& e) { e.steps[1].launches[0].grid[2] = Dim(-1); }},
      {"a grid by a symbol", [](Plan&, EntryPlan& e) { e.steps[1].launches[0].grid[0] = Dim(0) - kBatch; }},
      {"a block", [](Plan&, EntryPlan& e) { e.steps[1].launches[0].block = -128; }},
      {"a cluster", [](Plan&, EntryPlan& e) { e.steps[1].launches[0].cluster = -1; }},
      {"shared bytes", [](Plan&, EntryPlan& e) { e.steps[1].launches[0].shared_bytes = -1; }},
      {"an early input", [](Plan&, EntryPlan& e) { e.steps[1].launches[0].early_inputs = {-1}; }},
      {"a map's operand",
       [](Plan&, EntryPlan& e) { e.steps[1].launches[0].tensor_maps = {map_of(-1, 0, 1)}; }},
      {"a map's operand behind the last",
       [](Plan&, EntryPlan& e) {
         e.steps[1].outputs.push_back(window(1));
         e.steps[1].outputs.pop_back();  // behind the last lies what looks like one
         const auto operands = static_cast<int32_t>(e.steps[1].inputs.size() + e.steps[1].outputs.size());
         e.steps[1].launches[0].tensor_maps = {map_of(operands, 0, 1)};
       }},
      {"a map's axis", [](Plan&, EntryPlan& e) { e.steps[1].launches[0].tensor_maps = {map_of(0, -1, 1)}; }},
      {"a map's box", [](Plan&, EntryPlan& e) { e.steps[1].launches[0].tensor_maps = {map_of(0, 1, -1)}; }},
  };
  for (const auto& [what, change] : changes)
    for (const bool bucket : {false, true}) {
      Plan plan = sound_plan();
      change(plan, bucket ? plan.buckets[0] : plan.entries[0]);
      EXPECT_EQ(code_of(plan), ErrorCode::kU_bad_artifact) << what << (bucket ? " of a bucket" : "");
    }
}

// x to t in lane 1, beside w to y, then t to y, which joins it or not.
Plan plan_of_lanes(const std::vector<int32_t>& joins) {
  Plan plan = sound_plan();
  plan.buckets.clear();
  EntryPlan& entry = plan.entries[0];
  Step beside = entry.steps[0];
  beside.inputs = {entry.steps[0].inputs[1]};
  beside.outputs = {window(1)};
  entry.steps[0].lane.number = 1;
  entry.steps[0].inputs.resize(1);
  entry.steps.insert(entry.steps.begin() + 1, beside);
  entry.steps[2].lane.joins = joins;
  entry.buffers[3].last_step = 2;
  return plan;
}

TEST(CheckPlan, ALaneEndsWhereItIsJoined) {
  EXPECT_NO_THROW(check_plan(plan_of_lanes({1})));
  EXPECT_EQ(plan_from_json(plan_to_json(plan_of_lanes({1}))), plan_of_lanes({1}));
  EXPECT_EQ(code_of(plan_of_lanes({})), ErrorCode::kU_bad_artifact);
  EXPECT_EQ(code_of(plan_of_lanes({2})), ErrorCode::kU_bad_artifact);
}

// The arena may give a buffer's bytes to nobody while a lane that uses them can still run.
TEST(CheckPlan, ABufferLivesUntilItsLaneIsJoined) {
  Plan plan = plan_of_lanes({1});
  EntryPlan& entry = plan.entries[0];
  entry.buffers.push_back(entry.buffers[3]);  // of lane 1 alone
  entry.buffers[4].offset = 128;
  entry.arena_bytes = 256;
  entry.steps[0].outputs.push_back(window(4));
  entry.buffers[4].first_step = 0;
  entry.buffers[4].last_step = 1;
  EXPECT_NO_THROW(check_plan(plan));
  entry.buffers[4].last_step = 0;
  EXPECT_EQ(code_of(plan), ErrorCode::kU_bad_artifact);
}

}  // namespace
}  // namespace aicf
