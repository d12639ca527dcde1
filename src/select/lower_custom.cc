#include "select/selector.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernels/common/custom_kernel.h"
#include "select/layout.h"

namespace aicf {

void Selector::lower_custom(const Node& node) {
  KernelCall call;
  call.origins = {origin_of(node)};
  call.reason = "the user's op";
  CustomRun custom{.op = node.attrs.get_str("name"), .fparams = node.attrs.get_floats("fparams")};
  for (int64_t param : node.attrs.get_ints("params")) custom.params.emplace_back(param);
  if (target_.is_cuda()) custom.cuda = custom_cuda(node);
  call.what = std::move(custom);
  for (ValueId id : node.operands)
    call.inputs.push_back(dense_operand(id, call.origins[0], "a custom op reads dense memory"));
  add_dense_call(std::move(call), node, "a custom op writes dense memory");
}

Window Selector::dense_operand(ValueId id, const std::string& origin, const std::string& reason) {
  const Window& from = window(id);
  if (is_row_major(from)) return from;
  const Window copy = add_extra(ExtraValue::Kind::kTemp, {from.dtype, from.sizes}, "");
  emit_copy(from, copy, origin, reason);
  return copy;
}

void Selector::add_dense_call(KernelCall call, const Node& node, const std::string& reason) {
  std::vector<std::pair<Window, Window>> copies;
  for (ValueId id : node.results) {
    if (id < graph_.value_count()) orders_[static_cast<size_t>(id)].clear();
    Window to = place(id);
    if (!is_row_major(to)) {
      const Window temp = add_extra(ExtraValue::Kind::kTemp, graph_.type(id), "");
      copies.emplace_back(temp, to);
      to = temp;
    }
    call.outputs.push_back(to);
  }
  const std::string origin = origin_text(call);
  result_.calls.push_back(std::move(call));
  for (const auto& [from, to] : copies) emit_copy(from, to, origin, reason);
}

std::shared_ptr<const CustomCuda> Selector::custom_cuda(const Node& node) const {
  if (node.attrs.get_str("cuda").empty())
    throw no_kernel(node)
        .with_value(node.attrs.get_str("name"))
        .with_remedy("register the op with the text of a CUDA kernel too");
  CustomCuda custom{node.attrs.get_str("cuda"),
                    node.attrs.get_str("function"),
                    static_cast<int>(node.operands.size() + node.results.size()),
                    {}};
  const Shape& grid = node.attrs.get_dims("grid");
  std::copy(grid.begin(), grid.end(), custom.launch.grid.begin());
  custom.launch.block = static_cast<int32_t>(node.attrs.get_int("block"));
  custom.launch.shared_bytes = node.attrs.get_int("shared_bytes");
  custom.launch.params = node.attrs.get_dims("cuda_params");
  for (int64_t param : node.attrs.get_ints("params")) custom.launch.params.emplace_back(param);
  custom.launch.fparams = node.attrs.get_floats("fparams");
  return std::make_shared<const CustomCuda>(std::move(custom));
}

}  // namespace aicf
