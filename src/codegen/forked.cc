#include "codegen/forked.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "base/packed_error.h"

namespace aicf {
namespace {

// What a worker sends of an item: this, then one of these letters, then the text.
struct Header {
  size_t item, bytes;
};
constexpr char kResult = 'r', kError = 'e';
using Messages = std::map<size_t, std::string>;  // by item

// The items without a message, up to the first error: which of several is thrown depends on nobody's speed.
std::vector<size_t> items_left(const std::vector<size_t>& items, const Messages& messages) {
  std::vector<size_t> left;
  for (const size_t item : items) {
    const auto at = messages.find(item);
    if (at == messages.end())
      left.push_back(item);
    else if (at->second[0] == kError)
      break;
  }
  return left;
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

// Where all processes look: the next item, who works, and whom the worker that forked it has not waited for.
struct Board {
  static constexpr size_t kMost = 256;
  static constexpr pid_t kUnborn = -1, kEnded = 0;
  Board() {
    for (auto& process : processes) process = kUnborn;
  }
  std::atomic<size_t> next{0};
  std::atomic<bool> out_of_memory{false};  // a worker died near its limit
  std::array<std::atomic<pid_t>, kMost> processes{}, unreaped{};
};

// In memory that forked processes share.
struct Unmap {
  void operator()(Board* board) const { munmap(board, sizeof(Board)); }
};
using SharedBoard = std::unique_ptr<Board, Unmap>;

SharedBoard shared_board() {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw EnvironmentError(ErrorCode::kE_out_of_memory, "cannot share memory");
  return SharedBoard(new (memory) Board);
}

struct Pipe {
  int read = -1, write = -1;
  void close_read() { close_end(read); }
  void close_write() { close_end(write); }

 private:
  static void close_end(int& end) {
    if (end >= 0) close(std::exchange(end, -1));
  }
};

// As many as there are files for. Where those are too few, half of what there was is left to others.
std::vector<Pipe> make_pipes(size_t count) {
  std::vector<Pipe> pipes;
  int ends[2];
  while (pipes.size() < count && pipe2(ends, O_CLOEXEC) == 0) pipes.push_back({ends[0], ends[1]});
  if (pipes.empty())
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot make a pipe")
        .with_actual(std::strerror(errno))
        .with_remedy("raise the limit on open files: ulimit -n");
  if (pipes.size() == count) return pipes;
  for (const size_t kept = (pipes.size() + 1) / 2; pipes.size() > kept; pipes.pop_back())
    pipes.back().close_read(), pipes.back().close_write();
  return pipes;
}

// Whether a process whose parent ended becomes our child.
bool adopts_orphans() {
  int adopts = 0;
  return getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &adopts) == 0 && adopts != 0);
}

void wait_for(pid_t process) {
  while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Board* board_of_this_worker = nullptr;

// Of libraries that do not look at what malloc gives.
void die_of(int signal) {
  if (met_memory_limit()) board_of_this_worker->out_of_memory = true;
  ::signal(signal, SIG_DFL);
  raise(signal);
}

// On a stack of its own: that of the worker may have found no room to grow.
void note_what_kills(Board& board) {
  board_of_this_worker = &board;
  alignas(std::max_align_t) static char memory[32 << 10];
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = sizeof(memory);
  sigaltstack(&stack, nullptr);
  struct sigaction noting = {};
  noting.sa_handler = die_of;
  noting.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS}) sigaction(signal, &noting, nullptr);
}

