// NumPy's .npz archives: zip files (through minizip) of .npy members, stored or deflated, with or without
// zip64. They are untrusted: what a member claims to hold must be what its bytes can hold, checksums must
// fit, and no two members may have one name or share bytes.
#pragma once

#include <map>
#include <string>

#include "base/array.h"

namespace aicf::cli {

// By the members' names without ".npy". file_not_found, bad_model_file, unsupported_dtype, over_limit.
std::map<std::string, Array> read_npz(const std::string& path);

}  // namespace aicf::cli
