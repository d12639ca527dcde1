#include <filesystem>
#include <optional>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "measuring.h"
#include "tune/bench_device.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct TuneArgs {
  ModelSource source;
  RunOptions run;
  std::string output;
  double seconds = 0;
  int candidates = TuneOptions{}.candidates, samples = TuneOptions{}.samples;
  int libraries = 4;
  bool again = false, build_only = false;
  std::optional<VerbOptions> verb;
};

// --build-only measures nothing and keeps no records.
void refuse_unused(const TuneArgs& options) {
  if (!options.build_only) return;
  for (const char* name :
       {"--output", "--seconds", "--samples", "--libraries", "--again", "--threads", "--isa"})
    if (options.verb->given(name))
      throw UserError(ErrorCode::kU_bad_option, "an option of measuring is given with --build-only")
          .with_value(name)
          .with_remedy("leave out one of the two");
}

std::string output_path(const TuneArgs& options) {
  const std::string path = options.output.empty() ? user_records_path() : options.output;
  if (path.empty())
    throw UserError(ErrorCode::kU_bad_option, "there is no place for the records")
        .with_remedy("name a file with --output, or set AICF_CACHE_DIR");
  return path;
}

std::vector<Record> read_known(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  return parse_records(MappedFile::open(path)->text(), path);
}

// Found out before anything is measured. The cache's folder is made, as wherever it is written; one that the
// user names is not, as with all outputs.
void require_place(const std::string& path, bool in_cache) {
  std::error_code error;  // the file says what is wrong
  if (in_cache) std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  AtomicFile unused(path);
}

std::string line_of(const TuneResult& result) {
  const Record& record = result.record;
  char times[64];
  std::snprintf(times, sizeof(times), "%10.2f us  %5.2fx  ", record.microseconds,
                record.heuristic_microseconds / record.microseconds);
  std::string text = times + printable_name(record.choice + "  " + result.problem->origin);
  for (const Measured& m : result.measured)
    if (!m.check.ok) text += "\n    left out: " + to_string(m.candidate) + ": " + m.check.why;
  return text + "\n";
}

Json json_of(const TuneResult& result) {
  Json measured = Json::array();
  for (const Measured& m : result.measured)
    measured.push_back({{"name", to_string(m.candidate)},
                        {"estimated_us", m.candidate.estimate_us},
                        {"us", m.microseconds},
                        {"error", m.check.error},
                        {"left_out", m.check.why},
                        {"samples", m.samples}});
  return {{"key", to_string(result.record.key)}, {"origin", result.problem->origin},
          {"uses", result.problem->uses},        {"choice", result.record.choice},
          {"us", result.record.microseconds},    {"heuristic_us", result.record.heuristic_microseconds},
          {"changed", result.changed},           {"measured", measured}};
}

void check_numbers(const TuneArgs& options) {
  if (!(options.seconds >= 0))
    throw UserError(ErrorCode::kU_bad_option, "a time is not accepted")
        .with_value("--seconds " + std::to_string(options.seconds))
        .with_expected("seconds >= 0; 0: no limit");
  const auto check = [](const char* name, int value, int lowest) {
    if (value < lowest)
      throw UserError(ErrorCode::kU_bad_option, "a number is out of range")
          .with_value(std::string(name) + " " + std::to_string(value))
          .with_expected("at least " + std::to_string(lowest));
  };
  check("--count", options.candidates, 1);
  check("--samples", options.samples, 1);
  check("--libraries", options.libraries, 0);
}

TuneOptions tune_options(const TuneArgs& options) {
  TuneOptions tuning;
  tuning.seconds = options.seconds;
  tuning.candidates = options.candidates;
  tuning.samples = options.samples;
  tuning.again = options.again;
  return tuning;
}

