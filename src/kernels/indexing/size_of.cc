// size_of: the value of a size, known when binding, as a scalar of any number type.
#include "kernels/indexing/elements.h"
#include "kernels/indexing/walk.h"

namespace aicf {
namespace {

template <class E>
void run_size_of(const BoundCall& call, int64_t, std::byte*) {
  E::store(bytes_of(call.outputs[0]), static_cast<typename E::Value>(call.params[0]));
}

}  // namespace

bool can_run_size_of(const Problem& p) {
  return p.inputs.empty() && p.outputs.size() == 1 && p.outputs[0].dtype != DType::boolean &&
         p.outputs[0].sizes.empty();
}

void prepare_size_of(BoundCall& call) {
  check_counts(call, "size_of", 0, 0, 1, 0);
  check_size(static_cast<int64_t>(call.outputs.size()), 1, "size_of", "outputs");
  const TensorArg& out = call.outputs[0];
  check_tensor(out, "size_of", "output");
  check_rank(out, 0, "size_of", "output");
  if (out.dtype == DType::boolean) bad_step("size_of", "output", "a number", "bool");
  call.tiles = 1;
  call.run = with_element_type(out.dtype, [](auto e) -> RunTile { return run_size_of<decltype(e)>; });
}

}  // namespace aicf
