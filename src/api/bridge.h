// Between the public types and the internals: conversions both ways, the Impl structs, translation of errors.
// Every source file of this folder includes it first, because it decides how the public headers declare their
// namespace (README.md).
#pragma once

#define AICF_BUILDING_API
#include "aicf/aicf.h"

#include <atomic>
#include <exception>
#include <functional>

#include "artifact/artifact.h"
#include "base/array.h"
#include "base/error.h"
#include "ir/graph.h"
#include "runtime/executable.h"
#include "runtime/model.h"

namespace aicf::v1 {

namespace core = ::aicf;

// Rethrows the exception being handled as one of the public types.
[[noreturn]] void rethrow_public();

// Runs a function so that only public errors leave it.
template <typename F>
decltype(auto) translated(F&& function) {
  try {
    return function();
  } catch (...) {
    rethrow_public();
  }
}

struct Program::Impl {
  core::Program program;
};

struct Artifact::Impl {
  core::Artifact artifact;
};

struct Model::Impl {
  std::shared_ptr<const core::Model> model;
};

struct Executable::Impl {
  explicit Impl(Model m, std::unique_ptr<core::Executable> e)
      : model(std::move(m)), executable(std::move(e)) {}
  Model model;
  std::unique_ptr<core::Executable> executable;
  // Views handed inwards, kept so that a run allocates nothing; guarded by `running`.
  std::vector<core::TensorView> inputs, outputs;
  std::atomic_flag running = ATOMIC_FLAG_INIT;
};

// The way to the private parts of the public classes.
struct Access {
  static Tensor tensor(const core::Array& array);
  // Shares the tensor's memory.
  static core::Array array(const Tensor& tensor);
  static DeviceTensor device_tensor(core::DeviceTensor tensor);

  static Program program(core::Program program);
  static const core::Program& program(const Program& program);
  static Artifact artifact(core::Artifact artifact);
  static const core::Artifact& artifact(const Artifact& artifact);
  static Model model(std::shared_ptr<const core::Model> model);
  static const std::shared_ptr<const core::Model>& model(const Model& model);
  static core::Executable& executable(Executable& executable);
  static Schedule schedule(core::Graph graph);
  static const core::Graph& schedule(const Schedule& schedule);
  // Appends to the entry that the builder is at: `add` gets its graph and the values' ids there.
  static Value append(
      Builder& builder, const std::vector<Value>& values,
      const std::function<core::ValueId(core::Graph&, const std::vector<core::ValueId>&)>& add);
};

core::DType to_core(DType dtype);
DType to_public(core::DType dtype);
Size to_public(const core::Dim& dim);
core::Dim to_core(const Size& size);
core::Shape to_core(const std::vector<Size>& sizes);
// Overwrites `out` without allocating if its vectors are large enough. UserError for a view that no run could
// read: negative sizes, as many strides as axes missing, elements but no address. `what` names it in the
// message.
void assign(core::TensorView& out, const TensorView& view, bool needs_data = true);
// Of host memory; row-major memory is shared, other is copied. misuse for a view of device memory.
core::Array to_array(const TensorView& view);

}  // namespace aicf::v1
