// Which two products of one x become one launch (dual GEMM): where the results of two products by matrices of
// one form are combined element by element, in a region or in the epilogue of one of them (a gate and what it
// weighs), and one kernel takes less time (matmul_pair), one call takes their place, which never stores what
// nobody else reads. The matrices may be columns of one, of a product that was merged. A choice of the
// caller's that names a product decides over it.
#include <algorithm>
#include <optional>
#include <utility>

#include "calls/call_forms.h"
#include "calls/join_site.h"

namespace aicf {
namespace {

constexpr char kPairKernel[] = "matmul_pair";

// A product, or some of its columns.
struct Half {
  size_t call;  // where it stands
  Window x, y;
  BoundProgram epilogue;
  size_t output = 0;  // the result that is read
  bool whole = true;  // all columns
};

// Two halves, and what is done with their results behind their own epilogues.
struct DualGemm {
  Half first, second;
  BoundProgram epilogue = {};       // of all
  std::vector<Window> others = {};  // what the call that combines them reads beside their results
};

Window columns_of(Window window, const Dim& first, const Dim& count) {
  window.offset = window.offset + first * window.strides.back();
  window.sizes.back() = count;
  return window;
}

// What joined_program can keep in registers.
bool stays_in_registers(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32;
}

class PairJoin {
 public:
  PairJoin(JoinSite& site, size_t at) : site_(site), at_(at), call_(site.call(at)) {}

  void propose() {
    std::optional<DualGemm> found = is_factor(call_)                            ? in_epilogue()
                                    : is_pointwise_region(call_, site_.graph()) ? in_region()
                                                                                : std::nullopt;
    if (!found) return;
    if (const Decision d = may_join(*found); !d) return site_.refuse(calls_of(*found), d.why());
    offer(*found);
  }

 private:
  bool is_factor(const KernelCall& call) const {
    return is_joinable_product(call, site_.graph()) && has_elements_alone(site_.program_of(call));
  }

  // The product before this call that gives the window, or of whose result it is some columns.
  std::optional<Half> half_of(const Window& read) const {
    const std::optional<size_t> writer = site_.legality().sole_writer(read.root, at_);
    if (!writer) return std::nullopt;
    const KernelCall& call = site_.call(*writer);
    if (!is_factor(call) || !stays_in_registers(read.dtype)) return std::nullopt;
    const std::optional<Window> window = over_rows(read, call.outputs[0].sizes.size());
    if (!window) return std::nullopt;
    Half half = whole(*writer);
    for (; half.output < call.outputs.size(); ++half.output)
      if (call.outputs[half.output] == *window) return half;
    return some_columns(*writer, *window);
  }

  Half whole(size_t at) const {
    const KernelCall& call = site_.call(at);
    return {at, call.inputs[0], call.inputs[1], bound_program(call, site_.graph())};
  }

  std::optional<Half> some_columns(size_t at, const Window& read) const {
    const KernelCall& call = site_.call(at);
    const Window& all = call.outputs[0];
    const Dim first = read.offset - all.offset, &count = read.sizes.back();
    if (call.outputs.size() != 1 || !(all.strides.back() == Dim(1)) ||
        !(columns_of(all, first, count) == read))
      return std::nullopt;
    Half half = whole(at);
    half.whole = false;
    half.y = columns_of(half.y, first, count);
    for (Window& w : half.epilogue.inputs) w = columns_of(w, first, count);
    half.epilogue.outputs = {read};
    return half;
  }

  // Two different matrices of one form by which the same x is multiplied.
  bool are_pair(const Half& a, const Half& b) const {
    const KernelCall &one = site_.call(a.call), &other = site_.call(b.call);
    const bool pair = a.x == b.x && !(a.y == b.y) && row_call(one)->params == row_call(other)->params &&
                      row_call(one)->fparams == row_call(other)->fparams && a.y.dtype == b.y.dtype &&
                      a.y.sizes == b.y.sizes && a.y.strides == b.y.strides &&
                      one.outputs[a.output].sizes.size() == other.outputs[b.output].sizes.size();
    if (!pair || (is_open(one) && is_open(other))) return pair;
    site_.refuse({a.call, b.call}, "a record or the caller wants one of the products apart");
    return false;
  }

  // The epilogue of one product reads the other's results.
  std::optional<DualGemm> in_epilogue() const {
    const Half own = whole(at_);
    for (size_t i = 0; i < own.epilogue.inputs.size(); ++i) {
      const std::optional<Half> other = half_of(own.epilogue.inputs[i]);
      if (!other || !are_pair(*other, own)) continue;
      DualGemm g{*other, own, behind(*other, own.epilogue, i), without(own.epilogue.inputs, {i})};
      g.others.insert(g.others.end(), {own.x, own.y});
      return g;
    }
    return std::nullopt;
  }

