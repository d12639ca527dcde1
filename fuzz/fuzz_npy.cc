// A stranger's .npy: an array whose every byte can be read, or a coded error.
#include "base/npy.h"
#include "harness.h"

namespace aicf::fuzz {
namespace {

const std::vector<std::string>& words() {
  static const std::vector<std::string> list = {"'descr'",
                                                "'fortran_order'",
                                                "'shape'",
                                                "'<f4'",
                                                "'>i8'",
                                                "'|b1'",
                                                "'<f2'",
                                                "'|O'",
                                                "[('a', '<f4')]",
                                                "True",
                                                "False",
                                                "(3, 4, )",
                                                "()",
                                                "(",
                                                ")",
                                                "{",
                                                "}",
                                                ",",
                                                ":",
                                                "'",
                                                "0",
                                                "9223372036854775807",
                                                "-1",
                                                "2L",
                                                "\""};
  return list;
}

Seeds seeds() {
  Seeds list;
  for (const DType dtype : {DType::f32, DType::f16, DType::i64, DType::boolean})
    list.emplace_back(std::string(dtype_name(dtype)) + ".npy",
                      [dtype](const std::string& path) { write_npy(path, Array(dtype, {3, 4})); });
  return list;
}

// Words of the header's dictionary in the place of others, or between them; half the time any byte.
std::string mutated(std::string_view bytes, Random& random) {
  const size_t begin = bytes.find('{'), end = bytes.find('\n');
  if (random() % 2 == 0 || begin == std::string_view::npos || end == std::string_view::npos || end <= begin)
    return "";
  std::string file(bytes);
  const size_t at = begin + random() % (end - begin);
  file.replace(at, std::min<size_t>(random() % 6, end - at), pick(random, words()));
  return file;
}

void use(const std::string& path, std::string_view) { read_bytes(read_npy(path)); }

}  // namespace

Target target() { return {seeds, mutated, use}; }

}  // namespace aicf::fuzz
