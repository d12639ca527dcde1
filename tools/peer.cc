#include "peer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/npy.h"

namespace aicf::cli {
namespace {

// Arguments: peer, model, threads, folder of the arrays, JSON list of input names. Every line that it reads
// is a command and gets one line back.
constexpr const char* kScript = R"python(
import importlib
import json
import sys
import time

peer, model, threads, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
answer = sys.stdout
sys.stdout = sys.stderr
def say(*words):
    print(*words, file=answer, flush=True)
def load(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            say("missing", name)
            sys.exit(0)
        said(name, error)
    except MemoryError:
        raise
    except Exception as error:
        said(name, error)
def said(name, error):
    say("broken", name, type(error).__name__ + ":", first_line(error))
    sys.exit(0)
def first_line(error):
    return (str(error) or "no message").splitlines()[0]
try:
    numpy = load("numpy")
    inputs = {n: numpy.load(f"{folder}/in{i}.npy") for i, n in enumerate(json.loads(sys.argv[5]))}
    if peer == "onnxruntime":
        onnxruntime = load("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        version = onnxruntime.__version__
        names = [o.name for o in session.get_outputs()]
        call = lambda: session.run(None, inputs)
    else:
        onnx, torch, onnx2torch = load("onnx"), load("torch"), load("onnx2torch")
        torch.set_num_threads(threads)
        loaded = onnx.load(model)
        module = onnx2torch.convert(loaded).eval()
        version = torch.__version__
        names = [o.name for o in loaded.graph.output]
        known = {t.name for t in loaded.graph.initializer}
        arguments = [torch.from_numpy(inputs[i.name]) for i in loaded.graph.input if i.name not in known]
        def call():
            with torch.inference_mode():
                results = module(*arguments)
            results = results if isinstance(results, (tuple, list)) else [results]
            return [r.numpy() for r in results]
    results = call()
except MemoryError:
    say("memory")
    sys.exit(0)
except Exception as error:
    say("failed", type(error).__name__ + ":", first_line(error))
    sys.exit(0)
say("ready", version)
for line in sys.stdin:
    if line.startswith("turn "):
        times = []
        for _ in range(1 + int(line.split()[1])):
            start = time.perf_counter()
            results = call()
            times.append(1e3 * (time.perf_counter() - start))
        say(*times[1:])
    else:
        for i, result in enumerate(results):
            numpy.save(f"{folder}/out{i}.npy", numpy.ascontiguousarray(result))
        say(json.dumps(names))
)python";

std::string python() {
  namespace fs = std::filesystem;
  if (const char* environment = std::getenv("VIRTUAL_ENV"); environment != nullptr && *environment != '\0')
    return std::string(environment) + "/bin/python";
  std::error_code error;
  // <environment>/bin, or build/bin of a tree of ours.
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path tree = folder.parent_path().parent_path();
  if (fs::exists(folder / "python", error)) return folder / "python";
  if (fs::exists(tree / "include/aicf/aicf.h", error) && fs::exists(tree / ".venv/bin/python", error))
    return tree / ".venv/bin/python";
  return "python3";
}

EnvironmentError peer_failed(const std::string& name, const std::string& why) {
  return EnvironmentError(ErrorCode::kE_io_failed, "the peer '" + name + "' does not run this model")
      .with_actual(why);
}

EnvironmentError missing(const std::string& name, const std::string& what, const std::string& remedy) {
  return EnvironmentError(ErrorCode::kE_tool_missing, "what '--against " + name + "' needs is not installed")
      .with_value(what)
      .with_remedy(remedy);
}

// What is there, but cannot be imported.
EnvironmentError broken(const std::string& name, const std::string& said, const std::string& interpreter) {
  const size_t space = said.find(' ');
  const std::string package = said.substr(0, space);
  return EnvironmentError(ErrorCode::kE_tool_missing,
                          "what '--against " + name + "' needs is installed, but its import fails")
      .with_value(package)
      .with_actual(space == std::string::npos ? "" : said.substr(space + 1))
      .with_remedy(interpreter + " -m pip install --force-reinstall " + package + "; " + interpreter +
                   " -c 'import " + package + "' shows the whole of it");
}

// How a process ended that did not say.
std::string ending_of(int status) {
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                             : "exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

void check_peer_name(const std::string& name) {
  if (name == "onnxruntime" || name == "torch") return;
  throw UserError(ErrorCode::kU_bad_option, "no peer has this name")
      .with_value("--against " + name)
      .with_expected("onnxruntime or torch");
}

Peer::Peer(const std::string& name, const std::string& model, const std::map<std::string, Array>& inputs,
           int threads)
    : name_(name) {
  check_peer_name(name);
  std::string folder = (std::filesystem::temp_directory_path() / "aicf_peer.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot create a temporary folder")
        .with_value(folder)
        .with_actual(std::strerror(errno));
  folder_ = folder;
  try {
    start(model, inputs, threads);
  } catch (...) {
    end();
    throw;
  }
}

Peer::~Peer() { end(); }

void Peer::start(const std::string& model, const std::map<std::string, Array>& inputs, int threads) {
  nlohmann::json names = nlohmann::json::array();
  for (const auto& [name, array] : inputs) {
    write_npy(folder_ + "/in" + std::to_string(names.size()) + ".npy", array);
    names.push_back(name);
  }
  const std::string interpreter = python(), list = names.dump(), count = std::to_string(threads);
  const char* arguments[] = {interpreter.c_str(), "-c",          kScript,
                             name_.c_str(),       model.c_str(), count.c_str(),
                             folder_.c_str(),     list.c_str(),  nullptr};
  int to[2], from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0)
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot create a pipe")
        .with_actual(std::strerror(errno))
        .with_remedy("raise the limit on open files: ulimit -n");
  ::signal(SIGPIPE, SIG_IGN);  // a peer that died is met when it does not answer
  pid_ = ::fork();
  const int error = errno;  // of the fork
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a stopped process would outlive us for ever
    ::dup2(to[0], 0);
    ::dup2(from[1], 1);
    ::execvp(arguments[0], const_cast<char**>(arguments));
    ::_exit(127);
  }
  ::close(to[0]);
  ::close(from[1]);
  to_ = ::fdopen(to[1], "w");
  from_ = ::fdopen(from[0], "r");
  if (pid_ < 0)
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot start a process")
        .with_actual(std::strerror(error))
        .with_remedy("raise the limit on processes: ulimit -u");
  const std::string reply = answer();
  if (reply.empty()) {
    constexpr int kNotStarted = 127;
    const pid_t ended = std::exchange(pid_, -1);
    int status = 0;
    while (::waitpid(ended, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted)
      throw missing(name_, interpreter, "install Python 3 or activate the environment that has " + name_);
    throw peer_failed(name_, interpreter + " ended with " + ending_of(status) + " before it answered")
        .with_remedy("see what '" + interpreter + " -c \"import " + name_ +
                     "\"' says; free memory, or raise the limits of the process (ulimit)");
  }
  if (reply == "memory")
    throw EnvironmentError(ErrorCode::kE_out_of_memory, "the peer '" + name_ + "' has not enough memory")
        .with_remedy("free memory, or raise the limit of the process (ulimit -v, the container's)");
  if (reply.starts_with("broken ")) throw broken(name_, reply.substr(7), interpreter);
  if (reply.starts_with("missing "))
    throw missing(name_, reply.substr(8), interpreter + " -m pip install " + reply.substr(8));
  if (!reply.starts_with("ready ")) throw peer_failed(name_, reply);
  version_ = reply.substr(6);
  stop_running();
}

void Peer::stop_running() {
  int status = 0;
  ::kill(pid_, SIGSTOP);
  // Returns when all its threads stand still, or it has ended.
  while (::waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
  if (!WIFSTOPPED(status)) pid_ = -1;
}

void Peer::end() {
  if (pid_ > 0) ::kill(pid_, SIGCONT);
  if (to_ != nullptr) std::fclose(to_);  // the script ends with its input
  if (from_ != nullptr) std::fclose(from_);
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Peer::answer() {
  std::string line;
  for (int c; (c = std::fgetc(from_)) != EOF && c != '\n';) line.push_back(static_cast<char>(c));
  return line;
}

std::string Peer::ask(const std::string& line) {
  if (pid_ > 0) ::kill(pid_, SIGCONT);
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
  std::string reply = answer();
  if (reply.empty()) throw peer_failed(name_, "it ended");
  stop_running();
  return reply;
}

std::vector<double> Peer::turn_ms(int runs) {
  std::istringstream reply(ask("turn " + std::to_string(runs)));
  std::vector<double> times;
  for (double time; reply >> time;) times.push_back(time);
  if (times.size() != static_cast<size_t>(runs)) throw peer_failed(name_, reply.str());
  return times;
}

int64_t Peer::cpu_ns() const { return pid_ > 0 ? cpu_ns_of_threads(pid_) : 0; }

bool other_threads_run() {
  const std::string own = std::to_string(::gettid());
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    if (task.path().filename() == own) continue;
    std::string line;
    std::ifstream file(task.path() / "stat");
    std::getline(file, line);
    // "TID (NAME) STATE …"; a name may hold anything.
    const size_t at = line.rfind(") ");
    if (at != std::string::npos && line.compare(at + 2, 1, "R") == 0) return true;
  }
  return false;
}

int64_t cpu_ns_of_threads(pid_t process) {
  const std::string own = std::to_string(::gettid());
  int64_t sum = 0;
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", error)) {
    if (task.path().filename() == own) continue;
    int64_t ran = 0;
    std::ifstream(task.path() / "schedstat") >> ran;
    sum += ran;
  }
  return sum;
}

std::map<std::string, Array> Peer::outputs() {
  const nlohmann::json names = nlohmann::json::parse(ask("save"));
  std::map<std::string, Array> arrays;
  for (size_t i = 0; i < names.size(); ++i)
    arrays.emplace(names[i].get<std::string>(), read_npy(folder_ + "/out" + std::to_string(i) + ".npy"));
  return arrays;
}

}  // namespace aicf::cli
