// The records that come with the build: sound, of kernels as they are, and worth having.
#include "select/shipped_records.h"

#include <gtest/gtest.h>

#include "kernels/common/library_call.h"
#include "select/records.h"
#include "select/testing/candidates_of_key.h"

namespace aicf {
namespace {

using select_testing::candidates_of;

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
