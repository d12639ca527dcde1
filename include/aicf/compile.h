// From a Program to an Artifact: the compiled form, which can be saved, loaded elsewhere and run
// (executable.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aicf/graph.h"

namespace aicf::v1 {

struct CompileOptions {
  // "cpu", "sm_90", "compute_80" (PTX), several by comma: a variant for each; "cuda": the GPU of this
  // machine, PTX and the CPU.
  std::string target = "cpu";
  int opt_level = 2;                     // 0: no optimisation, 2: all
  std::vector<std::string> skip_passes;  // optimisations to leave out, by name
  // "f32": as the model states it; "bf16-mixed", "f16-mixed": f32 contractions take operands of that type and
  // accumulate in f32; "tf32": f32 matrix products, convolutions, attention.
  std::string precision = "f32";
  // Told in the calling thread where the compilation is: a stage ("passes", "select", "calls", "build",
  // "plan") and how many of its parts (entries, buckets, units of machine code) are done. What it throws ends
  // the compilation.
  std::function<void(const std::string& stage, int64_t done, int64_t total)> on_stage = {};
};

// Immutable; copies share it.
class AICF_API Artifact {
 public:
  // UserError AICF-U0003 no such file, AICF-U0500 damaged, AICF-U0501 written by a newer version.
  static Artifact load(const std::string& path);
  // Appears under its name only when it is complete.
  void save(const std::string& path) const;

  const std::map<std::string, std::string>& metadata() const;
  // The same artifact with one more entry of metadata.
  Artifact with_metadata(const std::string& key, const std::string& value) const;
  std::vector<std::string> targets() const;

 private:
  friend struct Access;
  struct Impl;
  detail::Held<std::shared_ptr<const Impl>> impl_;
};

AICF_API Artifact compile(const Program& program, const CompileOptions& options = {});

}  // namespace aicf::v1
