// Which results of calls for a GPU lie where their operands lay.
#include <gtest/gtest.h>

#include "calls/rules.h"
#include "ir/text.h"
#include "select/select.h"

namespace aicf {
namespace {

// The calls of an entry over `size` squared elements for a GPU; %0 and %1 are its first two values.
CallGraph stored_together(const std::string& nodes, const std::string& size, const char* target = "sm_90") {
  const std::string type = "f32[" + size + ", " + size + "]";
  std::string text = "program {\n  entry main(%x: T, %w: T) {\n" + nodes + "  }\n}\n";
  for (size_t at = text.find('T'); at != std::string::npos; at = text.find('T', at + type.size()))
    text.replace(at, 1, type);
  const Target gpu_or_cpu = Target::from_name(target);
  CallGraph calls = select_kernels(parse(text).entries[0], gpu_or_cpu, {});
  run_required_rules(calls, gpu_or_cpu, {});
  return calls;
}

ValueId root_of(const Window& w) { return w.root; }

const char* const kChain = R"(    %0 = exp(%x) : T
    %1 = tanh(%0) : T
    %2 = mul(%1, %w) : T
    return "y" = %2
)";

TEST(ShareStorage, LargeResultsReplaceOperandsThatNothingElseReads) {
  const CallGraph calls = stored_together(kChain, "16384");
  ASSERT_EQ(calls.calls.size(), 3u);
  const ValueId output = calls.output_roots.at(0);
  for (const KernelCall& call : calls.calls) {
    EXPECT_EQ(root_of(call.outputs[0]), output);
    EXPECT_TRUE(call.elementwise.empty());
  }
  EXPECT_EQ(root_of(calls.calls[2].inputs[0]), output);
  EXPECT_NE(root_of(calls.calls[0].inputs[0]), output) << "an input of the caller is never written";
}

TEST(ShareStorage, SmallOnesAndThoseOfTheCpuDoNot) {
  const CallGraph small = stored_together(kChain, "1024");
  EXPECT_NE(root_of(small.calls[1].outputs[0]), root_of(small.calls[1].inputs[0]));
  const CallGraph cpu = stored_together(kChain, "16384", "cpu");
  EXPECT_NE(root_of(cpu.calls[1].outputs[0]), root_of(cpu.calls[1].inputs[0]));
}

TEST(ShareStorage, WhatIsReadAgainStays) {
  const CallGraph calls = stored_together(R"(    %0 = exp(%x) : T
    %1 = tanh(%0) : T
    %2 = mul(%1, %0) : T
    return "y" = %2
)",
                                          "16384");
  EXPECT_NE(root_of(calls.calls[1].outputs[0]), root_of(calls.calls[1].inputs[0]));
  EXPECT_EQ(root_of(calls.calls[2].outputs[0]), root_of(calls.calls[2].inputs[0]));
}

// Rows over their sums are stored when the sums are known; what stands between, while x is still read.
TEST(ShareStorage, RowsReplaceWhatTheirLastSumHasRead) {
  const auto shares = [](const std::string& names, const std::string& results, const std::string& types) {
    const CallGraph calls =
        stored_together("    %0 = exp(%x) : T\n    " + names + R"( = fused(%0) {kind = "tile"}
      body(%0: T as "x0") {
        %1 = reduce_max(%0) {axes = [1], keepdims = true} : f32[16384, 1]
        %2 = sub(%0, %1) : T
        %3 = reduce_sum(%2) {axes = [1], keepdims = true} : f32[16384, 1]
        %4 = div(%0, %3) : T
        return )" + results +
                            "\n      } : " + types + "\n    return \"y\" = %1\n",
                        "16384");
    return root_of(calls.calls[1].outputs[0]) == root_of(calls.calls[1].inputs[0]);
  };
  EXPECT_TRUE(shares("%1", "%4", "T"));
  EXPECT_FALSE(shares("%1, %2", "%2, %3", "T, f32[16384, 1]"));
}

}  // namespace
}  // namespace aicf
