#include "ir/shape_rules/rules.h"

#include <algorithm>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/option_text.h"

namespace aicf {
namespace {

using ShapeRule = void (*)(ShapeQuery&);

constexpr ShapeRule kRules[] = {
#define AICF_OP(name, operands, types, attributes, results, traits, shape_rule, meaning) &shape_##shape_rule,
#include "ir/ops.def"
#undef AICF_OP
};
static_assert(std::size(kRules) == kOpCount);

std::string operands_text(const ShapeQuery& query) {
  std::string text;
  for (size_t i = 0; i < query.operands.size(); ++i)
    if (query.operands[i])
      text += (text.empty() ? "" : ", ") + operand_name(query, i) + " " + to_string(*query.operands[i]);
  return text;
}

}  // namespace

void infer_shapes(ShapeQuery& query) { kRules[static_cast<size_t>(query.info.op)](query); }

void fail_shape(const ShapeQuery& query, std::string expected, std::string actual) {
  bool known = true;
  for (const auto& operand : query.operands)
    for (const Dim& size : operand ? operand->shape : Shape()) known = known && size.is_constant();
  throw UserError(ErrorCode::kU_bad_shape, std::string(query.info.name) + ": operand shapes do not fit")
      .with_value(operands_text(query))
      .with_expected(std::move(expected))
      .with_actual(std::move(actual))
      .with_remedy(known ? ""
                         : "say how sizes hang together: " +
                               dims_text({{"NAME", "2*OTHER"}, {"OTHER", "8..16"}}));
}

void fail_attribute(const ShapeQuery& query, std::string_view name, std::string expected,
                    std::string actual) {
  throw UserError(ErrorCode::kU_bad_attribute,
                  std::string(query.info.name) + " has a wrong attribute '" + std::string(name) + "'")
      .with_value(operands_text(query))
      .with_expected(std::move(expected))
      .with_actual(std::move(actual));
}

const std::string& operand_name(const ShapeQuery& query, size_t operand) {
  const auto& rows = query.info.operands;
  return rows[std::min(operand, rows.size() - 1)].name;
}

void check_tf32(const ShapeQuery& query) {
  const DType dtype = query.operands[0]->dtype;
  if (query.attrs.get_bool("tf32") && dtype != DType::f32)
    throw UserError(ErrorCode::kU_bad_dtype, std::string(query.info.name) + " multiplies only f32 in tf32")
        .with_value(describe_operand(query, 0))
        .with_expected("f32")
        .with_actual(std::string(dtype_name(dtype)));
}

std::string describe_operand(const ShapeQuery& query, size_t operand) {
  return "operand '" + operand_name(query, operand) + "' " + to_string(*query.operands[operand]);
}

void require_rank(const ShapeQuery& query, size_t operand, int rank) {
  if (query.operands[operand] && query.rank(operand) != rank)
    fail_shape(query, "operand '" + operand_name(query, operand) + "' of rank " + std::to_string(rank),
               describe_operand(query, operand));
}

void require_rank_at_least(const ShapeQuery& query, size_t operand, int rank) {
  if (query.operands[operand] && query.rank(operand) < rank)
    fail_shape(query,
               "operand '" + operand_name(query, operand) + "' of rank " + std::to_string(rank) + " or more",
               describe_operand(query, operand));
}

void require_shape(const ShapeQuery& query, size_t operand, const Shape& expected) {
  if (query.operands[operand] && query.shape(operand) != expected)
    fail_shape(query, "operand '" + operand_name(query, operand) + "' of shape " + to_string(expected),
               describe_operand(query, operand));
}

void require_equal(const ShapeQuery& query, const Dim& a, const Dim& b, std::string_view what) {
  if (!(a == b)) fail_shape(query, std::string(what) + " agree", a.to_string() + " and " + b.to_string());
}

void require_broadcastable(const ShapeQuery& query, size_t operand, const Shape& target) {
  const Shape& shape = query.shape(operand);
  bool fits = shape.size() <= target.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    const Dim& size = shape[shape.size() - 1 - i];
    fits = size == target[target.size() - 1 - i] || size == Dim(1);
  }
  if (!fits)
    fail_shape(query, "operand '" + operand_name(query, operand) + "' broadcastable to " + to_string(target),
               describe_operand(query, operand));
}

void require_choice(const ShapeQuery& query, std::string_view name,
                    std::initializer_list<std::string_view> choices) {
  const std::string& given = query.attrs.get_str(name);
  if (std::find(choices.begin(), choices.end(), given) == choices.end())
    fail_attribute(query, name, "one of " + comma_list(choices), "'" + given + "'");
}

const Ints& require_ints(const ShapeQuery& query, std::string_view name, size_t count, int64_t least) {
  const Ints& values = query.attrs.get_ints(name);
  const bool fits = values.size() == count && std::all_of(values.begin(), values.end(), [&](int64_t value) {
                      return value >= least && value <= INT32_MAX;
                    });
  if (!fits)
    fail_attribute(query, name, std::to_string(count) + " values of at least " + std::to_string(least),
                   to_string(values));
  return values;
}

const Shape& require_dims(const ShapeQuery& query, std::string_view name, size_t count) {
  const Shape& sizes = query.attrs.get_dims(name);
  const bool fits = sizes.size() == count && std::none_of(sizes.begin(), sizes.end(), [](const Dim& size) {
                      return known_greater(Dim(0), size);
                    });
  if (!fits) fail_attribute(query, name, std::to_string(count) + " sizes of at least 0", to_string(sizes));
  return sizes;
}

bool known_greater(const Dim& a, const Dim& b) {
  const Dim difference = b - a;
  return difference.is_constant() && difference.constant_part() < 0;
}

int64_t normalize_axis(const ShapeQuery& query, int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    fail_attribute(query, query.info.attribute("axes") ? "axes" : "axis",
                   rank == 0 ? "no axis: the rank is 0"
                             : std::to_string(-rank) + " to " + std::to_string(rank - 1) + " for rank " +
                                   std::to_string(rank),
                   std::to_string(axis));
  return axis < 0 ? axis + rank : axis;
}

size_t use_axis(ShapeQuery& query, int64_t rank) {
  const int64_t given = query.attrs.get_int("axis");
  const int64_t axis = normalize_axis(query, given, rank);
  if (axis != given) query.attrs.set("axis", axis);
  return static_cast<size_t>(axis);
}

Ints use_axes(ShapeQuery& query, int64_t rank) {
  Ints axes = query.attrs.get_ints("axes");
  for (int64_t& axis : axes) axis = normalize_axis(query, axis, rank);
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    fail_attribute(query, "axes", "each axis once", to_string(query.attrs.get_ints("axes")));
  query.attrs.set("axes", axes);
  return axes;
}

Shape broadcast_shapes(const ShapeQuery& query, const std::vector<const Shape*>& shapes) {
  size_t rank = 0;
  for (const Shape* shape : shapes) rank = std::max(rank, shape->size());
  Shape result(rank, Dim(1));
  for (const Shape* shape : shapes) {
    const size_t offset = rank - shape->size();
    for (size_t i = 0; i < shape->size(); ++i) {
      Dim& have = result[offset + i];
      const Dim& size = (*shape)[i];
      if (size == have || size == Dim(1)) continue;
      if (!(have == Dim(1)))
        fail_shape(query,
                   "equal sizes, or 1, on axis " + std::to_string(offset + i) + " of the broadcast shape",
                   have.to_string() + " and " + size.to_string());
      have = size;
    }
  }
  return result;
}

}  // namespace aicf
