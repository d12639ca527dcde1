// PTX of a custom op: what is refused before the driver sees it.
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/common/custom_kernel.h"

namespace aicf {
namespace {

CustomCuda custom(const std::string& function) {
  CustomCuda op;
  op.function = function;
  op.operands = 1;
  op.text = "// made by hand\n.version 8.0\n.target sm_80\n.visible .entry f(.param .u64 x)\n{\n\tret;\n}\n";
  return op;
}

std::string refusal(const CustomCuda& op, int arch) {
  try {
    custom_ptx_code(op, arch);
  } catch (const UserError& error) {
    return error.message;
  }
  return "";
}

TEST(CustomPtx, WhatItDefinesIsTaken) {
  EXPECT_EQ(refusal(custom("f"), 80), "");
  EXPECT_EQ(refusal(custom("f"), 90), "");
  EXPECT_NE(custom_ptx_code(custom("f"), 90).source.find("griddepcontrol.wait"), std::string::npos);
}

TEST(CustomPtx, WhatItLacksIsNamed) {
  EXPECT_NE(refusal(custom("g"), 80).find("does not define its function"), std::string::npos);
  EXPECT_NE(refusal(custom(""), 80).find("does not define its function"), std::string::npos);
  EXPECT_NE(refusal(custom("f"), 75).find("later architecture"), std::string::npos);
  CustomCuda op = custom("f");
  op.operands = 2;
  EXPECT_NE(refusal(op, 80).find("too few parameters"), std::string::npos);
}

}  // namespace
}  // namespace aicf
