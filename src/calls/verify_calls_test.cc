// Calls as selection and the passes leave them hold together; every way in which they might not is told.
#include "calls/verify_calls.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "calls/call_passes.h"
#include "ir/text.h"
#include "select/select.h"

namespace aicf {
namespace {

// A product with an epilogue, a region over its rows, a concat, a state that is read and then written.
constexpr char kText[] = R"(program {
  size n in 1..64
  param "w" : f16[64, 64]
  state "s" : f32[64]
  entry main(%x: f16[n, 64]) {
    %0 = param "w" : f16[64, 64]
    %1 = state "s" : f32[64]
    %2 = matmul(%x, %0) : f16[n, 64]
    %3 = cast(%2) {dtype = f32} : f32[n, 64]
    %4 = exp(%3) : f32[n, 64]
    %5 = reduce_sum(%4) {axes = [0], keepdims = true} : f32[1, 64]
    %6 = reshape(%5) {shape = [64]} : f32[64]
    %7 = add(%6, %1) : f32[64]
    %8 = concat(%4, %3) {axis = 0} : f32[2*n, 64]
    update "s" = %7
    return "y" = %8, "z" = %5
  }
}
)";

CallProgram selected() {
  const Program program = parse(kText);
  CallProgram calls{Target::from_name("sm_90"), {}};
  SelectOptions options;
  options.ranges = program.sizes;
  select_graph(calls, program.entries[0], options);
  return calls;
}

KernelCall& call_of(CallGraph& calls, const std::string& kernel) {
  for (KernelCall& call : calls.calls)
    if (call.kernel.starts_with(kernel)) return call;
  throw std::runtime_error("no call of " + kernel);
}

std::string told(const CallProgram& program) {
  try {
    verify(program, "a test");
    verify_ways(program);
    return "";
  } catch (const InternalError& error) {
    return error.actual.empty() ? error.message : error.message + " " + error.actual;
  }
}

TEST(VerifyCalls, ThoseOfSelectionAndOfAllPassesHold) {
  CallProgram program = selected();
  EXPECT_EQ(told(program), "");
  const CallProgram before = program;
  EXPECT_EQ(program, before);
  run_call_passes(program, {}, {}, [](const CallGraph&) {});
  EXPECT_EQ(told(program), "");
  EXPECT_FALSE(program == before) << "the passes have something to do";
  EXPECT_NE(to_string(program), to_string(before));
}

