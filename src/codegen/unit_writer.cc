#include "codegen/unit_writer.h"

#include <sstream>

namespace aicf {

void UnitWriter::add(const std::string& source, const std::string& name) {
  std::istringstream in(source);
  std::string line, body;
  while (std::getline(in, line)) {
    if (!line.starts_with("#include")) {
      body += line + "\n";
    } else if (included_.insert(line).second) {
      includes_ += line + "\n";
    }
  }
  bodies_ += "\nnamespace " + name + " {\n" + body + "}\n";
}

}  // namespace aicf
