#include "ir/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace aicf {
namespace {

// Everything the text form has a word for.
Program sample_program() {
  Program program;
  program.sizes = {{"batch", {1, 8}}, {"input.1:0", {0, 3}}};
  program.buckets = {{"batch", {1, 4, 8}}};
  program.metadata = {{"vocabulary", "a\nb\t\"c\\\"\x01\xff é 漢"}, {"", ""}};
  program.variables.emplace("0.W", Variable{"0.W", Role::kParam, {DType::f32, {4, 3}}, {}});
  program.variables.emplace("kv \"k\"",
                            Variable{"kv \"k\"", Role::kState, {DType::f16, {Dim::symbol("batch"), 4}}, {}});

  Graph g("main");
  const Dim batch = Dim::symbol("batch");
  const ValueId x = g.add_input("x", {DType::f32, {batch, 3}});
  const ValueId odd =
      g.add_input("0", {DType::f32, {batch * Dim(2) - Dim(1), floordiv(batch + Dim(3), Dim(2))}});
  const ValueId w = g.add_param("0.W", {DType::f32, {4, 3}});
  const ValueId y = g.add(Op::matmul, {x, w}, {{"transpose_y", true}}, "/layer/MatMul \"quoted\"\n");
  g.set_name(y, "hidden");
  const ValueId k = g.add_state("kv \"k\"", {DType::f16, {batch, 4}});
  const ValueId bias = g.add_constant(Array::from<double>(DType::f32, {4}, {1, -0.0, 0.1, 1e-45}), "bias");
  const ValueId big = g.add_constant(Array::from<double>(DType::f32, {65}, std::vector<double>(65, 0.5)));
  g.add(Op::neg, {big});
  g.add(Op::layer_norm, {y, kNoValue, bias}, {{"epsilon", 1e-12}});
  g.add(Op::layer_norm, {y});
  const NodeId top = g.add_node(Op::top_k, {y}, {{"k", Shape{2}}, {"axis", int64_t{-1}}});
  g.set_name(g.node(top).results[1], "ids");
  Graph body("region");
  const ValueId a = body.add_input("a", {DType::f32, {batch, 4}});
  const ValueId b = body.add_input("", {DType::f32, {4}});
  body.add_output(body.add(Op::add, {a, b}), "sum");
  const NodeId fused = g.add_node(Op::fused, {y, bias}, {{"kind", std::string("norm")}}, {body}, "n");
  const ValueId sum = g.node(fused).results[0];
  g.add(Op::broadcast_to, {odd},
        {{"shape", Shape{2, batch * Dim(2) - Dim(1), floordiv(batch + Dim(3), Dim(2))}}});
  g.add_update(k, g.add(Op::cast, {sum}, {{"dtype", DType::f16}}));
  g.add_output(sum, "logits");
  g.add_output(sum, "again \"x\"");
  program.entries.push_back(std::move(g));
  program.entries.emplace_back("empty entry");
  return program;
}

void expect_round_trip(const Program& program, const PrintOptions& options = {}) {
  const std::string text = print(program, options);
  Program again;
  ASSERT_NO_THROW(again = parse(text, resolver_of(collect_blobs(program)))) << text;
  EXPECT_EQ(print(again, options), text);
}

Program one_constant(Array array) {
  Graph g;
  g.add_output(g.add_constant(std::move(array)), "y");
  Program program;
  program.entries.push_back(std::move(g));
  return program;
}

Array parsed_constant(const Program& program) {
  const Program again = parse(print(program), resolver_of(collect_blobs(program)));
  return again.entries[0].value(again.entries[0].outputs()[0]).constant;
}

UserError failure(const std::string& text) {
  try {
    parse(text);
  } catch (const UserError& error) {
    return error;
  }
  ADD_FAILURE() << "parsed: " << text;
  return UserError(ErrorCode::kU_misuse, "");
}

std::string in_entry(const std::string& statements) {
  return "program {\n  size n in 0..8\n  entry main(%x: f32[2, n]) {\n" + statements +
         "\n    return\n  }\n}\n";
}

TEST(Text, PrintsAsDocumented) {
  EXPECT_EQ(print(sample_program()), R"(program {
  size batch in 1..8 buckets [1, 4, 8]
  size input.1:0 in 0..3
  meta "" = ""
  meta "vocabulary" = "a\nb\x09\"c\\\"\x01\xff é 漢"
  param "0.W" : f32[4, 3]
  state "kv \"k\"" : f16[batch, 4]
  entry main(%x: f32[batch, 3], %"0": f32[2*batch-1, floordiv(batch+1, 2)+1]) {
    %0 = param "0.W" : f32[4, 3]
    %1 = state "kv \"k\"" : f16[batch, 4]
    %2 = constant f32[4] = [1, -0, 0.1, 1e-45] as "bias"
    %3 = constant f32[65] = blob 0x)" + to_string(collect_blobs(sample_program()).begin()->first) +
                                         R"(
    %4 = matmul(%x, %0) {transpose_y = true} : f32[batch, 4] as "hidden" @"/layer/MatMul \"quoted\"\n"
    %5 = neg(%3) : f32[65]
    %6 = layer_norm(%4, none, %2) {axis = 1, epsilon = 1e-12} : f32[batch, 4]
    %7 = layer_norm(%4) {axis = 1} : f32[batch, 4]
    %8, %9 = top_k(%4) {axis = 1, k = [2]} : f32[batch, 2], i64[batch, 2] as "", "ids"
    %10 = fused(%4, %2) {kind = "norm"}
      body(%0: f32[batch, 4] as "a", %1: f32[4] as "") {
        %2 = add(%0, %1) : f32[batch, 4]
        return %2
      } : f32[batch, 4] @"n"
    %11 = broadcast_to(%"0") {shape = [2, 2*batch-1, floordiv(batch+1, 2)+1]} : f32[2, 2*batch-1, floordiv(batch+1, 2)+1]
    %12 = cast(%10) {dtype = f16} : f16[batch, 4]
    update "kv \"k\"" = %12
    return "logits" = %10, "again \"x\"" = %10
  }
  entry "empty entry"() {
    return
  }
}
)");
}

