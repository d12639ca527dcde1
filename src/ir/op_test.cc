#include "ir/op.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace aicf {
namespace {

TEST(OpTable, EveryRowParsesAndIsConsistent) {
  ASSERT_EQ(op_table().size(), static_cast<size_t>(kOpCount));
  std::set<std::string_view> names;
  for (size_t i = 0; i < op_table().size(); ++i) {
    const OpInfo& info = op_table()[i];
    SCOPED_TRACE(info.name);
    EXPECT_EQ(info.op, static_cast<Op>(i));
    EXPECT_EQ(&op_info(info.op), &info);
    EXPECT_EQ(op_from_name(info.name), info.op);
    EXPECT_TRUE(names.insert(info.name).second);
    EXPECT_FALSE(info.meaning.empty());
    EXPECT_FALSE(info.shape_rule.empty());
    std::set<std::string> operands;
    for (const OperandInfo& operand : info.operands) {
      EXPECT_TRUE(operands.insert(operand.name).second) << operand.name;
      EXPECT_FALSE(operand.optional && operand.variadic) << operand.name;
    }
    for (const AttrInfo& attribute : info.attributes) {
      EXPECT_EQ(info.attribute(attribute.name), &attribute);
      if (attribute.default_value) {
        EXPECT_EQ(attribute.default_value->index(), static_cast<size_t>(attribute.type)) << attribute.name;
      }
    }
    if (info.has(kCommutative)) {
      EXPECT_EQ(info.operands.size(), 2u);
    }
    EXPECT_EQ(info.has(kPointwise), info.shape_rule == "broadcast");
    if (info.has(kHasBody)) {
      EXPECT_EQ(info.results, std::vector<std::string>{"*"});
    }
  }
}

TEST(OpTable, DefaultsHaveTheirAttributesType) {
  EXPECT_EQ(op_info(Op::layer_norm).attribute("epsilon")->default_value, Attr(1e-5));
  EXPECT_EQ(op_info(Op::layer_norm).attribute("axis")->default_value, Attr(int64_t{-1}));
  EXPECT_EQ(op_info(Op::elu).attribute("alpha")->default_value, Attr(1.0));
  EXPECT_EQ(op_info(Op::pad).attribute("mode")->default_value, Attr(std::string("constant")));
  EXPECT_EQ(op_info(Op::matmul).attribute("transpose_x")->default_value, Attr(false));
  EXPECT_EQ(op_info(Op::random_bits).attribute("dtype")->default_value, Attr(DType::i32));
  EXPECT_FALSE(op_info(Op::conv).attribute("strides")->default_value.has_value());
  EXPECT_EQ(op_info(Op::conv).attribute("no_such"), nullptr);
}

TEST(OpTable, OperandsAndResults) {
  const OpInfo& conv = op_info(Op::conv);
  ASSERT_EQ(conv.operands.size(), 3u);
  EXPECT_FALSE(conv.operands[1].optional);
  EXPECT_TRUE(conv.operands[2].optional);
  EXPECT_EQ(conv.operands[2].name, "bias");
  EXPECT_EQ(conv.operands[2].type, "T");
  EXPECT_TRUE(op_info(Op::concat).operands[0].variadic);
  EXPECT_EQ(op_info(Op::sort).results, (std::vector<std::string>{"T", "i64"}));
  EXPECT_EQ(op_info(Op::cast).results, std::vector<std::string>{"@dtype"});
  EXPECT_TRUE(op_info(Op::relu).has(kComposite));
  EXPECT_TRUE(op_info(Op::relu).has(kPointwise));
  EXPECT_FALSE(op_info(Op::reshape).has(kPointwise));
}

TEST(OpTable, UnknownNames) {
  EXPECT_EQ(op_from_name("no_such_op"), std::nullopt);
  EXPECT_EQ(op_from_name(""), std::nullopt);
}

TEST(OpTable, TypeClasses) {
  struct Case {
    std::string_view cls;
    std::set<std::string_view> members;
  };
  const Case cases[] = {
      {"any", {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"}},
      {"number", {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8"}},
      {"float", {"f64", "f32", "f16", "bf16"}},
      {"integer", {"i64", "i32", "i16", "i8", "u8"}},
      {"integer_or_bool", {"i64", "i32", "i16", "i8", "u8", "bool"}},
      {"index", {"i64", "i32"}},
      {"bool", {"bool"}},
      {"i64", {"i64"}},
      {"no_such_class", {}},
  };
  for (const Case& c : cases)
    for (int i = 0; i < kDTypeCount; ++i) {
      const DType dtype = static_cast<DType>(i);
      EXPECT_EQ(dtype_in_class(dtype, c.cls), c.members.count(dtype_name(dtype)) == 1)
          << c.cls << " " << dtype_name(dtype);
    }
}

TEST(Attrs, TypedAccess) {
  const Attrs attrs{
      {"axis", int64_t{2}}, {"epsilon", 0.5}, {"mode", std::string("edge")}, {"axes", Ints{1, 2}}};
  EXPECT_EQ(attrs.get_int("axis"), 2);
  EXPECT_EQ(attrs.get_float("epsilon"), 0.5);
  EXPECT_EQ(attrs.get_str("mode"), "edge");
  EXPECT_EQ(attrs.get_ints("axes"), (Ints{1, 2}));
  EXPECT_THROW(attrs.get_bool("axis"), InternalError);
  EXPECT_THROW(attrs.get_int("absent"), InternalError);
}

}  // namespace
}  // namespace aicf
