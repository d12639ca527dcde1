#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "base/atomic_file.h"
#include "base/comma_list.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/npy.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "model_source.h"
#include "runtime/batches.h"
#include "runtime/trainer.h"
#include "runtime/verify.h"
#include "train/schedules.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

constexpr double kStatusSeconds = 0.25;  // between two lines of progress
// What a checkpoint of this verb says besides the states: batches taken so far, and of what.
constexpr const char* kBatchesKey = "aicf.train.batches";
constexpr const char* kOrderKey = "aicf.train.order";
constexpr int64_t kMostBatches = int64_t{1} << 53;

struct TrainArgs {
  std::string model, labels, checkpoint, output;
  std::vector<std::string> data;
  RunOptions run;
  uint64_t seed = 0;
  bool in_order = false, resume = false, batch_given = false, seed_given = false;
  int64_t batch = 0, steps = 0, checkpoint_every = 0;
};

// The arrays of the command line in the order of the step's inputs: a name, else data first and labels last.
std::vector<Array> read_columns(const TrainArgs& options, const EntryPlan& entry) {
  std::map<std::string, Array> given;
  const std::string names = comma_list(entry.inputs, &IoTensor::name);
  const auto give = [&](const std::string& name, const std::string& path) {
    if (!given.emplace(name, read_npy(path)).second)
      throw UserError(ErrorCode::kU_bad_option, "an input of the step has data twice").with_value(name);
  };
  for (const std::string& text : options.data) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      give(entry.inputs.front().name, text);
    } else {
      give(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  if (!options.labels.empty()) give(entry.inputs.back().name, options.labels);
  std::vector<Array> columns;
  for (const IoTensor& io : entry.inputs) {
    const auto at = given.find(io.name);
    if (at == given.end())
      throw UserError(ErrorCode::kU_missing_input, "an input of the step has no data")
          .with_value(io.name)
          .with_expected(names)
          .with_remedy("give --data NAME=x.npy for each, and --labels for the last");
    columns.push_back(at->second);
    given.erase(at);
  }
  if (!given.empty())
    throw UserError(ErrorCode::kU_unknown_input, "the step has no input of this name")
        .with_value(given.begin()->first)
        .with_expected(names);
  return columns;
}

int64_t batch_size(const TrainArgs& options, const EntryPlan& entry) {
  if (options.batch > 0) return options.batch;
  const Shape& sizes = entry.inputs.front().sizes;
  const auto fixed = sizes.empty() ? std::nullopt : sizes[0].constant();
  if (!fixed)
    throw UserError(ErrorCode::kU_unset_size, "the step takes batches of several sizes")
        .with_remedy("give --batch");
  return *fixed;
}

// What a run that is resumed must have in common with the one before.
std::string describe_order(const BatchOrder& order, const std::vector<Array>& columns) {
  std::map<std::string, Array> data;
  for (size_t i = 0; i < columns.size(); ++i) data.emplace(std::to_string(i), columns[i]);
  const int64_t rows = columns.front().rank() == 0 ? 0 : columns.front().sizes()[0];
  return std::to_string(rows) + " rows in batches of " + std::to_string(order.batch) +
         (order.shuffle ? ", seed " + std::to_string(order.seed) : ", in order") + ", data " +
         hash_arrays(data);
}

// Batches that a checkpoint of this verb counts.
int64_t batches_of(const std::string& text, const std::string& path) {
  int64_t count = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 0 || count > kMostBatches)
    throw UserError(ErrorCode::kU_bad_checkpoint, "the checkpoint does not say how many batches it has seen")
        .with_value(path)
        .with_expected("0 to " + std::to_string(kMostBatches))
        .with_actual(text);
  return count;
}

BatchOrder order_of(const TrainArgs& options, const EntryPlan& entry) {
  return {batch_size(options, entry), options.seed, !options.in_order};
}

// The rate by optimizer steps finished, if the file says it.
class Rate {
 public:
  explicit Rate(const std::map<std::string, std::string>& metadata) {
    const auto text = metadata.find(kScheduleKey);
    if (text == metadata.end()) return;
    try {
      Graph graph = parse_graph(text->second);
      if (!is_small(graph)) return;
      input_ = graph.value(graph.inputs().at(0)).name;
      program_.entries.push_back(std::move(graph));
    } catch (const std::exception& error) {  // a stranger's file; the run does not need it
      log_at(LogLevel::kInfo, [&] { return std::string("the schedule cannot be read: ") + error.what(); });
    }
  }
  std::optional<double> at(int64_t finished) const {
    if (program_.entries.empty()) return std::nullopt;
    const Array steps = Array::scalar_i64(DType::i64, finished);
    return evaluate(program_, program_.entries[0], {{{input_, steps}}, {}})
        .outputs.begin()
        ->second.get_f64(0);
  }

