// The verbs of the command line. Each adds its options to a CLI11 subcommand and gives the function that runs
// it and returns the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "console.h"

namespace aicf::cli {

using VerbRun = std::function<int(const Console&)>;

struct Verb {
  const char* name;
  const char* summary;
  const char* example;
  VerbRun (*setup)(CLI::App& app);
};

VerbRun setup_compile(CLI::App& app);
VerbRun setup_run(CLI::App& app);
VerbRun setup_bench(CLI::App& app);
VerbRun setup_verify(CLI::App& app);
VerbRun setup_validate(CLI::App& app);
VerbRun setup_support(CLI::App& app);
VerbRun setup_inspect(CLI::App& app);
VerbRun setup_explain(CLI::App& app);
VerbRun setup_doctor(CLI::App& app);

}  // namespace aicf::cli
