#include <gtest/gtest.h>

#include <fstream>

#include "test_models.h"

namespace {

using aicf::Attributes;
using aicf::Builder;
using aicf::DType;
using aicf::Size;
using aicf::Tensor;
using aicf_test::code_of;

TEST(SizeTest, IsCanonicalText) {
  const Size n("n");
  EXPECT_EQ(n + n, Size("2*n"));
  EXPECT_EQ((n + 1) * 2 - n, Size("n + 2"));
  EXPECT_EQ(floordiv(n * 4, 2), n * 2);
  EXPECT_FALSE(n.is_constant());
  EXPECT_EQ((Size(3) + 4).value(), 7);
  EXPECT_EQ(code_of([&] { n.value(); }), "AICF-U0203");
  EXPECT_EQ(code_of([] { Size("2 *"); }), "AICF-U0106");
}

TEST(TensorTest, OwnsSharesAndClones) {
  Tensor a = Tensor::from<float>({2, 2}, {1, 2, 3, 4});
  Tensor shared = a, copy = a.clone();
  a.as<float>()[0] = 9;
  EXPECT_EQ(shared.as<float>()[0], 9);
  EXPECT_EQ(copy.as<float>()[0], 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  EXPECT_NE(a, copy);
  EXPECT_EQ(Tensor(DType::i64, {3, 0}).bytes(), 0);
  EXPECT_EQ(code_of([&] { a.as<int32_t>(); }), "AICF-U0104");
  EXPECT_EQ(code_of([] { Tensor::from<float>({3}, {1, 2}); }), "AICF-U0103");
  EXPECT_EQ(code_of([] { Tensor(DType::f32, {-1}); }), "AICF-U0103");
  EXPECT_EQ(code_of([] { Tensor(DType::f64, {int64_t{1} << 62, 4}); }), "AICF-U0107");
}

TEST(TensorTest, CopiesAStridedView) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(Tensor(aicf::TensorView(values, DType::f32, {3, 2}, {1, 3})),
            Tensor::from<float>({3, 2}, {1, 4, 2, 5, 3, 6}));
}

TEST(TensorTest, DtypesHaveNames) {
  EXPECT_EQ(aicf::dtype_name(DType::boolean), "bool");
  EXPECT_EQ(aicf::dtype_from_name("bf16"), DType::bf16);
  EXPECT_EQ(code_of([] { aicf::dtype_from_name("f31"); }), "AICF-U0104");
}

TEST(BuilderTest, InfersSymbolicSizesAndRoundTripsText) {
  Builder b;
  const Size n = b.size("n", 1, 8);
  const aicf::Value x = b.input("x", DType::f32, {n, 6});
  const aicf::Value y = b.op("reshape", {x}, {{"shape", {n * 2, 3}}});
  EXPECT_EQ(b.sizes(y), (std::vector<Size>{"2*n", 3}));
  EXPECT_EQ(b.dtype(y), DType::f32);
  b.output("y", b.op("reduce_sum", {y}, {{"axes", {-1}}, {"keepdims", true}}));
  const aicf::Program program = b.finish();
  EXPECT_EQ(aicf::Program::parse(program.text()).text(), program.text());
  EXPECT_EQ(program.entries(), std::vector<std::string>{"main"});
}

TEST(BuilderTest, GivesAllResultsOfAnOp) {
  Builder b;
  const auto results = b.op_results("top_k", {b.input("x", DType::f32, {9})}, {{"k", {4}}, {"axis", 0}});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(b.dtype(results[1]), DType::i64);
  EXPECT_EQ(b.sizes(results[0]), std::vector<Size>{4});
}

TEST(BuilderTest, RefusesWhatMeansNothing) {
  Builder b, other;
  const aicf::Value x = b.input("x", DType::f32, {4, 4}), w = b.input("w", DType::f32, {5, 5}),
                    i = b.input("i", DType::i64, {4, 4});
  EXPECT_EQ(code_of([&] { b.op("matmul", {x, w}); }), "AICF-U0103");
  EXPECT_EQ(code_of([&] { b.op("add", {x, i}); }), "AICF-U0104");
  EXPECT_EQ(code_of([&] { b.op("matmull", {x, w}); }), "AICF-U0100");
  EXPECT_EQ(code_of([&] { b.op("add", {x}); }), "AICF-U0101");
  EXPECT_EQ(code_of([&] { b.op("matmul", {x, x}, {{"transpose", true}}); }), "AICF-U0102");
  EXPECT_EQ(code_of([&] { b.input("x", DType::f32, {1}); }), "AICF-U0105");
  EXPECT_EQ(code_of([&] { b.variable("nobody"); }), "AICF-U0406");
  EXPECT_EQ(code_of([&] { b.size("n", 5, 2); }), "AICF-U0001");
  EXPECT_EQ(code_of([&] { b.op("sort", {x}, {{"axis", 1}}); }), "AICF-U0004");
  EXPECT_EQ(code_of([&] { other.output("y", x); }), "AICF-U0105");
  EXPECT_EQ(code_of([&] { b.entry("main"); }), "AICF-U0105");
}

TEST(BuilderTest, NamesOpValueExpectedAndActual) {
  Builder b;
  try {
    b.op("matmul", {b.input("x", DType::f32, {2, 3}), b.input("y", DType::f32, {4, 5})});
    FAIL() << "3 and 4 do not fit";
  } catch (const aicf::Error& error) {
    EXPECT_NE(error.op().find("matmul"), std::string::npos) << error.what();
    EXPECT_FALSE(error.expected().empty() && error.actual().empty()) << error.what();
  }
}

TEST(ImportTest, SaysWhatIsWrongWithAModelFile) {
  EXPECT_EQ(code_of([] { aicf::import_onnx("no/such/model.onnx"); }), "AICF-U0003");
  const std::string path = ::testing::TempDir() + "/api_broken.onnx";
  std::ofstream(path, std::ios::binary) << "this is not protobuf";
  EXPECT_EQ(code_of([&] { aicf::import_onnx(path); }), "AICF-U0300");
  aicf::ImportOptions options;
  options.dims["batch"] = "8..";
  EXPECT_EQ(code_of([&] { aicf::import_onnx(path, options); }), "AICF-U0001");
}

TEST(CompileTest, RefusesUnknownTargetsAndLevels) {
  aicf::CompileOptions options;
  options.target = "tpu";
  EXPECT_EQ(code_of([&] { aicf::compile(aicf_test::mlp(), options); }), "AICF-U0601");
  options = {};
  options.opt_level = 7;
  EXPECT_EQ(code_of([&] { aicf::compile(aicf_test::mlp(), options); }), "AICF-U0001");
  EXPECT_EQ(code_of([] { aicf::compile(aicf::Program()); }), "AICF-U0004");
}

TEST(VersionTest, IsThatOfTheProject) { EXPECT_STREQ(aicf::version(), AICF_PROJECT_VERSION); }

}  // namespace
