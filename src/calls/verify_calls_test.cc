// Calls as selection and the passes leave them hold together; every way in which they might not is told.
#include "calls/verify_calls.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "calls/call_windows.h"
#include "calls/rules.h"
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
  run_required_rules(calls.graphs[0], calls.target, options);
  return calls;
}

KernelCall& call_of(CallGraph& calls, const std::string& kernel) {
  for (KernelCall& call : calls.calls)
    if (named(call).kernel.starts_with(kernel)) return call;
  throw std::runtime_error("no call of " + kernel);
}
RowCall& region_row(CallGraph& calls) { return *row_call(call_of(calls, "tile")); }
RowCall& product_row(CallGraph& calls) { return *row_call(call_of(calls, "matmul")); }

template <typename Check>
std::string said_by(const Check& check) {
  try {
    check();
    return "";
  } catch (const InternalError& error) {
    return error.actual.empty() ? error.message : error.message + " " + error.actual;
  }
}
std::string told(const CallProgram& program) {
  return said_by([&] {
    verify(program, "a test");
    verify_ways(program);
  });
}

// What verification says of calls that were changed; "": they still hold.
template <class... Changed>
struct Case {
  const char* told;
  std::function<void(Changed&...)> change;

  void expect(const std::string& text) const {
    EXPECT_EQ(text.empty(), *told == '\0') << told << ", but: " << text;
    EXPECT_NE(text.find(told), std::string::npos) << told << ", but: " << text;
  }
};

TEST(VerifyCalls, ThoseOfSelectionAndOfAllPassesHold) {
  CallProgram program = selected();
  EXPECT_EQ(told(program), "");
  const CallProgram before = program;
  EXPECT_EQ(program, before);
  run_call_rules(program, {.select = {}});
  EXPECT_EQ(told(program), "");
  EXPECT_FALSE(program == before) << "the passes have something to do";
  EXPECT_NE(to_string(program), to_string(before));
}

