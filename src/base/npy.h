// NumPy's .npy files (numpy.lib.format): versions 1 to 3, C and Fortran order, both byte orders, the element
// types of dtypes.def that NumPy has. The files are untrusted: an element type beyond these is
// unsupported_dtype, all else that cannot be read bad_model_file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/array.h"
#include "base/error.h"

namespace aicf {

// Also file_not_found. Bytes behind the array are left unread, as numpy.load leaves them.
Array read_npy(const std::string& path);

// The same of a stream of `size` bytes that holds one array and nothing else. `read` fills the next bytes, or
// throws; `name` is what errors call the stream.
Array read_npy(int64_t size, const std::function<void(std::byte* to, int64_t bytes)>& read,
               const std::string& name);

// Written by rename. bf16, which NumPy lacks, is written as its 16-bit patterns, uint16.
void write_npy(const std::string& path, const Array& array);

UserError bad_array_file(const std::string& name, const std::string& why);

}  // namespace aicf
