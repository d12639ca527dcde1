#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "model_source.h"
#include "runtime/open_device.h"
#include "tune/bench_device.h"
#include "tune/library_candidates.h"
#include "tune/tuner.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct Options {
  ModelSource source;
  RunOptions run;
  std::string output;
  double seconds = 0;
  int candidates = TuneOptions{}.candidates, samples = TuneOptions{}.samples;
  int libraries = 4;
  bool again = false, build_only = false;
};

std::string output_path(const Options& options) {
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

void write_records(const std::string& path, const std::vector<Record>& records) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;  // the write says what is wrong
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  write_file_atomically(path, to_string(records));
}

std::string line_of(const TuneResult& result) {
  const Record& record = result.record;
  char times[64];
  std::snprintf(times, sizeof(times), "%10.2f us  %5.2fx  ", record.microseconds,
                record.heuristic_microseconds / record.microseconds);
  std::string text = times + record.choice + "  " + result.problem->origin;
  for (const Measured& m : result.measured)
    if (!m.check.ok) text += "\n    left out: " + to_string(m.candidate) + ": " + m.check.why;
  return text + "\n";
}

Json json_of(const TuneResult& result) {
  Json measured = Json::array();
  for (const Measured& m : result.measured)
    measured.push_back({{"name", to_string(m.candidate)},
                        {"estimated_us", m.candidate.microseconds},
                        {"us", m.microseconds},
                        {"error", m.check.error},
                        {"left_out", m.check.why},
                        {"samples", m.samples}});
  return {{"key", to_string(result.record.key)}, {"origin", result.problem->origin},
          {"uses", result.problem->uses},        {"choice", result.record.choice},
          {"us", result.record.microseconds},    {"heuristic_us", result.record.heuristic_microseconds},
          {"changed", result.changed},           {"measured", measured}};
}

int run(const Options& options, const Console& console) {
  const CompileOptions compile = options.source.compile_options(options.run.device);
  const Target target = Target::from_name(compile.target);
  const Program program = run_pipeline(options.source.import(), target, pipeline_options(compile), nullptr);
  std::vector<TuneProblem> problems = list_problems(program, target);
  TuneOptions tuning;
  tuning.seconds = options.seconds;
  tuning.candidates = options.candidates;
  tuning.samples = options.samples;
  tuning.again = options.again;
  if (options.build_only) {
    const std::vector<TuneTask> tasks = plan_tasks(problems, {}, tuning);
    prebuild(program, target, tasks);
    console.result("built the candidates of " + std::to_string(tasks.size()) + " problems\n",
                   {{"problems", tasks.size()}});
    return kOk;
  }
  const std::string path = output_path(options);
  std::vector<Record> records = read_known(path);
  const auto device = open_device({options.run.device, options.run.threads, options.run.isa});
  device->wait({});  // its context is current from here on
  if (target.is_cuda()) add_library_candidates(problems, options.libraries);
  const auto bench = make_device_bench(device, program, target);
  std::string text;
  Json results = Json::array();
  const TuneSummary summary = tune(problems, records, *bench, tuning, [&](const TuneResult& result) {
    put_record(records, result.record);
    write_records(path, records);
    text += line_of(result);
    results.push_back(json_of(result));
    console.progress("tune", static_cast<int64_t>(results.size()), static_cast<int64_t>(problems.size()));
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
  auto options = std::make_shared<Options>();
  options->source.add_to(verb, /*binds=*/false, "an .onnx model");
  options->run.add_to(verb);
  verb.add_option("--output", options->output,
                  "the file of records to add to; default records.csv of AICF_CACHE_DIR");
  verb.add_option("--seconds", options->seconds,
                  "stop after this time; what is left is tuned by the next call");
  verb.add_option("--count", options->candidates, "how many candidates of a problem to measure");
  verb.add_option("--samples", options->samples, "how many samples of each");
  verb.add_option("--libraries", options->libraries,
                  "how many of the algorithms that a vendor library recommends to measure");
  verb.add_flag("--again", options->again, "measure what has a record, too");
  verb.add_flag("--build-only", options->build_only,
                "only compile the candidates into AICF_CACHE_DIR; needs no GPU");
  return [options](const Console& console) { return run(*options, console); };
}

}  // namespace aicf::cli
