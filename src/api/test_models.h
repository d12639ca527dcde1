// Models that the API's tests and nothing else use, built through the public API.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aicf/aicf.h"

namespace aicf_test {

// Deterministic values in -1..1.
inline aicf::Tensor pattern(std::vector<int64_t> sizes, int64_t seed) {
  aicf::Tensor tensor(aicf::DType::f32, std::move(sizes));
  for (int64_t i = 0; i < tensor.count(); ++i)
    tensor.as<float>()[i] = static_cast<float>((i * 37 + seed * 101) % 64 - 32) / 32;
  return tensor;
}

// y = gelu(x W + b) V', x: f32[batch, 16], batch 1..64, y: f32[batch, 8]; metadata "vocabulary".
inline aicf::Program mlp() {
  aicf::Builder b;
  const aicf::Size batch = b.size("batch", 1, 64);
  const aicf::Value x = b.input("x", aicf::DType::f32, {batch, 16});
  const aicf::Value h =
      b.op("linear", {x, b.param("0.W", pattern({16, 32}, 1)), b.param("0.b", pattern({32}, 2))});
  b.output("y",
           b.op("matmul", {b.op("gelu", {h}), b.param("1.W", pattern({8, 32}, 3))}, {{"transpose_y", true}}));
  b.metadata("vocabulary", std::string("[PAD]\nhello\n"));
  return b.finish();
}

// total += x; gives the total before. x, total: f32[4].
inline aicf::Program counter() {
  aicf::Builder b;
  const aicf::Value x = b.input("x", aicf::DType::f32, {4});
  const aicf::Value total = b.state("total", aicf::Tensor(aicf::DType::f32, {4}));
  b.output("before", b.op("mul", {total, b.scalar(aicf::DType::f32, 1)}));
  b.update(total, b.op("add", {total, x}));
  return b.finish();
}

inline std::string save(const aicf::Program& program, const std::string& name) {
  const std::string path = ::testing::TempDir() + "/api_" + name + ".aicf";
  aicf::compile(program).save(path);
  return path;
}

// The code of the error that a function throws, "" if it throws none.
template <typename Kind = aicf::UserError, typename F>
std::string code_of(F&& function) {
  try {
    function();
  } catch (const Kind& error) {
    EXPECT_NE(std::string(error.what()).find(error.code()), std::string::npos);
    EXPECT_FALSE(error.message().empty());
    return error.code();
  }
  return "";
}

}  // namespace aicf_test
