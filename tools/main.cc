// aicf: compile, run, prove and explain models from the command line.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/comma_list.h"
#include "base/log.h"
#include "base/option_text.h"
#include "last_words.h"
#include "nearest.h"
#include "verbs.h"

namespace {

using aicf::cli::Verb;
using Arguments = std::vector<std::string>;

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
    {"export", "write a trained model's inference entry or its weights",
     "aicf export trained.aicf -o model.aicf", aicf::cli::setup_export},
    {"tune", "measure the candidates of a model's steps and keep the fastest",
     "aicf tune model.onnx --device cuda", aicf::cli::setup_tune},
    {"doctor", "show this machine and what is missing on it", "aicf doctor", aicf::cli::setup_doctor},
};

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  return names;
}

aicf::UserError unknown(const char* what, const std::string& word, const std::vector<std::string>& known,
                        const std::string& help) {
  const std::string meant = aicf::cli::nearest(word, known);
  return aicf::UserError(aicf::ErrorCode::kU_bad_option, what)
      .with_value(word)
      .with_expected(aicf::comma_list(known))
      .with_remedy((meant.empty() ? "" : "did you mean '" + meant + "'? ") + ("see '" + help + "'"));
}

// "" if every word that looks like an option of the verb is one.
std::string unknown_option(const std::vector<std::string>& known, const Arguments& words) {
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word.size() < 2 || word[0] != '-' || std::isdigit(static_cast<unsigned char>(word[1])) != 0) continue;
    const std::string name = word[1] == '-' ? word.substr(0, word.find('=')) : word.substr(0, 2);
    if (std::find(known.begin(), known.end(), name) == known.end()) return name;
  }
  return {};
}

aicf::UserError usage_error(const std::string& what, CLI::App& app, const Arguments& words) {
  if (words.empty() || words[0][0] == '-')
    return aicf::UserError(aicf::ErrorCode::kU_bad_option, what)
        .with_expected("aicf VERB …, with a verb of " + aicf::comma_list(verb_names()))
        .with_remedy("see 'aicf help'");
  const std::vector<std::string> verbs = verb_names();
  if (std::find(verbs.begin(), verbs.end(), words[0]) == verbs.end())
    return unknown("there is no verb of this name", words[0], verbs, "aicf help");
  const std::string help = "aicf help " + words[0];
  const std::vector<std::string> options = aicf::cli::VerbOptions(*app.get_subcommand(words[0])).names();
  const std::string option = unknown_option(options, {words.begin() + 1, words.end()});
  if (!option.empty()) return unknown("the verb has no option of this name", option, options, help);
  return aicf::UserError(aicf::ErrorCode::kU_bad_option, what).with_remedy("see '" + help + "'");
}

// A file that is opened later must not become the standard output; writes to one that is closed fail.
void occupy_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

// A command line that does not parse may have stopped before its --json.
bool wants_json(const Arguments& words) {
  return std::find(words.begin(), words.end(), "--json") != words.end();
}

// "help", "help VERB" and "--version", which no verb answers.
std::optional<std::string> general_answer(CLI::App& app, const Arguments& words) {
  const auto asks = [](const std::string& word) { return word == "--help" || word == "-h"; };
  const bool first = !words.empty() && words[0] == "help";
  const bool help = first || std::any_of(words.begin(), std::find(words.begin(), words.end(), "--"), asks);
  const auto verb = std::find_if(words.begin() + (first ? 1 : 0), words.end(),
                                 [](const std::string& word) { return word[0] != '-'; });
  if (help && verb == words.end()) return app.help();
  if (!help) return std::nullopt;
  const std::vector<std::string> verbs = verb_names();
  if (std::find(verbs.begin(), verbs.end(), *verb) == verbs.end())
    throw unknown("there is no verb of this name", *verb, verbs, "aicf help");
  return app.get_subcommand(*verb)->help("aicf");
}

// -v is the lowest steps of AICF_LOG_LEVEL and AICF_DEBUG; the variables may ask for more.
void set_verbosity(int verbosity) {
  if (verbosity <= 0) return;
  setenv("AICF_LOG_LEVEL", verbosity > 1 ? "debug" : "info", 0);
  setenv("AICF_DEBUG", std::to_string(std::min(verbosity, 4)).c_str(), 0);
}

// What was printed has reached its reader.
int flushed(int code, const aicf::cli::Console& console) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return console.report(std::make_exception_ptr(
      aicf::EnvironmentError(aicf::ErrorCode::kE_io_failed, "the standard output cannot be written")
          .with_actual(std::strerror(errno))));
}

using Runs = std::vector<std::pair<CLI::App*, aicf::cli::VerbRun>>;

int run_verb(CLI::App& app, const Runs& runs, const Arguments& words, aicf::cli::Console& console) {
  console.json = wants_json(words);
  try {
    if (!words.empty() && words[0] == "--version") {
      console.result("aicf " AICF_VERSION "\n", {{"version", AICF_VERSION}});
      return aicf::cli::kOk;
    }
    if (const auto text = general_answer(app, words)) {
      console.result(*text, {{"help", *text}});
      return aicf::cli::kOk;
    }
    try {
      app.parse(Arguments(words.rbegin(), words.rend()));
    } catch (const CLI::Success& success) {
      return app.exit(success);
    } catch (const CLI::ParseError& error) {
      throw usage_error(error.what(), app, words);
    }
    for (const auto& [sub, run] : runs)
      if (sub->parsed()) {
        aicf::cli::VerbOptions(*sub).refuse_empty();
        set_verbosity(console.verbosity);
        const int code = run(console);
        aicf::log_at(aicf::LogLevel::kInfo, [&] { return sub->get_name() + console.spent(); });
        return code;
      }
  } catch (...) {
    return console.report(std::current_exception());
  }
  return aicf::cli::kInternalError;
}

int run_program(int argc, char** argv, aicf::cli::Console& console) {
  CLI::App app("AICF turns a model into a static, deterministic program and replays it.", "aicf");
  bool version = false;  // for the help: run_verb answers
  app.add_flag("--version", version, "print the version");
  app.require_subcommand(1);
  app.footer(
      "'aicf help VERB' lists the options of a verb. All take --json (one object on stdout) and -v (what is "
      "done, "
      "on stderr; -vv and more say more). Exit codes: 0 fine, 1 a check failed, 2 your input, 3 the "
      "environment, "
      "4 a bug of ours.");
  std::vector<std::pair<CLI::App*, aicf::cli::VerbRun>> verbs;
  for (const Verb& verb : kVerbs) {
    CLI::App* sub = app.add_subcommand(verb.name, verb.summary);
    sub->footer(std::string("Example: ") + verb.example);
    sub->add_flag("--json", console.json, "one JSON object on stdout");
    sub->add_flag("-v,--verbose", console.verbosity,
                  "what is done and how long it takes, on stderr; -vv, -vvv: more");
    aicf::cli::VerbOptions options(*sub);
    verbs.emplace_back(sub, verb.setup(options));
  }
  return run_verb(app, verbs, {argv + 1, argv + std::max(argc, 1)}, console);
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  aicf::set_caller(aicf::Caller::kCommandLine);
  // A reader that is gone, and a limit on the size of files, are errors of a write, not the end.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  aicf::cli::Console console;
  console.json = aicf::cli::asks_for_json();
  int code = aicf::cli::kInternalError;
  try {
    code = run_program(argc, argv, console);
  } catch (...) {
    code = console.report(std::current_exception());
  }
  return flushed(code, console);
}
