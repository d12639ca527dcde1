// The verbs of the command line. Each says its options and gives the function that runs it and returns the
// exit code.
#pragma once

#include <functional>
#include <vector>

#include "console.h"
#include "verb_options.h"

namespace aicf::cli {

using VerbRun = std::function<int(const Console&)>;

struct Verb {
  const char* name;
  const char* summary;
  const char* example;
  VerbRun (*setup)(VerbOptions& verb);
};

VerbRun setup_compile(VerbOptions& verb);
VerbRun setup_run(VerbOptions& verb);
VerbRun setup_bench(VerbOptions& verb);
VerbRun setup_verify(VerbOptions& verb);
VerbRun setup_validate(VerbOptions& verb);
VerbRun setup_support(VerbOptions& verb);
VerbRun setup_inspect(VerbOptions& verb);
VerbRun setup_explain(VerbOptions& verb);
VerbRun setup_profile(VerbOptions& verb);
VerbRun setup_train(VerbOptions& verb);
VerbRun setup_export(VerbOptions& verb);
VerbRun setup_tune(VerbOptions& verb);
VerbRun setup_doctor(VerbOptions& verb);

}  // namespace aicf::cli
