#include "model_source.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/npy.h"
#include "base/printable.h"
#include "npz.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/open_device.h"

namespace aicf::cli {
namespace {

int64_t parse_integer(std::string_view text, const std::string& option) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    throw UserError(ErrorCode::kU_bad_option, "an option needs an integer")
        .with_value(option)
        .with_actual(std::string(text));
  return value;
}

UserError given_twice(const std::string& what) {
  return UserError(ErrorCode::kU_bad_option, "something is given twice")
      .with_value(what)
      .with_expected("one value for each name");
}

const char* example_of(std::string_view option) {
  return option == "--dim"     ? "--dim batch=8"
         : option == "--input" ? "--input x=x.npy"
         : option == "--value" ? "--value axes=axes.npy"
         : option == "--range" ? "--range ids=0..1000"
         : option == "--state" ? "--state past=present"
                               : "--choose matmul=matmul_f32";
}

// What --dim says of a size that an input decides must be what the input says.
void check_sizes(const EntryPlan& entry, const std::map<std::string, Array>& given,
                 const SymbolValues& sizes) {
  for (const IoTensor& io : entry.inputs) {
    const auto array = given.find(io.name);
    if (array == given.end() || array->second.sizes().size() != io.sizes.size()) continue;
    for (size_t axis = 0; axis < io.sizes.size(); ++axis) {
      const auto name = io.sizes[axis].as_symbol();
      const auto wanted = name ? sizes.find(*name) : sizes.end();
      if (wanted == sizes.end() || wanted->second == array->second.sizes()[axis]) continue;
      throw UserError(ErrorCode::kU_size_conflict, "--dim and an input give different values to a size")
          .with_op(io.name)
          .with_value("--dim " + *name + "=" + std::to_string(wanted->second))
          .with_actual(to_string(array->second.sizes()))
          .with_remedy("leave out --dim: the input decides the size");
    }
  }
}

std::string compiling(const std::string& path, const std::string& stage) {
  return "compiling " + path + ": " + stage;
}

// Whether two paths name one file, which need not exist yet.
bool same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  if (a == b) return true;
  std::error_code none;  // of a path that names nothing yet
  if (fs::equivalent(a, b, none)) return true;
  const auto full = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path, none), none);
  };
  const fs::path whole = full(a);
  return !whole.empty() && whole == full(b);
}

}  // namespace

void refuse_overwriting(const std::string& output, const std::vector<std::string>& others) {
  for (const std::string& other : others) {
    if (!same_file(other, output)) continue;
    throw UserError(ErrorCode::kU_bad_option, "the output would overwrite another file of the command")
        .with_value(output)
        .with_remedy("name another file for it");
  }
}

std::pair<std::string, std::string> split_pair(const std::string& text, const char* option) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw UserError(ErrorCode::kU_bad_option, "an option does not have its form")
        .with_op(option)
        .with_expected(std::string("NAME=VALUE, such as ") + example_of(option))
        .with_actual(text);
  return {text.substr(0, at), text.substr(at + 1)};
}

SymbolValues parse_sizes(const std::vector<std::string>& dims) {
  SymbolValues sizes;
  for (const std::string& dim : dims) {
    const auto [name, value] = split_pair(dim, "--dim");
    if (value.find("..") != std::string::npos || value.find(',') != std::string::npos)
      throw UserError(ErrorCode::kU_bad_option, "a run has one value for each size")
          .with_value("--dim " + dim)
          .with_expected("--dim " + name + "=8")
          .with_remedy("ranges are for compiling: aicf compile MODEL.onnx --dim " + dim);
    if (!sizes.emplace(name, parse_integer(value, "--dim " + dim)).second) throw given_twice("--dim " + dim);
  }
  return sizes;
}

