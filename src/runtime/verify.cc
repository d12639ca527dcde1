#include "runtime/verify.h"

#include <cstdio>

#include <xxhash.h>

#include "base/error.h"
#include "base/log.h"

namespace aicf {

namespace {

// Puts the states back, also when a replay throws.
class KeptStates {
 public:
  explicit KeptStates(Executable& exe) : exe_(exe), states_(exe.states()) {}
  ~KeptStates() {
    try {
      exe_.set_states(states_);
    } catch (const Error& error) {  // the device is gone, which the replay said
      log_at(LogLevel::kError, [&] { return "the states stay changed: " + error.text(); });
    }
  }
  KeptStates(const KeptStates&) = delete;
  KeptStates& operator=(const KeptStates&) = delete;

 private:
  Executable& exe_;
  std::map<std::string, Array> states_;
};

}  // namespace

std::string hash_arrays(const std::map<std::string, Array>& arrays) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  for (const auto& [name, array] : arrays) {
    const std::string label = name + " " + std::string(dtype_name(array.dtype())) + to_string(array.sizes());
    XXH3_128bits_update(state, label.data(), label.size());
    if (array.bytes() > 0) XXH3_128bits_update(state, array.data(), static_cast<size_t>(array.bytes()));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

VerifyResult verify_replays(Executable& exe, const std::string& entry,
                            const std::map<std::string, Array>& inputs, int64_t replays,
                            const std::function<void(int64_t)>& progress) {
  const KeptStates kept(exe);
  VerifyResult result;
  for (int64_t i = 0; i < replays; ++i) {
    exe.reset();
    std::map<std::string, Array> results = exe.run(entry, inputs);
    for (const auto& [name, array] : exe.states()) results.emplace("state " + name, array);
    ++result.hashes[hash_arrays(results)];
    ++result.replays;
    if (progress) progress(i + 1);
  }
  return result;
}

}  // namespace aicf
