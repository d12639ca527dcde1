// Each composite against its decomposition, both run by the reference evaluator, whose composites have
// formulas of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/splitmix.h"
#include "ir/decompose.h"
#include "ir/reference/compare.h"
#include "ir/reference/evaluator.h"
#include "ir/testing/decompose_cases.h"
#include "ir/text.h"

namespace aicf {
namespace {

using testing::CaseOperand;
using testing::decompose_cases;
using testing::DecomposeCase;
using testing::OperandKind;

// Values on which careless formulas overflow, cancel or give NaN. Their squares fit in f32.
double nasty_value(SplitMix& random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double values[] = {0.0, -0.0, 1e4,       -1e4,       1e-7,       -1e-7,       89,
                           -89, 104,  kInfinity, -kInfinity, -kInfinity, std::nan("")};
  return values[random.next() % std::size(values)];
}

// Only every `sparsity`-th element is nasty, or whole reductions would drown in NaN; 0 means none.
Array random_array(const CaseOperand& operand, DType dtype, SplitMix& random, uint64_t sparsity) {
  Array array(testing::operand_dtype(operand, dtype), operand.sizes);
  for (int64_t i = 0; i < array.count(); ++i) {
    if (is_float(array.dtype())) {
      const bool nasty = operand.nasty && sparsity != 0 && random.next() % sparsity == 0;
      array.set_f64(i, nasty ? nasty_value(random) : operand.lo + (operand.hi - operand.lo) * random.unit());
    } else {
      const auto span = static_cast<uint64_t>(operand.hi - operand.lo + 1);
      array.set_i64(i, static_cast<int64_t>(operand.lo) + static_cast<int64_t>(random.next() % span));
    }
  }
  return array;
}

struct Tolerance {
  double rtol, atol;
};

// A few roundings of the dtype that is computed in; for f16 and bf16, computed in f32, one rounding of the
// result.
Tolerance tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {1e-12, 1e-12};
    case DType::f16:
      return {1.01 * 0x1p-10, 1e-6};
    case DType::bf16:
      return {1.01 * 0x1p-7, 1e-6};
    default:
      return {1e-5, 3e-6};
  }
}

void check(const DecomposeCase& test, DType dtype, bool symbolic, uint64_t seed, uint64_t sparsity) {
  const Program program = testing::both_forms(test, dtype, symbolic);
  SplitMix random(seed);
  EvalInputs inputs;
  for (size_t i = 0; i < test.operands.size(); ++i)
    if (test.operands[i].kind != OperandKind::kAbsent)
      inputs.inputs["x" + std::to_string(i)] = random_array(test.operands[i], dtype, random, sparsity);
  // A size that stands only in an attribute, as the depth of one_hot does, is bound by hand.
  for (const auto& [value, name] : test.symbols)
    if (symbolic && program.sizes.contains(name)) inputs.sizes[name] = value;
  const EvalResult result = evaluate(program, program.entries[0], inputs);
  const Tolerance allowed = tolerance(dtype);
  for (size_t i = 0; i < program.entries[0].node(0).results.size(); ++i) {
    const Array& whole = result.outputs.at("whole" + std::to_string(i));
    const Array& parts = result.outputs.at("parts" + std::to_string(i));
    const CompareReport report = compare(parts, whole, test.slack * allowed.rtol, test.slack * allowed.atol);
    EXPECT_TRUE(report.ok()) << test.name << " " << dtype_name(dtype) << " seed " << seed << " result " << i
                             << ": " << to_string(report) << "\n"
                             << print(program);
  }
}

TEST(DecomposeReference, EqualsTheCompositeOnOrdinaryValues) {
  for (const DecomposeCase& test : decompose_cases())
    for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
      for (bool symbolic : {false, true})
        for (uint64_t seed = 1; seed <= 3; ++seed) check(test, dtype, symbolic, seed, 0);
}

