// Which calls, or steps of a plan, may run at the same time. They stand in a list, in which one after the
// other would be right, too. A call of lane 0 follows the one of lane 0 before it. A call of another lane
// follows what stands before it in that lane, and the call of lane 0 before it. A lane runs beside lane 0 and
// the others until a call of lane 0 joins it: that one, and all that follow it, begin when the lane has
// ended.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/comma_list.h"

namespace aicf {

inline constexpr int32_t kMostLanes = 16;  // beside lane 0

struct Lane {
  int32_t number = 0;
  std::vector<int32_t> joins = {};  // lanes that have to end first; of calls of lane 0
  bool operator==(const Lane&) const = default;
};

// "lane 2  ", "joins lanes 1, 2  "; of a call of lane 0 that joins none nothing.
inline std::string to_string(const Lane& lane) {
  std::string text = lane.number == 0 ? "" : "lane " + std::to_string(lane.number) + "  ";
  if (!lane.joins.empty())
    text += "joins lanes " + comma_list(lane.joins, [](int32_t n) { return std::to_string(n); }) + "  ";
  return text;
}

// Whether a call follows an earlier one, whichever lanes are joined between them.
inline bool always_follows(const Lane& later, const Lane& earlier) {
  return earlier.number == 0 || earlier.number == later.number;
}

// The lanes that run when the calls of a list begin, call by call.
class OpenLanes {
 public:
  // Begins the call at `at`.
  void begin(const Lane& lane, size_t at) {
    for (const int32_t joined : lane.joins) calls_[static_cast<size_t>(joined)].clear();
    if (lane.number != 0) calls_[static_cast<size_t>(lane.number)].push_back(at);
  }
  // Calls before it with which a call of the lane that is begun runs at the same time.
  template <class Visit>
  void visit_beside(const Lane& lane, const Visit& visit) const {
    for (size_t number = 1; number < calls_.size(); ++number)
      if (static_cast<int32_t>(number) != lane.number)
        for (const size_t at : calls_[number]) visit(at);
  }

 private:
  std::vector<std::vector<size_t>> calls_ = std::vector<std::vector<size_t>>(kMostLanes + 1);  // by lane
};

// By place: the last call beside which that one may run; itself in lane 0.
template <class Calls>
std::vector<size_t> last_beside(const Calls& calls) {
  std::vector<size_t> last(calls.size());
  std::vector<size_t> joined(kMostLanes + 1, calls.empty() ? 0 : calls.size() - 1);  // by lane
  for (size_t at = calls.size(); at-- > 0;) {
    const Lane& lane = calls[at].lane;
    for (const int32_t number : lane.joins) joined[static_cast<size_t>(number)] = at - 1;
    last[at] = lane.number == 0 ? at : joined[static_cast<size_t>(lane.number)];
  }
  return last;
}

}  // namespace aicf
