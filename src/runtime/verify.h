// Proof of reproducibility: runs an executable many times from the same states and inputs and hashes every
// output and state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "runtime/executable.h"

namespace aicf {

// xxh3-128 over names, dtypes, sizes and bytes, as 32 hex digits.
std::string hash_arrays(const std::map<std::string, Array>& arrays);

struct VerifyResult {
  int64_t replays = 0;
  std::map<std::string, int64_t> hashes;  // hash → how many replays gave it
  bool passed() const { return hashes.size() == 1; }
};

// Before each replay the states are reset to their contents at load; afterwards they are as they were before,
// also if `progress`, which gets the number done, throws.
VerifyResult verify_replays(Executable& exe, const std::string& entry,
                            const std::map<std::string, Array>& inputs, int64_t replays,
                            const std::function<void(int64_t)>& progress = {});

}  // namespace aicf
