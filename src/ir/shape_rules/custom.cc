#include <numeric>

#include "base/error.h"
#include "ir/shape_rules/rules.h"

namespace aicf {
namespace {

std::vector<DType> parse_dtypes(const ShapeQuery& query) {
  std::vector<DType> dtypes;
  const std::string& text = query.attrs.get_str("dtypes");
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::string name = text.substr(start, end - start);
    const auto dtype = dtype_from_name(name);
    if (!dtype) fail_attribute(query, "dtypes", "names of dtypes, comma separated", text);
    dtypes.push_back(*dtype);
    start = end + 1;
  }
  return dtypes;
}

}  // namespace

void shape_custom(ShapeQuery& query) {
  const std::vector<DType> dtypes = parse_dtypes(query);
  const Ints& ranks = require_ints(query, "ranks", dtypes.size(), 0);
  const auto total = std::accumulate(ranks.begin(), ranks.end(), int64_t{0});
  const Shape& sizes = require_dims(query, "sizes", static_cast<size_t>(total));
  if (query.attrs.get_dims("grid").size() > 3)
    fail_attribute(query, "grid", "at most 3 sizes", std::to_string(query.attrs.get_dims("grid").size()));
  query.results.clear();
  auto at = sizes.begin();
  for (size_t i = 0; i < dtypes.size(); ++i) {
    query.results.push_back({dtypes[i], Shape(at, at + ranks[i])});
    at += ranks[i];
  }
}

}  // namespace aicf
