// Where a verb gets its model from: an .aicf file, or an ONNX file compiled on the spot with the options
// common to all such verbs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "artifact/artifact.h"
#include "compile/compile.h"
#include "console.h"
#include "import/onnx.h"
#include "runtime/executable.h"
#include "runtime/random_inputs.h"
#include "verb_options.h"

namespace aicf::cli {

// bad_option if a file written to `output` would take the place of one of `others`.
void refuse_overwriting(const std::string& output, const std::vector<std::string>& others);

// What a verb's help says of the options of compiling: `compile` lists them, others name them; where every
// kernel is measured none is chosen, and there is no --records and no --choose.
enum class CompileHelp : uint8_t { kListed, kNamed, kNamedWithoutChoice };

struct ModelSource {
  std::string path;
  std::vector<std::string> dims, states, values, results, skip, dump_after, records, choices;
  std::string target, precision = "f32", stop_after;
  int opt = 2;
  bool print = false;

  static constexpr const char* kAnyModel = "an .onnx model or a compiled .aicf file";
  // The positional argument and the options of compiling. They are refused where the model is compiled
  // already, but --dim if there it `binds` the sizes of random inputs.
  void add_to(VerbOptions& verb, bool binds = false, const char* model = kAnyModel,
              CompileHelp help = CompileHelp::kNamed);
  // What only `compile` has: stopping after a stage, and seeing what stages and passes made.
  void add_stages_to(VerbOptions& verb);
  bool is_artifact() const;
  // bad_option if the model is compiled already.
  void refuse_artifact() const;
  // bad_option if a file written to `output` would take the model's place.
  // If it is one of the files that the options name, or one of `others`.
  void refuse_overwriting(const std::string& output, std::vector<std::string> others = {}) const;
  ImportOptions import_options() const;
  // Without --target the target is that of the device. The stages are shown as the status if it `tells` them.
  CompileOptions compile_options(const std::string& device = "cpu", bool tells = true) const;
  // bad_option for an artifact.
  Program import() const;
  // Reads or compiles.
  Artifact artifact(const std::string& device = "cpu", CompileReport* report = nullptr) const;

 private:
  void refuse_compile_options() const;
  std::vector<std::string> compile_only_;  // names of options
  std::optional<VerbOptions> verb_;
};

struct RunOptions {
  int threads = 0;
  std::string isa, device = "cpu";
  void add_to(VerbOptions& verb);
  // What is wrong with them, before a model is compiled.
  void check() const;
  std::unique_ptr<Executable> load(Artifact artifact) const;
  std::unique_ptr<Executable> load(const ModelSource& source) const;
};

// Inputs named on the command line: NAME=x.npy, f.npz, NAME=random or random, with --dim for sizes of random
// ones.
struct InputOptions {
  std::vector<std::string> inputs, ranges;
  uint64_t seed = 0;
  void add_to(VerbOptions& verb);
  ValueRanges value_ranges() const;
  std::vector<std::string> files() const;                 // those that --input names
  std::string source_of(const std::string& input) const;  // "random, seed 0" or "of x.npy"
  // bad_option for a --range of an input that is not among those drawn, and --seed if none is.
  void refuse_undrawn(const std::vector<std::string>& drawn) const;

 private:
  std::optional<VerbOptions> verb_;
};
std::map<std::string, Array> gather_inputs(const Executable& exe, const EntryPlan& entry,
                                           const InputOptions& options, const std::vector<std::string>& dims);

void add_entry_to(VerbOptions& verb, std::string& entry);

// What a verb that replays a model is given: the model, where it runs and its inputs.
struct ReplayOptions {
  ModelSource source;
  RunOptions run;
  InputOptions inputs;
  std::string entry;  // "": the first
  void add_to(VerbOptions& verb, const char* model = ModelSource::kAnyModel);
  std::unique_ptr<Executable> load() const { return run.load(source); }
  // --dim gives the sizes of random inputs where it did not already go into compiling.
  std::map<std::string, Array> gather(const Executable& exe) const;
};

// What runs: of which model, on what, from what; as JSON and in words.
Json setting_json(const ReplayOptions& options, const Executable& exe, const EntryPlan& entry,
                  const std::map<std::string, Array>& inputs);
std::string describe_setting(const Json& setting);

// "NAME=VALUE" for every size; bad_option.
SymbolValues parse_sizes(const std::vector<std::string>& dims);
std::pair<std::string, std::string> split_pair(const std::string& text, const char* option);

}  // namespace aicf::cli
