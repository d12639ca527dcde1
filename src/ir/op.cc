#include "ir/op.h"

#include <charconv>
#include <unordered_map>

#include "base/error.h"
#include "ir/rounding.h"

namespace aicf {
namespace {

struct Row {
  Op op;
  std::string_view name, operands, types, attributes, results;
  uint32_t traits;
  std::string_view shape_rule, meaning;
};

constexpr Row kRows[] = {
#define AICF_OP(name, operands, types, attributes, results, traits, shape_rule, meaning) \
  {Op::name, #name, operands, types, attributes, results, traits, #shape_rule, meaning},
#include "ir/ops.def"
#undef AICF_OP
};

[[noreturn]] void malformed(std::string_view op, std::string_view text, const std::string& why) {
  throw InternalError(ErrorCode::kI_check_failed, "ops.def: " + why)
      .with_op(std::string(op))
      .with_actual(std::string(text));
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Items between commas that stand outside brackets; "" has none.
std::vector<std::string_view> split_items(std::string_view text) {
  std::vector<std::string_view> items;
  if (trim(text).empty()) return items;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += (c == '[') - (c == ']');
    if (c != ',' || (depth != 0 && i < text.size())) continue;
    items.push_back(trim(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return items;
}

std::pair<std::string_view, std::string_view> split_colon(std::string_view op, std::string_view item) {
  const size_t colon = item.find(':');
  const std::string_view name = trim(item.substr(0, colon));
  if (colon == std::string_view::npos || name.empty()) malformed(op, item, "expected name:type");
  return {name, trim(item.substr(colon + 1))};
}

bool remove_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

template <typename T>
T parse_number(std::string_view op, std::string_view text) {
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) malformed(op, text, "not a number");
  return value;
}

AttrType parse_attr_type(std::string_view op, std::string_view text) {
  static constexpr std::string_view kNames[] = {"int",  "float",  "bool",  "str",
                                                "ints", "floats", "dtype", "dims"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (text == kNames[i]) return static_cast<AttrType>(i);
  malformed(op, text, "unknown attribute type");
}

std::vector<std::string_view> split_list(std::string_view op, std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']'))
    malformed(op, text, "a list default stands in brackets");
  return split_items(text.substr(1, text.size() - 2));
}

Attr parse_default(std::string_view op, AttrType type, std::string_view text) {
  switch (type) {
    case AttrType::kInt:
      return parse_number<int64_t>(op, text);
    case AttrType::kFloat:
      return parse_number<double>(op, text);
    case AttrType::kBool:
      if (text != "true" && text != "false") malformed(op, text, "a bool default is true or false");
      return text == "true";
    case AttrType::kStr:
      return std::string(text);
    case AttrType::kInts: {
      Ints values;
      for (std::string_view item : split_list(op, text)) values.push_back(parse_number<int64_t>(op, item));
      return values;
    }
    case AttrType::kFloats: {
      Floats values;
      for (std::string_view item : split_list(op, text)) values.push_back(parse_number<double>(op, item));
      return values;
    }
    case AttrType::kDType: {
      const auto dtype = dtype_from_name(text);
      if (!dtype) malformed(op, text, "unknown dtype");
      return *dtype;
    }
    case AttrType::kDims: {
      Shape sizes;
      for (std::string_view item : split_list(op, text)) sizes.push_back(Dim::parse(item));
      return sizes;
    }
  }
  malformed(op, text, "unknown attribute type");
}

bool is_class(std::string_view text) {
  for (std::string_view name : {"any", "number", "float", "integer", "bool", "integer_or_bool", "index"})
    if (text == name) return true;
  return dtype_from_name(text).has_value();
}

void parse_operands(OpInfo& info, std::string_view text) {
  for (std::string_view item : split_items(text)) {
    auto [name, type] = split_colon(info.name, item);
    OperandInfo operand;
    operand.optional = remove_suffix(type, "?");
    operand.variadic = remove_suffix(type, "...");
    operand.name = name;
    operand.type = type;
    if (!info.operands.empty() && info.operands.back().variadic)
      malformed(info.name, text, "a variadic operand stands last");
    if (!info.operands.empty() && info.operands.back().optional && !operand.optional)
      malformed(info.name, text, "a required operand follows an optional one");
    info.operands.push_back(std::move(operand));
  }
}

void parse_attributes(OpInfo& info, std::string_view text) {
  for (std::string_view item : split_items(text)) {
    auto [name, rest] = split_colon(info.name, item);
    const size_t equals = rest.find('=');
    AttrInfo attribute{std::string(name), parse_attr_type(info.name, trim(rest.substr(0, equals))),
                       std::nullopt};
    if (equals != std::string_view::npos)
      attribute.default_value = parse_default(info.name, attribute.type, trim(rest.substr(equals + 1)));
    if (info.attribute(name)) malformed(info.name, text, "an attribute is declared twice");
    info.attributes.push_back(std::move(attribute));
  }
}

bool is_type_variable(const OpInfo& info, std::string_view name) {
  for (const auto& [variable, cls] : info.types)
    if (variable == name) return true;
  return false;
}

// Result types can always be computed: a variable is bound by a required operand, @a by a dtype attribute.
void check_row(const OpInfo& info) {
  for (const auto& [variable, cls] : info.types)
    if (!is_class(cls)) malformed(info.name, cls, "unknown type class");
  for (const OperandInfo& operand : info.operands)
    if (!is_type_variable(info, operand.type) && !is_class(operand.type))
      malformed(info.name, operand.type, "unknown operand type");
  for (const std::string& result : info.results) {
    if (result == "*" || dtype_from_name(result)) continue;
    bool known = false;
    if (result.starts_with('@')) {
      const AttrInfo* attribute = info.attribute(std::string_view(result).substr(1));
      known = attribute && attribute->type == AttrType::kDType;
    }
    for (const OperandInfo& operand : info.operands) known |= !operand.optional && operand.type == result;
    if (!known || is_class(result)) malformed(info.name, result, "unknown result type");
  }
  if (info.results.empty()) malformed(info.name, "", "an op without results");
}

OpInfo parse_row(const Row& row) {
  OpInfo info;
  info.op = row.op;
  info.name = row.name;
  info.traits = row.traits;
  info.shape_rule = row.shape_rule;
  info.meaning = row.meaning;
  for (std::string_view item : split_items(row.types)) info.types.emplace_back(split_colon(row.name, item));
  parse_operands(info, row.operands);
  parse_attributes(info, row.attributes);
  for (std::string_view item : split_items(row.results)) info.results.emplace_back(item);
  check_row(info);
  return info;
}

}  // namespace

const AttrInfo* OpInfo::attribute(std::string_view attribute_name) const {
  for (const AttrInfo& attribute : attributes)
    if (attribute.name == attribute_name) return &attribute;
  return nullptr;
}

const std::vector<OpInfo>& op_table() {
  static const std::vector<OpInfo> table = [] {
    std::vector<OpInfo> rows;
    rows.reserve(std::size(kRows));
    for (const Row& row : kRows) rows.push_back(parse_row(row));
    return rows;
  }();
  return table;
}

const OpInfo& op_info(Op op) { return op_table()[static_cast<size_t>(op)]; }

std::optional<Op> op_from_name(std::string_view name) {
  static const std::unordered_map<std::string_view, Op> names = [] {
    std::unordered_map<std::string_view, Op> map;
    for (const Row& row : kRows) map.emplace(row.name, row.op);
    return map;
  }();
  const auto at = names.find(name);
  if (at == names.end()) return std::nullopt;
  return at->second;
}

bool dtype_in_class(DType dtype, std::string_view type_class) {
  if (type_class == "any") return true;
  if (type_class == "number") return is_float(dtype) || is_integer(dtype);
  if (type_class == "float") return is_float(dtype);
  if (type_class == "integer") return is_integer(dtype);
  if (type_class == "integer_or_bool") return is_integer(dtype) || dtype == DType::boolean;
  if (type_class == "index") return dtype == DType::i64 || dtype == DType::i32;
  return dtype_name(dtype) == type_class;
}

}  // namespace aicf