void ModelSource::add_to(VerbOptions& verb, bool binds, const char* model, CompileHelp help) {
  const bool lists = help == CompileHelp::kListed;
  verb_ = verb;
  const auto add = [&](const char* name, auto& target, const std::string& text) {
    verb.add_option(name, target, text);
    compile_only_.emplace_back(name);
  };
  verb.add_positional("model", path, model);
  add("--dim", dims,
      "a dynamic size: NAME=8, NAME=16..512, NAME=1,8 (1 to 8 with a plan for 1 and one for more), "
      "NAME=2*HALF with a --dim for HALF, or INPUT:AXIS=… for an unnamed axis");
  if (binds) compile_only_.clear();
  verb.set_group(lists ? "Options of compiling" : "");
  add("--state", states, "PAST=PRESENT: an input that becomes state and the output that updates it");
  add("--value", values,
      "NAME=x.npy: an input whose value decides a shape; the model then takes this value only");
  add("--result", results,
      "NAME: a result of a node to give instead of the model's outputs; what it does not need is left out");
  add("--target", target,
      comma_list(Target::names()) +
          " (PTX), several by comma; or cuda, cuda:ORDINAL: a GPU of this machine. A file that 'aicf "
          "compile' writes for one kind of GPU has PTX and the CPU's variant "
          "beside it; default cpu");
  add("--precision", precision,
      "f32 as the model states it; tf32, bf16-mixed or f16-mixed: contractions of f32 take operands of that "
      "type");
  add("--opt", opt, "optimisation level 0, 1 or 2");
  add("--skip", skip, "leave out an optional pass, by name");
  if (help != CompileHelp::kNamedWithoutChoice) {
    add("--records", records,
        "a file of tuning records, over the shipped ones and those of AICF_CACHE_DIR; none: no records");
    add("--choose", choices,
        "STEP=CANDIDATE: run this candidate in the steps of an op, of an origin, or in all (*); "
        "'aicf explain' lists them");
  }
  verb.set_group("Options");
  if (lists) return;
  std::string names;
  for (const std::string& name : compile_only_)
    if (name != "--dim") names += " " + name;
  verb.add_note(
      std::string("An .onnx model is compiled first. Options of that, as 'aicf help compile' says:") + names);
}

void ModelSource::add_stages_to(VerbOptions& verb) {
  verb.add_option("--stop-after", stop_after, comma_list(kStages) + "; default artifact");
  verb.add_flag("--print", print, "print what the stage given by --stop-after made");
  verb.add_option("--dump-after", dump_after, "print the graph after this pass, or 'all'");
}

bool ModelSource::is_artifact() const {
  if (path.ends_with(".aicf") || path.ends_with(".onnx")) return path.ends_with(".aicf");
  // Of another name: a safetensors file begins with the length of its header, which is JSON.
  std::ifstream file(path, std::ios::binary);
  char begin[9] = {};
  file.read(begin, sizeof(begin));
  return file.good() && begin[6] == 0 && begin[7] == 0 && begin[8] == '{';
}

ImportOptions ModelSource::import_options() const {
  ImportOptions options;
  for (const std::string& dim : dims) {
    const auto [name, value] = split_pair(dim, "--dim");
    if (!options.dims.emplace(name, parse_dim_option(value)).second) throw given_twice("--dim " + dim);
  }
  std::set<std::string> named;
  for (const std::string& state : states) {
    options.states.push_back(split_pair(state, "--state"));
    if (!named.insert(options.states.back().first).second) throw given_twice("--state " + state);
  }
  for (const std::string& value : values) {
    const auto [name, file] = split_pair(value, "--value");
    if (!options.input_values.emplace(name, read_npy(file)).second) throw given_twice("--value " + value);
  }
  options.results = results;
  return options;
}

CompileOptions ModelSource::compile_options(const std::string& device, bool tells) const {
  if (!stop_after.empty() &&
      std::find(std::begin(kStages), std::end(kStages), stop_after) == std::end(kStages))
    throw UserError(ErrorCode::kU_bad_option, "no stage has this name")
        .with_value("--stop-after " + stop_after)
        .with_expected(comma_list(kStages));
  if (print && stop_after.empty())
    throw UserError(ErrorCode::kU_bad_option, "--print does not say what to print")
        .with_remedy("name a stage with --stop-after");
  CompileOptions options;
  options.target = target.empty() ? target_of_device(device) : spelled_out_target(target);
  options.opt_level = opt;
  if (tells)
    options.on_stage = [path = path](const StageProgress& at) {
      show_status(compiling(path, to_string(at)));
    };
  options.precision = inference_precision_of(precision);
  options.skip_passes = {skip.begin(), skip.end()};
  options.dump_after = {dump_after.begin(), dump_after.end()};
  options.stop_after = stop_after;
  options.print_stage = print;
  options.records = records;
  for (const std::string& choice : choices) {
    const auto [where, candidate] = split_pair(choice, "--choose");
    options.forced.push_back({where, candidate});
  }
  return options;
}

void ModelSource::refuse_artifact() const {
  if (!is_artifact()) return;
  (void)MappedFile::open(path);  // that it is not there is said first
  throw UserError(ErrorCode::kU_bad_option, "the model is compiled already")
      .with_value(path)
      .with_expected("an .onnx file")
      .with_remedy(
          "give the .onnx file that it was made from; a compiled file goes to run, bench, verify, explain "
          "and inspect");
}

