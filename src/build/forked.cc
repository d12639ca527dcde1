#include "build/forked.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace aicf {
namespace {

// What a worker sends of an item: this, then one of these letters, then the text.
struct Header {
  size_t item, bytes;
};
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

void send(int pipe, size_t item, const std::string& message) {
  const Header header = {item, message.size()};
  const std::string text = std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + message;
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = write(pipe, text.data() + sent, text.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);
    sent += static_cast<size_t>(n);
  }
}

// Nanoseconds of processor time; -1 for a process that is not there.
long long processor_time(pid_t process) {
  clockid_t clock;
  timespec t{};
  if (process <= 0) return -1;
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &t) != 0) return -1;
  return static_cast<long long>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// Where all processes look: the next item, and who works.
struct Board {
  static constexpr size_t kMost = 256;
  static constexpr pid_t kUnborn = -1, kEnded = 0;
  Board() {
    for (auto& process : processes) process = kUnborn;
  }
  std::atomic<size_t> next{0};
  std::array<std::atomic<pid_t>, kMost> processes{};
};

// Memory that forked processes share.
class SharedBoard {
 public:
  SharedBoard() {
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw EnvironmentError(ErrorCode::kE_out_of_memory, "cannot share memory");
    board_ = new (memory) Board;
  }
  ~SharedBoard() { munmap(board_, sizeof(Board)); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board* operator->() const { return board_; }

 private:
  Board* board_;
};

struct Pipe {
  int read = -1, write = -1;
  void close_read() { close_end(read); }
  void close_write() { close_end(write); }

 private:
  static void close_end(int& end) {
    if (end >= 0) close(std::exchange(end, -1));
  }
};

void wait_for(pid_t process) {
  while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
  }
}

