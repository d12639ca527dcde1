#include "base/option_text.h"

#include <atomic>
#include <iterator>

namespace aicf {
namespace {

std::atomic<Caller> current = Caller::kCpp;

// "%" stands for the value; a size's name and value are told apart by dims_text.
struct Spelling {
  Option option;
  std::string_view cpp, python, command_line;
};

constexpr Spelling kSpellings[] = {
    {Option::kDim, "dims = {%}", "dims={%}", "%"},
    {Option::kTarget, "target = \"%\"", "options={\"target\": \"%\"}", "--target %"},
    {Option::kDevice, "device = \"%\"", "device=\"%\"", "--device %"},
    {Option::kThreads, "threads = %", "threads=%", "--threads %"},
    {Option::kIsa, "isa = \"%\"", "isa=\"%\"", "--isa %"},
    {Option::kOptLevel, "opt_level = %", "options={\"opt\": %}", "--opt %"},
    {Option::kSkipPass, "skip_passes = {\"%\"}", "options={\"skip_passes\": [\"%\"]}", "--skip %"},
    {Option::kDumpAfter, "dump_after = {\"%\"}", "AICF_DEBUG=4 to see %", "--dump-after %"},
    {Option::kResult, "results = {\"%\"}", "options={\"results\": [\"%\"]}", "--result %"},
    {Option::kValue, "values = {%}", "inputs={%}", "%"},
};
static_assert(std::size(kSpellings) == std::size(kOptions));

std::string spelled(Option option, const std::string& value) {
  for (const Spelling& row : kSpellings) {
    if (row.option != option) continue;
    std::string text(caller() == Caller::kCpp      ? row.cpp
                     : caller() == Caller::kPython ? row.python
                                                   : row.command_line);
    return text.replace(text.find('%'), 1, value);
  }
  return value;
}

std::string dim_text(std::string_view name, std::string_view value) {
  const std::string size(name), text(value);
  if (caller() == Caller::kCpp) return "{\"" + size + "\", \"" + text + "\"}";
  return caller() == Caller::kPython ? "\"" + size + "\": \"" + text + "\"" : "--dim " + size + "=" + text;
}

}  // namespace

void set_caller(Caller caller) { current = caller; }
Caller caller() { return current; }

std::string option_text(Option option, std::string_view value) {
  const size_t equals = value.find('=');
  if (option == Option::kDim && equals != std::string_view::npos)
    return dims_text({{std::string(value.substr(0, equals)), std::string(value.substr(equals + 1))}});
  if (option == Option::kValue) return values_text({std::string(value)});
  return spelled(option, std::string(value));
}

std::string values_text(const std::vector<std::string>& inputs) {
  std::string text;
  for (const std::string& name : inputs) {
    if (!text.empty()) text += caller() == Caller::kCommandLine ? " " : ", ";
    text += caller() == Caller::kCpp      ? "{\"" + name + "\", array}"
            : caller() == Caller::kPython ? "\"" + name + "\": array"
                                          : "--value " + name + "=x.npy";
  }
  return spelled(Option::kValue, text);
}

std::string untrained_text(const std::vector<std::string>& params) {
  std::string names;
  for (const std::string& name : params) names += (names.empty() ? "\"" : ", \"") + name + "\"";
  // The command line makes no train steps.
  return caller() == Caller::kPython ? "optim.Group([" + names + "], trainable=False)"
                                     : "ParamGroup{.patterns = {" + names + "}, .trainable = false}";
}

std::string dims_text(const std::vector<std::pair<std::string, std::string>>& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) {
    if (!text.empty()) text += caller() == Caller::kCommandLine ? " " : ", ";
    text += dim_text(name, value);
  }
  return spelled(Option::kDim, text);
}

}  // namespace aicf