 private:
  static bool is_small(const Graph& graph) {
    constexpr int64_t kMost = 1 << 16;
    check_schedule(graph);
    return std::all_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
      return node.bodies.empty() && std::all_of(node.results.begin(), node.results.end(), [&](ValueId id) {
               int64_t count = 1;
               for (const Dim& dim : graph.type(id).shape) {
                 const int64_t size = dim.constant().value_or(kMost + 1);
                 count = size > kMost || count > kMost ? kMost + 1 : count * size;
               }
               return count <= kMost;
             });
    });
  }
  Program program_;
  std::string input_;
};

constexpr const char* kRateZero = "the schedule has ended: params stay as they are";

// One training run of the command line.
class Run {
 public:
  Run(const TrainArgs& options, const Console& console)
      : options_(options),
        console_(console),
        exe_(options.run.load(read_artifact(options.model))),
        trainer_(*exe_),
        rate_(exe_->model().metadata()),
        order_(order_of(options, trainer_.entry())),
        columns_(read_columns(options, trainer_.entry())),
        batches_(columns_, order_) {
    check_steps();
    check_files();
    if (options_.resume && std::filesystem::exists(checkpoint_path())) resume();
  }

  int train() {
    const int64_t first = taken_, last = options_.steps * trainer_.accumulate();
    const int64_t every = options_.checkpoint_every * trainer_.accumulate();
    while (taken_ < last) {
      loss_ = trainer_.step(batches_.batch(taken_))[0].get_f64(0);
      ++taken_;
      if (every > 0 && taken_ % every == 0 && taken_ < last) save();
      if (seconds() - shown_ >= kStatusSeconds) show(first, last);
    }
    console_.status("");
    if (saves()) save();
    stop_if_not_finite();
    if (!options_.output.empty()) write_artifact(options_.output, trainer_.artifact());
    return report(taken_ - first);
  }

 private:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  std::string checkpoint_path() const {
    return options_.checkpoint.empty() ? options_.model + ".checkpoint" : options_.checkpoint;
  }

  bool saves() const { return options_.checkpoint_every > 0 || !options_.checkpoint.empty(); }

  // Before the first step: what is trained is lost if it can be written nowhere.
  void check_files() const {
    std::vector<std::string> data = {options_.labels};
    for (const std::string& text : options_.data) data.push_back(text.substr(text.find('=') + 1));
    if (!options_.output.empty()) {
      refuse_overwriting(options_.output, data);
      const AtomicFile writable(options_.output);
    }
    if (!saves()) return;
    data.insert(data.end(), {options_.model, options_.output});
    refuse_overwriting(checkpoint_path(), data);
    const AtomicFile writable(checkpoint_path());
  }

  void check_steps() const {
    const int64_t most = kMostBatches / trainer_.accumulate();
    if (options_.steps <= most && options_.checkpoint_every <= most) return;
    throw UserError(ErrorCode::kU_bad_option, "more steps than can be counted")
        .with_value("--steps or --checkpoint-every")
        .with_expected("at most " + std::to_string(most))
        .with_actual(std::to_string(std::max(options_.steps, options_.checkpoint_every)));
  }

  const std::string& order_text() {
    if (described_.empty()) described_ = describe_order(order_, columns_);
    return described_;
  }

  void save() {
    trainer_.save_checkpoint(checkpoint_path(),
                             {{kBatchesKey, std::to_string(taken_)}, {kOrderKey, order_text()}});
  }

  void resume() {
    const auto metadata = trainer_.load_checkpoint(checkpoint_path());
    const auto batches = metadata.find(kBatchesKey), order = metadata.find(kOrderKey);
    if (batches == metadata.end() || order == metadata.end())
      throw UserError(ErrorCode::kU_bad_checkpoint, "the checkpoint does not say which batches it has seen")
          .with_value(checkpoint_path())
          .with_expected(std::string(kBatchesKey) + " and " + kOrderKey + " in its metadata")
          .with_actual("a checkpoint of another program");
    const std::string& now = order_text();
    if (order->second != now)
      throw UserError(ErrorCode::kU_bad_checkpoint, "the checkpoint was written by a run over other batches")
          .with_value(checkpoint_path())
          .with_expected(now)
          .with_actual(order->second)
          .with_remedy("resume with the data, --batch, --seed and --in-order of that run");
    taken_ = batches_of(batches->second, checkpoint_path());
    trainer_.clear_bad_tensor();
  }

  // A scaled loss overflows now and then by design; anything else that is not finite is a mistake.
  void stop_if_not_finite() const {
    if (!trainer_.scales_loss()) trainer_.require_finite();
  }

