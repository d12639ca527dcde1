#include "select/records.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "base/mapped_file.h"
#include "base/parse_number.h"
#include "kernels/common/kernel_revision.h"
#include "select/kernel_call.h"
#include "select/shipped_records.h"

namespace aicf {
namespace {

constexpr std::string_view kHeader = "target,units,op,region,params,operands,choice,us,heuristic_us,versions";
constexpr size_t kFields = kKeyFields + 4;
constexpr std::string_view kRevision = " kernel ";

// Thousandths, as they are written, so that what is read again is the same.
bool parse_time(std::string_view text, double& value) {
  if (!parse_number(text, value) || !std::isfinite(value) || value < 0) return false;
  if (value < 1e12) value = std::round(value * 1000) / 1000;
  return true;
}

bool parse_record(std::string_view line, Record& record) {
  const std::vector<std::string_view> fields = split(line, ',');
  if (fields.size() < kFields) return false;
  // Of all fields only a choice holds commas: those of a library's knobs.
  const size_t us = fields.size() - 3;
  record.choice = current_name({fields[kKeyFields].begin(), fields[us].begin() - 1});
  record.versions = fields.back();
  return parse_key({fields.begin(), fields.begin() + kKeyFields}, record.key) && !record.choice.empty() &&
         parse_time(fields[us], record.microseconds) &&
         parse_time(fields[us + 1], record.heuristic_microseconds);
}

}  // namespace

std::string_view kernel_of(std::string_view candidate) { return candidate.substr(0, candidate.find('/')); }

std::string record_versions(const std::string& tools, const std::string& choice) {
  const int revision = kernel_revision(kernel_of(choice));
  return revision == 0 ? tools : tools + std::string(kRevision) + std::to_string(revision);
}

bool is_stale(const Record& record) {
  const size_t at = record.versions.rfind(kRevision);
  return at != std::string::npos && record.versions.substr(at + kRevision.size()) !=
                                        std::to_string(kernel_revision(kernel_of(record.choice)));
}

std::string to_string(const std::vector<Record>& records) {
  std::string text = std::string(kHeader) + "\n";
  for (const Record& r : records)
    text += to_string(r.key) + "," + r.choice + "," + format_fixed(r.microseconds, 3) + "," +
            format_fixed(r.heuristic_microseconds, 3) + "," + r.versions + "\n";
  return text;
}

std::vector<Record> parse_records(std::string_view text, const std::string& source) {
  std::vector<Record> records;
  int number = 0;
  bool has_header = false;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = text.substr(start, end - start);
    start = end + 1;
    ++number;
    if (line.empty() || line.front() == '#') continue;
    Record record;
    const bool sound = has_header ? parse_record(line, record) : line == kHeader;
    if (!sound)
      throw UserError(ErrorCode::kU_bad_option, "a file of tuning records is malformed")
          .with_value(source + ":" + std::to_string(number))
          .with_expected(has_header ? "ten fields as the header names them" : std::string(kHeader))
          .with_actual(std::string(line.substr(0, 200)))
          .with_remedy("tune again, or leave the file out");
    if (has_header) records.push_back(std::move(record));
    has_header = true;
  }
  return records;
}

void Records::add_layer(const std::string& name, std::vector<Record> records) {
  Layer layer{name, std::move(records), {}};
  // Of two records of one problem the later one holds.
  for (size_t i = 0; i < layer.records.size(); ++i)
    layer.by_key.insert_or_assign(to_string(layer.records[i].key), i);
  layers_.insert(layers_.begin(), std::move(layer));
}

std::optional<Records::Found> Records::find(const ProblemKey& key, const Usable& usable) const {
  const std::string text = to_string(key);
  for (const Layer& layer : layers_) {
    const auto at = layer.by_key.find(text);
    if (at == layer.by_key.end()) continue;
    const Record& record = layer.records[at->second];
    if (usable(record, Match::kExact)) return Found{&record, Match::kExact, layer.name};
  }
  std::optional<Found> best;
  double best_distance = std::numeric_limits<double>::infinity();
  for (const Layer& layer : layers_)
    for (const auto& [name, index] : layer.by_key) {
      const Record& record = layer.records[index];
      if (!same_layout(record.key, key)) continue;
      const bool padded = record.key.region == key.region && record.key.units == key.units &&
                          same_padded_sizes(record.key, key);
      const double distance = size_distance(record.key, key);
      const bool better = !best || (padded && best->match == Match::kNearest) ||
                          (padded == (best->match == Match::kPadded) && distance < best_distance);
      const Match match = padded ? Match::kPadded : Match::kNearest;
      if (!better || !(padded || std::isfinite(distance)) || !usable(record, match)) continue;
      best = Found{&record, match, layer.name};
      best_distance = distance;
    }
  return best;
}

std::string user_records_path() {
  const char* folder = std::getenv("AICF_CACHE_DIR");
  return folder == nullptr || *folder == '\0' ? "" : std::string(folder) + "/records.csv";
}

Records load_records(const std::vector<std::string>& files) {
  Records records;
  if (files == std::vector<std::string>{"none"}) return records;
  for (const ShippedRecords& file : shipped_record_files())
    records.add_layer("shipped", parse_records(file.text, std::string(file.name)));
  const auto add_file = [&](const std::string& path) {
    records.add_layer("user", parse_records(MappedFile::open(path)->text(), path));
  };
  std::error_code error;
  if (const std::string path = user_records_path(); !path.empty() && std::filesystem::exists(path, error))
    add_file(path);
  for (const std::string& path : files) add_file(path);
  return records;
}

}  // namespace aicf
