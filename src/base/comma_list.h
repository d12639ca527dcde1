// Lists in messages and printed text.
#pragma once

#include <functional>
#include <string>

namespace aicf {

// "a, b, c"; `text` makes a string of an item, or is the member that is one.
template <typename List, typename Text = std::identity>
std::string comma_list(const List& list, const Text& text = {}) {
  std::string all;
  for (const auto& item : list) all += (all.empty() ? "" : ", ") + std::string(std::invoke(text, item));
  return all;
}

}  // namespace aicf
