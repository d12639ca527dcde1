// How much a model may ask of the machine. A model file or a plan may come from a stranger: what it wants is
// checked against these limits before memory is touched or a run begins, and refused with over_limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aicf {

struct ResourceLimits {
  // Arrays of the process together with what one Executable touches: AICF_MAX_MEMORY, bytes with an optional
  // K, M, G or T; by default the machine's memory, or the control group's if that is less.
  int64_t memory_bytes;
  // One run, estimated for one core: AICF_MAX_SECONDS, default 600.
  double seconds;
};

// Reads the environment; bad_option for a value that does not parse.
ResourceLimits resource_limits();

// over_limit if `bytes` more than all live arrays exceed the limit. `what` names them in the message.
void require_memory(int64_t bytes, const std::string& what);
// over_limit if a run is expected to take longer than the limit.
void require_seconds(double seconds, const std::string& what);

// Bytes of live arrays: checked against the limit when they are added.
void add_array_bytes(int64_t bytes);
void remove_array_bytes(int64_t bytes);

// A whole number in a variable of the environment; none if it is unset or empty, bad_option if it is no
// number or out of range.
std::optional<int> number_from_environment(const char* name, int lowest, int highest);

// "512M" → bytes; -1 if it is not a size.
int64_t parse_bytes(std::string_view text);

}  // namespace aicf
