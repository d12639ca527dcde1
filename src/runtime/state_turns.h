// Whose turn it is with the states of an executable: a run's, or that of who reads or writes them. Who waits
// is next, so that a loop of runs lets readers in between.
#pragma once

#include <mutex>

#include "base/custom_op.h"
#include "base/error.h"
#include "base/forks.h"

namespace aicf {

class StateTurns {
 public:
  using Turn = std::unique_lock<std::mutex>;
  // Waits for the one whose turn it is; but inside a custom op, which may be part of its run, and in a
  // process forked since, which may lack its thread: UserError busy.
  Turn take() const {
    if (!in_custom_op() && fork_count() == forks_) {
      const std::lock_guard next(next_);
      return Turn(states_);
    }
    Turn turn(states_, std::try_to_lock);
    if (!turn)
      throw UserError(ErrorCode::kU_busy, "the states of the executable are in use by a run")
          .with_remedy("read them when the run has ended; a forked process loads the model itself");
    return turn;
  }

 private:
  mutable std::mutex next_, states_;
  const int forks_ = fork_count();
};

}  // namespace aicf
