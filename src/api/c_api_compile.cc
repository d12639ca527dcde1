// Compiling from C.
#include "api/c_bridge.h"

#include <string_view>

#include "compile/compile.h"
#include "import/onnx.h"

struct aicf_artifact {
  aicf::v1::Artifact artifact;
};

namespace {

core::ImportOptions import_options(const aicf_compile_options& options) {
  core::ImportOptions result;
  if (options.dim_count < 0)
    throw core::UserError(core::ErrorCode::kU_misuse, "a count is negative").with_value("dim_count");
  for (int32_t i = 0; i < options.dim_count; ++i) {
    const std::string_view dim = &aicf::c::need((&aicf::c::need(options.dims, "dims"))[i], "dims");
    const size_t at = dim.rfind('=');
    if (at == std::string_view::npos || at == 0)
      throw core::UserError(core::ErrorCode::kU_bad_option, "a size is not of the form NAME=RANGE")
          .with_value(std::string(dim))
          .with_remedy("write for example \"batch=1..8\"");
    const std::string name(dim.substr(0, at));
    if (!result.dims.emplace(name, core::parse_dim_option(dim.substr(at + 1))).second)
      throw core::UserError(core::ErrorCode::kU_bad_option, "a size is given twice").with_value(name);
  }
  return result;
}

// `import` gets the core's options and gives the program.
template <typename Import>
aicf_status compile_onnx(const aicf_compile_options* given, aicf_artifact** result, Import import) {
  return aicf::c::guarded([&] {
    aicf::c::need(result, "result") = nullptr;
    const aicf_compile_options options = given != nullptr ? *given : aicf_compile_options{};
    aicf::v1::CompileOptions wanted;
    if (options.target != nullptr) wanted.target = options.target;
    if (options.precision != nullptr) wanted.precision = options.precision;
    if (options.unoptimised != 0) wanted.opt_level = 0;
    const aicf::v1::Program program = aicf::v1::Access::program(import(import_options(options)));
    *result = new aicf_artifact{aicf::v1::compile(program, wanted)};
  });
}

}  // namespace

extern "C" {

aicf_status aicf_compile_onnx_file(const char* path, const aicf_compile_options* options,
                                   aicf_artifact** result) {
  return compile_onnx(options, result, [&](const core::ImportOptions& import) {
    return core::import_onnx(&aicf::c::need(path, "path"), import);
  });
}

aicf_status aicf_compile_onnx_memory(const void* data, size_t bytes, const aicf_compile_options* options,
                                     aicf_artifact** result) {
  return compile_onnx(options, result, [&](const core::ImportOptions& import) {
    const auto* text = static_cast<const char*>(data);
    return core::import_onnx_bytes({&aicf::c::need(text, "data"), bytes}, import);
  });
}

aicf_status aicf_artifact_save(const aicf_artifact* artifact, const char* path) {
  return aicf::c::guarded(
      [&] { aicf::c::need(artifact, "artifact").artifact.save(&aicf::c::need(path, "path")); });
}

aicf_status aicf_artifact_load(const aicf_artifact* artifact, const char* device, int32_t threads,
                               int64_t memory_limit, aicf_executable** result) {
  return aicf::c::guarded([&] {
    aicf::c::need(result, "result") = nullptr;
    aicf::v1::LoadOptions options;
    options.threads = threads;
    options.device = &aicf::c::need(device, "device");
    options.device_memory_limit = memory_limit;
    const aicf::v1::Model model(aicf::c::need(artifact, "artifact").artifact, options);
    *result = new aicf_executable(aicf::v1::Executable(model));
  });
}

aicf_status aicf_artifact_free(aicf_artifact* artifact) {
  return aicf::c::guarded([&] { delete artifact; });
}

}  // extern "C"
