#include "artifact/artifact.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include <xxhash.h>

#include "base/error.h"
#include "base/helpers.h"
#include "base/out_of_memory.h"
#include "plan/plan_json.h"

namespace aicf {
namespace {

using Json = nlohmann::json;  // members in the order of their names: the same contents give the same bytes

constexpr const char* kVersionKey = "aicf.version";
constexpr const char* kHeader = "aicf.header";
constexpr const char* kProgram = "aicf.program";
constexpr const char* kPlanPrefix = "aicf.plan.";
constexpr const char* kCodePrefix = "aicf.code.";
constexpr const char* kReserved = "aicf.";

UserError bad_artifact(const std::string& why, const std::string& section) {
  return UserError(ErrorCode::kU_bad_artifact, "this is not a sound .aicf file: " + why)
      .with_op(section)
      .with_remedy("compile the model again");
}

Array bytes_of(const std::string& text) {
  Array array(DType::u8, {static_cast<int64_t>(text.size())});
  if (!text.empty()) std::memcpy(array.mutable_data(), text.data(), text.size());
  return array;
}

std::string_view text_of(const Array& array) {
  return {array.data_as<char>(), static_cast<size_t>(array.bytes())};
}

uint64_t hash_of(const Array& array) { return XXH3_64bits(array.data(), static_cast<size_t>(array.bytes())); }

std::string hex(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string checksum(const Array& array) { return hex(hash_of(array)); }

// Those of all arrays, side by side: weights are read from their files for it, gigabytes of them.
std::vector<uint64_t> hashes_of(const std::vector<SafetensorsTensor>& tensors) {
  std::vector<uint64_t> hashes(tensors.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < tensors.size(); i = next++) hashes[i] = hash_of(tensors[i].array);
  };
  int64_t bytes = 0;
  for (const SafetensorsTensor& tensor : tensors) bytes += tensor.array.bytes();
  run_with_helpers(bytes, work);
  return hashes;
}

std::string code_name(const std::string& target, size_t module) {
  return kCodePrefix + target + "." + std::to_string(module);
}

bool is_reserved(const std::string& name) { return name.starts_with(kReserved); }

const Array& section(const SafetensorsFile& file, const std::string& name) {
  auto at = file.tensors.find(name);
  if (at == file.tensors.end()) throw bad_artifact("a section is missing", name);
  if (at->second.dtype() != DType::u8) throw bad_artifact("a section is not u8", name);
  return at->second;
}

void check_version(const SafetensorsFile& file) {
  auto at = file.metadata.find(kVersionKey);
  if (at == file.metadata.end())
    throw bad_artifact("it has no version: a plain safetensors file?", kVersionKey);
  int major = 0, minor = 0;
  if (std::sscanf(at->second.c_str(), "%d.%d", &major, &minor) != 2)
    throw bad_artifact("its version does not parse", kVersionKey);
  if (major > kArtifactMajor)
    throw UserError(ErrorCode::kU_newer_artifact, "the file was written by a newer version of AICF")
        .with_expected("major version <= " + std::to_string(kArtifactMajor))
        .with_actual(at->second)
        .with_remedy("update AICF or compile the model again");
}

// The header names every other section and weight with its checksum; its own checksum stands in the metadata.
Json read_header(const SafetensorsFile& file) {
  const Array& header = section(file, kHeader);
  auto at = file.metadata.find("aicf.header_checksum");
  if (at == file.metadata.end() || at->second != checksum(header))
    throw bad_artifact("a checksum differs", kHeader);
  require_room_for_json(static_cast<uint64_t>(header.bytes()), "the header of an artifact");
  Json json = Json::parse(text_of(header), nullptr, false);
  const bool sound = json.is_object() && json.contains("checksums") && json["checksums"].is_object() &&
                     json.contains("metadata") && json["metadata"].is_object() && json.contains("targets") &&
                     json["targets"].is_array();
  if (!sound) throw bad_artifact("the header does not parse", kHeader);
  return json;
}

void require_checksum(const Json& header, const SafetensorsFile& file, const std::string& name) {
  const Json& sums = header["checksums"];
  auto at = file.tensors.find(name);
  if (at == file.tensors.end()) throw bad_artifact("a section is missing", name);
  if (!sums.contains(name) || sums[name] != checksum(at->second))
    throw bad_artifact("a checksum differs", name);
}

void check_variables(const Plan& plan, const Artifact& artifact) {
  for (const PlanVariable& v : plan.variables) {
    auto at = artifact.weights.find(v.name);
    if (at == artifact.weights.end()) {
      if (v.is_state) continue;
      throw bad_artifact("a param has no data", v.name);
    }
    bool same = at->second.dtype() == v.dtype && at->second.sizes().size() == v.sizes.size();
    for (size_t i = 0; same && i < v.sizes.size(); ++i) same = v.sizes[i] == Dim(at->second.sizes()[i]);
    if (!same) throw bad_artifact("a param's dtype or shape differs from the plan's", v.name);
  }
}

// Whatever a size or a number of it breaks, the file is at fault.
Plan read_plan(std::string_view text, const Artifact& artifact) {
  try {
    Plan plan = plan_from_json(text);
    check_plan(plan);
    check_variables(plan, artifact);
    return plan;
  } catch (const UserError& error) {
    if (error.code == ErrorCode::kU_bad_artifact || error.code == ErrorCode::kU_over_limit) throw;
    throw bad_artifact("the plan does not hold: " + error.message, error.op).with_actual(error.actual);
  }
}

}  // namespace

void write_artifact(const std::string& path, const Artifact& artifact) {
  ArtifactFile(path).finish(artifact);
}

void ArtifactFile::write_ahead(const std::map<std::string, Array>& weights) noexcept {
  try {
    std::vector<SafetensorsTensor> tensors;
    for (const auto& [name, array] : weights) tensors.push_back({name, array, kBufferAlignment});
    writer_.write_ahead(tensors);
    hashes_ = hashes_of(tensors);
    ahead_ = std::move(tensors);
  } catch (...) {
    // finish() does it, or says why not.
  }
}

void ArtifactFile::finish(const Artifact& artifact) {
  std::vector<SafetensorsTensor> tensors;
  Json header = {{"checksums", Json::object()}, {"metadata", artifact.metadata}, {"targets", Json::array()}};
  const auto add = [&](const std::string& name, Array array) {
    tensors.push_back({name, std::move(array), kBufferAlignment});
  };
  for (const auto& [name, array] : artifact.weights) {
    if (is_reserved(name))
      throw UserError(ErrorCode::kU_bad_graph, "a param's name begins with the reserved 'aicf.'")
          .with_value(name)
          .with_remedy("rename it");
    add(name, array);
  }
  for (const auto& [name, array] : artifact.constants) add(name, array);
  for (const Variant& variant : artifact.variants) {
    header["targets"].push_back(variant.target);
    add(kPlanPrefix + variant.target, bytes_of(plan_to_json(variant.plan)));
    for (size_t i = 0; i < variant.code.size(); ++i) add(code_name(variant.target, i), variant.code[i]);
  }
  add(kProgram, bytes_of(artifact.program));
  const std::vector<uint64_t> hashes = all_hashes(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) header["checksums"][tensors[i].name] = hex(hashes[i]);
  const Array header_bytes = bytes_of(header.dump());
  tensors.push_back({kHeader, header_bytes, kBufferAlignment});
  writer_.finish(tensors,
                 {{kVersionKey, std::to_string(kArtifactMajor) + "." + std::to_string(kArtifactMinor)},
                  {"aicf.header_checksum", checksum(header_bytes)}});
}

std::vector<uint64_t> ArtifactFile::all_hashes(const std::vector<SafetensorsTensor>& tensors) const {
  const auto same = [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    return a.array.data() == b.array.data() && a.array.bytes() == b.array.bytes();
  };
  const bool known =
      ahead_.size() <= tensors.size() && std::equal(ahead_.begin(), ahead_.end(), tensors.begin(), same);
  const auto first = tensors.begin() + (known ? static_cast<int64_t>(ahead_.size()) : 0);
  std::vector<uint64_t> hashes = known ? hashes_ : std::vector<uint64_t>();
  const std::vector<uint64_t> others = hashes_of({first, tensors.end()});
  hashes.insert(hashes.end(), others.begin(), others.end());
  return hashes;
}

Artifact read_artifact(const std::string& path) {
  SafetensorsFile file;
  try {
    file = read_safetensors(path);
  } catch (UserError& error) {
    // Of the path, not of what the file holds.
    if (error.code == ErrorCode::kU_file_not_found || error.code == ErrorCode::kU_bad_option) throw;
    throw bad_artifact(error.message, "").with_value(path);
  }
  check_version(file);
  const Json header = read_header(file);
  Artifact artifact;
  for (const auto& [key, value] : header["metadata"].items()) {
    if (!value.is_string()) throw bad_artifact("metadata that is not text", key);
    artifact.metadata[key] = value.get<std::string>();
  }
  require_checksum(header, file, kProgram);
  artifact.program = text_of(section(file, kProgram));
  for (const auto& [name, array] : file.tensors) {
    if (!is_reserved(name)) {
      artifact.weights.emplace(name, array);
    } else if (name.starts_with("aicf.constant.")) {
      artifact.constants.emplace(name, array);
    }
  }
  for (const Json& target : header["targets"]) {
    if (!target.is_string()) throw bad_artifact("a target that is not text", kHeader);
    const std::string name = kPlanPrefix + target.get<std::string>();
    require_checksum(header, file, name);
    Variant variant{target.get<std::string>(), read_plan(text_of(section(file, name)), artifact)};
    for (size_t i = 0; i < static_cast<size_t>(variant.plan.modules); ++i) {
      const std::string code = code_name(variant.target, i);
      require_checksum(header, file, code);
      variant.code.push_back(section(file, code));
    }
    artifact.variants.push_back(std::move(variant));
  }
  return artifact;
}

void check_artifact(const std::string& path) {
  read_artifact(path);
  const SafetensorsFile file = read_safetensors(path);
  const Json header = read_header(file);
  for (const auto& [name, sum] : header["checksums"].items()) require_checksum(header, file, name);
  for (const auto& [name, array] : file.tensors)
    if (name != kHeader && !name.starts_with(kSafetensorsFiller) && !header["checksums"].contains(name))
      throw bad_artifact("a tensor that the header does not list", name);
}

}  // namespace aicf
