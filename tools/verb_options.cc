#include "verb_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace aicf::cli {
namespace {

// "" if it is one; else what is wrong with it.
std::string whole_number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return "'" + text + "' is no whole number from 0 to 18446744073709551615";
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// "" if all parts say something, or the list is none, which refuse_empty() tells; else what is wrong with it.
std::string no_empty_part(const std::string& list) {
  const std::vector<std::string> parts = parts_of(list);
  if (list.empty() || std::find(parts.begin(), parts.end(), "") == parts.end()) return {};
  return "a part of '" + list + "' is empty";
}

// One that means something: 0 and "" stand for what the help says instead.
template <typename T>
void show_default(CLI::Option& option, const T& value) {
  if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>)
    if (value != T()) option.capture_default_str();
}

// As it is given. CLI11 has no name for an option that the help does not list.
std::string name_of(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  return option.get_snames().empty() ? option.get_name() : "-" + option.get_snames().front();
}

}  // namespace

void VerbOptions::add_positional(const std::string& name, std::string& target, const std::string& help) {
  app_->add_option(name, target, help)->required();
}

// One value for each time that the option stands there: what follows belongs to the verb.
template <typename T>
void VerbOptions::add_option(const std::string& name, T& target, const std::string& help) {
  CLI::Option* option = app_->add_option(name, target, help)->allow_extra_args(false)->group(group_);
  show_default(*option, target);
  // Else -1 would be the largest number there is.
  if constexpr (std::is_same_v<T, uint64_t>) option->check(whole_number);
}

template <typename T>
void VerbOptions::add_list(const std::string& name, T& target, const std::string& help) {
  const auto read = [&target](const CLI::results_t& given) {
    target.clear();
    for (const std::string& list : given) {
      if (list.empty()) continue;  // refuse_empty() tells
      for (const std::string& part : parts_of(list))
        if (!CLI::detail::lexical_cast(part, target.emplace_back())) return false;
    }
    return true;
  };
  // Not CLI11's delimiter, which drops empty parts before anything can refuse them.
  CLI::Option* option = app_->add_option(name, read, help)->allow_extra_args(false)->group(group_);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->check(no_empty_part);
  option->type_name(std::string(CLI::detail::type_name<typename T::value_type>()) + ",...");
}

void VerbOptions::add_flag(const std::string& name, bool& target, const std::string& help) {
  app_->add_flag(name, target, help)->group(group_);
}

void VerbOptions::add_count(const std::string& name, int& target, const std::string& help) {
  app_->add_flag(name, target, help)->group(group_);
}

void VerbOptions::set_group(const std::string& heading) { group_ = heading; }

void VerbOptions::add_note(const std::string& note) {
  const std::string before = app_->get_footer();
  app_->footer(before.empty() ? note : before + "\n" + note);
}

std::vector<std::string> VerbOptions::names() const {
  std::vector<std::string> list;
  for (const CLI::Option* option : app_->get_options()) {
    for (const std::string& name : option->get_lnames()) list.push_back("--" + name);
    for (const std::string& name : option->get_snames()) list.push_back("-" + name);
  }
  return list;
}

bool VerbOptions::given(const std::string& name) const { return app_->count(name) > 0; }

void VerbOptions::refuse_empty() const {
  for (const CLI::Option* option : app_->get_options())
    for (const std::string& value : option->results())
      if (value.empty())
        throw UserError(ErrorCode::kU_bad_option, "an option is given without a value")
            .with_value(name_of(*option))
            .with_remedy("give it one, or leave the option out");
}

std::vector<std::string> VerbOptions::words(std::initializer_list<const char*> without) const {
  std::vector<std::string> named, positional = {"--"};
  for (const CLI::Option* option : app_->get_options()) {
    const bool left_out = std::any_of(without.begin(), without.end(),
                                      [&](const char* name) { return option->check_name(name); });
    for (const std::string& value : option->results()) {
      if (left_out) continue;
      if (option->get_positional())
        positional.push_back(value);
      else
        named.push_back(option->get_expected_max() == 0 ? name_of(*option) : name_of(*option) + "=" + value);
    }
  }
  named.insert(named.end(), positional.begin(), positional.end());
  return named;
}

template void VerbOptions::add_option(const std::string&, std::string&, const std::string&);
template void VerbOptions::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template void VerbOptions::add_option(const std::string&, int&, const std::string&);
template void VerbOptions::add_option(const std::string&, int64_t&, const std::string&);
template void VerbOptions::add_option(const std::string&, uint64_t&, const std::string&);
template void VerbOptions::add_option(const std::string&, double&, const std::string&);
template void VerbOptions::add_option(const std::string&, std::optional<double>&, const std::string&);
template void VerbOptions::add_list(const std::string&, std::vector<std::string>&, const std::string&);
template void VerbOptions::add_list(const std::string&, std::vector<int>&, const std::string&);

}  // namespace aicf::cli
