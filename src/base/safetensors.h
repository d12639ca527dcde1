// The safetensors format: 8 bytes of header length, a JSON header with dtype, shape and byte range per
// tensor, then the data. Reading gives arrays that view the file's bytes (mapped_file.h); the file is
// untrusted and every range is checked. Writing is deterministic and streams to a file that appears by
// rename.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/array.h"
#include "base/atomic_file.h"
#include "base/mapped_file.h"

namespace aicf {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  std::map<std::string, Array> tensors;  // views of the file's bytes
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

// The format has no holes. The header is padded so that data begins at a multiple of 65536 if there are 16
// MiB, else of 4096 if any alignment exceeds 64, else of 64; tensors are stored in the given order where that
// keeps them aligned, and u8 tensors named "aicf.filler.<n>" fill the gaps. Give wide dtypes first and no
// filler is needed. Names must be unique and none may be "__metadata__" or start with "aicf.filler.".
void write_safetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                       const SafetensorsMetadata& metadata);

// The same for who knows the first tensors earlier than the rest: the disk begins with them.
class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(const std::string& path) : file_(path) {}
  // The file's first tensors, if they are worth it, to where they will most likely stand. What fails here
  // fails again in finish().
  void write_ahead(const std::vector<SafetensorsTensor>& tensors) noexcept;
  // All tensors, of which the first are those written ahead, unless they stand elsewhere or others were.
  void finish(const std::vector<SafetensorsTensor>& tensors, const SafetensorsMetadata& metadata);

 private:
  AtomicFile file_;
  std::vector<SafetensorsTensor> ahead_;  // written
  int64_t ahead_begin_ = -1;              // of the data
};

// Wide dtypes first, then by name: the order that needs no filler for natural alignment.
void sort_for_safetensors(std::vector<SafetensorsTensor>& tensors);

inline constexpr std::string_view kSafetensorsFiller = "aicf.filler.";

}  // namespace aicf
