// NumPy's .npy and .npz files: arrays in and out of the command line. Reading takes versions 1 to 3, C and
// Fortran order, little-endian types of dtypes.def; .npz members may be stored, not deflated. The files are
// untrusted.
#pragma once

#include <map>
#include <string>

#include "base/array.h"

namespace aicf::cli {

// file_not_found, bad_model_file, unsupported_dtype.
Array read_npy(const std::string& path);
std::map<std::string, Array> read_npz(const std::string& path);
// Written by rename. bf16 is written as its 16-bit patterns, uint16.
void write_npy(const std::string& path, const Array& array);

}  // namespace aicf::cli
