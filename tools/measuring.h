// Measuring the candidates of a model's steps: what `tune` keeps and `explain --measure` shows.
#pragma once

#include <memory>
#include <vector>

#include "model_source.h"
#include "tune/bench.h"
#include "tune/tuner.h"

namespace aicf::cli {

// A model optimised for one target, and its problems; with open(), a device to measure them on.
class Measuring {
 public:
  // bad_option where --target names several.
  Measuring(const ModelSource& source, const RunOptions& run);
  Measuring(const Measuring&) = delete;
  Measuring& operator=(const Measuring&) = delete;

  const Target& target() const { return target_; }
  const Program& program() const { return program_; }
  const std::vector<TuneProblem>& problems() const { return problems_; }
  // Opens --device and adds `libraries` recommendations of vendor libraries to each problem; bad_option if
  // the device cannot run the target.
  Bench& open(const RunOptions& run, int libraries);

 private:
  Target target_;
  Program program_;
  std::vector<TuneProblem> problems_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Bench> bench_;
};

}  // namespace aicf::cli
