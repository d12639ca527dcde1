// A custom op means what its registered function computes.
#include "base/custom_op.h"
#include "ir/reference/ref_op.h"

namespace aicf::reference {

RefResults ref_custom(const RefContext& c) {
  const CustomOp& op = require_custom_op(c.attrs().get_str("name"));
  std::vector<Array> arrays;
  std::vector<CustomTensor> tensors;
  const auto add = [&](Array array) {
    arrays.push_back(std::move(array));
    const Array& kept = arrays.back();
    tensors.push_back({const_cast<void*>(kept.data()), static_cast<int32_t>(kept.dtype()),
                       static_cast<int32_t>(kept.rank()), kept.sizes().data()});
  };
  arrays.reserve(c.operands.size() + c.result_dtypes.size());
  for (const RefValue& operand : c.operands) add(to_array(*operand, false));
  for (size_t k = 0; k < c.result_dtypes.size(); ++k) add(Array(c.result_dtypes[k], c.result_sizes[k]));
  const auto inputs = static_cast<int32_t>(c.operands.size());
  call_custom_op(
      op, {tensors.data(), inputs, tensors.data() + inputs, static_cast<int32_t>(c.result_dtypes.size()),
           c.attrs().get_ints("params").data(), c.attrs().get_floats("fparams").data()});
  RefResults results;
  for (size_t k = 0; k < c.result_dtypes.size(); ++k)
    results.push_back(from_array(arrays[c.operands.size() + k], c.result_dtypes[k]));
  return results;
}

}  // namespace aicf::reference
