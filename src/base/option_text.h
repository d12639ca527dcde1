// How an option is written in the language of who calls: errors say what to give in it. The command line has
// flags, Python arguments, C++ (and C, whose functions are named alike) fields. A process has one caller.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aicf {

enum class Caller { kCpp, kPython, kCommandLine };
inline constexpr Caller kCallers[] = {Caller::kCpp, Caller::kPython, Caller::kCommandLine};

// Set once, before anything else is called; C++ if it never is.
void set_caller(Caller caller);
Caller caller();

enum class Option {
  kDim,
  kTarget,
  kDevice,
  kThreads,
  kIsa,
  kOptLevel,
  kSkipPass,
  kDumpAfter,
  kResult,
  kValue
};
inline constexpr Option kOptions[] = {
    Option::kDim,      Option::kTarget,   Option::kDevice,    Option::kThreads, Option::kIsa,
    Option::kOptLevel, Option::kSkipPass, Option::kDumpAfter, Option::kResult,  Option::kValue};

// The option with this value: "--target sm_90", `options={"target": "sm_90"}`, `target = "sm_90"`. A size is
// "NAME=VALUE", a value the input's name.
std::string option_text(Option option, std::string_view value);
// Sizes with their values or ranges: "--dim h=8..16 --dim w=2*h", `dims={"h": "8..16", "w": "2*h"}`.
std::string dims_text(const std::vector<std::pair<std::string, std::string>>& sizes);
// Values for these inputs: "--value a=x.npy --value b=x.npy", `inputs={"a": array, "b": array}`.
std::string values_text(const std::vector<std::string>& inputs);
// A group of parameters that are not trained: `optim.Group(["a", "b"], trainable=False)`,
// `ParamGroup{.patterns = {"a", "b"}, .trainable = false}`.
std::string untrained_text(const std::vector<std::string>& params);

}  // namespace aicf
