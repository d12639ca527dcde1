// What Python holds of an executable, for the files of the extension that run one.
#pragma once

#include <memory>
#include <optional>

#include "compile/compile.h"
#include "runtime/executable.h"

namespace aicf::python {

using Report = std::shared_ptr<const CompileReport>;

// An Executable and, if it was compiled in this process, how.
struct PyExecutable {
  std::unique_ptr<Executable> exe;
  Report report;
  std::optional<Stream> stream = std::nullopt;  // what use_stream() chose
};

}  // namespace aicf::python
