// Tuning records: which candidate was measured to be the fastest for a problem. Files are CSV
// (docs/tuning.md); several are layered, those of the user over the shipped ones. Sources are only read here;
// the tuner writes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "select/problem_key.h"

namespace aicf {

struct Record {
  ProblemKey key;
  std::string choice;                 // a candidate's name, in today's words
  double microseconds = 0;            // measured
  double heuristic_microseconds = 0;  // measured, of what would run without records
  std::string versions;               // of what was measured: "nvrtc 13.0 kernel 1"
  bool operator==(const Record&) const = default;
};

// Of the candidate of this name.
std::string_view kernel_of(std::string_view candidate);

// `tools` and the revision of the chosen candidate's kernel, if it has one.
std::string record_versions(const std::string& tools, const std::string& choice);
// Whether the kernel has changed since (kernels/common/kernel_revision.h).
bool is_stale(const Record& record);

std::string to_string(const std::vector<Record>& records);  // a whole file
// bad_option with the line if the text is no record file; `source` is its name in messages.
std::vector<Record> parse_records(std::string_view text, const std::string& source);

class Records {
 public:
  enum class Match { kExact, kPadded, kNearest };
  struct Found {
    const Record* record;
    Match match;
    std::string layer;  // "shipped", "user"
  };

  // Later layers go before earlier ones.
  void add_layer(const std::string& name, std::vector<Record> records);
  using Usable = std::function<bool(const Record& record, Match match)>;
  // The best record that is `usable` for the problem: of exactly this key; else of the same layout and region
  // with the same padded sizes; else of the same layout with the nearest sizes.
  std::optional<Found> find(const ProblemKey& key, const Usable& usable) const;

 private:
  struct Layer {
    std::string name;
    std::vector<Record> records;
    std::map<std::string, size_t, std::less<>> by_key;
  };
  std::vector<Layer> layers_;  // strongest first
};

// The shipped records, then the file "records.csv" of AICF_CACHE_DIR if there is one, then `files` in order.
// Nothing at all is read if `files` is {"none"}.
Records load_records(const std::vector<std::string>& files);
// "" without AICF_CACHE_DIR.
std::string user_records_path();

}  // namespace aicf
