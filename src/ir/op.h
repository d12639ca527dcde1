// The op table: ops.def parsed once into rows that builder, verifier, printer, importers, passes and
// generators query.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attr.h"

namespace aicf {

enum class Op : uint16_t {
#define AICF_OP(name, operands, types, attributes, results, traits, shape_rule, meaning) name,
#include "ir/ops.def"
#undef AICF_OP
};

inline constexpr int kOpCount = 0
#define AICF_OP(...) +1
#include "ir/ops.def"
#undef AICF_OP
    ;

enum OpTrait : uint32_t {
  kPointwise = 1 << 0,
  kCommutative = 1 << 1,
  kComposite = 1 << 2,
  kView = 1 << 3,
  kReduction = 1 << 4,
  kHasBody = 1 << 5,
  kRandom = 1 << 6,
};

struct OperandInfo {
  std::string name, type;  // type: a variable ("T"), a class ("index") or a dtype ("i64")
  bool optional = false, variadic = false;
};

struct AttrInfo {
  std::string name;
  AttrType type;
  std::optional<Attr> default_value;  // absent: required
};

struct OpInfo {
  Op op;
  std::string_view name;
  std::vector<OperandInfo> operands;
  std::vector<std::pair<std::string, std::string>> types;  // variable, class
  std::vector<AttrInfo> attributes;
  std::vector<std::string> results;  // "T", "bool", "@dtype", "*"
  uint32_t traits;
  std::string_view shape_rule, meaning;

  bool has(OpTrait trait) const { return (traits & trait) != 0; }
  const AttrInfo* attribute(std::string_view attribute_name) const;
};

const OpInfo& op_info(Op op);
const std::vector<OpInfo>& op_table();
std::optional<Op> op_from_name(std::string_view name);
// Whether a dtype belongs to a class of ops.def ("number", "index", …) or is the named dtype.
bool dtype_in_class(DType dtype, std::string_view type_class);

}  // namespace aicf
