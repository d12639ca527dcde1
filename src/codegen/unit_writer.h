// Joins kernel texts to one translation unit: includes first, each of them once, then every text in a
// namespace of its own, because texts name their types and functions without regard to one another.
#pragma once

#include <set>
#include <string>

namespace aicf {

class UnitWriter {
 public:
  // `name` is that of the namespace.
  void add(const std::string& source, const std::string& name);
  std::string text() const { return includes_ + bodies_; }

 private:
  std::set<std::string> included_;
  std::string includes_, bodies_;
};

}  // namespace aicf