TEST(VerifyCalls, WhatDoesNotHoldIsTold) {
  struct Case {
    const char* told;
    std::function<void(CallGraph&)> change;
  };
  const std::vector<Case> cases = {
      {"it reads what nothing has written",
       [](CallGraph& calls) { std::swap(calls.calls[0], calls.calls[1]); }},
      {"it reads what nothing has written", [](CallGraph& calls) { calls.calls.erase(calls.calls.begin()); }},
      {"nothing writes an output",
       [](CallGraph& calls) {
         calls.output_roots[0] = static_cast<ValueId>(calls.constant.size());
         calls.extra.push_back({ExtraValue::Kind::kTemp, {DType::f32, {Dim(1)}}, "y"});
         calls.constant.push_back(false);
       }},
      {"it reads a variable that is overwritten",
       [](CallGraph& calls) {
         const ValueId state = calls.graph.updates()[0].variable;
         KernelCall call = call_of(calls, "tile");
         call.inputs.assign(1, calls.placement[static_cast<size_t>(state)]);
         call.region = -1;
         calls.calls.push_back(call);
       }},
      {"it writes what is constant",
       [](CallGraph& calls) { calls.calls[0].outputs.push_back(calls.calls[0].inputs[1]); }},
      {"a window leaves the memory of its root",
       [](CallGraph& calls) { calls.calls[0].inputs[0].offset = Dim(1); }},
      {"a window leaves the memory of its root",
       [](CallGraph& calls) { calls.calls[0].inputs[0].sizes[0] = Dim::symbol("n") + Dim(1); }},
      {"a window leaves the memory of its root",
       [](CallGraph& calls) { calls.calls[0].inputs[0].strides[1] = Dim(-1); }},
      {"a window is on no value", [](CallGraph& calls) { calls.calls[0].inputs[0].root = 1000; }},
      {"a window has not a stride", [](CallGraph& calls) { calls.calls[0].inputs[0].strides.pop_back(); }},
      {"there is no such program", [](CallGraph& calls) { call_of(calls, "tile").region = 1000; }},
      {"the program has other operands", [](CallGraph& calls) { call_of(calls, "tile").inputs.pop_back(); }},
      {"an operand of the program is of another dtype",
       [](CallGraph& calls) {
         KernelCall& call = call_of(calls, "tile");
         calls.programs[static_cast<size_t>(call.region)].inputs[0] = DType::bf16;
       }},
      {"a result of the program is of another dtype",
       [](CallGraph& calls) {
         KernelCall& call = call_of(calls, "tile");
         calls.programs[static_cast<size_t>(call.region)].outputs[0] = DType::bf16;
       }},
      {"elementwise names no input", [](CallGraph& calls) { calls.calls[0].elementwise = {7}; }},
      {"it names no body", [](CallGraph& calls) { calls.calls[0].bodies = {0}; }},
      {"a body does not come before its graph", [](CallGraph& calls) { calls.bodies = {0}; }},
      {"not every value has a place", [](CallGraph& calls) { calls.placement.pop_back(); }},
      {"not every value is constant or not", [](CallGraph& calls) { calls.constant.pop_back(); }},
      {"not every output has a root", [](CallGraph& calls) { calls.output_roots.pop_back(); }},
      {"a call runs in no way of its row",
       [](CallGraph& calls) { call_of(calls, "matmul").variant = "wgmma 63x64"; }},
  };
  for (const Case& c : cases) {
    CallProgram program = selected();
    c.change(program.graphs[0]);
    EXPECT_NE(told(program).find(c.told), std::string::npos) << c.told << ", but: " << told(program);
  }
}

// Two calls as members of one, side by side or one stage after the other.
KernelCall bundle_of(KernelCall first, KernelCall second) {
  KernelCall bundle;
  bundle.kernel = kBundleKernel;
  second.stage = 1;
  bundle.members = {std::move(first), std::move(second)};
  for (const KernelCall& member : bundle.members) {
    bundle.inputs.insert(bundle.inputs.end(), member.inputs.begin(), member.inputs.end());
    bundle.outputs.insert(bundle.outputs.end(), member.outputs.begin(), member.outputs.end());
  }
  return bundle;
}

TEST(VerifyCalls, MembersCoverOperandsInTheOrderOfTheirStages) {
  struct Case {
    const char* told;
    std::function<void(KernelCall&)> change;
  };
  const std::vector<Case> cases = {
      {"", [](KernelCall&) {}},
      {"it reads what nothing has written", [](KernelCall& bundle) { bundle.members[1].stage = 0; }},
      {"stages of members do not ascend", [](KernelCall& bundle) { bundle.members[1].stage = 2; }},
      {"stages of members do not ascend", [](KernelCall& bundle) { bundle.members[0].stage = 1; }},
      {"its member reads what it does not", [](KernelCall& bundle) { bundle.inputs.pop_back(); }},
      {"its member writes what it does not", [](KernelCall& bundle) { bundle.outputs.pop_back(); }},
      {"no member reads an operand", [](KernelCall& bundle) { bundle.inputs.push_back(bundle.outputs[1]); }},
      {"no member writes a result", [](KernelCall& bundle) { bundle.outputs.push_back(bundle.inputs[0]); }},
  };
  for (const Case& c : cases) {
    CallProgram program = selected();
    std::vector<KernelCall>& calls = program.graphs[0].calls;
    KernelCall bundle = bundle_of(calls[0], calls[1]);
    c.change(bundle);
    calls.erase(calls.begin());
    calls[0] = std::move(bundle);
    const std::string text = told(program);
    if (*c.told == '\0')
      EXPECT_EQ(text, "");
    else
      EXPECT_NE(text.find(c.told), std::string::npos) << c.told << ", but: " << text;
  }
}

}  // namespace
}  // namespace aicf
