// Writes which mutants each test reached, and its seconds, as lines "name seconds mutant mutant ..." to the
// file that AICF_MUTANT_REACHED names; mutate.py puts it into the main function of the GoogleTest programs.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "mutant.h"

namespace aicf_mutant {

class ReachedByTest : public ::testing::EmptyTestEventListener {
 public:
  explicit ReachedByTest(const char* path) : out_(path, std::ios::app) {}
  void OnTestStart(const ::testing::TestInfo&) override {
    for (auto& reached : page().reached) reached = 0;
  }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!test.result()->Passed()) return;
    out_ << test.test_suite_name() << '.' << test.name() << ' ' << test.result()->elapsed_time() / 1e3;
    for (int i = 0; i < int{sizeof(page().reached)}; ++i)
      if (page().reached[i]) out_ << ' ' << i;
    out_ << std::endl;
  }

 private:
  std::ofstream out_;
};

inline void listen() {
  if (const char* path = std::getenv("AICF_MUTANT_REACHED"))
    ::testing::UnitTest::GetInstance()->listeners().Append(new ReachedByTest(path));
}

}  // namespace aicf_mutant