  void show(int64_t first, int64_t last) {
    shown_ = seconds();
    stop_if_not_finite();
    const double rate =
        static_cast<double>(taken_ - first) / shown_ / static_cast<double>(trainer_.accumulate());
    const double left =
        static_cast<double>(last - taken_) / static_cast<double>(trainer_.accumulate()) / rate;
    const std::optional<double> step_rate = rate_.at(trainer_.steps());
    std::string at_rate;
    if (step_rate)
      at_rate =
          "  rate " + format_number(*step_rate) + (*step_rate == 0 ? std::string(": ") + kRateZero : "");
    char line[160];
    std::snprintf(line, sizeof(line), "step %lld/%lld  loss %.6g  %.1f steps/s  %.0f s left",
                  static_cast<long long>(taken_ / trainer_.accumulate()),
                  static_cast<long long>(options_.steps), loss_, rate, left);
    console_.status(line + at_rate);
  }

  // That of the last step taken.
  std::optional<double> last_rate() const {
    return trainer_.steps() > 0 ? rate_.at(trainer_.steps() - 1) : std::nullopt;
  }

  int report(int64_t batches) const {
    const double rate = static_cast<double>(batches) / static_cast<double>(trainer_.accumulate()) / seconds();
    const std::string hash = trainer_.hash();
    char text[200], ran[100] = "none of them now";
    if (batches > 0) std::snprintf(ran, sizeof(ran), "loss %.6g, %.1f steps/s", loss_, rate);
    std::snprintf(text, sizeof(text), "train: %lld steps, %s, %lld skipped, state %s\n",
                  static_cast<long long>(taken_ / trainer_.accumulate()), ran,
                  static_cast<long long>(trainer_.skipped()), hash.c_str());
    const double last = batches > 0 ? last_rate().value_or(std::nan("")) : std::nan("");  // JSON's null
    std::string ended;
    if (last == 0)
      ended = "train: the last step ran at rate 0: " + std::string(kRateZero) + " (step " +
              std::to_string(trainer_.steps()) + " of its optimizer)\n";
    Json json = {{"steps", taken_ / trainer_.accumulate()},
                 {"rate", last},
                 {"loss", batches > 0 ? Json(loss_) : Json()},
                 {"steps_per_second", rate},
                 {"skipped", trainer_.skipped()},
                 {"hash", hash}};
    if (!options_.output.empty()) json["output"] = options_.output;
    console_.result(ended + text, json);
    return kOk;
  }

  const TrainArgs& options_;
  const Console& console_;
  std::unique_ptr<Executable> exe_;
  Trainer trainer_;
  Rate rate_;
  BatchOrder order_;
  std::vector<Array> columns_;
  Batches batches_;
  std::string described_;  // made when it is first asked for: it reads all data
  int64_t taken_ = 0;      // batches
  double loss_ = std::nan("");
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double shown_ = 0;
};

int train_model(const TrainArgs& options, const Console& console) {
  if (options.steps < 1 || options.checkpoint_every < 0)
    throw UserError(ErrorCode::kU_bad_option, "a number of steps is missing or out of range")
        .with_expected("--steps of 1 or more, --checkpoint-every of 0 or more")
        .with_actual(std::to_string(options.steps) + " and " + std::to_string(options.checkpoint_every));
  if (options.batch_given && options.batch < 1)
    throw UserError(ErrorCode::kU_bad_option, "a batch has at least one row")
        .with_value("--batch")
        .with_expected("1 or more")
        .with_actual(std::to_string(options.batch));
  if (options.seed_given && options.in_order)
    throw UserError(ErrorCode::kU_bad_option, "rows that are visited as they stand have no seed")
        .with_value("--seed with --in-order")
        .with_remedy("leave out one of the two");
  return Run(options, console).train();
}

}  // namespace

VerbRun setup_train(VerbOptions& verb) {
  auto options = std::make_shared<TrainArgs>();
  verb.add_positional("model", options->model, "an .aicf file with a train step");
  verb.add_option("--data", options->data, "x.npy for the first input, or NAME=x.npy; rows along axis 0");
  verb.add_option("--labels", options->labels, "y.npy for the last input");
  verb.add_option("--steps", options->steps,
                  "optimizer steps of the whole run, those before a resume included");
  verb.add_option("--batch", options->batch, "rows of a batch, where the step takes several sizes");
  verb.add_option("--seed", options->seed, "of the order of rows");
  verb.add_flag("--in-order", options->in_order, "visit rows as they stand");
  verb.add_option("--checkpoint", options->checkpoint, "file of checkpoints; default MODEL.checkpoint");
  verb.add_option("--checkpoint-every", options->checkpoint_every,
                  "steps between two checkpoints; 0: only at the end, if --checkpoint is given");
  verb.add_flag("--resume", options->resume, "go on from the checkpoint, if there is one");
  verb.add_option("-o,--output", options->output, "the .aicf file with the trained params");
  options->run.add_to(verb);
  return [options, verb](const Console& console) {
    options->batch_given = verb.given("--batch");
    options->seed_given = verb.given("--seed");
    return train_model(*options, console);
  };
}

}  // namespace aicf::cli
