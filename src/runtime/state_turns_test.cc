// Turns with an executable's states: who waits comes next, and who must not wait is told.
#include "runtime/state_turns.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace aicf {
namespace {

bool is_busy(const StateTurns& turns) {
  try {
    turns.take();
    return false;
  } catch (const UserError& error) {
    return error.code == ErrorCode::kU_busy;
  }
}

TEST(StateTurns, WhoWaitsComesBetweenRunsOfALoop) {
  constexpr int kReads = 20, kMostRuns = 20000;
  StateTurns turns;
  std::atomic<bool> done = false;
  std::atomic<int> runs = 0;
  std::thread loop([&] {
    for (; !done && runs < kMostRuns; ++runs) {
      const StateTurns::Turn turn = turns.take();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  while (runs == 0) std::this_thread::yield();
  for (int i = 0; i < kReads; ++i) turns.take();
  done = true;
  loop.join();
  EXPECT_LT(runs, kMostRuns);
}

TEST(StateTurns, ACustomOpDoesNotWaitForItsOwnRun) {
  const StateTurns turns;
  const auto ask = [](const CustomTensor*, int32_t, const CustomTensor*, int32_t, const int64_t*,
                      const double*, void* user) {
    auto& [asked, busy] = *static_cast<std::pair<const StateTurns*, bool>*>(user);
    busy = is_busy(*asked);
  };
  std::pair<const StateTurns*, bool> asked(&turns, false);
  const CustomOp op = custom_op(CustomFunction(ask), &asked);
  {
    const StateTurns::Turn turn = turns.take();
    call_custom_op(op, {});
    EXPECT_TRUE(asked.second);
  }
  call_custom_op(op, {});
  EXPECT_FALSE(asked.second);
  EXPECT_FALSE(in_custom_op());
}

TEST(StateTurns, AForkedProcessDoesNotWaitForAThreadThatItLacks) {
  const StateTurns turns;
  const auto busy_in_child = [&] {
    const pid_t child = fork();
    if (child == 0) _exit(is_busy(turns) ? 1 : 0);
    int status = -1;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) == 1;
  };
  EXPECT_FALSE(busy_in_child());
  const StateTurns::Turn turn = turns.take();
  EXPECT_TRUE(busy_in_child());
}

}  // namespace
}  // namespace aicf
