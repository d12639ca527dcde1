// What the tests of this folder share: plans that they run on the null driver, and the code of what a call
// throws.
#pragma once

#include <string>
#include <utility>

#include "artifact/artifact.h"
#include "base/error.h"

namespace aicf {

// kI_check_failed where nothing is thrown.
template <typename Call>
ErrorCode code_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code;
  }
  return ErrorCode::kI_check_failed;
}

inline TensorRef ref(int32_t buffer, Shape sizes) {
  TensorRef r;
  r.buffer = buffer;
  r.strides = row_major_strides(sizes);
  r.sizes = std::move(sizes);
  return r;
}

inline Buffer buffer(BufferKind kind, std::string name, Dim bytes, int64_t max_bytes) {
  Buffer b;
  b.kind = kind;
  b.name = std::move(name);
  b.bytes = bytes;
  b.max_bytes = max_bytes;
  return b;
}

// x [n, 4] → arena → y [n, 4], and a state s [4] that the second step reads.
inline Artifact two_steps() {
  const Dim n = Dim::symbol("n");
  const Shape shape{n, Dim(4)};
  EntryPlan entry;
  entry.name = "main";
  entry.buffers = {
      buffer(BufferKind::kInput, "x", Dim(16) * n, 160), buffer(BufferKind::kArena, "", Dim(16) * n, 160),
      buffer(BufferKind::kVariable, "s", Dim(16), 16), buffer(BufferKind::kOutput, "y", Dim(16) * n, 160)};
  entry.buffers[1].last_step = 1;
  entry.arena_bytes = 192;
  entry.inputs = {{"x", DType::f32, shape, 0}};
  entry.outputs = {{"y", DType::f32, shape, 3}};
  Step first, second;
  first.kernel = "first";
  first.inputs = {ref(0, shape)};
  first.outputs = {ref(1, shape)};
  second.kernel = "second";
  second.inputs = {ref(1, shape), ref(2, {Dim(4)})};
  second.outputs = {ref(3, shape)};
  entry.steps = {first, second};
  Plan plan;
  plan.sizes["n"] = {1, 10};
  plan.variables = {{"s", DType::f32, {Dim(4)}, true}};
  plan.entries = {entry};
  Artifact artifact;
  artifact.variants = {{"cpu", plan}};
  return artifact;
}

}  // namespace aicf