void ModelSource::refuse_overwriting(const std::string& output, std::vector<std::string> others) const {
  others.insert(others.end(), {path});
  others.insert(others.end(), records.begin(), records.end());
  for (const std::string& value : values) others.push_back(split_pair(value, "--value").second);
  cli::refuse_overwriting(output, others);
}

Program ModelSource::import() const {
  refuse_artifact();
  show_status(compiling(path, "import"));
  return import_onnx(path, import_options());
}

void ModelSource::refuse_compile_options() const {
  for (const std::string& name : compile_only_)
    if (verb_->given(name))
      throw UserError(ErrorCode::kU_bad_option, "an option of compiling is given with a compiled model")
          .with_value(name)
          .with_actual(path)
          .with_remedy("compile the model with it: aicf compile MODEL.onnx " + name + " …");
}

Artifact ModelSource::artifact(const std::string& device, CompileReport* report) const {
  if (is_artifact()) {
    refuse_compile_options();
    return read_artifact(path);
  }
  Artifact artifact = compile(import(), compile_options(device), report);
  show_status("");
  return artifact;
}

void RunOptions::add_to(VerbOptions& verb) {
  verb.add_option("--device", device, "cpu, cuda or cuda:ORDINAL");
  verb.add_option("--threads", threads,
                  "worker threads of the CPU; default AICF_NUM_THREADS, else the physical cores");
  verb.add_option("--isa", isa, "of the CPU: portable, avx2 or avx512; default the best of this machine");
}

void RunOptions::check() const { check_device_options({device, threads, isa}); }

std::unique_ptr<Executable> RunOptions::load(Artifact artifact) const {
  return std::make_unique<Executable>(Model::load(std::move(artifact), open_device({device, threads, isa})));
}

std::unique_ptr<Executable> RunOptions::load(const ModelSource& source) const {
  check();
  return load(source.artifact(device));
}

void InputOptions::add_to(VerbOptions& verb) {
  verb_ = verb;
  verb.add_option("--input", inputs,
                  "NAME=x.npy, a .npz file, NAME=random, or random for all that are not given");
  verb.add_option("--range", ranges,
                  "NAME=LO..HI: whole numbers between which a random input is drawn evenly");
  verb.add_option("--seed", seed, "seed of random inputs");
}

ValueRanges InputOptions::value_ranges() const {
  ValueRanges result;
  for (const std::string& text : ranges) {
    const auto [name, value] = split_pair(text, "--range");
    const size_t dots = value.find("..");
    if (dots == std::string::npos)
      throw UserError(ErrorCode::kU_bad_option, "a range does not have its form")
          .with_op("--range")
          .with_expected("NAME=LO..HI")
          .with_actual(text);
    const Interval range = {parse_integer(std::string_view(value).substr(0, dots), text),
                            parse_integer(std::string_view(value).substr(dots + 2), text)};
    if (!result.emplace(name, range).second) throw given_twice("--range " + text);
  }
  return result;
}

void InputOptions::refuse_undrawn(const std::vector<std::string>& drawn) const {
  const auto refuse = [](const std::string& option, const std::string& why) {
    throw UserError(ErrorCode::kU_bad_option, "an option of random inputs has none to draw")
        .with_value(option)
        .with_actual(why)
        .with_remedy("leave it out, or have the input drawn: --input NAME=random");
  };
  for (const auto& [name, range] : value_ranges())
    if (std::find(drawn.begin(), drawn.end(), name) == drawn.end())
      refuse("--range " + name + "=…", "the input is given");
  if (drawn.empty() && verb_ && verb_->given("--seed")) refuse("--seed", "no input is random");
}

std::vector<std::string> InputOptions::files() const {
  std::vector<std::string> names;
  for (const std::string& input : inputs) names.push_back(input.substr(input.rfind('=') + 1));
  return names;
}

std::string InputOptions::source_of(const std::string& input) const {
  std::string archive;
  for (const std::string& text : inputs) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos && text != "random") archive = text;
    if (equals != std::string::npos && text.substr(0, equals) == input && text.substr(equals + 1) != "random")
      return "of " + text.substr(equals + 1);
  }
  if (!archive.empty() && read_npz(archive).contains(input)) return "of " + archive;
  std::string text = "random, seed " + std::to_string(seed);
  for (const std::string& range : ranges)
    if (range.starts_with(input + "=")) text += ", " + range.substr(input.size() + 1);
  return text;
}

