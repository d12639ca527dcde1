// The shape rules' functions, declared from the rows of ops.def (so a row naming a rule that nobody wrote
// fails to link), and the checks they share. A size that is symbolic is compared in its canonical form; only
// what is known when compiling is refused here, what depends on the values of symbols is checked again when
// they are bound.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "ir/shape_rule.h"

namespace aicf {

#define AICF_OP(name, operands, types, attributes, results, traits, shape_rule, meaning) \
  void shape_##shape_rule(ShapeQuery& query);
#include "ir/ops.def"
#undef AICF_OP

// bad_attribute naming the attribute.
[[noreturn]] void fail_attribute(const ShapeQuery& query, std::string_view name, std::string expected,
                                 std::string actual);

// "operand 'x' f32[2, n]" for messages.
std::string describe_operand(const ShapeQuery& query, size_t operand);
// Name of the row's operand (the variadic one for all later ones).
const std::string& operand_name(const ShapeQuery& query, size_t operand);

void require_rank(const ShapeQuery& query, size_t operand, int rank);
void require_rank_at_least(const ShapeQuery& query, size_t operand, int rank);
// The operand, if present, has exactly this shape.
void require_shape(const ShapeQuery& query, size_t operand, const Shape& expected);
// Two sizes that must be the same; `what` completes "… must agree".
void require_equal(const ShapeQuery& query, const Dim& a, const Dim& b, std::string_view what);
// The operand broadcasts to `target` without changing it.
void require_broadcastable(const ShapeQuery& query, size_t operand, const Shape& target);
// A string attribute is one of the choices.
void require_choice(const ShapeQuery& query, std::string_view name,
                    std::initializer_list<std::string_view> choices);
// A list attribute has `count` values, none below `least`.
const Ints& require_ints(const ShapeQuery& query, std::string_view name, size_t count, int64_t least);
// A dims attribute has `count` sizes, none known to be negative.
const Shape& require_dims(const ShapeQuery& query, std::string_view name, size_t count);

// Attribute tf32 is set for f32 alone.
void check_tf32(const ShapeQuery& query);

// b - a is known and negative.
bool known_greater(const Dim& a, const Dim& b);

// Replaces attribute "axis" by its non-negative value for this rank and returns it.
size_t use_axis(ShapeQuery& query, int64_t rank);
// Replaces attribute "axes" by sorted non-negative values; a repeated axis is bad_attribute.
Ints use_axes(ShapeQuery& query, int64_t rank);

}  // namespace aicf
