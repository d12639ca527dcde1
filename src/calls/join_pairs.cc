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
constexpr size_t kMatrices = 2;  // x and y, before the operands of a product's epilogue

// A product, or some of its columns.
struct Half {
  size_t call;                 // where it stands
  std::vector<Window> inputs;  // for these columns: x, y, the epilogue's
  std::vector<Window> outputs;
  size_t output = 0;  // the result that is read
  bool whole = true;  // all columns
};

// Two halves and the call that combines them, with its operands over the axes of the products and the program
// that has their results as inputs.
struct DualGemm {
  size_t at;
  Half first, second;
  TileProgram program = {};
  std::vector<Window> inputs = {}, outputs = {};
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
    KernelCall joined = operands_of(*found);
    Decision decision = may_join(*found);
    if (decision) decision = fits(joined, *found);
    if (!decision) return site_.refuse(calls_of(*found), decision.why());
    offer(std::move(joined), std::move(*found));
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
    for (size_t o = 0; o < call.outputs.size(); ++o)
      if (call.outputs[o] == *window) return Half{*writer, call.inputs, call.outputs, o, true};
    return some_columns(*writer, *window);
  }

  std::optional<Half> some_columns(size_t at, const Window& read) const {
    const KernelCall& call = site_.call(at);
    const Window& all = call.outputs[0];
    const Dim first = read.offset - all.offset, &count = read.sizes.back();
    if (call.outputs.size() != 1 || !(all.strides.back() == Dim(1)) ||
        !(columns_of(all, first, count) == read))
      return std::nullopt;
    Half half{at, call.inputs, {read}, 0, false};
    for (size_t i = 1; i < half.inputs.size(); ++i) half.inputs[i] = columns_of(half.inputs[i], first, count);
    return half;
  }

  // Two different matrices of one form by which the same x is multiplied.
  bool are_pair(const Half& a, const Half& b) const {
    const KernelCall &one = site_.call(a.call), &other = site_.call(b.call);
    const Window &y = a.inputs[1], &z = b.inputs[1];
    const bool pair =
        a.inputs[0] == b.inputs[0] && !(y == z) && row_call(one)->params == row_call(other)->params &&
        row_call(one)->fparams == row_call(other)->fparams && y.dtype == z.dtype && y.sizes == z.sizes &&
        y.strides == z.strides && one.outputs[a.output].sizes.size() == other.outputs[b.output].sizes.size();
    if (!pair || (is_open(one) && is_open(other))) return pair;
    site_.refuse({a.call, b.call}, "a record or the caller wants one of the products apart");
    return false;
  }

  // The epilogue of one product reads the other's results.
  std::optional<DualGemm> in_epilogue() const {
    const Half own{at_, call_.inputs, call_.outputs, 0, true};
    for (size_t i = kMatrices; i < call_.inputs.size(); ++i) {
      const std::optional<Half> other = half_of(call_.inputs[i]);
      if (!other || !are_pair(*other, own)) continue;
      DualGemm g{at_, *other, own, {}, call_.inputs, call_.outputs};
      g.program = combined(*other, site_.program_of(call_), i - kMatrices + 1);
      g.inputs.erase(g.inputs.begin() + static_cast<std::ptrdiff_t>(i));
      g.inputs.erase(g.inputs.begin(), g.inputs.begin() + kMatrices);
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
        DualGemm g{at_, *first, *second};
        if (!set_operands(g, i, j)) {
          site_.refuse(calls_of(g), "an operand of the region does not lie over the products' rows");
          return std::nullopt;
        }
        const size_t before = site_.program_of(site_.call(second->call)).inputs.size();
        g.program = combined(*first, combined(*second, site_.program_of(call_), j), before + i);
        return g;
      }
    }
    return std::nullopt;
  }

  // The region's other operands and its results, over the axes of the products.
  bool set_operands(DualGemm& g, size_t first, size_t second) const {
    const size_t rank = site_.call(g.first.call).outputs[0].sizes.size();
    const auto add = [&](const Window& w, std::vector<Window>& to) {
      const std::optional<Window> merged = over_rows(w, rank);
      if (merged) to.push_back(*merged);
      return merged.has_value();
    };
    for (size_t i = 0; i < call_.inputs.size(); ++i)
      if (i != first && i != second && !add(call_.inputs[i], g.inputs)) return false;
    return std::all_of(call_.outputs.begin(), call_.outputs.end(),
                       [&](const Window& w) { return add(w, g.outputs); });
  }

  // What `program` does with input `middle` behind the half that gives it.
  TileProgram combined(const Half& half, const TileProgram& program, size_t middle) const {
    return joined_program(site_.program_of(site_.call(half.call)), half.output, kept(half), program, middle);
  }

  // Which results of a half others read, too.
  std::vector<bool> kept(const Half& half) const {
    std::vector<bool> kept;
    for (const Window& w : half.outputs)
      kept.push_back(site_.legality().others_need(w.root, {half.call, at_}));
    return kept;
  }

  // In order.
  static std::vector<size_t> calls_of(const DualGemm& g) {
    std::vector<size_t> calls = {g.first.call, g.second.call, g.at};
    std::sort(calls.begin(), calls.end());
    calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
    return calls;
  }

  // Whether they are the two halves of one product.
  bool are_all_columns(const DualGemm& g) const {
    const Window &all = site_.call(g.first.call).outputs[0], &a = g.first.outputs[0],
                 &b = g.second.outputs[0];
    const Dim& count = a.sizes.back();
    return g.first.call == g.second.call && count * Dim(2) == all.sizes.back() &&
           (b.offset - a.offset == count || a.offset - b.offset == count);
  }

  Decision may_join(const DualGemm& g) const {
    for (const Half* half : {&g.first, &g.second}) {
      // Columns that others read, but the region does not, are not stored.
      if (!half->whole && !are_all_columns(g))
        if (const Decision d = site_.needed_by_none_but(half->outputs[0].root, {half->call, at_}); !d)
          return d;
      // Only the thread that made them has seen the products.
      for (const Window& w : half->outputs)
        if (half->call != at_ && has_root(g.inputs, w.root))
          return Decision::no("a product is read a second time");
    }
    return {};
  }

  KernelCall operands_of(const DualGemm& g) const {
    KernelCall joined;
    const RowCall& product = *row_call(site_.call(g.second.call));
    joined.what = RowCall{.row = kPairKernel,
                          .params = product.params,
                          .fparams = product.fparams,
                          .programs = {{ProgramRole::kEpilogue, site_.next_program(), kMatrices + 1}}};
    joined.inputs = {g.first.inputs[0], g.first.inputs[1], g.second.inputs[1]};
    for (const Half* half : {&g.first, &g.second}) {
      if (half->call == at_) continue;
      joined.inputs.insert(joined.inputs.end(), half->inputs.begin() + kMatrices, half->inputs.end());
      const std::vector<bool> kept_ones = kept(*half);
      for (size_t i = 0; i < kept_ones.size(); ++i)
        if (kept_ones[i]) joined.outputs.push_back(half->outputs[i]);
    }
    joined.inputs.insert(joined.inputs.end(), g.inputs.begin(), g.inputs.end());
    joined.outputs.insert(joined.outputs.end(), g.outputs.begin(), g.outputs.end());
    return joined;
  }

  // Every operand of the epilogue covers the result, and what is written in place is read by the thread that
  // writes it.
  static Decision fits(const KernelCall& joined, const DualGemm& g) {
    if (joined.inputs.size() + joined.outputs.size() > static_cast<size_t>(kMaxTileOperands) ||
        g.program.registers.size() > static_cast<size_t>(kMaxTileRegisters) ||
        g.program.scalars.size() > static_cast<size_t>(kMaxTileRegisters))
      return Decision::no("the programs have too many operands or registers");
    const Shape& sizes = joined.outputs[0].sizes;
    const auto covers = [&](const Window& w) { return w.sizes == sizes; };
    if (!(sizes.back() == g.first.inputs[1].sizes.back()) ||
        !std::all_of(joined.outputs.begin(), joined.outputs.end(), covers))
      return Decision::no("the outputs do not cover the result");
    for (size_t i = 0; i < joined.inputs.size(); ++i) {
      const Window& w = joined.inputs[i];
      const bool is_matrix = i <= kMatrices;
      if (!is_matrix && !covers(w)) return Decision::no("an operand does not cover the result");
      if (has_root(joined.outputs, w.root) &&
          (is_matrix || std::find(joined.outputs.begin(), joined.outputs.end(), w) == joined.outputs.end()))
        return Decision::no("a result overwrites what other threads read");
    }
    return {};
  }

  void offer(KernelCall joined, DualGemm g) {
    std::vector<size_t> calls = calls_of(g);
    joined.origins = united_origins(site_.call(calls[0]), call_);
    joined.choice.key = site_.call(g.second.call).choice.key;
    double apart = site_.microseconds(call_);
    for (const size_t at : calls)
      if (at != at_)
        apart += site_.rule().target.facts().edge_microseconds + site_.microseconds(site_.call(at));
    const size_t second_matrix = site_.program_of(site_.call(g.first.call)).inputs.size();
    site_.offer({.remove = std::move(calls),
                 .insert = std::move(joined),
                 .at = at_,
                 .program = with_input_at(std::move(g.program), second_matrix, 1),
                 .price = {{"two products that meet", apart}}});
  }

  JoinSite& site_;
  const size_t at_;
  const KernelCall& call_;
};

}  // namespace

void join_pairs(JoinSite& site, size_t at) { PairJoin(site, at).propose(); }

}  // namespace aicf
