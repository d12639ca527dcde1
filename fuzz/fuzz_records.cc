// A stranger's tuning records: what is read of them is written and read back the same, or refused with a
// coded error, and a model compiles with them.
#include "harness.h"
#include "select/records.h"
#include "select/shipped_records.h"

namespace aicf::fuzz {
namespace {

constexpr size_t kMostLines = 40;  // of a seed

Seeds seeds() {
  Seeds list;
  for (const ShippedRecords& file : shipped_record_files()) {
    std::string text(file.text);
    size_t end = 0;
    for (size_t line = 0; line < kMostLines && end != std::string::npos; ++line)
      end = text.find('\n', end + 1);
    text.resize(std::min(end, text.size()));
    list.emplace_back(std::to_string(list.size()) + ".csv",
                      [text](const std::string& path) { std::ofstream(path) << text << "\n"; });
  }
  return list;
}

// A field of a line by one of another, or by a number.
std::string mutated(std::string_view bytes, Random& random) {
  if (random() % 4 == 0) return "";
  std::string text(bytes);
  const auto field = [&](size_t at, size_t& begin, size_t& end) {
    begin = text.find_last_of(",\n; ", at);
    begin = begin == std::string::npos ? 0 : begin + 1;
    end = text.find_first_of(",\n; ", at);
    end = end == std::string::npos || end < begin ? text.size() : end;
  };
  for (uint64_t i = 0, changes = 1 + random() % 3; i < changes && !text.empty(); ++i) {
    size_t begin = 0, end = 0, other_begin = 0, other_end = 0;
    field(random() % text.size(), other_begin, other_end);
    const std::string other = text.substr(other_begin, other_end - other_begin);
    field(random() % text.size(), begin, end);
    text.replace(begin, end - begin, random() % 2 ? other : std::to_string(pick_number(random, 64)));
  }
  return text;
}

void use(const std::string&, std::string_view text) {
  const std::vector<Record> records = parse_records(text, "records");
  if (parse_records(to_string(records), "again") != records) std::abort();
  Records layers;
  layers.add_layer("user", records);
  for (const Record& record : records)
    (void)layers.find(record.key, [](const Record&, Records::Match) { return true; });
}

}  // namespace

Target target() { return {seeds, mutated, use}; }

}  // namespace aicf::fuzz
