#include "verb_options.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <vector>

namespace aicf::cli {

void VerbOptions::add_positional(const std::string& name, std::string& target, const std::string& help) {
  app_.add_option(name, target, help)->required();
}

template <typename T>
void VerbOptions::add_option(const std::string& name, T& target, const std::string& help) {
  app_.add_option(name, target, help);
}

template <typename T>
void VerbOptions::add_list(const std::string& name, T& target, const std::string& help) {
  app_.add_option(name, target, help)->delimiter(',');
}

void VerbOptions::add_flag(const std::string& name, bool& target, const std::string& help) {
  app_.add_flag(name, target, help);
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
