// Which variants of an artifact a GPU can run, and what to compile for it. Pure, so judged without a GPU.
#pragma once

#include <string>
#include <string_view>

namespace aicf {

// How well a variant fits a GPU of this architecture (90); 0: not at all, and higher is better. A cubin runs
// on its own architecture and on later ones of the same major version; PTX on every later one.
int variant_fit(std::string_view target, int arch);

// The best target for a device by its name: "cpu", "sm_90"; architectures with no code of their own take that
// of an earlier one, or PTX. "" if the device is too old for any.
std::string target_for(std::string_view device);

}  // namespace aicf
