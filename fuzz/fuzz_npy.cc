// A stranger's .npy or .npz: arrays whose every byte can be read, or a coded error. Seeds of .npz come from
// outside (--seeds).
#include "harness.h"
#include "npy.h"

namespace aicf::fuzz {
namespace {

Seeds seeds() {
  Seeds list;
  for (const DType dtype : {DType::f32, DType::f16, DType::i64, DType::boolean})
    list.emplace_back(std::string(dtype_name(dtype)) + ".npy", [dtype](const std::string& path) {
      cli::write_npy(path, Array(dtype, {3, 4}));
    });
  return list;
}

void read_all(const Array& array) {
  const volatile char* bytes = array.data_as<char>();
  for (int64_t i = 0; i < array.bytes(); ++i) (void)bytes[i];
}

void use(const std::string& path, std::string_view bytes) {
  if (!bytes.starts_with("PK")) return read_all(cli::read_npy(path));
  for (const auto& [name, array] : cli::read_npz(path)) read_all(array);
}

}  // namespace
}  // namespace aicf::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  aicf::fuzz::set_limits();
  aicf::fuzz::write_seeds_if_asked(aicf::fuzz::seeds);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return aicf::fuzz::mutate(data, size, max_size, seed,
                            [](std::string_view, aicf::fuzz::Random&) { return std::string(); });
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace aicf;
  static fuzz::MemoryFile file;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  file.write(bytes);
  fuzz::allow_coded_errors([&] { fuzz::use(file.path(), bytes); });
  return 0;
}
