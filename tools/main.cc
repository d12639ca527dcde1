// aicf: compile, run, prove and explain models from the command line.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/comma_list.h"
#include "verbs.h"

namespace {

using aicf::cli::Verb;

constexpr Verb kVerbs[] = {
    {"compile", "compile a model to one .aicf file", "aicf compile model.onnx --dim batch=1..8 -o model.aicf",
     aicf::cli::setup_compile},
    {"run", "run a model on arrays", "aicf run model.aicf --input x=x.npy --output-dir out",
     aicf::cli::setup_run},
    {"bench", "time replays, and on a GPU what queueing one takes of the host (medians of single calls)",
     "aicf bench model.aicf --dim batch=1 --repeat 50", aicf::cli::setup_bench},
    {"verify", "prove that replays give the same bits",
     "aicf verify model.aicf -n 1000 --threads 1,2 --processes 2", aicf::cli::setup_verify},
    {"validate", "compare a model with a reference",
     "aicf validate model.onnx --dim batch=2 --against reference", aicf::cli::setup_validate},
    {"support", "list every op of a model that is not supported", "aicf support model.onnx",
     aicf::cli::setup_support},
    {"inspect", "show what an .aicf file holds", "aicf inspect model.aicf --check", aicf::cli::setup_inspect},
    {"explain", "show the plan and why it is so", "aicf explain model.aicf", aicf::cli::setup_explain},
    {"profile", "write a trace of a replay, kernel by kernel", "aicf profile model.aicf -o trace.json",
     aicf::cli::setup_profile},
    {"train", "train from a file",
     "aicf train step.aicf --data x.npy --labels y.npy --steps 1000 -o trained.aicf", aicf::cli::setup_train},
    {"tune", "measure the candidates of a model's steps and keep the fastest",
     "aicf tune model.onnx --device cuda", aicf::cli::setup_tune},
    {"doctor", "show this machine and what is missing on it", "aicf doctor", aicf::cli::setup_doctor},
};

aicf::UserError usage_error(const std::string& what, int argc, char** argv) {
  aicf::UserError error(aicf::ErrorCode::kU_bad_option, what);
  error.with_remedy("see 'aicf --help' or 'aicf VERB --help'");
  if (argc < 2 || argv[1][0] == '-') return error;
  for (const Verb& verb : kVerbs)
    if (std::string_view(argv[1]) == verb.name) return error;
  error.message = "there is no verb of this name";
  return error.with_value(argv[1]).with_expected(aicf::comma_list(kVerbs, &Verb::name));
}

// A file that is opened later must not become the standard output; writes to one that is closed fail.
void occupy_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

// A command line that does not parse may have stopped before its --json.
bool wants_json(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](std::string_view word) { return word == "--json"; });
}

// What was printed has reached its reader.
int flushed(int code, const aicf::cli::Console& console) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return console.report(std::make_exception_ptr(
      aicf::EnvironmentError(aicf::ErrorCode::kE_io_failed, "the standard output cannot be written")
          .with_actual(std::strerror(errno))));
}

int run_verb(CLI::App& app, const std::vector<std::pair<CLI::App*, aicf::cli::VerbRun>>& verbs, int argc,
             char** argv, aicf::cli::Console& console) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    console.json = wants_json(argc, argv);
    return console.report(std::make_exception_ptr(usage_error(error.what(), argc, argv)));
  }
  try {
    for (const auto& [sub, run] : verbs)
      if (sub->parsed()) {
        aicf::cli::VerbOptions(*sub).refuse_empty();
        return run(console);
      }
  } catch (...) {
    return console.report(std::current_exception());
  }
  return aicf::cli::kInternalError;
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  // A reader that is gone, and a limit on the size of files, are errors of a write, not the end.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app("AICF turns a model into a static, deterministic program and replays it.", "aicf");
  app.set_version_flag("--version", "aicf " AICF_VERSION);
  app.require_subcommand(1);
  aicf::cli::Console console;
  std::vector<std::pair<CLI::App*, aicf::cli::VerbRun>> verbs;
  for (const Verb& verb : kVerbs) {
    CLI::App* sub = app.add_subcommand(verb.name, verb.summary);
    sub->footer(std::string("Example: ") + verb.example);
    sub->add_flag("--json", console.json, "one JSON object on stdout");
    aicf::cli::VerbOptions options(*sub);
    verbs.emplace_back(sub, verb.setup(options));
  }
  return flushed(run_verb(app, verbs, argc, argv, console), console);
}
