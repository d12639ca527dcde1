// Executables in Python. A call takes arrays in place through DLPack or the buffer protocol and runs without
// the GIL.
#include "executable.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <optional>
#include <set>
#include <utility>

#include "arguments.h"
#include "base/comma_list.h"
#include "base/error.h"
#include "base/log.h"
#include "compile/compile.h"
#include "exchange.h"
#include "runtime/open_device.h"
#include "runtime/random_inputs.h"
#include "runtime/verify.h"

namespace aicf::python {
namespace {

PyExecutable compile_program(const Program& program, int opt_level, const std::vector<std::string>& skip,
                             int threads, const std::string& isa, const std::string& device,
                             const std::string& target, const std::string& precision,
                             const nb::callable& on_stage) {
  const nb::gil_scoped_release unlocked;
  check_device_options({device, threads, isa});
  require_param_contents(program,
                         "load them before compiling: model.load_safetensors(path) or "
                         "model.load_state_dict(arrays), or set the data of each Parameter");
  CompileOptions options;
  options.target = target.empty() ? target_of_device(device) : spelled_out_target(target);
  options.opt_level = opt_level;
  options.precision = inference_precision_of(precision);
  options.skip_passes.insert(skip.begin(), skip.end());
  options.on_stage = [&](const StageProgress& at) {
    const nb::gil_scoped_acquire locked;
    on_stage(nb::str(at.stage.data(), at.stage.size()), fraction_done(at));
  };
  auto report = std::make_shared<CompileReport>();
  // Making a GPU's context takes as long as much of the compilation.
  std::packaged_task<std::shared_ptr<Device>()> open([&] { return open_device({device, threads, isa}); });
  std::future<std::shared_ptr<Device>> opened = open.get_future();
  options.meanwhile = [&] { open(); };
  Artifact artifact = compile(program, options, report.get());
  if (opened.wait_for(std::chrono::seconds(0)) != std::future_status::ready) open();
  options.meanwhile = {};
  options.on_stage = {};
  auto exe = std::make_unique<Executable>(Model::load(std::move(artifact), opened.get()));
  const bool narrow = target.empty() && exe->model().device().id().cuda;
  return {std::move(exe), report,
          narrow ? std::make_shared<Portable>(program, options, spelled_out_target(device)) : nullptr};
}

PyExecutable load(const std::string& path, int threads, const std::string& isa, const std::string& device,
                  int64_t device_memory_limit) {
  const nb::gil_scoped_release unlocked;
  const DeviceOptions options{device, threads, isa, {}, device_memory_limit};
  return {std::make_unique<Executable>(Model::load(read_artifact(path), open_device(options))), nullptr};
}

std::string names_of(const std::vector<IoTensor>& tensors) { return comma_list(tensors, &IoTensor::name); }

void check_names(const EntryPlan& entry, nb::tuple args, nb::dict by_name) {
  if (args.size() > entry.inputs.size())
    throw UserError(ErrorCode::kU_unknown_input, "more arguments than the model has inputs")
        .with_expected(names_of(entry.inputs))
        .with_actual(std::to_string(args.size()) + " arguments");
  for (const auto& [key, value] : by_name) {
    const std::string name = text_of(key, "the name of an input");
    const auto at = std::find_if(entry.inputs.begin(), entry.inputs.end(),
                                 [&](const IoTensor& io) { return io.name == name; });
    if (at == entry.inputs.end())
      throw UserError(ErrorCode::kU_unknown_input, "the model has no input of this name")
          .with_value(name)
          .with_expected(names_of(entry.inputs));
    if (static_cast<size_t>(at - entry.inputs.begin()) < args.size())
      throw UserError(ErrorCode::kU_misuse, "an input was given twice, by position and by name")
          .with_value(name);
  }
}

void add_inputs(Arguments& arguments, const EntryPlan& entry, nb::tuple args, nb::dict by_name) {
  check_names(entry, args, by_name);
  arguments.inputs.reserve(entry.inputs.size());
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const std::string& name = entry.inputs[i].name;
    if (i < args.size()) {
      arguments.add_input(args[i], {"input", name});
    } else if (by_name.contains(name.c_str())) {
      arguments.add_input(nb::object(by_name[name.c_str()]), {"input", name});
    } else {
      throw UserError(ErrorCode::kU_missing_input, "a required input was not given")
          .with_value(name)
          .with_expected(names_of(entry.inputs));
    }
  }
}

// Replaces weights and states by name, all or none; the executable keeps its other states.
void load_weights(PyExecutable& self, nb::dict arrays) {
  const std::shared_ptr<Executable> before = self.exe;
  const std::vector<std::string> states = before->state_names();
  const std::set<std::string> is_state(states.begin(), states.end());
  std::map<std::string, Array> weights, new_states;
  for (const auto& [key, value] : arrays) {
    const std::string name = text_of(key, "the name of a weight");
    (is_state.contains(name) ? new_states : weights)[name] = copy_array(value, "weight '" + name + "'");
  }
  if (weights.empty()) {
    const nb::gil_scoped_release unlocked;
    return before->set_states(new_states);
  }
  RunGuard guard = before->hold_off_runs();
  std::shared_ptr<Executable> fresh;
  {
    const nb::gil_scoped_release unlocked;
    fresh = std::make_shared<Executable>(before->model().with_weights(weights));
    fresh->set_states(before->states());
    fresh->set_states(new_states);
  }
  self.exe = std::move(fresh);
  guard.keep();
}

// As it is given; nothing for None. unsupported_option for a stream where there are none.
std::optional<Stream> stream_on(const Executable& exe, nb::handle object) {
  const std::optional<Stream> stream = stream_of(object);
  if (stream && exe.model().device().uses_host_memory())
    throw UserError(ErrorCode::kU_unsupported_option, "a stream of a GPU is given for the CPU")
        .with_value("stream")
        .with_actual(std::string(exe.model().device().name()))
        .with_remedy("leave it out: runs on the CPU have ended when the call returns");
  return stream;
}

void run_into(PyExecutable& self, const std::string& entry_name, nb::object given_inputs,
              nb::object given_outputs, nb::object stream, bool wait) {
  const nb::tuple inputs(given_inputs), outputs(given_outputs);
  const std::shared_ptr<Executable> exe = self.exe;
  const EntryPlan& entry = exe->entry(entry_name);
  const std::optional<Stream> given = stream_on(*exe, stream);
  Arguments arguments(exe->model().device(), given ? given : self.stream);
  add_inputs(arguments, entry, inputs, nb::dict());
  arguments.outputs.reserve(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    arguments.add_output(outputs[i], {"output", i < entry.outputs.size() ? entry.outputs[i].name : "?"});
  arguments.settle();
  const RunOptions options{arguments.stream(), wait || arguments.must_wait()};
  const nb::gil_scoped_release unlocked;
  exe->run_into(entry.name, arguments.inputs, arguments.outputs, options);
}

// (name, dtype, sizes as text) of inputs or outputs.
nb::list describe(const std::vector<IoTensor>& tensors) {
  nb::list rows;
  for (const IoTensor& io : tensors) {
    nb::list sizes;
    for (const Dim& dim : io.sizes) {
      if (dim.is_constant()) {
        sizes.append(*dim.constant());
      } else {
        sizes.append(dim.to_string());
      }
    }
    rows.append(nb::make_tuple(io.name, std::string(dtype_name(io.dtype)), nb::tuple(sizes)));
  }
  return rows;
}

// Every kernel call of the entries that run per call; a region is a call of a generated tile program.
nb::dict plan_summary(const PyExecutable& self) {
  const Plan& plan = self.exe->model().plan();
  int64_t kernels = 0, regions = 0, arena = 0;
  for (const EntryPlan& entry : plan.entries) {
    arena = std::max(arena, entry.arena_bytes);
    if (entry.name == aicf::kInitEntry) continue;
    kernels += static_cast<int64_t>(entry.steps.size());
    regions += std::count_if(entry.steps.begin(), entry.steps.end(),
                             [](const Step& step) { return step.program >= 0; });
  }
  nb::dict summary;
  summary["regions"] = regions;
  summary["kernels"] = kernels;
  summary["arena_bytes"] = arena;
  summary["packed_bytes"] = plan.packed_bytes;
  summary["text"] = to_string(plan);
  return summary;
}

std::string explain(const PyExecutable& self) {
  std::string text;
  if (self.report != nullptr) {
    char line[160];
    text += "passes (entry, nodes before -> after, ms)\n";
    for (const PassRecord& pass : self.report->passes) {
      std::snprintf(line, sizeof(line), "  %-34s %-8s %6d -> %-6d %9.3f\n", pass.name.c_str(),
                    pass.entry.c_str(), pass.nodes_before, pass.nodes_after, pass.milliseconds);
      text += line;
    }
    text += "stages (ms)\n";
    for (const StageTime& stage : self.report->stages) {
      std::snprintf(line, sizeof(line), "  %-34s %9.3f\n", stage.stage.c_str(), stage.milliseconds);
      text += line;
    }
    if (!self.report->calls.empty()) text += "calls joined, and not joined\n";
    for (const CallReport& call : self.report->calls) text += "  " + to_string(call) + "\n";
  }
  return text + to_string(self.exe->model().plan());
}

// What ends a long loop of ours where the user asks for it: a pending signal's exception, looked for now and
// then.
class Interrupts {
 public:
  void operator()(int64_t) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
};

nb::dict verify(PyExecutable& self, int64_t replays, const SymbolValues& sizes, uint64_t seed,
                nb::dict given) {
  const std::shared_ptr<Executable> exe = self.exe;
  const EntryPlan& entry = exe->entry("");
  std::map<std::string, Array> inputs;
  for (const auto& [key, value] : given) {
    const std::string name = text_of(key, "the name of an input");
    inputs[name] = copy_array(value, "input '" + name + "'");
  }
  VerifyResult result;
  {
    const nb::gil_scoped_release unlocked;
    if (inputs.empty())
      inputs = random_inputs(exe->model().plan(), entry, choose_sizes(exe->model().plan(), sizes), seed);
    result = verify_replays(*exe, entry.name, inputs, replays, Interrupts());
  }
  nb::dict answer;
  answer["replays"] = result.replays;
  answer["hashes"] = result.hashes;
  answer["passed"] = result.passed();
  return answer;
}

void save(const PyExecutable& self, const std::string& path) {
  const std::shared_ptr<Executable> exe = self.exe;
  const nb::gil_scoped_release unlocked;
  write_artifact(path, self.file(exe->model().artifact()));
}

nb::dict states(const PyExecutable& self) {
  const std::shared_ptr<Executable> exe = self.exe;
  std::map<std::string, Array> arrays;
  {
    const nb::gil_scoped_release unlocked;
    arrays = exe->states();
  }
  return to_dict(std::move(arrays));
}

void reset(PyExecutable& self) {
  const std::shared_ptr<Executable> exe = self.exe;
  const nb::gil_scoped_release unlocked;
  exe->reset();
}

nb::dict weights(const PyExecutable& self) {
  return to_dict(self.exe->model().weights(), /*writable=*/false);
}

}  // namespace

nb::tuple run(PyExecutable& self, const std::string& entry_name, nb::tuple args, nb::dict by_name,
              nb::object like, bool on_device) {
  const std::shared_ptr<Executable> exe = self.exe;
  const EntryPlan& entry = exe->entry(entry_name);
  Device& device = exe->model().device();
  const ExchangeApi* api = like.is_none() ? nullptr : exchange_api(like);
  std::optional<Stream> stream = self.stream;
  if (on_device && !stream && api != nullptr) stream = exchange_stream(*api, device.id());
  Arguments arguments(device, stream);
  add_inputs(arguments, entry, args, by_name);
  arguments.settle();
  const RunOptions options{arguments.stream(), arguments.must_wait()};
  nb::list results;
  if (device.id().cuda && (on_device || arguments.on_device())) {
    std::vector<DeviceTensor> outputs;
    {
      const nb::gil_scoped_release unlocked;
      outputs = exe->run_on_device(entry.name, arguments.inputs, options);
    }
    for (DeviceTensor& tensor : outputs)
      results.append(api != nullptr ? exchange_tensor(*api, std::move(tensor))
                                    : nb::cast(PyDeviceTensor{std::move(tensor)}));
    return nb::tuple(results);
  }
  std::vector<Array> outputs;
  {
    const nb::gil_scoped_release unlocked;
    outputs = exe->run(entry.name, arguments.inputs, options);
  }
  for (Array& array : outputs)
    results.append(api != nullptr ? exchange_tensor(*api, std::move(array)) : to_python(std::move(array)));
  return nb::tuple(results);
}

Artifact Portable::widened(Artifact artifact) {
  const std::lock_guard lock(mutex_);
  if (all_.variants.empty() && why_not_.empty()) {
    try {
      all_ = compile(program_, options_);
    } catch (const UserError& error) {  // another error may be over when the next file is written
      why_not_ = error.message;
    }
  }
  if (!why_not_.empty())
    log_at(LogLevel::kWarning, [&] {
      return "the file serves " + artifact.variants[0].target +
             " only, because the model does not compile for " + options_.target + ": " + why_not_;
    });
  if (!all_.variants.empty()) artifact.variants = all_.variants, artifact.constants = all_.constants;
  return artifact;
}

void bind_executable(nb::module_& module) {
  nb::class_<PyExecutable>(module, "Executable")
      .def("run", run, nb::arg("entry"), nb::arg("inputs"), nb::arg("by_name"), nb::arg("like") = nb::none(),
           nb::arg("on_device") = false)
      .def("run_into", run_into, nb::arg("entry"), nb::arg("inputs"), nb::arg("outputs"),
           nb::arg("stream") = nb::none(), nb::arg("wait") = false)
      .def("device", [](const PyExecutable& self) { return device_name(self.exe->model().device().id()); })
      .def("finish",
           [](PyExecutable& self) {
             const std::shared_ptr<Executable> exe = self.exe;
             const nb::gil_scoped_release unlocked;
             exe->finish();
           })
      .def(
          "use_stream",
          [](PyExecutable& self, nb::object stream) { self.stream = stream_on(*self.exe, stream); },
          nb::arg("stream").none())
      .def("inputs", [](const PyExecutable& self,
                        const std::string& entry) { return describe(self.exe->entry(entry).inputs); })
      .def("outputs", [](const PyExecutable& self,
                         const std::string& entry) { return describe(self.exe->entry(entry).outputs); })
      .def("clone",
           [](const PyExecutable& self) {
             const std::shared_ptr<Executable> exe = self.exe;
             PyExecutable copy{nullptr, self.report, self.portable, self.stream};
             const nb::gil_scoped_release unlocked;
             copy.exe = exe->clone();
             return copy;
           })
      .def("save", save)
      .def("plan", plan_summary)
      .def("explain", explain)
      .def("verify", verify)
      .def("weights", weights)
      .def("load_weights", load_weights)
      .def("param_names",
           [](const PyExecutable& self) {
             std::set<std::string> names;
             for (const PlanVariable& variable : self.exe->model().plan().variables)
               if (!variable.is_state) names.insert(variable.name);
             return names;
           })
      .def("state_names", [](const PyExecutable& self) { return self.exe->state_names(); })
      .def("states", states)
      .def("reset", reset)
      .def("metadata", [](const PyExecutable& self) { return self.exe->model().metadata(); });
  module.def("compile_program", compile_program);
  module.def("load", load);
}

}  // namespace aicf::python
