#include "ir/updates.h"

namespace aicf {

std::set<std::string> updated_variables(const Program& program) {
  std::set<std::string> names;
  for (const Graph& entry : program.entries)
    for (const Update& update : entry.updates()) names.insert(entry.value(update.variable).name);
  return names;
}

}  // namespace aicf
