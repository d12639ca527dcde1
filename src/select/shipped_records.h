// The record files of src/select/records/, embedded.
#pragma once

#include <string_view>
#include <vector>

namespace aicf {

struct ShippedRecords {
  std::string_view name, text;
};
const std::vector<ShippedRecords>& shipped_record_files();

}  // namespace aicf
