// Training in Python: losses and schedules as graphs, the program of a train step, and the run itself.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "base/error.h"
#include "bindings.h"
#include "executable.h"
#include "ir/precision.h"
#include "runtime/batches.h"
#include "runtime/trainer.h"
#include "train/losses.h"
#include "train/schedules.h"
#include "train/train_step.h"

namespace aicf::python {
namespace {

ValueId loss(Graph& graph, const std::string& kind, ValueId prediction, ValueId target, bool sum,
             double delta, double label_smoothing, int64_t ignore_index) {
  const LossReduction reduction = sum ? LossReduction::kSum : LossReduction::kMean;
  return add_loss(graph, loss_kind(kind), prediction, target,
                  {reduction, delta, label_smoothing, ignore_index});
}

// (patterns, rate factor, weight decay or None, trainable)
using Group = std::tuple<std::vector<std::string>, double, std::optional<double>, bool>;

Program train_program(const Program& forward, const std::string& optimizer, const OptimizerOptions& numbers,
                      const Graph& schedule, const std::vector<Group>& groups, TrainOptions options) {
  const nb::gil_scoped_release unlocked;
  options.optimizer = numbers;
  options.optimizer.kind = optimizer_kind(optimizer);
  options.schedule = schedule;
  for (const auto& [patterns, factor, decay, trainable] : groups)
    options.groups.push_back({patterns, factor, decay, trainable});
  return make_train_program(forward, options);
}

void bind_checks(nb::module_& module) {
  module.def("check_optimizer", check_optimizer);
  module.def("check_loss_scale", check_loss_scale);
  module.def(
      "check_group",
      [](double rate_factor, std::optional<double> weight_decay) {
        check_group({{}, rate_factor, weight_decay, true});
      },
      nb::arg("rate_factor"), nb::arg("weight_decay").none());
}

void bind_options(nb::module_& module) {
  nb::class_<OptimizerOptions>(module, "OptimizerOptions")
      .def(nb::init<>())
      .def_rw("momentum", &OptimizerOptions::momentum)
      .def_rw("nesterov", &OptimizerOptions::nesterov)
      .def_rw("beta1", &OptimizerOptions::beta1)
      .def_rw("beta2", &OptimizerOptions::beta2)
      .def_rw("epsilon", &OptimizerOptions::epsilon)
      .def_rw("weight_decay", &OptimizerOptions::weight_decay);
  nb::class_<LossScale>(module, "LossScale")
      .def(nb::init<>())
      .def_rw("initial", &LossScale::initial)
      .def_rw("dynamic", &LossScale::dynamic)
      .def_rw("growth", &LossScale::growth)
      .def_rw("backoff", &LossScale::backoff)
      .def_rw("interval", &LossScale::interval);
  nb::class_<TrainOptions>(module, "TrainOptions")
      .def(nb::init<>())
      .def_prop_rw(
          "precision", [](const TrainOptions& options) { return precision_name(options.precision); },
          [](TrainOptions& options, const std::string& name) { options.precision = precision_of(name); })
      .def_rw("clip_norm", &TrainOptions::clip_norm)
      .def_rw("accumulate", &TrainOptions::accumulate)
      .def_rw("skip_bad_steps", &TrainOptions::skip_bad_steps)
      .def_rw("loss_scale", &TrainOptions::loss_scale)
      .def_rw("gradients_entry", &TrainOptions::gradients_entry);
}

// The owner must outlive the trainer, see keep_alive below, and keep its weights: nothing else holds it.
struct PyTrainer {
  PyExecutable& owner;
  Trainer trainer;
};

// One batch: the results of the entry that takes it. The turn is ours from here to the end, so that no
// exception of Python, which an interrupt raises between any two of its steps, leaves it taken.
nb::tuple step(PyTrainer& self, nb::tuple args, nb::dict by_name) {
  std::optional<Trainer::Turn> turn;
  {
    const nb::gil_scoped_release unlocked;
    turn.emplace(self.trainer);
  }
  nb::tuple results = run(self.owner, turn->entry(), std::move(args), std::move(by_name), nb::none(), false);
  turn->done();
  return results;
}

// A snapshot that is taken and restored without the GIL, which a run in flight may be waiting for.
class Unlocked {
 public:
  explicit Unlocked(Trainer& trainer) {
    const nb::gil_scoped_release unlocked;
    before_.emplace(trainer);
  }
  ~Unlocked() {
    const nb::gil_scoped_release unlocked;
    before_.reset();
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  Trainer::Snapshot& snapshot() { return *before_; }

 private:
  std::optional<Trainer::Snapshot> before_;
};

// Trains `steps` batches `runs` times from the present states, going through the list again and again, and
// counts the hashes of all params and states; these are afterwards as before.
std::map<std::string, int64_t> verify_steps(PyTrainer& self, int64_t steps, int64_t runs, nb::list batches) {
  Unlocked before(self.trainer);
  std::map<std::string, int64_t> hashes;
  for (int64_t run = 0; run < runs; ++run) {
    for (int64_t i = 0; i < steps; ++i) {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      step(self, nb::tuple(batches[static_cast<size_t>(i) % batches.size()]), nb::dict());
    }
    const nb::gil_scoped_release unlocked;
    ++hashes[self.trainer.hash()];
    before.snapshot().restore();
  }
  return hashes;
}

void set_states(PyTrainer& self, nb::dict given) {
  std::map<std::string, Array> states;
  for (const auto& [key, value] : given) {
    const std::string name = text_of(key, "the name of a state");
    states[name] = copy_array(value, "state '" + name + "'");
  }
  const nb::gil_scoped_release unlocked;
  self.trainer.set_states(states);
}

nb::dict trainer_states(const PyTrainer& self) {
  std::map<std::string, Array> arrays;
  {
    const nb::gil_scoped_release unlocked;
    arrays = self.trainer.states();
  }
  return to_dict(std::move(arrays));
}

void bind_trainer(nb::module_& module) {
  using unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<PyTrainer>(module, "Trainer")
      .def(
          "__init__",
          [](PyTrainer* self, PyExecutable& exe) { new (self) PyTrainer{exe, Trainer(*exe.exe)}; },
          nb::keep_alive<1, 2>(), unlocked())
      .def("step", step)
      .def("verify", verify_steps)
      .def("accumulate", [](const PyTrainer& self) { return self.trainer.accumulate(); })
      .def(
          "steps", [](const PyTrainer& self) { return self.trainer.steps(); }, unlocked())
      .def(
          "skipped", [](const PyTrainer& self) { return self.trainer.skipped(); }, unlocked())
      .def(
          "bad_tensor", [](const PyTrainer& self) { return self.trainer.bad_tensor(); }, unlocked())
      .def(
          "require_finite", [](const PyTrainer& self) { self.trainer.require_finite(); }, unlocked())
      .def(
          "clear_bad_tensor", [](PyTrainer& self) { self.trainer.clear_bad_tensor(); }, unlocked())
      .def(
          "hash", [](const PyTrainer& self) { return self.trainer.hash(); }, unlocked())
      .def("states", trainer_states)
      .def("set_states", set_states)
      .def(
          "save_checkpoint",
          [](const PyTrainer& self, const std::string& path,
             const std::map<std::string, std::string>& metadata) {
            self.trainer.save_checkpoint(path, metadata);
          },
          unlocked())
      .def(
          "load_checkpoint",
          [](PyTrainer& self, const std::string& path) { return self.trainer.load_checkpoint(path); },
          unlocked())
      .def(
          "save_artifact",
          [](const PyTrainer& self, const std::string& path) {
            write_artifact(path, self.owner.file(self.trainer.artifact()));
          },
          unlocked());
}

}  // namespace

void bind_training(nb::module_& module) {
  module.def("add_loss", loss);
  module.def("constant_rate", constant_rate);
  module.def("linear_rate", linear_rate);
  module.def("cosine_rate", cosine_rate);
  module.def("step_rate", step_rate);
  module.def("with_warmup", with_warmup);
  module.def("shuffled_rows", shuffled_rows);
  module.def("matches_pattern", matches_pattern);
  bind_options(module);
  bind_checks(module);
  module.def("train_program", train_program);
  bind_trainer(module);
}

}  // namespace aicf::python
