#include "measuring.h"

#include "base/error.h"
#include "runtime/open_device.h"
#include "runtime/variant_fit.h"
#include "tune/bench_device.h"
#include "tune/library_candidates.h"

namespace aicf::cli {
namespace {

Target measured_target(const ModelSource& source, const RunOptions& run) {
  run.check();
  const std::string& target = source.target;
  // `cuda` is this machine's GPU; what a compile puts beside it is not measured.
  if (target.starts_with("cuda")) return Target::from_name(target_of_device(target));
  if (target.find(',') != std::string::npos)
    throw UserError(ErrorCode::kU_bad_option, "kernels are measured for one target at a time")
        .with_value("--target " + target)
        .with_expected("one target");
  return Target::from_name(target.empty() ? target_of_device(run.device) : target);
}

Program imported(const ModelSource& source) {
  Program program = source.import();
  show_status("selecting kernels of " + source.path);
  return program;
}

}  // namespace

Measuring::Measuring(const ModelSource& source, const RunOptions& run)
    : target_(measured_target(source, run)),
      program_(run_pipeline(imported(source), target_, pipeline_options(source.compile_options(run.device)),
                            nullptr)),
      problems_(list_problems(program_, target_)) {}

Bench& Measuring::open(const RunOptions& run, int libraries) {
  device_ = open_device({run.device, run.threads, run.isa});
  if (device_->fitness(target_.name) == 0)
    throw UserError(ErrorCode::kU_bad_option, "the device cannot run kernels of this target")
        .with_value("--target " + target_.name)
        .with_expected(target_for(device_->name()) + " on --device " + run.device)
        .with_remedy(target_.is_cuda()
                         ? "add --device cuda; without a GPU, 'aicf tune --build-only' compiles "
                           "the candidates"
                         : "leave out --device");
  device_->wait({});  // its context is current from here on
  if (target_.is_cuda()) add_library_candidates(problems_, libraries);
  bench_ = make_device_bench(device_, program_, target_);
  return *bench_;
}

}  // namespace aicf::cli
