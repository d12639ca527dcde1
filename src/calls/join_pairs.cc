// Which two products of one x become one launch (dual GEMM): where the results of two products by matrices of
// one form are combined element by element, in a region or in the epilogue of one of them (a gate and what it
// weighs), and one kernel takes less time (matmul_pair), one call takes their place, which never stores what
// nobody else reads. The matrices may be columns of one, of a product that was merged. A choice of the
// caller's that names a product decides over it.
#include <optional>
#include <set>
#include <utility>

#include "calls/call_forms.h"
#include "calls/join_site.h"

namespace aicf {
namespace {

// A product, or some of its columns.
struct Half {
  size_t call;  // where it stands
  Window y;
  BoundProgram epilogue;
  size_t output = 0;  // the result that is read
};

Half whole(const JoinSite& site, size_t at) {
  const KernelCall& call = site.call(at);
  return {at, call.inputs[1], bound_program(call, site.graph())};
}

// The product before a call that gives the window, or of whose only result it is some columns.
std::optional<Half> half_of(const JoinSite& site, size_t reader, const Window& read) {
  const std::optional<size_t> writer = site.legality().sole_writer(read.root, reader);
  if (!writer || !is_pointwise_product(site.call(*writer), site.graph()) || !is_forwarded(read.dtype))
    return std::nullopt;
  Half half = whole(site, *writer);
  const std::vector<Window>& results = half.epilogue.outputs;
  const std::optional<Window> window = over_rows(read, results[0].sizes.size());
  if (!window) return std::nullopt;
  for (; half.output < results.size(); ++half.output)
    if (results[half.output] == *window) return half;
  const std::optional<BoundProgram> columns = columns_of(half.epilogue, *window);
  if (!columns) return std::nullopt;
  return Half{*writer, columns_of(half.y, window->offset - results[0].offset, window->sizes.back()),
              *columns};
}

// Two different matrices of one form by which the same x is multiplied.
bool are_pair(const JoinSite& site, const Half& a, const Half& b) {
  const KernelCall &one = site.call(a.call), &other = site.call(b.call);
  const RowCall &row = *row_call(one), &other_row = *row_call(other);
  return one.inputs[0] == other.inputs[0] && !(a.y == b.y) && a.y.dtype == b.y.dtype &&
         a.y.sizes == b.y.sizes && a.y.strides == b.y.strides && row.params == other_row.params &&
         row.fparams == other_row.fparams &&
         one.outputs[a.output].sizes.size() == other.outputs[b.output].sizes.size();
}

// `epilogue`: what is done with both results; none if no kernel walks over them as it does.
void offer(JoinSite& site, size_t at, const Half& first, const Half& second,
           const std::optional<BoundProgram>& epilogue) {
  const std::set<size_t> both = {first.call, second.call, at};
  const std::vector<size_t> calls(both.begin(), both.end());
  if (!epilogue) return site.refuse(calls, "an operand of the region does not lie over the products' rows");
  const KernelCall& product = site.call(second.call);
  KernelCall joined;
  joined.what = RowCall{.row = "matmul_pair",
                        .params = row_call(product)->params,
                        .fparams = row_call(product)->fparams,
                        .programs = {{ProgramRole::kEpilogue, -1, 3}}};
  joined.inputs = {product.inputs[0], first.y, second.y};
  joined.inputs.insert(joined.inputs.end(), epilogue->inputs.begin(), epilogue->inputs.end());
  joined.outputs = epilogue->outputs;
  joined.choice.key = product.choice.key;
  // The sum of the second matrix comes behind the first's.
  const size_t second_sum = first.epilogue.program.inputs.size();
  site.offer({.remove = calls,
              .insert = std::move(joined),
              .at = at,
              .program = with_input_at(epilogue->program, second_sum, 1),
              .open = {first.call, second.call},
              .price = {{"two products of one x", site.apart(calls)}}});
}

// The epilogue of one product reads the other's results.
void join_in_epilogue(JoinSite& site, size_t at) {
  const Half own = whole(site, at);
  for (size_t i = 0; i < own.epilogue.inputs.size(); ++i)
    if (const auto other = half_of(site, at, own.epilogue.inputs[i]); other && are_pair(site, *other, own))
      return offer(site, at, *other, own,
                   site.joined_behind(other->call, other->epilogue, other->output, at, own.epilogue, i));
}

// A region reads the results of both.
void join_in_region(JoinSite& site, size_t at) {
  const std::vector<Window>& inputs = site.call(at).inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::optional<Half> first = half_of(site, at, inputs[i]);
    for (size_t j = i + 1; first && j < inputs.size(); ++j) {
      const std::optional<Half> second = half_of(site, at, inputs[j]);
      if (!second || !are_pair(site, *first, *second)) continue;
      const size_t rank = site.call(first->call).outputs[0].sizes.size();
      const auto region = over_rows(bound_program(site.call(at), site.graph()), rank);
      if (!region) return offer(site, at, *first, *second, std::nullopt);
      const size_t middle = second->epilogue.inputs.size() + i;
      const BoundProgram one =
          site.joined_behind(second->call, second->epilogue, second->output, at, *region, j);
      return offer(site, at, *first, *second,
                   site.joined_behind(first->call, first->epilogue, first->output, at, one, middle));
    }
  }
}

}  // namespace

void join_pairs(JoinSite& site, size_t at) {
  if (is_pointwise_product(site.call(at), site.graph()))
    join_in_epilogue(site, at);
  else if (is_pointwise_region(site.call(at), site.graph()))
    join_in_region(site, at);
}

}  // namespace aicf
