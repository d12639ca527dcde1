#include "ir/reference/ref_op.h"

namespace aicf::reference {

RefResults ref_size_of(const RefContext& c) {
  RefTensor out = c.result();
  const int64_t size = c.dims("size").at(0);
  if (out.is_float())
    out.f[0] = static_cast<double>(size);
  else
    out.i[0] = size;
  return one(std::move(out));
}

}  // namespace aicf::reference