class Workers {
 public:
  Workers(const std::vector<size_t>& items, size_t count, const std::function<std::string(size_t)>& work)
      : items_(items),
        work_(work),
        pipes_(make_pipes(count)),
        texts_(pipes_.size()),
        seconds_still_(pipes_.size()),
        used_(pipes_.size(), -1) {
    first_ = fork();
    if (first_ == 0) live();
    const int error = errno;  // of the fork
    for (Pipe& pipe : pipes_) pipe.close_write();
    if (first_ < 0) {
      close_pipes();
      const bool memory = error == ENOMEM;
      throw EnvironmentError(memory ? ErrorCode::kE_out_of_memory : ErrorCode::kE_io_failed,
                             "cannot start a process to compile in")
          .with_actual(std::strerror(error))
          .with_remedy(memory ? "free memory" : "raise the limit on processes: ulimit -u");
    }
  }
  ~Workers() {
    if (!done_) end_all();
    close_pipes();
    // The first ends after all others; not if one of them hung before it took an item. What ends leaves no
    // trace, which is -1, where the program that we run in ignores SIGCHLD.
    constexpr int kMilliseconds = 2000;
    for (int left = done_ ? kMilliseconds : 0; waitpid(first_, nullptr, WNOHANG) == 0; --left) {
      if (left == 0) {
        end_all();
        kill(first_, SIGKILL);
        wait_for(first_);
        break;
      }
      usleep(1000);
    }
    if (adopts_orphans()) reap_orphans();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Of all items, or up to the first error, or what there is when no worker is left. A worker's pipe may
  // outlive it, where another process was forked meanwhile.
  Messages collect(int still_seconds, const std::function<void(size_t)>& on_done) {
    Messages messages;
    size_t told = 0;
    while (!items_left(items_, messages).empty()) {
      std::vector<pollfd> waiting;
      std::vector<size_t> who;
      for (size_t worker = 0; worker < pipes_.size(); ++worker)
        if (pipes_[worker].read >= 0)
          waiting.push_back({pipes_[worker].read, POLLIN, 0}), who.push_back(worker);
      if (waiting.empty()) return messages;  // and the rest is ended
      constexpr int kSecond = 1000;          // in poll's milliseconds
      const int ready = poll(waiting.data(), waiting.size(), kSecond);
      for (size_t i = 0; i < who.size(); ++i) {
        if (ready == 0) note_second(who[i], still_seconds);
        if (ready > 0 && waiting[i].revents != 0) read_some(who[i], messages);
      }
      if (messages.size() > std::exchange(told, messages.size())) on_done(told);
    }
    done_ = messages.size() == items_.size();
    return messages;
  }

  // Whether that is what a worker died of. Known when its pipe has come to its end.
  bool out_of_memory() const { return board_->out_of_memory; }

 private:
  // The life of the first worker, who forks the others, as do they: forking takes time by the memory of the
  // parent, so a tree of forks is sooner done than a row. Leaves without the parent's exit handlers.
  [[noreturn]] void live() noexcept {
    // What a library remarks there beside its log is no message of ours.
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    note_what_kills(*board_);
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
        board_->unreaped[middle] = child;
        pid_t unborn = Board::kUnborn;  // it writes there itself, unless it hangs where the fork left it
        board_->processes[middle].compare_exchange_strong(unborn, child);
      }
    }
    for (size_t worker = 0; worker < pipes_.size(); ++worker) {
      pipes_[worker].close_read();
      if (worker != self) pipes_[worker].close_write();
    }
    board_->processes[self] = getpid();
    if (self != 0) board_->unreaped[self] = getpid();  // where who forked it died before it wrote so
    for (size_t i = board_->next++; i < items_.size(); i = board_->next++)
      serve(pipes_[self].write, items_[i]);
    board_->processes[self] = Board::kEnded;
    pipes_[self].close_write();
    for (auto [worker, child] : children) {
      wait_for(child);
      board_->unreaped[worker] = 0;
      board_->processes[worker].compare_exchange_strong(child, Board::kEnded);
    }
    _exit(0);
  }

  void serve(int pipe, size_t item) const {
    try {
      send(pipe, item, outcome(item));
    } catch (...) {  // what has no words of ours, or no memory for them: the parent tells that a process died
      if (met_memory_limit()) board_->out_of_memory = true;
      _exit(1);
    }
  }

  std::string outcome(size_t item) const {
    try {
      return kResult + work_(item);
    } catch (const Error& error) {
      return kError + packed(error);
    } catch (const std::exception& error) {
      if (!says_out_of_memory(error)) throw;
      return kError + packed(out_of_memory_error(error));
    }
  }

  void end(size_t worker) {
    if (const pid_t process = board_->processes[worker].exchange(Board::kEnded); process > 0)
      kill(process, SIGKILL);
  }

  void end_all() {
    for (size_t worker = 0; worker < pipes_.size(); ++worker) end(worker);
  }

  // Who is there after the first has ended was left by one that died. Who forked a worker comes before it.
  void reap_orphans() {
    for (const auto& process : board_->unreaped)
      if (process > 0) kill(process, SIGKILL);
    for (const auto& process : board_->unreaped)
      if (process > 0) wait_for(process);
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

  // Reads what poll says is there, so that no signal interrupts it; the end of it is the worker's.
  void read_some(size_t worker, Messages& messages) {
    char chunk[1 << 16];
    const ssize_t n = read(pipes_[worker].read, chunk, sizeof(chunk));
    if (n <= 0) return pipes_[worker].close_read();
    std::string& text = texts_[worker];
    text.append(chunk, static_cast<size_t>(n));
    for (Header header; text.size() >= sizeof(header);) {
      std::memcpy(&header, text.data(), sizeof(header));
      if (text.size() < sizeof(header) + header.bytes) return;
      messages[header.item] = text.substr(sizeof(header), header.bytes);
      text.erase(0, sizeof(header) + header.bytes);
    }
  }

  void close_pipes() {
    for (Pipe& pipe : pipes_) pipe.close_read(), pipe.close_write();
  }

  const std::vector<size_t>& items_;
  const std::function<std::string(size_t)>& work_;
  SharedBoard board_ = shared_board();
  std::vector<Pipe> pipes_;
  std::vector<std::string> texts_;
  std::vector<int> seconds_still_;
  std::vector<long long> used_;
  pid_t first_ = -1;
  bool done_ = false;
};