TEST(VerifyCalls, WhatDoesNotHoldIsTold) {
  const std::vector<Case<CallGraph>> cases = {
      {"it reads what nothing has written",
       [](CallGraph& calls) { std::swap(calls.calls[0], calls.calls[1]); }},
      {"it reads what nothing has written", [](CallGraph& calls) { calls.calls.erase(calls.calls.begin()); }},
      {"",
       [](CallGraph& calls) {
         KernelCall reader = calls.calls[0];
         reader.what = RowCall{.row = "k"};
         reader.inputs = reader.outputs;
         reader.inputs[0].sizes[0] = Dim(0);
         reader.outputs.clear();
         calls.calls.insert(calls.calls.begin(), reader);
       }},
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
         call.what = RowCall{.row = "k"};
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
      {"there is no such program", [](CallGraph& calls) { region_row(calls).programs[0].index = 1000; }},
      {"there is no such program", [](CallGraph& calls) { region_row(calls).programs[0].index = -1; }},
      {"a schedule is a region's", [](CallGraph& calls) { region_row(calls).schedule.reset(); }},
      {"a schedule is a region's", [](CallGraph& calls) { product_row(calls).schedule = Schedule(); }},
      {"its program plays another role in its row",
       [](CallGraph& calls) {
         region_row(calls).programs[0].role = ProgramRole::kEpilogue;
         region_row(calls).schedule.reset();
       }},
      {"its program plays another role in its row",
       [](CallGraph& calls) {
         product_row(calls).programs[0].role = ProgramRole::kRegion;
         product_row(calls).schedule = Schedule();
       }},
      {"the program's operands begin elsewhere",
       [](CallGraph& calls) { region_row(calls).programs[0].first_operand = -1; }},
      {"the program's operands begin elsewhere",
       [](CallGraph& calls) { region_row(calls).programs[0].first_operand = 1000; }},
      {"the program's operands begin elsewhere",
       [](CallGraph& calls) { product_row(calls).programs[0].first_operand = 1; }},
      {"the program's operands begin elsewhere",
       [](CallGraph& calls) {
         calls.programs[static_cast<size_t>(product_row(calls).programs[0].index)].inputs.clear();
       }},
      {"the program has other operands", [](CallGraph& calls) { call_of(calls, "tile").inputs.pop_back(); }},
      {"the program has other operands",
       [](CallGraph& calls) {
         KernelCall& product = call_of(calls, "matmul");
         product.inputs.push_back(product.inputs[0]);
       }},
      {"the program has other operands",
       [](CallGraph& calls) { region_row(calls).programs[0].first_operand = 1; }},
      {"the program has other results",
       [](CallGraph& calls) {
         KernelCall& region = call_of(calls, "tile");
         region.outputs.push_back(region.outputs[0]);
       }},
      {"the program has other results", [](CallGraph& calls) { call_of(calls, "matmul").outputs.clear(); }},
      {"an operand of the program is of another dtype",
       [](CallGraph& calls) {
         KernelCall& product = call_of(calls, "matmul");
         product.inputs.push_back(product.inputs[0]);
         calls.programs[static_cast<size_t>(product_row(calls).programs[0].index)].inputs.push_back(
             DType::bf16);
       }},
      {"an operand does not cover the result",
       [](CallGraph& calls) {
         KernelCall& product = call_of(calls, "matmul");
         product.inputs.push_back(product.inputs[1]);
         calls.programs[static_cast<size_t>(product_row(calls).programs[0].index)].inputs.push_back(
             DType::f16);
       }},
      {"an operand of the program is of another dtype",
       [](CallGraph& calls) {
         calls.programs[static_cast<size_t>(region_row(calls).programs[0].index)].inputs[0] = DType::bf16;
       }},
      {"a result of the program is of another dtype",
       [](CallGraph& calls) {
         calls.programs[static_cast<size_t>(region_row(calls).programs[0].index)].outputs[0] = DType::bf16;
       }},
      {"the program has other operands than the call",
       [](CallGraph& calls) { region_row(calls).indexed = 0; }},
      {"it indexes no input of its program",
       [](CallGraph& calls) {
         KernelCall& call = call_of(calls, "tile");
         call.inputs.push_back(call.inputs[0]);
         row_call(call)->indexed = 7;
       }},
      {"not every operand is a table or none",
       [](CallGraph& calls) { region_row(calls).row = "tile_indexed"; }},
      {"it indexes no input of its program",
       [](CallGraph& calls) {
         RowCall& row = region_row(calls);
         row.row = "tile_indexed";
         row.params.resize(1 + calls.programs[static_cast<size_t>(row.programs[0].index)].inputs.size(),
                           Dim(-1));
       }},
      {"no input numbers the rows of a table",
       [](CallGraph& calls) {
         RowCall& row = region_row(calls);
         row.row = "tile_indexed";
         row.params.resize(1 + calls.programs[static_cast<size_t>(row.programs[0].index)].inputs.size(),
                           Dim(7));
       }},
      {"elementwise names no input", [](CallGraph& calls) { calls.calls[0].elementwise = {7}; }},
      {"nothing runs", [](CallGraph& calls) { calls.calls[0].what = {}; }},
      {"it names no body", [](CallGraph& calls) { calls.calls[0].what = ControlRun{.bodies = {0}}; }},
      {"it has no body", [](CallGraph& calls) { calls.calls[0].what = ControlRun(); }},
      {"an op of the user's has no name", [](CallGraph& calls) { calls.calls[0].what = CustomRun(); }},
      {"a library's call says nothing",
       [](CallGraph& calls) { calls.calls[0].what = LibraryRun{"", 0, product_row(calls)}; }},
      {"there is no such program",
       [](CallGraph& calls) {
         product_row(calls).programs[0].index = 1000;
         calls.calls[0].what = LibraryRun{"a call", 0, product_row(calls)};
       }},
      {"a body does not come before its graph", [](CallGraph& calls) { calls.bodies = {0}; }},
      {"not every value has a place", [](CallGraph& calls) { calls.placement.pop_back(); }},
      {"not every value is constant or not", [](CallGraph& calls) { calls.constant.pop_back(); }},
      {"not every output has a root", [](CallGraph& calls) { calls.output_roots.pop_back(); }},
      {"a call runs in no way of its row",
       [](CallGraph& calls) {
         product_row(calls).way = MatmulWay{.unit = MatmulUnit::wgmma, .block_m = 63};
       }},
      {"a call runs in no way of its row",
       [](CallGraph& calls) {
         product_row(calls).way = MatmulWay{.unit = MatmulUnit::wgmma, .block_m = 63};
         calls.calls[0].what = Bundle{{BundleMember{calls.calls[0], 0}}};
       }},
      {"a call runs in no way of its row",
       [](CallGraph& calls) {
         product_row(calls).way = MatmulWay{.unit = MatmulUnit::wgmma, .block_m = 63};
         calls.calls[0].what = GroupedProducts{{calls.calls[0]}};
       }},
  };
  for (const auto& c : cases) {
    CallProgram program = selected();
    c.change(program.graphs[0]);
    c.expect(told(program));
  }
}