int build_only(const Measuring& measuring, const TuneOptions& tuning, const Console& console) {
  if (!measuring.target().is_cuda())
    throw UserError(ErrorCode::kU_bad_option, "kernels of the CPU are not compiled")
        .with_value("--build-only")
        .with_remedy("name a GPU's target: --target sm_90");
  if (user_records_path().empty())
    throw UserError(ErrorCode::kU_bad_option, "there is no place for compiled candidates")
        .with_remedy("set AICF_CACHE_DIR");
  const std::vector<TuneTask> tasks = plan_tasks(measuring.problems(), {}, tuning);
  prebuild(measuring.program(), measuring.target(), tasks);
  console.result("built the candidates of " + std::to_string(tasks.size()) + " problems\n",
                 {{"problems", tasks.size()}});
  return kOk;
}

// The file's records and this one: another process may have added to them since.
void keep_record(const std::string& path, const Record& record) {
  const FileLock lock(path + ".lock");
  std::vector<Record> records = read_known(path);
  put_record(records, record);
  write_file_atomically(path, to_string(records));
}

// A vendor library has algorithms for GPUs.
void refuse_libraries(const TuneArgs& options, const Target& target) {
  if (target.is_cuda() || !options.verb->given("--libraries")) return;
  throw UserError(ErrorCode::kU_bad_option, "no library computes for the CPU")
      .with_value("--libraries")
      .with_actual("target " + target.name)
      .with_remedy("leave it out, or tune for a GPU: --device cuda");
}

int tune_model(const TuneArgs& options, const Console& console) {
  check_numbers(options);
  refuse_unused(options);
  Measuring measuring(options.source, options.run);
  const TuneOptions tuning = tune_options(options);
  refuse_libraries(options, measuring.target());
  if (options.build_only) return build_only(measuring, tuning, console);
  const std::string path = output_path(options);
  const std::vector<Record> known = read_known(path);
  require_place(path, options.output.empty());
  Bench& bench = measuring.open(options.run, options.libraries);
  const auto total = static_cast<int64_t>(plan_tasks(measuring.problems(), known, tuning).size());
  std::string text;
  Json results = Json::array();
  const TuneSummary summary = tune(measuring.problems(), known, bench, tuning, [&](const TuneResult& result) {
    keep_record(path, result.record);
    text += line_of(result);
    results.push_back(json_of(result));
    console.progress("tune", static_cast<int64_t>(results.size()), total);
  });
  text += std::to_string(summary.tuned) + " problems tuned, " + std::to_string(summary.changed) +
          " changed, " + std::to_string(summary.known) + " known already, " + std::to_string(summary.left) +
          " left for want of time; records in " + path + "\n";
  console.result(text, {{"records", path},
                        {"tuned", summary.tuned},
                        {"changed", summary.changed},
                        {"known", summary.known},
                        {"left", summary.left},
                        {"problems", results}});
  return kOk;
}

}  // namespace

VerbRun setup_tune(VerbOptions& verb) {
  auto options = std::make_shared<TuneArgs>();
  options->verb = verb;
  options->source.add_to(verb, /*binds=*/false, "an .onnx model", CompileHelp::kNamedWithoutChoice);
  options->run.add_to(verb);
  verb.add_option("--output", options->output,
                  "the file of records to add to; default records.csv of AICF_CACHE_DIR");
  verb.add_option("--seconds", options->seconds,
                  "begin no problem but the first after this time; what is left is tuned by the next call");
  verb.add_option("--count", options->candidates, "how many candidates of a problem to measure");
  verb.add_option("--samples", options->samples, "how many samples of each");
  verb.add_option("--libraries", options->libraries,
                  "how many of the algorithms that a vendor library recommends to measure");
  verb.add_flag("--again", options->again, "measure what has a record, too");
  verb.add_flag("--build-only", options->build_only,
                "only compile the candidates into AICF_CACHE_DIR; needs no GPU");
  return [options](const Console& console) { return tune_model(*options, console); };
}

}  // namespace aicf::cli
