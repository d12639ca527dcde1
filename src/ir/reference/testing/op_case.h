// Test support: a table row gives an op's operands, attributes and expected results, all as numbers written
// by hand; the operands without a dtype of their own are run in every dtype of the op's class T. Each test
// file has one table; the coverage test demands a row for every op of ops.def.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf {

struct CaseTensor {
  std::vector<int64_t> sizes;
  std::vector<double> values;
  std::optional<DType> dtype;  // absent: T
  bool absent = false;         // an optional operand left out
};

// A tensor of dtype T, one of a fixed dtype, and an operand left out.
CaseTensor t(std::vector<int64_t> sizes, std::vector<double> values);
CaseTensor of(DType dtype, std::vector<int64_t> sizes, std::vector<double> values);
CaseTensor nothing();
CaseTensor t(double scalar);
CaseTensor i64(std::vector<int64_t> sizes, std::vector<double> values);
CaseTensor boolean(std::vector<int64_t> sizes, std::vector<double> values);

struct OpCase {
  Op op;
  std::vector<CaseTensor> operands;
  Attrs attrs;
  std::vector<CaseTensor> expected;
  std::vector<DType> dtypes = {};  // what T stands for; empty: every dtype of its class
  std::vector<Graph> bodies = {};
};

inline const double kInf = __builtin_inf();
inline const double kNan = __builtin_nan("");
inline const std::vector<DType> kFloats = {DType::f64, DType::f32, DType::f16, DType::bf16};
inline const std::vector<DType> kWideFloats = {DType::f64, DType::f32};
inline const std::vector<DType> kSignedInts = {DType::i64, DType::i32, DType::i16, DType::i8};
inline const std::vector<DType> kSigned = {DType::f64, DType::f32, DType::f16, DType::bf16,
                                           DType::i64, DType::i32, DType::i16, DType::i8};
inline const std::vector<DType> kNumbers = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64,
                                            DType::i32, DType::i16, DType::i8,  DType::u8};

// One node over operands given as arrays (a default Array: absent), through evaluate().
std::vector<Array> run_op(Op op, const std::vector<Array>& operands, const Attrs& attrs = {},
                          const std::vector<Graph>& bodies = {}, bool round_to_dtype = true);
// Runs the row in each dtype, rounded and as an f64 run, and expects its results: exactly for integers, to
// one unit of the dtype's precision for floats.
void expect_case(const OpCase& row);

std::vector<OpCase> pointwise_cases();
std::vector<OpCase> views_cases();
std::vector<OpCase> indexing_cases();
std::vector<OpCase> reductions_cases();
std::vector<OpCase> order_cases();
std::vector<OpCase> contractions_cases();
std::vector<OpCase> windows_cases();
std::vector<OpCase> random_cases();
std::vector<OpCase> control_flow_cases();
std::vector<OpCase> composites_cases();

}  // namespace aicf