// One call of several.
KernelCall call_of(WhatRuns what) {
  KernelCall call;
  call.what = std::move(what);
  for (const auto& [member, stage] : members_of(call)) add_member(*member, call);
  return call;
}

// Two calls as members of one, one stage after the other.
KernelCall bundle_of(const KernelCall& first, const KernelCall& second) {
  return call_of(Bundle{{BundleMember{first, 0}, BundleMember{second, 1}}});
}
std::vector<BundleMember>& members_in(KernelCall& bundle) { return std::get<Bundle>(bundle.what).members; }

TEST(VerifyCalls, MembersCoverOperandsInTheOrderOfTheirStages) {
  const std::vector<Case<KernelCall>> cases = {
      {"", [](KernelCall&) {}},
      {"it reads what nothing has written", [](KernelCall& bundle) { members_in(bundle)[1].stage = 0; }},
      {"stages of members do not ascend", [](KernelCall& bundle) { members_in(bundle)[1].stage = 2; }},
      {"stages of members do not ascend", [](KernelCall& bundle) { members_in(bundle)[0].stage = 1; }},
      {"its member reads what it does not", [](KernelCall& bundle) { bundle.inputs.pop_back(); }},
      {"its member writes what it does not", [](KernelCall& bundle) { bundle.outputs.pop_back(); }},
      {"no member reads an operand", [](KernelCall& bundle) { bundle.inputs.push_back(bundle.outputs[1]); }},
      {"no member writes a result", [](KernelCall& bundle) { bundle.outputs.push_back(bundle.inputs[0]); }},
      {"it has no members", [](KernelCall& bundle) { members_in(bundle).clear(); }},
      {"its member has members",
       [](KernelCall& bundle) { members_in(bundle)[0].call = call_of(Bundle{{members_in(bundle)[0]}}); }},
      {"there is no such program",
       [](KernelCall& bundle) { row_call(members_in(bundle)[1].call)->programs[0].index = 1000; }},
  };
  for (const auto& c : cases) {
    CallProgram program = selected();
    std::vector<KernelCall>& calls = program.graphs[0].calls;
    KernelCall bundle = bundle_of(calls[0], calls[1]);
    c.change(bundle);
    calls.erase(calls.begin());
    calls[0] = std::move(bundle);
    c.expect(told(program));
  }
}

TEST(VerifyCalls, MembersOfAGroupRunOneRowInOneWay) {
  const std::vector<Case<KernelCall>> cases = {
      {"", [](KernelCall&) {}},
      {"its members run in several ways",
       [](KernelCall& last) { row_call(last)->way = MatmulWay{.unit = MatmulUnit::mma}; }},
      {"its members run in several ways", [](KernelCall& last) { row_call(last)->row = "matmul_simt"; }},
      {"its members run in several ways", [](KernelCall& last) { last.what = CustomRun{.op = "f"}; }},
  };
  for (const auto& c : cases) {
    CallProgram program = selected();
    KernelCall& call = program.graphs[0].calls[0];
    KernelCall last = call;
    c.change(last);
    call = call_of(GroupedProducts{{call, last}});
    c.expect(said_by([&] { verify(program, "a test"); }));
  }
}

