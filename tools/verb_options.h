// The options of one verb, apart from the library that parses them, whose headers take seconds to compile:
// every verb says here what it takes, and the references given are written when the command line is parsed.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace aicf::cli {

class VerbOptions {
 public:
  explicit VerbOptions(CLI::App& app) : app_(&app) {}

  // What stands without a name, and must be there.
  void add_positional(const std::string& name, std::string& target, const std::string& help);
  // T: std::string, int, int64_t, uint64_t, double, or a vector of strings from repeated options.
  template <typename T>
  void add_option(const std::string& name, T& target, const std::string& help);
  // Values of one option parted by commas; T: vector of strings or of ints.
  template <typename T>
  void add_list(const std::string& name, T& target, const std::string& help);
  void add_flag(const std::string& name, bool& target, const std::string& help);
  // Counts how often the flag stands there.
  void add_count(const std::string& name, int& target, const std::string& help);
  // Options added while it is set stand under this heading of the help; "" hides them.
  void set_group(const std::string& heading);
  // Ends the help.
  void add_note(const std::string& note);

  // Once the command line is parsed: whether an option stands on it, and what stands on it but the options
  // named, as words for another process.
  bool given(const std::string& name) const;
  // bad_option for a value that is "": a script's variable that is not set must not mean a default.
  void refuse_empty() const;
  std::vector<std::string> words(std::initializer_list<const char*> without) const;
  // The names under which options can be given: "--dim", "-o".
  std::vector<std::string> names() const;

 private:
  CLI::App* app_;
  std::string group_ = "Options";
};

}  // namespace aicf::cli
