#include "build/forked.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sstream>

#include "base/error.h"

namespace aicf {
namespace {

// What a child sends: its length, then one of these, then the text. The length, because another process that
// is forked meanwhile may hold the pipe open.
constexpr char kResult = 'r', kError = 'e';

constexpr std::array<std::string Error::*, 6> kFields = {&Error::message,  &Error::op,     &Error::value,
                                                         &Error::expected, &Error::actual, &Error::remedy};

std::string packed(const Error& error) {
  std::string text = kError + error_info(error.code).text;
  for (const auto field : kFields) text += '\0' + error.*field;
  return text;
}

template <class Type>
[[noreturn]] void rethrow(const ErrorInfo& info, const std::array<std::string, kFields.size()>& fields) {
  Type error(info.code, "");
  for (size_t i = 0; i < kFields.size(); ++i) error.*kFields[i] = fields[i];
  error.refresh();
  throw error;
}

[[noreturn]] void throw_packed(const std::string& text) {
  std::istringstream in(text.substr(1));
  std::string code;
  std::getline(in, code, '\0');
  std::array<std::string, kFields.size()> fields;
  for (std::string& field : fields) std::getline(in, field, '\0');
  const auto& table = error_table();
  const auto info = std::find_if(table.begin(), table.end(), [&](const auto& i) { return i.text == code; });
  AICF_CHECK(info != table.end(), "a child sent an error that does not exist: " + code);
  if (info->kind == ErrorKind::kUser) rethrow<UserError>(*info, fields);
  if (info->kind == ErrorKind::kEnvironment) rethrow<EnvironmentError>(*info, fields);
  rethrow<InternalError>(*info, fields);
}

void send_all(int pipe, const std::string& message) {
  const size_t size = message.size();
  const std::string text = std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + message;
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = write(pipe, text.data() + sent, text.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);
    sent += static_cast<size_t>(n);
  }
}

// The life of a child; leaves without the parent's exit handlers.
[[noreturn]] void serve(int pipe, size_t item, const std::function<std::string(size_t)>& work) {
  // What a library remarks there beside its log is no message of ours.
  if (const int nowhere = open("/dev/null", O_WRONLY); nowhere >= 0) dup2(nowhere, STDERR_FILENO);
  try {
    send_all(pipe, kResult + work(item));
  } catch (const Error& error) {
    send_all(pipe, packed(error));
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

// Nanoseconds of processor time; -1 for a process that has ended.
long long processor_time(pid_t process) {
  clockid_t clock;
  timespec t{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &t) != 0) return -1;
  return static_cast<long long>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

class Child {
 public:
  Child(size_t item, bool replacement, const std::function<std::string(size_t)>& work)
      : item_(item), replacement_(replacement) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw EnvironmentError(ErrorCode::kE_io_failed, "cannot make a pipe");
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      serve(ends[1], item, work);
    }
    close(ends[1]);
    pipe_ = ends[0];
    if (process_ < 0) {
      close(pipe_);
      throw EnvironmentError(ErrorCode::kE_io_failed, "cannot start a process to compile in");
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (process_ > 0) kill(process_, SIGKILL);
    finish();
  }

  size_t item() const { return item_; }
  bool replacement() const { return replacement_; }
  int pipe() const { return pipe_; }
  // What it sent.
  std::string message() const { return text_.substr(sizeof(size_t)); }

  // Reads what is there; true if nothing more will come.
  bool read_some() {
    char chunk[1 << 16];
    const ssize_t n = read(pipe_, chunk, sizeof(chunk));
    if (n < 0) return errno != EINTR;
    text_.append(chunk, static_cast<size_t>(n));
    return n == 0 || whole();
  }

  // Ends the child if it has used no processor time in `seconds` calls of this, which come a second apart.
  void note_second(int seconds) {
    const long long used = processor_time(process_);
    still_ = used == used_ ? still_ + 1 : 0;
    used_ = used;
    if (still_ >= seconds) kill(process_, SIGKILL);
  }

  // Waits for its end; true if it sent all it had to.
  bool finish() {
    if (process_ <= 0) return false;
    close(pipe_);
    int status = 0;
    while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && whole();
  }

 private:
  bool whole() const {
    size_t size = 0;
    if (text_.size() <= sizeof(size)) return false;
    std::memcpy(&size, text_.data(), sizeof(size));
    return text_.size() == sizeof(size) + size;
  }

  size_t item_;
  bool replacement_;
  pid_t process_ = 0;
  int pipe_ = -1, still_ = 0;
  long long used_ = -1;
  std::string text_;
};

}  // namespace

std::vector<std::string> run_forked(size_t count, size_t processes,
                                    const std::function<std::string(size_t)>& work, int still_seconds) {
  std::vector<std::string> results(count);
  std::vector<std::unique_ptr<Child>> children;
  for (size_t next = 0; next < count || !children.empty();) {
    while (next < count && children.size() < std::max<size_t>(processes, 1))
      children.push_back(std::make_unique<Child>(next++, false, work));
    std::vector<pollfd> waiting;
    for (const auto& child : children) waiting.push_back({child->pipe(), POLLIN, 0});
    constexpr int kSecond = 1000;  // in poll's milliseconds
    const int ready = poll(waiting.data(), waiting.size(), kSecond);
    if (ready == 0)
      for (const auto& child : children) child->note_second(still_seconds);
    if (ready <= 0) continue;
    for (size_t i = children.size(); i-- > 0;) {
      if (waiting[i].revents == 0 || !children[i]->read_some()) continue;
      const std::unique_ptr<Child> child = std::move(children[i]);
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
      if (child->finish()) {
        const std::string text = child->message();
        if (text[0] == kError) throw_packed(text);
        results[child->item()] = text.substr(1);
      } else if (!child->replacement()) {
        children.push_back(std::make_unique<Child>(child->item(), true, work));
      } else {
        throw EnvironmentError(ErrorCode::kE_compiler_died, "compiling did not come to an end")
            .with_actual("a process that compiles, and the one in its place, died or stood still")
            .with_remedy("see whether memory was short or a limit on processes was met, and try again");
      }
    }
  }
  return results;
}

}  // namespace aicf
