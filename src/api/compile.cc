#include <exception>

#include "api/bridge.h"

#include "compile/compile.h"
#include "runtime/open_device.h"

#define AICF_TEXT_OF(x) #x
#define AICF_TEXT(x) AICF_TEXT_OF(x)

namespace aicf::v1 {

const char* version() {
  return AICF_TEXT(AICF_VERSION_MAJOR) "." AICF_TEXT(AICF_VERSION_MINOR) "." AICF_TEXT(AICF_VERSION_PATCH);
}

Artifact Access::artifact(core::Artifact artifact) {
  Artifact result;
  result.impl_ = std::make_shared<const Artifact::Impl>(Artifact::Impl{std::move(artifact)});
  return result;
}

const core::Artifact& Access::artifact(const Artifact& artifact) {
  if (artifact.impl_ == nullptr)
    throw core::UserError(core::ErrorCode::kU_misuse, "the artifact is empty")
        .with_remedy("compile a program or load a file");
  return artifact.impl_->artifact;
}

Artifact Artifact::load(const std::string& path) {
  return translated([&] { return Access::artifact(core::read_artifact(path)); });
}

void Artifact::save(const std::string& path) const {
  translated([&] { core::write_artifact(path, Access::artifact(*this)); });
}

const std::map<std::string, std::string>& Artifact::metadata() const {
  return translated([&]() -> const auto& { return Access::artifact(*this).metadata; });
}

Artifact Artifact::with_metadata(const std::string& key, const std::string& value) const {
  return translated([&] {
    core::Artifact copy = Access::artifact(*this);
    copy.metadata[key] = value;
    return Access::artifact(std::move(copy));
  });
}

std::vector<std::string> Artifact::targets() const {
  return translated([&] {
    std::vector<std::string> names;
    for (const core::Variant& variant : Access::artifact(*this).variants) names.push_back(variant.target);
    return names;
  });
}

Artifact compile(const Program& program, const CompileOptions& options) {
  std::exception_ptr thrown;  // by the caller's function: comes out as it is
  const auto compiled = [&] {
    core::CompileOptions wanted;
    wanted.target = core::spelled_out_target(options.target);
    wanted.opt_level = options.opt_level;
    wanted.precision = core::inference_precision_of(options.precision);
    wanted.skip_passes.insert(options.skip_passes.begin(), options.skip_passes.end());
    if (options.on_stage)
      wanted.on_stage = [&](const core::StageProgress& at) {
        try {
          options.on_stage(std::string(at.stage), static_cast<int64_t>(at.done),
                           static_cast<int64_t>(at.total));
        } catch (...) {
          thrown = std::current_exception();
          throw;
        }
      };
    core::require_param_contents(Access::program(program),
                                 "declare each with its contents: Builder::param(name, contents)");
    return Access::artifact(core::compile(Access::program(program), wanted));
  };
  try {
    return translated(compiled);
  } catch (...) {
    if (thrown != nullptr) std::rethrow_exception(thrown);
    throw;
  }
}

}  // namespace aicf::v1
