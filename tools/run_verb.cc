#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/npy.h"
#include "base/printable.h"
#include "model_source.h"
#include "verbs.h"

namespace aicf::cli {
namespace {

struct RunArgs : ReplayOptions {
  std::string output_dir;
};

std::string describe_array(const std::string& name, const Array& array) {
  std::string text =
      printable_name(name) + ": " + std::string(dtype_name(array.dtype())) + to_string(array.sizes()) + " =";
  for (int64_t i = 0; i < std::min<int64_t>(array.count(), 6); ++i) {
    char number[32];
    std::snprintf(number, sizeof(number), " %.6g", array.get_f64(i));
    text += is_float(array.dtype()) ? number : " " + std::to_string(array.get_i64(i));
  }
  return text + (array.count() > 6 ? " …\n" : "\n");
}

// An output's name may be anything; only a plain one becomes a file name.
std::string file_name(const std::string& output) {
  std::string name = output;
  for (char& c : name)
    if (c == '/' || c == '\\' || c == '\0') c = '_';
  return name.empty() || name[0] == '.' ? "_" + name : name;
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw EnvironmentError(ErrorCode::kE_io_failed, "cannot create the folder for outputs")
        .with_value(path)
        .with_actual(error.message())
        .with_remedy("check the path and its permissions");
}

// The file of each output in the folder for them; none without one.
std::map<std::string, std::string> output_files(const RunArgs& options, const EntryPlan& entry) {
  std::map<std::string, std::string> paths;
  if (options.output_dir.empty()) return paths;
  for (const IoTensor& output : entry.outputs) paths[output.name];
  std::set<std::string> files;
  for (auto& [name, path] : paths) {
    std::string file = file_name(name);
    while (!files.insert(file).second) file += "_";  // two names may differ only in what a file's cannot hold
    path = options.output_dir + "/" + file + ".npy";
    options.source.refuse_overwriting(path, options.inputs.files());
  }
  return paths;
}

int run_model(const RunArgs& options, const Console& console) {
  const std::unique_ptr<Executable> exe = options.load();
  const EntryPlan& entry = exe->entry(options.entry);
  const std::map<std::string, std::string> files = output_files(options, entry);
  const std::map<std::string, Array> outputs = exe->run(entry.name, options.gather(*exe));
  std::string text;
  Json json = {{"outputs", Json::array()}};
  if (!files.empty()) make_folder(options.output_dir);
  for (const auto& [name, array] : outputs) {
    text += describe_array(name, array);
    Json item = {{"name", name}, {"dtype", dtype_name(array.dtype())}, {"shape", array.sizes()}};
    if (!files.empty()) {
      write_npy(files.at(name), array);
      item["file"] = files.at(name);
    }
    json["outputs"].push_back(item);
  }
  console.result(text, json);
  return kOk;
}

}  // namespace

VerbRun setup_run(VerbOptions& verb) {
  auto options = std::make_shared<RunArgs>();
  options->add_to(verb);
  add_entry_to(verb, options->entry);
  verb.add_option("--output-dir", options->output_dir, "write every output as NAME.npy into this folder");
  return [options](const Console& console) { return run_model(*options, console); };
}

}  // namespace aicf::cli
