// What the tests of join_gathers and join_scatters share: programs in which a region reads rows found by
// "indices" and gives "y", compiled with the pass and without it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "base/error.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/two_ways.h"
#include "ir/text.h"

namespace aicf::testing {

// Who reads the rows: the region alone, the caller too, or another region too.
enum class RowReaders { kRegion, kCaller, kTwoRegions };

// Those but the region.
inline void add_other_readers(Graph& graph, ValueId rows, RowReaders readers) {
  if (readers == RowReaders::kCaller) graph.add_output(rows, "rows");
  if (readers == RowReaders::kTwoRegions)
    graph.add_output(graph.add(Op::softmax, {rows}, {{"axis", int64_t{-1}}}), "shares");
}

struct RowJoin {
  const char* pass;
  const char* kernel;  // of the call that does both

  Artifact compiled(const Program& program, bool joins, const char* target = "sm_90") const {
    return compiled_with(pass, joins, program, target, {"bundle_calls"});
  }
  size_t count(const Program& program, const char* target = "sm_90") const {
    return count_steps(compiled(program, true, target), kernel);
  }
  // With so many steps and one more; null as joined_and_apart.
  std::unique_ptr<TwoWays> both(const Program& program, size_t joined_steps) const {
    return joined_and_apart([&](bool joins) { return compiled(program, joins); }, joined_steps,
                            joined_steps + 1);
  }

  // One call takes the place of two on every GPU, where the region alone reads the rows. `program_of`: the
  // program with these readers.
  void check_readers(const std::function<Program(RowReaders)>& program_of) const {
    const Program alone = program_of(RowReaders::kRegion);
    EXPECT_EQ(count(alone), 1u);
    EXPECT_EQ(count(alone, "sm_80"), 1u);
    EXPECT_EQ(count(alone, "cpu"), 0u);
    EXPECT_EQ(count(program_of(RowReaders::kCaller)), 0u);
    EXPECT_EQ(count(program_of(RowReaders::kTwoRegions)), 0u);
  }

  // y has the bits of two kernels, and an index of `rows`, one too high, is an error.
  void check(const Program& program, const Array& indices, int64_t rows) const {
    SCOPED_TRACE(print(program));
    const auto ways = both(program, 1);
    if (ways == nullptr) return;
    auto inputs = normal_inputs(program, 7);
    inputs.at("indices") = indices;
    const auto [got, want] = ways->run(inputs);
    EXPECT_EQ(got.at("y"), want.at("y"));
    inputs.at("indices").set_i64(0, rows);
    EXPECT_THROW(ways->first.run("main", inputs), UserError);
  }
};

}  // namespace aicf::testing