// The program that docs/architecture/ir.md shows.
TEST(Text, TheDocumentedProgramRoundTrips) {
  std::ifstream file(AICF_SOURCE_DIR "/docs/architecture/ir.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string text = page.str(), fence = "```\n";
  const size_t begin = text.find(fence) + fence.size();
  const std::string program = text.substr(begin, text.find(fence, begin) - begin);
  EXPECT_EQ(print(parse(program)), program);
}

TEST(Text, RoundTripsByteForByte) {
  expect_round_trip(sample_program());
  expect_round_trip(sample_program(), {.hints = false, .origins = false});
  expect_round_trip(Program());
}

TEST(Text, KeepsEveryBitOfConstants) {
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const int bytes = dtype_bytes(dtype);
    // Zeros, ones of the mantissa, subnormals, infinities, quiet and signalling NaN with payloads, both
    // signs.
    for (uint64_t seed = 0; seed < 400; ++seed) {
      uint64_t bits = seed * 0x9e3779b97f4a7c15u;
      if (seed < 80) bits = (seed & 1 ? ~uint64_t{0} << (seed / 2) : (uint64_t{1} << (seed / 2 % 64)));
      if (bytes < 8) bits >>= 64 - 8 * bytes;
      Array array(dtype, {1});
      std::memcpy(array.mutable_data(), &bits, static_cast<size_t>(bytes));
      EXPECT_EQ(parsed_constant(one_constant(array)), array) << dtype_name(dtype) << " " << std::hex << bits;
    }
  }
  for (DType dtype : {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8, DType::boolean}) {
    Array array(dtype, {2, 3});
    for (int64_t i = 0; i < 6; ++i)
      array.set_i64(i, i % 2 ? INT64_MIN >> (64 - 8 * dtype_bytes(dtype)) : i * 41);
    EXPECT_EQ(parsed_constant(one_constant(array)), array) << dtype_name(dtype);
  }
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (int64_t first = 0; first < 65536; first += 64) {
      Array array(dtype, {64});
      for (int64_t i = 0; i < 64; ++i)
        array.mutable_data_as<uint16_t>()[i] = static_cast<uint16_t>(first + i);
      ASSERT_EQ(parsed_constant(one_constant(array)), array);
    }
  }
}

TEST(Text, ConstantsOfEverySize) {
  for (int64_t count : {0, 1, 63, 64, 65, 1000}) {
    Array array(DType::i16, {count, 1});
    for (int64_t i = 0; i < count; ++i) array.set_i64(i, i * i);
    EXPECT_EQ(parsed_constant(one_constant(array)), array);
    EXPECT_EQ(print(one_constant(array)).find("blob") != std::string::npos, count > kInlineElements);
  }
  EXPECT_EQ(parsed_constant(one_constant(Array::scalar_i64(DType::i64, -7))).get_i64(0), -7);
}

TEST(Text, KeepsEveryBitOfFloatAttributes) {
  for (double alpha :
       {0.0, -0.0, 0.01, -1e308, 5e-324, 1.0 / 3, std::bit_cast<double>(uint64_t{0xfff8000000000123})}) {
    Graph g;
    g.add_output(g.add(Op::leaky_relu, {g.add_input("x", {DType::f32, {2}})}, {{"alpha", alpha}}), "y");
    Program program;
    program.entries.push_back(std::move(g));
    const Program again = parse(print(program));
    EXPECT_EQ(std::bit_cast<uint64_t>(again.entries[0].node(0).attrs.get_float("alpha")),
              std::bit_cast<uint64_t>(alpha));
    expect_round_trip(program);
  }
}

TEST(Text, ReadsWhatPeopleWrite) {
  const Program program = parse(R"(
    // a comment
    program{size n in 0..4 entry f(%x:f32[n],%y : f32[ n ]){
      %sum=add(%x,%y):f32[n]  // and another
      %lit = constant f16[2] = [0.1, -inf]
      return "z"=%sum}}
  )");
  EXPECT_EQ(print(program), R"(program {
  size n in 0..4
  entry f(%x: f32[n], %y: f32[n]) {
    %0 = constant f16[2] = [0.099975586, -inf]
    %1 = add(%x, %y) : f32[n]
    return "z" = %1
  }
}
)");
}

TEST(Text, AQuotedNameOfLettersIsThePlainOne) {
  const Program program = parse(R"(program {
  entry f(%"x": f32[4], %y: f32[4]) {
    %"7" = add(%x, %"y") : f32[4]
    return "z" = %"7"
  }
}
)");
  EXPECT_EQ(program.entries[0].nodes().size(), 1u);
  EXPECT_EQ(print(parse(print(program))), print(program));
}

TEST(Text, LoneGraphsRoundTrip) {
  const std::string text = print(sample_program().entries[0]);
  EXPECT_EQ(print(parse_graph(text, resolver_of(collect_blobs(sample_program())))), text);
}

TEST(Text, ErrorsNameThePlace) {
  struct Case {
    std::string text;
    ErrorCode code;
    std::string part;
  };
  const ErrorCode bad_text = ErrorCode::kU_bad_text;
  const Case cases[] = {
      {"", bad_text, "line 1, column 1"},
      {"program {", bad_text, "line 1, column 10"},
      {"program {\n  size n in 1..", bad_text, "line 2, column 16"},
      {"program {\n size n in 1..99999999999999999999\n}", bad_text, "line 2, column 15"},
      {"program {\n size n in 1..2\n size n in 1..2\n}", bad_text, "declared twice"},
      {"program {\n size a//b in 1..2\n}", ErrorCode::kU_bad_graph, "name of a size"},
      {"program { meta \"a\" = \"b }", bad_text, "a string has no end"},
      {"program { meta \"a\" = \"b\n\" }", bad_text, "line 1, column 24"},
      {"program { meta \"a\" = \"\\q\" }", bad_text, "unknown escape"},
      {"program { meta \"a\" = \"\\x4\" }", bad_text, "unknown escape"},
      {"program { param \"w\" : f31[2] }", bad_text, "no dtype"},
      {"program { param \"w\" : f32[2 }", bad_text, "column"},
      {"program { param \"w\" : f32[(] }", bad_text, "column 27"},
      {"program { param \"w\" : f32[floordiv(1, 0)] }", ErrorCode::kU_bad_shape, "column 27"},
      {"program { param \"w\" : f32[m] }", ErrorCode::kU_bad_graph, "no declared range"},
      {"program { size n in 3..2 }", ErrorCode::kU_bad_graph, "range"},
      {"program { size n in 1..2 buckets [1] }", ErrorCode::kU_bad_graph, "buckets"},
      {"program { size n in 1..2 buckets 1 }", bad_text, "column"},
      {"program { } x", bad_text, "after the end"},
      {in_entry("%0 = nonsense(%x) : f32[2, n]"), ErrorCode::kU_unknown_op, "line 4, column 6"},
      {in_entry("%0 = neg(%y) : f32[2, n]"), bad_text, "%y"},
      {in_entry("%0 = neg(%0) : f32[2, n]"), bad_text, "not defined before"},
      {in_entry("%0 = neg(%x) : f32[n, 2]"), bad_text, "expected: f32[2, n]"},
      {in_entry("%0 = neg(%x)"), bad_text, "no type"},
      {in_entry("%0, %1 = neg(%x) : f32[2, n]"), bad_text, "number of results"},
      {in_entry("neg(%x) : f32[2, n]"), bad_text, "number of results"},
      {in_entry("%0 = neg(%x) {alpha = 1} : f32[2, n]"), bad_text, "no attribute"},
      {in_entry("%0 = leaky_relu(%x) {alpha = 1, alpha = 2} : f32[2, n]"), bad_text, "given twice"},
      {in_entry("%0 = leaky_relu(%x) {alpha = 1e999} : f32[2, n]"), bad_text, "line 4"},
      {in_entry("%0 = neg(%x, %x) : f32[2, n]"), ErrorCode::kU_bad_operand_count, "line 4, column 6"},
      {in_entry("%0 = erf(%x) : f32[2, n] %0 = erf(%x) : f32[2, n]"), bad_text, "defined twice"},
      {in_entry("%0 = constant f32[100] = [1]"), bad_text, "stand inline"},
      {in_entry("%0 = constant f32[99999999999, 99999999999] = [1]"), ErrorCode::kU_size_overflow, "line 4"},
      {in_entry("%0 = constant f32[2] = [1]"), bad_text, "','"},
      {in_entry("%0 = constant u8[1] = [256]"), bad_text, "element of this type"},
      {in_entry("%0 = constant u8[1] = [-1]"), bad_text, "element of this type"},
      {in_entry("%0 = constant f16[1] = [65536]"), bad_text, "element of this type"},
      {in_entry("%0 = constant f32[1] = [nan:0x00000001]"), bad_text, "element of this type"},
      {in_entry("%0 = constant f32[n] = [1]"), bad_text, "numbers"},
      {in_entry("%0 = constant f32[100] = blob 0x12"), bad_text, "content hash"},
      {in_entry("%0 = constant f32[100] = blob 0x0123456789abcdef0123456789abcdef"), bad_text, "not at hand"},
      {in_entry("%0 = param \"w\" : f32[2]"), ErrorCode::kU_bad_graph, "no param"},
      {in_entry("update \"w\" = %x"), bad_text, "not read"},
  };
  for (const Case& c : cases) {
    const UserError error = failure(c.text);
    EXPECT_EQ(error.code, c.code) << c.text << "\n" << error.text();
    EXPECT_NE(error.text().find(c.part), std::string::npos) << c.text << "\n" << error.text();
  }
}

TEST(Text, NestingIsBounded) {
  std::string open = "program { entry main(%x: f32[]) {\n", close;
  for (int i = 0; i < 200000; ++i) open += "%0 = call(%x) {name = \"f\"} body(%x: f32[]) {";
  EXPECT_NE(failure(open).text().find("nested too deeply"), std::string::npos);
  EXPECT_EQ(failure("program { param \"w\" : f32[" + std::string(200000, '(') + "] }").code,
            ErrorCode::kU_bad_text);
}

TEST(Text, DeepestLegalNestingRoundTrips) {
  Graph inner("body");
  inner.add_output(inner.add_input("x", {DType::f32, {}}), "");
  for (int depth = 0; depth < kMaxBodyDepth; ++depth) {
    Graph outer("body");
    const ValueId x = outer.add_input("x", {DType::f32, {}});
    const NodeId node = outer.add_node(Op::call, {x}, {{"name", std::string("f")}}, {std::move(inner)});
    outer.add_output(outer.node(node).results[0], "y");
    inner = std::move(outer);
  }
  Program program;
  program.entries.push_back(std::move(inner));
  expect_round_trip(program);
}

TEST(Text, SizeExpressionsCannotExplode) {
  std::string product = "1";
  for (int i = 0; i < 60; ++i) product += "*(a" + std::to_string(i) + "+1)";
  EXPECT_EQ(failure("program { param \"w\" : f32[" + product + "] }").code, ErrorCode::kU_size_overflow);
}

// No byte of a text, cut or changed, may do more than throw a UserError.
TEST(Text, DamagedTextOnlyThrows) {
  const Program program = sample_program();
  const std::string text = print(program);
  const BlobResolver blobs = resolver_of(collect_blobs(program));
  uint64_t random = 1;
  const auto attempt = [&](const std::string& damaged) {
    try {
      parse(damaged, blobs);
    } catch (const UserError&) {
    }
  };
  for (size_t cut = 0; cut < text.size(); cut += 3) attempt(text.substr(0, cut));
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (int k = 0; k < 2; ++k) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      const size_t at = (random >> 33) % damaged.size();
      switch ((random >> 20) % 3) {
        case 0:
          damaged[at] = text[(random >> 40) % text.size()];
          break;
        case 1:
          damaged.erase(at, 1 + (random >> 50) % 5);
          break;
        default:
          damaged.insert(at, text.substr((random >> 35) % text.size(), 1 + (random >> 52) % 12));
          break;
      }
    }
    attempt(damaged);
  }
}

// Work that grows with the square of the text would outlast the time that a test program has.
TEST(Text, ReadsHundredsOfThousandsOfNodes) {
  constexpr int kNodes = 200000;
  std::string text = "program { entry main(%x: f32[4]) {\n%0 = neg(%x) : f32[4]\n";
  for (int i = 1; i < kNodes; ++i)
    text += "%" + std::to_string(i) + " = neg(%" + std::to_string(i - 1) + ") : f32[4]\n";
  text += "return";
  for (int i = 0; i < kNodes; ++i)
    text += (i ? ", \"" : " \"") + std::to_string(i) + "\" = %" + std::to_string(i);
  text += " } }";
  EXPECT_EQ(parse(text).entries[0].nodes().size(), static_cast<size_t>(kNodes));
}

}  // namespace
}  // namespace aicf