EnvironmentError died(bool out_of_memory) {
  return EnvironmentError(out_of_memory ? ErrorCode::kE_out_of_memory : ErrorCode::kE_compiler_died,
                          "compiling did not come to an end")
      .with_actual(out_of_memory ? "a process that compiles had not enough memory, nor the one in its place"
                                 : "a process that compiles, and the one in its place, died or stood still")
      .with_remedy(out_of_memory
                       ? "free memory, or raise the limit of the process (ulimit -v)"
                       : "see whether memory was short or a limit on processes was met, and try again");
}

std::jthread started(const std::function<void()>& work) {
  try {
    return std::jthread(work);
  } catch (const std::exception&) {  // no thread, or no memory for one
    return {};
  }
}

}  // namespace

std::vector<std::string> run_forked(size_t count, size_t processes,
                                    const std::function<std::string(size_t)>& work, int still_seconds,
                                    const WhileForked& here) {
  constexpr int kTries = 2;
  std::vector<size_t> items(count);
  std::iota(items.begin(), items.end(), 0);
  Messages messages;
  std::jthread helper;
  bool out_of_memory = false;
  for (int tries = 0; !(items = items_left(items, messages)).empty(); ++tries) {
    if (tries == kTries) throw died(out_of_memory);
    const size_t workers = std::clamp(processes, size_t{1}, std::min(items.size(), Board::kMost));
    if (helper.joinable()) helper.join();  // a fork would leave its locks held
    Workers forked(items, workers, work);
    if (tries == 0 && here.meanwhile) helper = started(here.meanwhile);
    messages.merge(forked.collect(still_seconds, [&](size_t done) {
      if (here.on_done) here.on_done(messages.size() + done, count);
    }));
    out_of_memory = forked.out_of_memory();
  }
  std::vector<std::string> list;
  for (const auto& [item, message] : messages) {
    if (message[0] == kError) throw_packed(message.substr(1));
    list.push_back(message.substr(1));
  }
  return list;
}

}  // namespace aicf