std::map<std::string, Array> gather_inputs(const Executable& exe, const EntryPlan& entry,
                                           const InputOptions& options,
                                           const std::vector<std::string>& dims) {
  std::map<std::string, Array> given;
  bool all_random = options.inputs.empty();
  std::vector<std::string> random_names;
  for (const std::string& input : options.inputs) {
    if (input == "random") {
      all_random = true;
    } else if (input.ends_with(".npz") && input.find('=') == std::string::npos) {
      for (auto& [name, array] : read_npz(input))
        if (!given.emplace(name, array).second) throw given_twice("--input " + name);
    } else {
      const auto [name, value] = split_pair(input, "--input");
      if (value == "random") {
        random_names.push_back(name);
      } else {
        if (!given.emplace(name, read_npy(value)).second) throw given_twice("--input " + input);
      }
    }
  }
  const SymbolValues sizes = parse_sizes(dims);
  check_sizes(entry, given, sizes);
  const std::map<std::string, Array> made =
      random_inputs(exe.model().plan(), entry, sizes, options.seed, options.value_ranges());
  for (const std::string& name : random_names) {
    auto at = made.find(name);
    if (at == made.end())
      throw UserError(ErrorCode::kU_unknown_input, "the model has no input of this name")
          .with_value(name)
          .with_expected(comma_list(entry.inputs, &IoTensor::name));
    if (!given.emplace(*at).second) throw given_twice("--input " + name + "=random");
  }
  if (all_random)
    for (const auto& item : made)
      if (given.emplace(item).second) random_names.push_back(item.first);
  options.refuse_undrawn(random_names);
  const auto is_input = [&](const auto& item) {
    return std::any_of(entry.inputs.begin(), entry.inputs.end(),
                       [&](const IoTensor& io) { return io.name == item.first; });
  };
  // A name that is none is met before what then is missing: inputs_in_order says so.
  if (!std::all_of(given.begin(), given.end(), is_input)) return given;
  for (const IoTensor& io : entry.inputs) {
    if (given.contains(io.name)) continue;
    const bool several = exe.model().plan().entries.size() > 1;
    throw UserError(ErrorCode::kU_missing_input, "a required input was not given")
        .with_op(entry.name)
        .with_value(io.name)
        .with_expected(comma_list(entry.inputs, &IoTensor::name))
        .with_remedy("add --input " + io.name + "=FILE.npy, or --input random for all that are not given" +
                     (several ? "; --entry names another entry, 'aicf inspect' lists them" : ""));
  }
  return given;
}

void add_entry_to(VerbOptions& verb, std::string& entry) {
  verb.add_option("--entry", entry,
                  "which entry of a file with several to run; default the first that 'aicf inspect' lists");
}

void ReplayOptions::add_to(VerbOptions& verb, const char* model) {
  source.add_to(verb, /*binds=*/true, model);
  run.add_to(verb);
  inputs.add_to(verb);
}

std::map<std::string, Array> ReplayOptions::gather(const Executable& exe) const {
  return gather_inputs(exe, exe.entry(entry), inputs,
                       source.is_artifact() ? source.dims : std::vector<std::string>{});
}

Json setting_json(const ReplayOptions& options, const Executable& exe, const EntryPlan& entry,
                  const std::map<std::string, Array>& inputs) {
  Json list = Json::array();
  for (const auto& [name, array] : inputs)
    list.push_back({{"name", name},
                    {"dtype", dtype_name(array.dtype())},
                    {"shape", array.sizes()},
                    {"from", options.inputs.source_of(name)}});
  return {{"model", options.source.path},
          {"entry", entry.name},
          {"device", exe.model().device().name()},
          {"threads", choose_threads(options.run.threads)},
          {"inputs", list}};
}

std::string describe_setting(const Json& setting) {
  const std::string device = setting["device"];
  std::string text = setting["model"].get<std::string>() + ", entry " +
                     printable_name(setting["entry"].get<std::string>()) + " on " + device;
  if (device == "cpu") text += ", " + std::to_string(setting["threads"].get<int>()) + " threads";
  for (const Json& input : setting["inputs"])
    text += "\n  " + printable_name(input["name"].get<std::string>()) + ": " +
            input["dtype"].get<std::string>() + to_string(input["shape"].get<std::vector<int64_t>>()) + " " +
            input["from"].get<std::string>();
  return text + "\n";
}

}  // namespace aicf::cli
