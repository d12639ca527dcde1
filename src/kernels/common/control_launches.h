// The launches of a step of control flow on a GPU, by number.
#pragma once

namespace aicf {

enum ControlLaunch : int { kChooseBranch, kNextTrip, kMoveRows, kControlLaunches };
inline constexpr int kMoveThreads = 256;

}  // namespace aicf
