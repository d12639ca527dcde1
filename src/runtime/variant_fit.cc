#include "runtime/variant_fit.h"

#include <charconv>

namespace aicf {
namespace {

// The number at the end of "sm_90"; -1 if there is none.
int arch_of(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  int arch = -1;
  std::from_chars(name.data() + digits, name.data() + name.size(), arch);
  return arch;
}

}  // namespace

int variant_fit(std::string_view target, int arch) {
  constexpr int kBinaryFirst = 1000;
  const int made_for = arch_of(target);
  if (made_for < 0 || made_for > arch) return 0;
  if (target.starts_with("compute_")) return made_for;
  return target.starts_with("sm_") && made_for / 10 == arch / 10 ? kBinaryFirst + made_for : 0;
}

std::string target_for(std::string_view device) {
  if (device == "cpu") return "cpu";
  const int arch = arch_of(device);
  // Architectures with kernels of their own; a newer one runs PTX.
  for (const int known : {90, 89, 86, 80})
    if (arch >= known && arch / 10 == known / 10) return "sm_" + std::to_string(known);
  return arch > 90 ? "compute_80" : "";
}

}  // namespace aicf
