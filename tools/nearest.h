// The word that was most likely meant by one that is none.
#pragma once

#include <string>
#include <vector>

namespace aicf::cli {

// "" if none of `words` is near.
std::string nearest(const std::string& word, const std::vector<std::string>& words);

}  // namespace aicf::cli