TEST(VerifyCalls, TheTakerOfAnInputReadsWhatItsMakerWrites) {
  const std::vector<Case<KernelCall, KernelCall>> cases = {
      {"", [](KernelCall&, KernelCall&) {}},
      {"its consumer does not read what its producer writes",
       [](KernelCall& producer, KernelCall& consumer) { std::swap(producer, consumer); }},
      {"its consumer does not read what its producer writes",
       [](KernelCall&, KernelCall& consumer) { consumer.inputs[0].root = 0; }},
      {"a part of it is no row",
       [](KernelCall& producer, KernelCall&) { producer.what = CustomRun{.op = "f"}; }},
      {"a part of it is no row",
       [](KernelCall&, KernelCall& consumer) { consumer.what = CustomRun{.op = "f"}; }},
  };
  for (const auto& c : cases) {
    CallProgram program = selected();
    std::vector<KernelCall>& calls = program.graphs[0].calls;
    KernelCall producer = calls[0], consumer = calls[1];
    c.change(producer, consumer);
    calls.erase(calls.begin());
    calls[0] = call_of(PrologueFusion{producer, consumer});
    c.expect(told(program));
  }
}

// A gather, a product with weights and a scatter as one call: x, indices, table, weights, rows of the table.
CallProgram with_messages() {
  const Program program = parse(R"(program {
    entry main(%x: f32[5000, 64], %i: i64[20000], %j: i64[20000, 1], %w: f32[20000, 1]) {
      %s = gather(%x, %i) {axis = 0} : f32[20000, 64]
      %m = mul(%s, %w) : f32[20000, 64]
      %y = scatter_nd(%x, %j, %m) {reduction = "add"} : f32[5000, 64]
      return "y" = %y
    }
  })");
  CallProgram calls{Target::from_name("sm_90"), {}};
  const SelectOptions options;
  select_graph(calls, program.entries[0], options);
  run_required_rules(calls.graphs[0], calls.target, options);
  run_call_rule("join_messages", calls.graphs[0], calls.target, options, nullptr);
  return calls;
}

TEST(VerifyCalls, APrologueMakesTheUpdatesOfItsScatter) {
  const std::vector<Case<KernelCall>> cases = {
      {"", [](KernelCall&) {}},
      {"", [](KernelCall& call) { call.inputs.push_back(call.inputs[0]); }},
      {"its program plays another role in its row",
       [](KernelCall& call) { row_call(call)->row = "scatter_nd"; }},
      {"a prologue makes no updates of its scatter",
       [](KernelCall& call) { row_call(call)->programs[0].first_operand = 1; }},
      {"a prologue makes no updates of its scatter",
       [](KernelCall& call) { row_call(call)->params.pop_back(); }},
      {"a prologue makes no updates of its scatter",
       [](KernelCall& call) { call.outputs[0].dtype = DType::i32; }},
      {"no input numbers the rows of a table", [](KernelCall& call) { row_call(call)->params[1] = Dim(3); }},
      {"no input numbers the rows of a table", [](KernelCall& call) { row_call(call)->params[2] = Dim(5); }},
      {"the program has other operands", [](KernelCall& call) { call.inputs.resize(7, call.inputs[0]); }},
      {"an operand of the program is of another dtype",
       [](KernelCall& call) { call.inputs[3].dtype = DType::i32; }},
  };
  for (const auto& c : cases) {
    CallProgram program = with_messages();
    ASSERT_EQ(program.graphs[0].calls.size(), 1u);
    c.change(program.graphs[0].calls[0]);
    c.expect(told(program));
  }
}

}  // namespace
}  // namespace aicf
