#include <sys/wait.h>

#include <array>
#include <atomic>
#include <optional>
#include <thread>

#include "base/comma_list.h"
#include "base/error.h"
#include "model_source.h"
#include "runtime/verify.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct VerifyArgs : ReplayOptions {
  int64_t replays = 100;
  int processes = 1;
  std::vector<int> threads;
  bool busy = false;
  std::optional<VerbOptions> verb;  // for the command lines of further processes
};

// Replays of the same model on a stream of their own for as long as it lives, so that whatever shares the
// device with the replays that count changes all the time.
class Neighbour {
 public:
  Neighbour(std::unique_ptr<Executable> exe, std::string entry, std::map<std::string, Array> inputs)
      : exe_(std::move(exe)),
        entry_(std::move(entry)),
        inputs_(std::move(inputs)),
        thread_([this] { replay(); }) {}
  ~Neighbour() { stop(); }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;
  // Throws what stopped it.
  void finish() {
    stop();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  void stop() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void replay() {
    try {
      while (!stopped_) exe_->run(entry_, inputs_);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  std::unique_ptr<Executable> exe_;
  std::string entry_;
  std::map<std::string, Array> inputs_;
  std::atomic<bool> stopped_{false};
  std::exception_ptr failure_;
  std::thread thread_;
};

void add_hashes(std::map<std::string, int64_t>& total, const std::map<std::string, int64_t>& more) {
  for (const auto& [hash, count] : more) total[hash] += count;
}

std::map<std::string, int64_t> replay_here(const VerifyArgs& options, int threads, const Console& console) {
  console.status("loading " + options.source.path);
  RunOptions run = options.run;
  run.threads = threads;
  const std::unique_ptr<Executable> exe = run.load(options.source);
  const std::map<std::string, Array> inputs = options.gather(*exe);
  // Loaded apart: executables of one model share its device and so its stream.
  std::unique_ptr<Neighbour> neighbour;
  if (options.busy) neighbour = std::make_unique<Neighbour>(run.load(options.source), options.entry, inputs);
  VerifyResult result = verify_replays(*exe, options.entry, inputs, options.replays, [&](int64_t done) {
    console.progress("verify", done, options.replays);
  });
  if (neighbour != nullptr) neighbour->finish();
  return std::move(result.hashes);
}

std::string quote(const std::string& text) {
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// The same verification in a process of its own: address layout, thread start-up and load differ.
std::map<std::string, int64_t> replay_in_process(const VerifyArgs& options, int threads) {
  std::string command = quote("/proc/" + std::to_string(getpid()) + "/exe") + " verify --json --threads " +
                        std::to_string(threads);
  for (const std::string& word : options.verb->words({"--json", "--threads", "--processes"}))
    command += " " + quote(word);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr)
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot start a process for verification")
        .with_actual(std::strerror(errno))
        .with_remedy("raise the limits on processes and open files: ulimit -u, ulimit -n");
  std::string output;
  std::array<char, 4096> chunk;
  for (size_t n; (n = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) output.append(chunk.data(), n);
  const int status = pclose(pipe);
  const Json json = Json::parse(output, nullptr, false);
  if (!WIFEXITED(status) || WEXITSTATUS(status) > kCheckFailed || !json.is_object() ||
      !json.contains("hashes"))
    throw EnvironmentError(ErrorCode::kE_io_failed, "the second process of the verification failed")
        .with_actual(output.substr(0, 500));
  std::map<std::string, int64_t> hashes;
  for (const auto& [hash, count] : json["hashes"].items()) hashes[hash] = count.get<int64_t>();
  return hashes;
}

int verify_model(const VerifyArgs& options, const Console& console) {
  constexpr int kMaxProcesses = 256;
  constexpr int64_t kMaxReplays = 1'000'000'000;
  if (options.replays < 1 || options.replays > kMaxReplays)
    throw UserError(ErrorCode::kU_bad_option, "-n is out of range")
        .with_expected("1.." + std::to_string(kMaxReplays))
        .with_actual(std::to_string(options.replays));
  if (options.processes < 1 || options.processes > kMaxProcesses)
    throw UserError(ErrorCode::kU_bad_option, "--processes is out of range")
        .with_expected("1.." + std::to_string(kMaxProcesses))
        .with_actual(std::to_string(options.processes));
  std::map<std::string, int64_t> hashes;
  const std::vector<int> counts = options.threads.empty() ? std::vector<int>{0} : options.threads;
  for (int threads : counts) add_hashes(hashes, replay_here(options, threads, console));
  for (int process = 1; process < options.processes; ++process) {
    console.status("verify: process " + std::to_string(process + 1) + " of " +
                   std::to_string(options.processes));
    for (int threads : counts) add_hashes(hashes, replay_in_process(options, threads));
  }
  int64_t replays = 0;
  for (const auto& [hash, count] : hashes) replays += count;
  const std::string text = "verify: " + std::to_string(replays) + " replays, " +
                           std::to_string(hashes.size()) + (hashes.size() == 1 ? " hash " : " hashes ") +
                           comma_list(hashes, [](const auto& item) { return item.first; }) + "\n";
  console.result(text, {{"replays", replays}, {"hashes", hashes}, {"passed", hashes.size() == 1}});
  return hashes.size() == 1 ? kOk : kCheckFailed;
}

}  // namespace

VerbRun setup_verify(VerbOptions& verb) {
  auto options = std::make_shared<VerifyArgs>();
  options->verb = verb;
  options->source.add_to(verb, /*binds=*/true);
  verb.add_option("--device", options->run.device, "cpu, cuda or cuda:ORDINAL");
  verb.add_option("--isa", options->run.isa, "portable, avx2 or avx512");
  options->inputs.add_to(verb);
  add_entry_to(verb, options->entry);
  verb.add_option("-n,--replays", options->replays, "replays for each thread count and process");
  verb.add_list("--threads", options->threads, "thread counts, comma separated");
  verb.add_flag("--busy", options->busy, "beside replays of the same model on another stream");
  verb.add_option("--processes", options->processes, "processes, this one included");
  return [options](const Console& console) { return verify_model(*options, console); };
}

}  // namespace aicf::cli