TEST(DecomposeReference, EqualsTheCompositeOnNastyValues) {
  for (const DecomposeCase& test : decompose_cases())
    for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
      for (uint64_t seed = 1; seed <= 8; ++seed)
        for (uint64_t sparsity : {2, 20, 100}) check(test, dtype, false, seed, sparsity);
}

// In f64 inside, where no last bit decides how an operand is rounded.
TEST(DecomposeReference, EqualsTheCompositeInTf32) {
  const auto kinds = [](std::initializer_list<std::vector<int64_t>> sizes) {
    std::vector<CaseOperand> operands;
    for (const std::vector<int64_t>& x : sizes) operands.push_back({OperandKind::kFloat, x});
    return operands;
  };
  const std::vector<int64_t> q{2, 6, 5, 8}, k{2, 3, 7, 8}, v{2, 3, 7, 6}, out{2, 6, 5, 6};
  for (const bool causal : {false, true})
    for (const bool tf32 : {false, true})
      for (const auto& [op, operands] :
           {std::pair(Op::attention, kinds({q, k, v})), std::pair(Op::attention_lse, kinds({q, k, v})),
            std::pair(Op::attention_backward, kinds({q, k, v, out, out}))}) {
        const Attrs attrs = {
            {"scale", 0.35}, {"causal", causal}, {"softcap", causal ? 2.5 : 0.0}, {"tf32", tf32}};
        const Program program = testing::both_forms({"", op, operands, attrs, {}}, DType::f32, false);
        const Program plain = testing::both_forms(
            {"", op, operands, {{"scale", 0.35}, {"causal", causal}, {"softcap", causal ? 2.5 : 0.0}}, {}},
            DType::f32, false);
        SplitMix random(7);
        EvalInputs inputs;
        for (size_t i = 0; i < operands.size(); ++i)
          inputs.inputs["x" + std::to_string(i)] = random_array(operands[i], DType::f32, random, 0);
        const auto got = evaluate(program, program.entries[0], inputs, {false}).outputs;
        const auto in_f32 = evaluate(plain, plain.entries[0], inputs, {false}).outputs;
        EXPECT_TRUE(compare(got.at("parts0"), got.at("whole0"), 1e-6, 1e-6).ok()) << op_info(op).name;
        EXPECT_EQ(compare(got.at("whole0"), in_f32.at("whole0"), 1e-5, 1e-5).ok(), !tf32) << op_info(op).name;
        for (const std::string i : {"1", "2"}) {
          if (!got.contains("parts" + i)) continue;
          EXPECT_TRUE(compare(got.at("parts" + i), got.at("whole" + i), 1e-6, 1e-6).ok())
              << op_info(op).name << i;
        }
      }
}

TEST(DecomposeReference, LabelsThatAreNoClassFail) {
  const DecomposeCase test{
      "", Op::cross_entropy, {{OperandKind::kFloat, {2, 3}}, {OperandKind::kIndex, {2}}}, {}, {}};
  Program program = testing::both_forms(test, DType::f32, false);
  // The decomposition alone: the composite would fail first.
  GraphRewriter rewriter(program.entries[0]);
  const Node& whole = program.entries[0].node(0);
  rewriter.map(whole.results[0], decompose(rewriter.graph(), whole, rewriter.values(whole.operands))[0]);
  for (size_t i = 1; i < program.entries[0].nodes().size(); ++i) rewriter.copy(program.entries[0].nodes()[i]);
  program.entries = {rewriter.finish()};
  for (const Node& node : program.entries[0].nodes()) ASSERT_FALSE(op_info(node.op).has(kComposite));
  for (int64_t label : {-1, 3, -4}) {
    EvalInputs inputs;
    inputs.inputs["x0"] = Array(DType::f32, {2, 3});
    inputs.inputs["x1"] = Array::from<int64_t>(DType::i64, {2}, {0, label});
    EXPECT_THROW(evaluate(program, program.entries[0], inputs), UserError) << label;
  }
}

}  // namespace
}  // namespace aicf
