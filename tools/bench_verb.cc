#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "model_source.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct Options {
  ModelSource source;
  RunOptions run;
  InputOptions inputs;
  int repeat = 50, warmup = 5;
  std::string against;
};

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)];
}

int run(const Options& options, const Console& console) {
  if (!options.against.empty())
    throw UserError(ErrorCode::kU_unsupported_option, "peers are timed from Python, where they live")
        .with_value("--against " + options.against)
        .with_remedy("run 'make bench'");
  if (options.repeat < 1 || options.warmup < 0)
    throw UserError(ErrorCode::kU_bad_option, "--repeat must be at least 1 and --warmup not negative");
  const std::unique_ptr<Executable> exe = options.run.load(options.source);
  const EntryPlan& entry = exe->entry("");
  const std::vector<std::string> sizes =
      options.source.is_artifact() ? options.source.dims : std::vector<std::string>{};
  const std::map<std::string, Array> inputs = gather_inputs(*exe, options.inputs, sizes);
  std::vector<TensorView> input_views, output_views;
  for (const IoTensor& io : entry.inputs) input_views.push_back(view_of(inputs.at(io.name)));
  std::vector<Array> outputs = exe->run("", input_views);
  for (const Array& array : outputs) output_views.push_back(view_of(array));
  std::vector<double> samples;
  for (int i = 0; i < options.warmup + options.repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    exe->run_into("", input_views, output_views);
    const auto stop = std::chrono::steady_clock::now();
    if (i >= options.warmup)
      samples.push_back(std::chrono::duration<double, std::milli>(stop - start).count());
    console.progress("replay", i + 1, options.warmup + options.repeat);
  }
  const Json raw = samples;
  std::sort(samples.begin(), samples.end());
  const std::string text = "replay: median " + format_ms(quantile(samples, 0.5)) + ", quartiles " +
                           format_ms(quantile(samples, 0.25)) + " to " + format_ms(quantile(samples, 0.75)) +
                           ", " + std::to_string(samples.size()) + " samples\n";
  console.result(text, {{"unit", "ms"},
                        {"median", quantile(samples, 0.5)},
                        {"q1", quantile(samples, 0.25)},
                        {"q3", quantile(samples, 0.75)},
                        {"samples", raw}});
  return kOk;
}

}  // namespace

VerbRun setup_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->source.add_to(app, true);
  options->run.add_to(app);
  options->inputs.add_to(app);
  app.add_option("--repeat", options->repeat, "timed replays");
  app.add_option("--warmup", options->warmup, "replays before timing");
  app.add_option("--against", options->against, "onnxruntime, torch");
  return [options](const Console& console) { return run(*options, console); };
}

}  // namespace aicf::cli
