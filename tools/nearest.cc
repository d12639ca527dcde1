#include "nearest.h"

#include <algorithm>
#include <numeric>

namespace aicf::cli {
namespace {

// Letters to change, add or leave out (Levenshtein).
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& words) {
  if (word.size() < 3) return {};
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : words) {
    // What begins like it is nearest: --out for --output-dir, not --opt.
    const bool begins = word.size() >= 4 && candidate.starts_with(word);
    const size_t apart = begins ? 0 : distance(word, candidate);
    if (apart < least && apart < candidate.size()) least = apart, best = candidate;
  }
  return best;
}

}  // namespace aicf::cli
