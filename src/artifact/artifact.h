// The .aicf file: a safetensors file with the weights under their model names and u8 sections "aicf.*" for
// the rest; docs/artifact.md gives the format. Writing is deterministic and by rename. A file read is
// untrusted: sections are checked by checksum and the plan by check_plan before this returns.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/array.h"
#include "base/safetensors.h"
#include "plan/plan.h"

namespace aicf {

inline constexpr int kArtifactMajor = 1, kArtifactMinor = 0;

// One compiled form of the program.
struct Variant {
  std::string target;  // "cpu", "sm_90", "compute_80"
  Plan plan;
  std::vector<Array> code = {};  // the plan's modules: cubin or PTX bytes
};

struct Artifact {
  std::string program;                          // IR text; the runtime does not read it
  std::map<std::string, std::string> metadata;  // free text that travels with the model
  std::vector<Variant> variants;
  std::map<std::string, Array> weights;    // params and states with contents, by name
  std::map<std::string, Array> constants;  // kConstant buffers of the plans, by name ("aicf.constant.0")
};

void write_artifact(const std::string& path, const Artifact& artifact);

// The same for who has the weights before the rest, which is compiled: writing them takes as long.
class ArtifactFile {
 public:
  explicit ArtifactFile(const std::string& path) : writer_(path) {}
  // What the artifact's weights will be, on any thread.
  void write_ahead(const std::map<std::string, Array>& weights) noexcept;
  void finish(const Artifact& artifact);

 private:
  // Of all, with those that are known.
  std::vector<uint64_t> all_hashes(const std::vector<SafetensorsTensor>& tensors) const;
  SafetensorsWriter writer_;
  std::vector<SafetensorsTensor> ahead_;
  std::vector<uint64_t> hashes_;  // of these
};

// file_not_found, bad_artifact, newer_artifact.
Artifact read_artifact(const std::string& path);
// Recomputes every checksum, weights included; bad_artifact names the first section that differs.
void check_artifact(const std::string& path);

}  // namespace aicf
