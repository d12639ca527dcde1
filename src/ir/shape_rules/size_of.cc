#include "ir/shape_rules/rules.h"

namespace aicf {

void shape_size_of(ShapeQuery& query) {
  const DType dtype = query.results[0].dtype;
  require_dims(query, "size", 1);
  if (!dtype_in_class(dtype, "number"))
    fail_attribute(query, "dtype", "an integer or float type", std::string(dtype_name(dtype)));
  query.results[0].shape = {};
}

}  // namespace aicf
