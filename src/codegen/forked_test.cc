#include "codegen/forked.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"

namespace aicf {
namespace {

// A file by which the first of several processes knows that it is the first.
class First {
 public:
  First() : path_(std::filesystem::temp_directory_path() / ("aicf_first_" + std::to_string(getpid()))) {}
  ~First() { std::filesystem::remove(path_); }
  bool operator()() const {
    const int file = open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (file >= 0) close(file);
    return file >= 0;
  }

 private:
  std::filesystem::path path_;
};

void expect_no_child() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Forked, results_come_in_order) {
  const pid_t here = getpid();
  for (const size_t processes : {0, 1, 3, 100}) {
    const std::vector<std::string> results = run_forked(20, processes, [&](size_t i) {
      AICF_CHECK(getpid() != here, "another process");
      return std::string(i * 10'000, static_cast<char>('a' + i));
    });
    ASSERT_EQ(results.size(), 20u);
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(results[i], std::string(i * 10'000, static_cast<char>('a' + i)));
  }
  EXPECT_TRUE(run_forked(0, 2, [](size_t) { return std::string(); }).empty());
  expect_no_child();
}

TEST(Forked, signals_interrupt_reading_and_nothing_is_lost) {
  static std::atomic<int> signals;
  signals = 0;
  struct sigaction counting = {}, old = {};
  counting.sa_handler = [](int) { ++signals; };  // without SA_RESTART: a read that waits ends with EINTR
  sigaction(SIGALRM, &counting, &old);
  const itimerval often = {{0, 200}, {0, 200}}, never = {};
  setitimer(ITIMER_REAL, &often, nullptr);
  const std::vector<std::string> results = run_forked(60, 3, [](size_t i) {
    usleep(2000);
    return std::string(100'000, static_cast<char>('a' + i % 26));
  });
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &old, nullptr);
  EXPECT_GT(signals, 0);
  ASSERT_EQ(results.size(), 60u);
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i], std::string(100'000, static_cast<char>('a' + i % 26))) << i;
  expect_no_child();
}

TEST(Forked, another_process_may_hold_the_pipe) {
  // The first child's own child keeps what was open there.
  const auto results = run_forked(2, 1, [](size_t i) {
    if (i == 0 && fork() == 0) {
      sleep(2);
      _exit(0);
    }
    return std::to_string(i);
  });
  EXPECT_EQ(results, (std::vector<std::string>{"0", "1"}));
}

TEST(Forked, an_error_arrives_whole) {
  try {
    run_forked(3, 2, [](size_t i) -> std::string {
      if (i == 1)
        throw UserError(ErrorCode::kU_bad_shape, "a message")
            .with_op("op")
            .with_actual("1\n2")
            .with_remedy("r");
      return "";
    });
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text(), "error[AICF-U0103]: a message\n  op: op\n  actual: 1\n    2\n  remedy: r");
  }
  expect_no_child();
}

TEST(Forked, what_runs_meanwhile_runs_once_here_and_is_waited_for) {
  const First first;
  const pid_t here = getpid();
  std::atomic<int> runs = 0;
  const auto meanwhile = [&] {
    usleep(100'000);
    if (getpid() == here) ++runs;
  };
  const auto dies_once = [&](size_t i) {
    if (first()) raise(SIGKILL);
    return std::to_string(i);
  };
  EXPECT_EQ(run_forked(1, 1, dies_once, 30, {meanwhile}), (std::vector<std::string>{"0"}));
  EXPECT_EQ(runs, 1);
  const auto fails = [](size_t) -> std::string { throw UserError(ErrorCode::kU_bad_shape, "a message"); };
  EXPECT_THROW(run_forked(1, 1, fails, 30, {meanwhile}), UserError);
  EXPECT_EQ(runs, 2);
}

TEST(Forked, tells_how_many_items_are_done_and_ends_when_told_to) {
  const First first;
  const auto dies_once = [&](size_t i) {
    if (i == 2 && first()) raise(SIGKILL);
    return std::to_string(i);
  };
  std::vector<size_t> told;
  run_forked(5, 2, dies_once, 30, {{}, [&](size_t done, size_t count) {
                                     EXPECT_EQ(count, 5U);
                                     told.push_back(done);
                                   }});
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), 5U);
  const auto stop = [](size_t, size_t) { throw UserError(ErrorCode::kU_bad_shape, "enough"); };
  EXPECT_THROW(run_forked(5, 2, [](size_t i) { return std::to_string(i); }, 30, {{}, stop}), UserError);
  expect_no_child();
}

// The later item fails long before the earlier one.
TEST(Forked, of_several_errors_the_first_items_is_thrown) {
  try {
    run_forked(8, 8, [](size_t i) -> std::string {
      if (i == 2) usleep(200'000);
      if (i >= 2) throw UserError(ErrorCode::kU_bad_shape, "of item " + std::to_string(i));
      return "";
    });
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.message, "of item 2");
  }
  expect_no_child();
}

TEST(Forked, with_few_files_fewer_work) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const int next = open("/dev/null", O_RDONLY);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(next) + 12;  // for pipes of six
  close(next);
  setrlimit(RLIMIT_NOFILE, &few);
  const auto work = [](size_t i) {
    const int file = open("/dev/null", O_RDONLY);  // work needs some, too
    if (file < 0) throw EnvironmentError(ErrorCode::kE_io_failed, "no file is left");
    close(file);
    return std::to_string(i);
  };
  EXPECT_EQ(run_forked(3, 20, work), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(run_forked(20, 20, work).size(), 20u);
  few.rlim_cur = static_cast<rlim_t>(next) + 1;
  setrlimit(RLIMIT_NOFILE, &few);
  EXPECT_THROW(run_forked(1, 1, work), EnvironmentError);
  setrlimit(RLIMIT_NOFILE, &before);
}

// As process 1 of a container, whose children all become that are left by others.
TEST(Forked, who_adopts_orphans_keeps_none) {
  constexpr int kWorkers = 4;
  void* memory =
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& working = *new (memory) std::atomic<int>(0);
  const First first;
  const auto has_children = [] {
    pid_t child = 0;
    std::ifstream("/proc/thread-self/children") >> child;
    return child != 0;
  };
  const pid_t here = getpid();
  // Of the workers, which all are there then, one dies that has forked another and is not the first.
  const auto work = [&](size_t i) {
    ++working;
    while (working < kWorkers) usleep(1000);
    if (getppid() != here && has_children() && first()) raise(SIGKILL);
    return std::to_string(i);
  };
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  EXPECT_EQ(run_forked(kWorkers, kWorkers, work).size(), size_t{kWorkers});
  EXPECT_FALSE(first()) << "none died";
  expect_no_child();
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  munmap(memory, sizeof(std::atomic<int>));
}

TEST(Forked, what_dies_is_tried_once_more) {
  const First first;
  const auto work = [&](size_t i) {
    if (i == 1 && first()) raise(SIGKILL);
    return std::to_string(i);
  };
  EXPECT_EQ(run_forked(3, 2, work), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_THROW(run_forked(3, 2,
                          [](size_t i) -> std::string {
                            if (i == 1) _exit(0);
                            return "";
                          }),
               EnvironmentError);
  expect_no_child();
}

// A library that does not look at what it gets, and one whose exception finds no memory for its words.
TEST(Forked, a_death_at_the_limit_on_memory_says_so) {
  const auto fill = [] {
    constexpr size_t kPart = 1 << 20;
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = static_cast<rlim_t>(pages * getpagesize()) + 8 * kPart;
    setrlimit(RLIMIT_AS, &limit);
    while (mmap(nullptr, kPart, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
    }
  };
  const auto code_of = [](const std::function<void()>& dies) {
    try {
      run_forked(1, 1, [&](size_t) -> std::string {
        dies();
        return "";
      });
    } catch (const EnvironmentError& error) {
      return error.code;
    }
    return ErrorCode::kI_check_failed;
  };
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS})
    EXPECT_EQ(code_of([&] { fill(), raise(signal); }), ErrorCode::kE_out_of_memory) << signal;
  EXPECT_EQ(code_of([&] { fill(), throw 3; }), ErrorCode::kE_out_of_memory);
  EXPECT_EQ(code_of([] { raise(SIGABRT); }), ErrorCode::kE_compiler_died);
  EXPECT_EQ(code_of([] { throw 3; }), ErrorCode::kE_compiler_died);
  expect_no_child();
}

// A signal ends a write into a full pipe when all but one byte has gone.
TEST(Forked, the_last_byte_arrives_after_an_interruption) {
  constexpr size_t kPipe = 1 << 16, kBefore = 17;  // bytes: of a pipe, and what stands before a result
  const First first;
  const auto work = [&](size_t i) {
    if (i == 0) return std::string();
    EXPECT_TRUE(first()) << "it is tried once more";
    usleep(50'000);
    struct sigaction noticed = {};
    noticed.sa_handler = [](int) {};
    sigaction(SIGALRM, &noticed, nullptr);
    const itimerval often = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &often, nullptr);
    return std::string(kPipe + 1 - kBefore, 'x') + (::testing::Test::HasFailure() ? "again" : "");
  };
  const auto pause_reading = [](size_t, size_t) { usleep(200'000); };
  EXPECT_EQ(run_forked(2, 2, work, 30, {{}, pause_reading})[1].size(), kPipe + 1 - kBefore);
}

TEST(Forked, what_stands_still_is_tried_once_more) {
  const First first;
  const auto work = [&](size_t i) {
    while (i == 1 && first()) pause();
    return std::to_string(i);
  };
  EXPECT_EQ(run_forked(3, 2, work, 2), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_THROW(run_forked(
                   1, 1,
                   [](size_t) -> std::string {
                     for (;;) pause();
                   },
                   1),
               EnvironmentError);
  expect_no_child();
}

TEST(Forked, nobody_waits_for_a_child_that_leaves_no_trace) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  rusage at_start{}, at_end{};
  getrusage(RUSAGE_SELF, &at_start);
  EXPECT_EQ(run_forked(3, 2, [](size_t i) { return std::to_string(i); }),
            (std::vector<std::string>{"0", "1", "2"}));
  getrusage(RUSAGE_SELF, &at_end);
  signal(SIGCHLD, before);
  EXPECT_LT(at_end.ru_nvcsw - at_start.ru_nvcsw, 1000);  // it slept a few times, not until it gave up
}

// As a library's handler of forks that waits for a lock whose owner the fork left behind.
std::atomic<bool> hangs_in_forks = false;
pid_t forks_of = 0;

TEST(Forked, what_hangs_before_it_takes_an_item_is_ended) {
  forks_of = getpid();
  ASSERT_EQ(pthread_atfork(nullptr, nullptr,
                           [] {
                             while (hangs_in_forks && getppid() != forks_of) pause();
                           }),
            0);
  int alive[2];  // open for writing in all that live
  ASSERT_EQ(pipe(alive), 0);
  hangs_in_forks = true;
  EXPECT_EQ(run_forked(3, 2, [](size_t i) { return std::to_string(i); }),
            (std::vector<std::string>{"0", "1", "2"}));
  hangs_in_forks = false;
  close(alive[1]);
  pollfd last = {alive[0], POLLIN, 0};
  constexpr int kMost = 20'000;  // milliseconds; a process that is left hangs for good
  EXPECT_EQ(poll(&last, 1, kMost), 1) << "a process is left";
  close(alive[0]);
  expect_no_child();
}

}  // namespace
}  // namespace aicf
