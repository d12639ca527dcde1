// The records that come with the build: sound, of kernels as they are, and worth having.
#include "select/shipped_records.h"

#include <gtest/gtest.h>

#include "kernels/library_call.h"
#include "select/choose.h"
#include "select/records.h"

namespace aicf {
namespace {

Window window_of(const KeyOperand& operand, ValueId root) {
  Window window{root, operand.dtype, Dim(0), {}, {}};
  for (const Interval& size : operand.sizes) window.sizes.emplace_back(size.hi);
  for (const int64_t stride : operand.strides) window.strides.emplace_back(stride);
  return window;
}

// The candidates of a record's problem: those of all rows of its op.
std::vector<Candidate> candidates_of(const ProblemKey& key) {
  KernelCall call;
  Problem problem;
  problem.family = key.op;
  problem.has_program = true;
  for (const KeyOperand& operand : key.inputs)
    call.inputs.push_back(window_of(operand, static_cast<ValueId>(call.inputs.size())));
  for (const KeyOperand& operand : key.outputs)
    call.outputs.push_back(window_of(operand, static_cast<ValueId>(call.inputs.size())));
  for (const Window& w : call.inputs) problem.inputs.push_back({w.dtype, w.sizes});
  for (const Window& w : call.outputs) problem.outputs.push_back({w.dtype, w.sizes});
  const Target target = Target::from_name(key.target);
  return list_candidates(call, target.candidates(problem), target, {});
}

TEST(ShippedRecords, name_candidates_of_kernels_as_they_are) {
  int count = 0;
  for (const ShippedRecords& file : shipped_record_files())
    for (const Record& record : parse_records(file.text, std::string(file.name))) {
      const std::vector<Candidate> candidates = candidates_of(record.key);
      const auto named = std::find_if(candidates.begin(), candidates.end(),
                                      [&](const Candidate& c) { return to_string(c) == record.choice; });
      EXPECT_NE(named, candidates.end()) << file.name << ": " << record.choice;
      EXPECT_NE(named, candidates.begin()) << "what would run without a record: " << record.choice;
      EXPECT_FALSE(is_stale(record)) << record.versions;
      EXPECT_NE(record.versions.find(" kernel "), std::string::npos) << record.versions;
      EXPECT_LT(record.microseconds, record.heuristic_microseconds) << record.choice;
      ++count;
    }
  EXPECT_GT(count, 0);
}

TEST(ShippedRecords, no_library_is_asked_for) {
  for (const ShippedRecords& file : shipped_record_files())
    for (const Record& record : parse_records(file.text, std::string(file.name)))
      EXPECT_FALSE(parse_library_candidate(record.choice)) << record.choice;
}

}  // namespace
}  // namespace aicf
