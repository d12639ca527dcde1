// One program compiled in two ways, for tests that the results are the same. On the GPU of test_device.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile/compile.h"
#include "compile/testing/test_device.h"
#include "runtime/executable.h"

namespace aicf::testing {

// For a GPU, with or without this pass over calls; others may be skipped both times.
inline Artifact compiled_with(const char* pass, bool runs, const Program& program,
                              const char* target = "sm_90", std::set<std::string> skipped = {}) {
  if (!runs) skipped.insert(pass);
  CompileOptions options;
  options.target = target;
  options.skip_passes = std::move(skipped);
  return compile(program, options);
}

// Of an artifact with one variant and one entry.
inline const std::vector<Step>& steps_of(const Artifact& artifact) {
  return artifact.variants[0].plan.entries[0].steps;
}
inline size_t count_steps(const Artifact& artifact, std::string_view kernel) {
  const std::vector<Step>& steps = steps_of(artifact);
  return static_cast<size_t>(
      std::count_if(steps.begin(), steps.end(), [&](const Step& step) { return step.kernel == kernel; }));
}

struct TwoWays {
  using Arrays = std::map<std::string, Array>;
  struct Results {
    Arrays got, want;  // of the first way and of the second
  };

  TwoWays(Artifact one, Artifact other, const std::shared_ptr<Device>& device = open_device({"cuda"}))
      : first(Model::load(std::move(one), device)), second(Model::load(std::move(other), device)) {}

  // The first way has the same bits twice.
  Results run(const Arrays& inputs) {
    Results results{first.run("main", inputs), second.run("main", inputs)};
    for (const auto& [name, array] : first.run("main", inputs))
      EXPECT_EQ(array, results.got.at(name)) << name << " of another run";
    return results;
  }

  Executable first, second;
};

// compiled(true), which has so many steps, and compiled(false). Null where the device has no clusters: then
// only the first was compiled.
inline std::unique_ptr<TwoWays> joined_and_apart(const std::function<Artifact(bool joins)>& compiled,
                                                 size_t joined_steps, size_t apart_steps) {
  Artifact joined = compiled(true);
  EXPECT_EQ(steps_of(joined).size(), joined_steps);
  if (!TestDevice::get().runs_clusters()) return nullptr;
  Artifact apart = compiled(false);
  EXPECT_EQ(steps_of(apart).size(), apart_steps);
  return std::make_unique<TwoWays>(std::move(joined), std::move(apart));
}

}  // namespace aicf::testing
