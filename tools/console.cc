#include "console.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "base/format.h"
#include "base/out_of_memory.h"
#include "base/printable.h"

namespace aicf::cli {
namespace {

const std::chrono::steady_clock::time_point kProgramStart = std::chrono::steady_clock::now();

std::string_view kind_name(ErrorKind kind) {
  return kind == ErrorKind::kUser ? "user" : kind == ErrorKind::kEnvironment ? "environment" : "internal";
}

void print_error(const Error& error, bool json) {
  std::fprintf(stderr, "%s\n", error.what());
  if (!json) return;
  const Json body = {{"code", error_info(error.code).text},
                     {"kind", kind_name(error.kind())},
                     {"message", error.message},
                     {"op", error.op},
                     {"value", error.value},
                     {"expected", error.expected},
                     {"actual", error.actual},
                     {"remedy", error.remedy}};
  std::printf(
      "%s\n",
      Json{{"schema", 1}, {"error", body}}.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

// Draws what was last set, from a thread of its own: a long step sets nothing meanwhile.
class StatusLine {
 public:
  StatusLine() : thread_([this] { draw(); }) {}
  ~StatusLine() {
    set("");
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void set(const std::string& line) {
    const std::lock_guard lock(mutex_);
    line_ = printable_name(line);
    if (!line.empty() || !shown_) return;
    std::fputs("\r\033[K", stderr);  // before what is printed next
    shown_ = false;
  }

 private:
  void draw() {
    constexpr std::chrono::milliseconds kSilence(1000), kBetween(100);
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kBetween, [&] { return ended_; })) {
      const auto since = std::chrono::steady_clock::now() - kProgramStart;
      if (line_.empty() || since < kSilence) continue;
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since).count();
      std::fprintf(stderr, "\r\033[K%s  %lld s", line_.c_str(), static_cast<long long>(seconds));
      std::fflush(stderr);
      shown_ = true;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string line_;
  bool shown_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace

void Console::result(const std::string& text, Json object) const {
  status("");
  if (!json) {
    std::fputs(printable_text(text).c_str(), stdout);
    return;
  }
  Json whole = {{"schema", 1}};
  whole.update(object);
  std::printf("%s\n", whole.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

ExitCode Console::exit_code(const Error& error) {
  if (error.code == ErrorCode::kU_verify_failed || error.code == ErrorCode::kU_validate_failed)
    return kCheckFailed;
  const ErrorKind kind = error.kind();
  return kind == ErrorKind::kUser          ? kUserError
         : kind == ErrorKind::kEnvironment ? kEnvironmentError
                                           : kInternalError;
}

namespace {

int report_any(const std::exception_ptr& error, bool json) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    print_error(e, json);
    return Console::exit_code(e);
  } catch (const std::exception& e) {
    if (says_out_of_memory(e)) {
      print_error(out_of_memory_error(e), json);
      return kEnvironmentError;
    }
    print_error(InternalError(ErrorCode::kI_check_failed, e.what()), json);
    return kInternalError;
  }
}

}  // namespace

int Console::report(std::exception_ptr error) const {
  try {
    status("");
    return report_any(error, json);
  } catch (...) {  // no memory to say it in
    std::fputs(kOutOfMemoryText, stderr);
    if (json) std::fputs(kOutOfMemoryJson, stdout);
    return kEnvironmentError;
  }
}

void Console::status(const std::string& line) const { show_status(line); }

void show_status(const std::string& line) {
  if (isatty(STDERR_FILENO) == 0) return;
  try {
    static StatusLine drawn;
    drawn.set(line);
  } catch (const std::exception&) {
    // Neither a thread nor memory for it: the work goes on without a line about it.
  }
}

void Console::progress(const std::string& label, int64_t done, int64_t total) const {
  status(done == total ? "" : label + " " + std::to_string(done) + "/" + std::to_string(total));
}

std::string Console::spent() const {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - kProgramStart;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return " took " + format_fixed(seconds.count(), 2) + " s, at most " +
         format_bytes(int64_t{1024} * usage.ru_maxrss) + " of memory";
}

std::string format_ms(double milliseconds) {
  char text[32];
  if (milliseconds < 0.1)
    std::snprintf(text, sizeof(text), "%.2f µs", milliseconds * 1000);
  else
    std::snprintf(text, sizeof(text), milliseconds < 10 ? "%.3f ms" : "%.1f ms", milliseconds);
  return text;
}

}  // namespace aicf::cli
