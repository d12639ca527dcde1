// The safetensors format: 8 bytes of header length, a JSON header with dtype, shape and byte range per
// tensor, then the data. Reading maps the file and gives arrays that view it; the file is untrusted and every
// range is checked. Writing is deterministic and streams to a file that appears by rename.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/array.h"
#include "base/mapped_file.h"

namespace aicf {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  std::map<std::string, Array> tensors;  // views into the mapping
  SafetensorsMetadata metadata;
};

// file_not_found, bad_model_file, unsupported_dtype. A tensor that is not aligned for its dtype is copied.
SafetensorsFile read_safetensors(const std::string& path);
SafetensorsFile read_safetensors(std::shared_ptr<const MappedFile> file);

struct SafetensorsTensor {
  std::string name;
  Array array;
  // Of its first byte in the file, a power of two <= 4096; the dtype's own size is always met.
  int64_t alignment = 1;
};

// The format has no holes. The header is padded so that data begins at a multiple of 4096 if any alignment
// exceeds 64, else of 64; tensors are stored in the given order where that keeps them aligned, and u8 tensors
// named "aicf.filler.<n>" fill the gaps. Give wide dtypes first and no filler is needed. Names must be unique
// and none may be
// "__metadata__" or start with "aicf.filler.".
void write_safetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                       const SafetensorsMetadata& metadata);

// Wide dtypes first, then by name: the order that needs no filler for natural alignment.
void sort_for_safetensors(std::vector<SafetensorsTensor>& tensors);

inline constexpr std::string_view kSafetensorsFiller = "aicf.filler.";

}  // namespace aicf