  // A region reads the results of both.
  std::optional<DualGemm> in_region() const {
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      const std::optional<Half> first = half_of(call_.inputs[i]);
      for (size_t j = i + 1; first && j < call_.inputs.size(); ++j) {
        const std::optional<Half> second = half_of(call_.inputs[j]);
        if (!second || !are_pair(*first, *second)) continue;
        DualGemm g{*first, *second};
        const size_t rank = site_.call(first->call).outputs[0].sizes.size();
        const std::optional<BoundProgram> region = over_rows(bound_program(call_, site_.graph()), rank);
        if (!region) {
          site_.refuse(calls_of(g), "an operand of the region does not lie over the products' rows");
          return std::nullopt;
        }
        g.others = without(region->inputs, {i, j});
        g.epilogue = behind(*first, behind(*second, *region, j), second->epilogue.inputs.size() + i);
        return g;
      }
    }
    return std::nullopt;
  }

  static std::vector<Window> without(const std::vector<Window>& windows,
                                     std::initializer_list<size_t> numbers) {
    std::vector<Window> others;
    for (size_t i = 0; i < windows.size(); ++i)
      if (std::find(numbers.begin(), numbers.end(), i) == numbers.end()) others.push_back(windows[i]);
    return others;
  }

  // What follows on the results of a half, which are read as `middle`, in one program with its epilogue.
  BoundProgram behind(const Half& half, const BoundProgram& next, size_t middle) const {
    const std::vector<bool> kept = site_.kept_results(half.epilogue.outputs, {half.call, at_});
    return joined(half.epilogue, half.output, kept, next, middle);
  }

  // In order.
  std::vector<size_t> calls_of(const DualGemm& g) const {
    std::vector<size_t> calls = {g.first.call, g.second.call, at_};
    std::sort(calls.begin(), calls.end());
    calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
    return calls;
  }

  // Whether they are the two halves of one product.
  bool are_all_columns(const DualGemm& g) const {
    const Window &all = site_.call(g.first.call).outputs[0], &a = g.first.epilogue.outputs[0],
                 &b = g.second.epilogue.outputs[0];
    const Dim& count = a.sizes.back();
    return g.first.call == g.second.call && count * Dim(2) == all.sizes.back() &&
           (b.offset - a.offset == count || a.offset - b.offset == count);
  }

  Decision may_join(const DualGemm& g) const {
    for (const Half* half : {&g.first, &g.second}) {
      const std::vector<Window>& results = half->epilogue.outputs;
      // Columns that others read, but the region does not, are not stored.
      if (!half->whole && !are_all_columns(g))
        if (const Decision d = site_.needed_by_none_but(results[0].root, {half->call, at_}); !d) return d;
      // Only the thread that made them has seen the products.
      if (half->call != at_ && share_root(results, g.others))
        return Decision::no("a product is read a second time");
    }
    return covers_result(g);
  }

  // Every operand of the epilogue covers the result, and what is written in place is read by the thread that
  // writes it.
  static Decision covers_result(const DualGemm& g) {
    const std::vector<Window>& results = g.epilogue.outputs;
    const Shape& sizes = results[0].sizes;
    const auto covers = [&](const Window& w) { return w.sizes == sizes; };
    if (!(sizes.back() == g.first.y.sizes.back()) || !std::all_of(results.begin(), results.end(), covers))
      return Decision::no("the outputs do not cover the result");
    for (const Window& w : g.epilogue.inputs) {
      if (!covers(w)) return Decision::no("an operand does not cover the result");
      if (has_root(results, w.root) && std::find(results.begin(), results.end(), w) == results.end())
        return Decision::no("a result overwrites what other threads read");
    }
    return {};
  }

  void offer(const DualGemm& g) {
    const std::vector<size_t> calls = calls_of(g);
    const KernelCall& second = site_.call(g.second.call);
    KernelCall joined;
    joined.inputs = {g.first.x, g.first.y, g.second.y};
    joined.what = RowCall{.row = kPairKernel,
                          .params = row_call(second)->params,
                          .fparams = row_call(second)->fparams,
                          .programs = {{ProgramRole::kEpilogue, -1, static_cast<int>(joined.inputs.size())}}};
    joined.inputs.insert(joined.inputs.end(), g.epilogue.inputs.begin(), g.epilogue.inputs.end());
    joined.outputs = g.epilogue.outputs;
    joined.choice.key = second.choice.key;
    // The sum of the second matrix comes behind the first's.
    const size_t second_sum = g.first.epilogue.program.inputs.size();
    site_.offer({.remove = calls,
                 .insert = std::move(joined),
                 .at = at_,
                 .program = with_input_at(g.epilogue.program, second_sum, 1),
                 .price = {{"two products that meet", site_.apart(calls)}}});
  }

  JoinSite& site_;
  const size_t at_;
  const KernelCall& call_;
};

}  // namespace

void join_pairs(JoinSite& site, size_t at) { PairJoin(site, at).propose(); }

}  // namespace aicf
