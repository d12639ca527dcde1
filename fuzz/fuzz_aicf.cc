// A stranger's .aicf: whatever it says under fitting checksums, loading and running it ends in success or in
// a coded error. Checksums are made to fit before every use, so mutations reach what stands behind them. What
// is compiled for GPUs runs on the null driver, which judges launches and machine code as the cuda driver
// does and computes nothing.
#include <xxhash.h>

#include "aicf_seeds.h"
#include "harness.h"
#include "kernels/common/cuda_kernel.h"
#include "runtime/null/null_device.h"

namespace aicf::fuzz {
namespace {

std::string checksum(std::string_view bytes) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return text;
}

// Bytes of one tensor; empty if its entry is not sound.
std::string_view section(const Json& header, const std::string& data, const std::string& name) {
  if (!header.contains(name) || !header[name].is_object()) return {};
  const Json& entry = header[name];
  if (!entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2)
    return {};
  const Json &first = entry["data_offsets"][0], &last = entry["data_offsets"][1];
  if (!first.is_number_unsigned() || !last.is_number_unsigned()) return {};
  const uint64_t begin = first, end = last;
  if (begin > end || end > data.size()) return {};
  return std::string_view(data).substr(begin, end - begin);
}

// The section with other bytes, appended to the data so that no other tensor moves; the old bytes stay as a
// hole, which readers accept.
void replace_section(Json& header, std::string& data, const std::string& name, const std::string& bytes) {
  data.resize((data.size() + 63) / 64 * 64);
  header[name] = {{"dtype", "U8"},
                  {"shape", {bytes.size()}},
                  {"data_offsets", {data.size(), data.size() + bytes.size()}}};
  data += bytes;
}

// Drops the holes again, so that files do not grow from mutation to mutation.
void compact(Json& header, std::string& data) {
  std::string packed;
  for (auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::string bytes(section(header, data, name));
    if (bytes.empty()) continue;
    packed.resize((packed.size() + 63) / 64 * 64);
    entry["data_offsets"] = {packed.size(), packed.size() + bytes.size()};
    packed += bytes;
  }
  data = packed;
}

constexpr const char *kPlans = "aicf.plan.", *kCode = "aicf.code.";

// All checksums made to fit; the bytes as they are where the file cannot be taken apart.
std::string resealed(std::string_view bytes) {
  Json header;
  std::string data;
  if (!split_safetensors(bytes, header, data)) return std::string(bytes);
  Json inner = Json::parse(section(header, data, "aicf.header"), nullptr, false);
  if (!inner.is_object() || !inner.contains("checksums") || !inner["checksums"].is_object())
    return std::string(bytes);
  for (auto& [name, sum] : inner["checksums"].items()) sum = checksum(section(header, data, name));
  const std::string text = dump(inner);
  replace_section(header, data, "aicf.header", text);
  if (header.contains("__metadata__") && header["__metadata__"].is_object())
    header["__metadata__"]["aicf.header_checksum"] = checksum(text);
  return join_safetensors(header, data);
}

const std::vector<std::string>& words() {
  static const std::vector<std::string> list = [] {
    std::vector<std::string> all = {"",
                                    "junk",
                                    "batch",
                                    "f64",
                                    "f32",
                                    "f16",
                                    "bf16",
                                    "i64",
                                    "i32",
                                    "i16",
                                    "i8",
                                    "u8",
                                    "bool",
                                    "main",
                                    "init",
                                    "input",
                                    "output",
                                    "variable",
                                    "constant",
                                    "packed",
                                    "arena",
                                    "F32",
                                    "U8",
                                    "I64",
                                    "BOOL",
                                    "batch+1",
                                    "-batch",
                                    "64*batch",
                                    "floordiv(64, batch-1)",
                                    "batch*1099511627776",
                                    "batch*batch*batch*4611686018427387904",
                                    "max(batch, 3)",
                                    "mod(batch, 2)",
                                    kLibraryCall,
                                    "91901 conv bias 2 relu workspace 0 engine 17 knobs 2:5,14:3",
                                    "91901 attention workspace 0 engine 3"};
    for (const char* name : {"if_else", "while_loop", "scan"}) all.emplace_back(name);
    for (const Kernel& kernel : kernel_table()) all.emplace_back(kernel.name);
    for (const CudaKernel& kernel : cuda_kernel_table()) all.emplace_back(kernel.name);
#define AICF_TILE_OP(name, arity, types) all.emplace_back(#name);
#include "kernels/common/tile_ops.def"
#undef AICF_TILE_OP
    return all;
  }();
  return list;
}

// One of the sections whose names begin like this; "" if there is none.
std::string section_like(const Json& header, const std::string& prefix, Random& random) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : header.items())
    if (name.starts_with(prefix)) names.push_back(name);
  return names.empty() ? "" : pick(random, names);
}

void mutate_section(Json& header, std::string& data, const std::string& name, bool as_text, Random& random) {
  const std::string text(section(header, data, name));
  Json plan = as_text ? Json() : Json::parse(text, nullptr, false);
  if (as_text || plan.is_discarded()) {
    replace_section(header, data, name, mutate_text(text, 64));
  } else {
    mutate_json(plan, words(), random);
    replace_section(header, data, name, dump(plan));
  }
  compact(header, data);
}

std::string mutated(std::string_view bytes, Random& random) {
  Json header;
  std::string data;
  if (!split_safetensors(bytes, header, data)) return {};
  const uint64_t way = random() % 16;
  const std::string code = section_like(header, kCode, random), plan = section_like(header, kPlans, random);
  if (way < 2 || plan.empty()) {
    mutate_json(header, words(), random);
  } else if (way == 2 && !code.empty()) {
    mutate_section(header, data, code, true, random);
  } else {
    mutate_section(header, data, plan, way < 5, random);
  }
  return resealed(join_safetensors(header, data));
}

// Each variant on the device that it is for.
void run_variants(const Artifact& artifact) {
  static const std::shared_ptr<Device> no_gpu = make_null_device(true);
  for (const Variant& variant : artifact.variants) {
    Artifact one = artifact;
    one.variants = {variant};
    const bool runs_here = device()->fitness(variant.target) > 0;
    allow_coded_errors([&] { run_everything(std::move(one), runs_here ? device() : no_gpu); });
  }
}

void use(const std::string& path, std::string_view) { run_variants(read_artifact(path)); }

}  // namespace

Target target() { return {seeds, mutated, use, resealed}; }

}  // namespace aicf::fuzz
