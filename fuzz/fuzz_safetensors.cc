// A stranger's .safetensors: reading it ends in tensors whose every byte can be read, and that survive being
// written and read again, or in a coded error.
#include <cstring>

#include "base/safetensors.h"
#include "harness.h"

namespace aicf::fuzz {
namespace {

const std::vector<std::string>& words() {
  static const std::vector<std::string> list = {
      "",     "F64",     "F32", "F16",          "BF16",         "I64",   "I32",   "I16",           "I8", "U8",
      "BOOL", "F8_E4M3", "U64", "__metadata__", "data_offsets", "shape", "dtype", "aicf.filler.0", "a",  "b"};
  return list;
}

Seeds seeds() {
  return {{"two.safetensors",
           [](const std::string& path) {
             std::vector<SafetensorsTensor> tensors = {{"b", Array(DType::u8, {3})},
                                                       {"a", Array(DType::f32, {2, 2}), 64},
                                                       {"empty", Array(DType::i64, {0, 7})},
                                                       {"scalar", Array(DType::f16, {})}};
             sort_for_safetensors(tensors);
             write_safetensors(path, tensors, {{"format", "pt"}});
           }},
          {"none.safetensors", [](const std::string& path) { write_safetensors(path, {}, {}); }}};
}

// Removed at the end, whatever came before.
struct CopyFile {
  std::string path = "/dev/shm/aicf_fuzz." + std::to_string(::getpid());
  ~CopyFile() { ::unlink(path.c_str()); }
};

void use(const std::string& path, std::string_view) {
  static const CopyFile copy_file;
  const std::string& copy_path = copy_file.path;
  const SafetensorsFile file = read_safetensors(path);
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, array] : file.tensors) {
    read_bytes(array);
    if (!name.starts_with(kSafetensorsFiller)) tensors.push_back({name, array});
  }
  write_safetensors(copy_path, tensors, file.metadata);
  const SafetensorsFile copy = read_safetensors(copy_path);
  if (copy.metadata != file.metadata) std::abort();
  for (const SafetensorsTensor& tensor : tensors)
    if (!(copy.tensors.at(tensor.name) == tensor.array)) std::abort();
}

// A third of the time the bytes, not what they say: "".
std::string mutated(std::string_view bytes, Random& random) {
  Json header;
  std::string tensors;
  if (random() % 3 == 0 || !split_safetensors(bytes, header, tensors)) return "";
  if (random() % 4 == 0) {
    tensors = mutate_text(tensors, 16);
  } else {
    mutate_json(header, words(), random);
  }
  return join_safetensors(header, tensors);
}

}  // namespace

Target target() { return {seeds, mutated, use}; }

}  // namespace aicf::fuzz
