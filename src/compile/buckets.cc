#include "compile/buckets.h"

#include <utility>

#include "base/error.h"
#include "ir/specialise.h"

namespace aicf {
namespace {

constexpr size_t kMaxBuckets = 64;  // of an entry: each is compiled on its own

std::vector<Interval> parts_of(const Interval& range, const std::vector<int64_t>& ends) {
  std::vector<Interval> parts;
  int64_t first = range.lo;
  for (int64_t end : ends) parts.push_back({first, end}), first = end + 1;
  return parts;
}

// Every combination of the parts of the entry's sizes; the last is that of the last parts.
std::vector<SymbolRanges> combinations(const Graph& entry, const Program& program) {
  std::map<std::string, int> symbols;
  for (ValueId input : entry.inputs())
    for (const Dim& dim : entry.shape(input)) dim.collect_symbols(symbols);
  std::vector<SymbolRanges> all = {{}};
  for (const auto& [name, ends] : program.buckets) {
    if (!symbols.contains(name)) continue;
    const std::vector<Interval> parts = parts_of(program.sizes.at(name), ends);
    if (all.size() * parts.size() > kMaxBuckets)
      throw UserError(ErrorCode::kU_bad_option, "the sizes of an entry have too many buckets together")
          .with_op("entry " + entry.name())
          .with_value(name + " with " + std::to_string(parts.size()) + " sizes")
          .with_expected("at most " + std::to_string(kMaxBuckets) + " combinations")
          .with_remedy("list fewer sizes, or give a range");
    std::vector<SymbolRanges> longer;
    for (const SymbolRanges& one : all)
      for (const Interval& part : parts) longer.emplace_back(one)[name] = part;
    all = std::move(longer);
  }
  return all;
}

}  // namespace

std::vector<BucketProgram> bucket_programs(const Program& program) {
  std::vector<BucketProgram> result;
  for (const Graph& entry : program.entries) {
    std::vector<SymbolRanges> buckets = combinations(entry, program);
    buckets.pop_back();
    for (SymbolRanges& bucket : buckets) {
      BucketProgram part{std::move(bucket), {program.variables, {}, program.sizes, {}, program.metadata}};
      SymbolValues fixed;
      for (const auto& [name, range] : part.bucket) {
        part.program.sizes[name] = range;
        if (range.lo == range.hi) fixed[name] = range.lo;
      }
      part.program.entries.push_back(specialise(entry, fixed));
      result.push_back(std::move(part));
    }
  }
  return result;
}

}  // namespace aicf