class Workers {
 public:
  Workers(const std::vector<size_t>& items, size_t count, const std::function<std::string(size_t)>& work)
      : items_(items), work_(work), pipes_(count), texts_(count), seconds_still_(count), used_(count, -1) {
    for (Pipe& pipe : pipes_) {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) {
        close_pipes();
        throw EnvironmentError(ErrorCode::kE_io_failed, "cannot make a pipe");
      }
      pipe.read = ends[0], pipe.write = ends[1];
    }
    first_ = fork();
    if (first_ == 0) live();
    for (Pipe& pipe : pipes_) pipe.close_write();
    if (first_ < 0) {
      close_pipes();
      throw EnvironmentError(ErrorCode::kE_io_failed, "cannot start a process to compile in");
    }
  }
  ~Workers() {
    if (!done_)
      for (size_t worker = 0; worker < pipes_.size(); ++worker) end(worker);
    close_pipes();
    // The first ends after all others; not if one of them hung before it took an item. What ends leaves no
    // trace, which is -1, where the program that we run in ignores SIGCHLD.
    constexpr int kMilliseconds = 2000;
    for (int left = done_ ? kMilliseconds : 0; waitpid(first_, nullptr, WNOHANG) == 0; --left) {
      if (left == 0) {
        for (size_t worker = 0; worker < pipes_.size(); ++worker) end(worker);
        kill(first_, SIGKILL);
        wait_for(first_);
        return;
      }
      usleep(1000);
    }
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Results by item: all, or what there is when no worker is left. A worker's pipe may outlive it, where
  // another process was forked meanwhile.
  std::map<size_t, std::string> collect(int still_seconds) {
    std::map<size_t, std::string> results;
    while (results.size() < items_.size()) {
      std::vector<pollfd> waiting;
      std::vector<size_t> who;
      for (size_t worker = 0; worker < pipes_.size(); ++worker)
        if (pipes_[worker].read >= 0)
          waiting.push_back({pipes_[worker].read, POLLIN, 0}), who.push_back(worker);
      if (waiting.empty()) return results;  // and the rest is ended
      constexpr int kSecond = 1000;         // in poll's milliseconds
      const int ready = poll(waiting.data(), waiting.size(), kSecond);
      for (size_t i = 0; i < who.size(); ++i) {
        if (ready == 0) note_second(who[i], still_seconds);
        if (ready > 0 && waiting[i].revents != 0) read_some(who[i], results);
      }
    }
    done_ = true;
    return results;
  }

 private:
  // The life of the first worker, who forks the others, as do they: forking takes time by the memory of the
  // parent, so a tree of forks is sooner done than a row. Leaves without the parent's exit handlers.
  [[noreturn]] void live() noexcept {
    // What a library remarks there beside its log is no message of ours.
    if (const int nowhere = open("/dev/null", O_WRONLY); nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    size_t self = 0;
    std::vector<std::pair<size_t, pid_t>> children;
    for (size_t end = pipes_.size(); end - self > 1;) {
      const size_t middle = self + (end - self) / 2;
      const pid_t child = fork();
      if (child == 0) {
        self = middle;
        children.clear();
      } else {
        end = middle;
        if (child < 0) continue;  // fewer do the work
        children.emplace_back(middle, child);
        pid_t unborn = Board::kUnborn;  // it writes there itself, unless it hangs where the fork left it
        board_->processes[middle].compare_exchange_strong(unborn, child);
      }
    }
    for (size_t worker = 0; worker < pipes_.size(); ++worker) {
      pipes_[worker].close_read();
      if (worker != self) pipes_[worker].close_write();
    }
    board_->processes[self] = getpid();
    for (size_t i = board_->next++; i < items_.size(); i = board_->next++)
      serve(pipes_[self].write, items_[i]);
    board_->processes[self] = Board::kEnded;
    pipes_[self].close_write();
    for (auto [worker, child] : children) {
      wait_for(child);
      board_->processes[worker].compare_exchange_strong(child, Board::kEnded);
    }
    _exit(0);
  }

  void serve(int pipe, size_t item) const {
    try {
      send(pipe, item, kResult + work_(item));
    } catch (const Error& error) {
      send(pipe, item, packed(error));
    } catch (...) {
      _exit(1);
    }
  }

  void end(size_t worker) {
    if (const pid_t process = board_->processes[worker].exchange(Board::kEnded); process > 0)
      kill(process, SIGKILL);
  }

  // Ends a worker that has used no processor time in `most` calls of this, which come a second apart.
  void note_second(size_t worker, int most) {
    const long long used = processor_time(board_->processes[worker]);
    seconds_still_[worker] = used == used_[worker] ? seconds_still_[worker] + 1 : 0;
    used_[worker] = used;
    if (seconds_still_[worker] < most) return;
    end(worker);
    pipes_[worker].close_read();
  }

  // Reads what is there; the end of it is the worker's.
  void read_some(size_t worker, std::map<size_t, std::string>& results) {
    char chunk[1 << 16];
    const ssize_t n = read(pipes_[worker].read, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) return pipes_[worker].close_read();
    std::string& text = texts_[worker];
    text.append(chunk, static_cast<size_t>(n));
    for (Header header; text.size() >= sizeof(header);) {
      std::memcpy(&header, text.data(), sizeof(header));
      if (text.size() < sizeof(header) + header.bytes) return;
      std::string message = text.substr(sizeof(header), header.bytes);
      text.erase(0, sizeof(header) + header.bytes);
      if (message[0] == kError) throw_packed(message);
      results[header.item] = message.substr(1);
    }
  }

  void close_pipes() {
    for (Pipe& pipe : pipes_) pipe.close_read(), pipe.close_write();
  }

  const std::vector<size_t>& items_;
  const std::function<std::string(size_t)>& work_;
  SharedBoard board_;
  std::vector<Pipe> pipes_;
  std::vector<std::string> texts_;
  std::vector<int> seconds_still_;
  std::vector<long long> used_;
  pid_t first_ = -1;
  bool done_ = false;
};

}  // namespace

std::vector<std::string> run_forked(size_t count, size_t processes,
                                    const std::function<std::string(size_t)>& work, int still_seconds) {
  constexpr int kTries = 2;
  std::map<size_t, std::string> results;
  for (int tries = 0; results.size() < count; ++tries) {
    if (tries == kTries)
      throw EnvironmentError(ErrorCode::kE_compiler_died, "compiling did not come to an end")
          .with_actual("a process that compiles, and the one in its place, died or stood still")
          .with_remedy("see whether memory was short or a limit on processes was met, and try again");
    std::vector<size_t> items;
    for (size_t i = 0; i < count; ++i)
      if (!results.contains(i)) items.push_back(i);
    const size_t workers = std::clamp(processes, size_t{1}, std::min(items.size(), Board::kMost));
    results.merge(Workers(items, workers, work).collect(still_seconds));
  }
  std::vector<std::string> list;
  for (auto& [item, text] : results) list.push_back(std::move(text));
  return list;
}

}  // namespace aicf
