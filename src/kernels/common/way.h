// A way of running a problem: what a row of the CUDA table is asked for where it has several. Plain
// comparable data, one type for each family, which prints and parses it; the text is public: tuning records,
// forced choices, plans and reports hold it. What runs follows from the way and the problem (matmul_plan.h,
// attention_cuda.h, conv_mma_cuda.cc), so that a way says no more than was asked.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "kernels/attention/cuda/attention_way.h"
#include "kernels/conv/cuda/conv_way.h"
#include "kernels/conv/cuda/weight_gradient_way.h"
#include "kernels/conv/cuda/window_way.h"
#include "kernels/matmul/cuda/matmul_way.h"
#include "kernels/recurrent/recurrent_way.h"

namespace aicf {

// Nothing: the row has one way, or chooses.
using Way = std::variant<std::monostate, MatmulWay, ConvWay, AttentionWay, WeightGradientWay, WindowWay,
                         RecurrentWay, HaloTmaWay>;

inline bool is_named(const Way& way) { return !std::holds_alternative<std::monostate>(way); }

// "" of nothing. No two ways have the same text.
std::string to_string(const Way& way);
// The way of which this is the text, in today's words or those of before; nothing of "", nullopt of any other
// text.
std::optional<Way> parse_way(std::string_view text);

}  // namespace aicf
