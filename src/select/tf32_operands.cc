// Products in tf32 whose operands become what wgmma reads: rows along K that begin at multiples of 16 bytes,
// and y rounded.
#include "select/choose.h"
#include "select/cost_model.h"
#include "select/selector.h"

namespace aicf {
namespace {

constexpr int64_t kVector = 4;  // of f32 in 16 bytes

bool multiplies_by_wgmma(const Candidate& candidate) {
  const auto* way = std::get_if<MatmulWay>(&candidate.way);
  return way != nullptr && is_wgmma(*way);
}

// `w` in the axes that a copy of `copied` has: those along which the value differs.
Window without_broadcast(const Window& w, const Window& copied) {
  Window own = w;
  for (size_t axis = w.sizes.size() - 2; axis-- > 0;) {
    if (!(copied.strides[axis] == Dim(0))) continue;
    const auto at = static_cast<std::ptrdiff_t>(axis);
    own.sizes.erase(own.sizes.begin() + at);
    own.strides.erase(own.strides.begin() + at);
  }
  return own;
}

Window without_broadcast(const Window& w) { return without_broadcast(w, w); }

// A copy of [batch..., rows, columns] in which axis `k` is innermost.
Window along_k(const Window& w, size_t k, ValueId root) {
  Window copy = w;
  copy.root = root;
  copy.offset = Dim(0);
  copy.strides[k] = Dim(1);
  Dim step = ceildiv(w.sizes[k], Dim(kVector)) * Dim(kVector);
  for (size_t axis = w.sizes.size(); axis-- > 0;) {
    if (axis == k || (axis + 2 < w.sizes.size() && w.strides[axis] == Dim(0))) continue;
    copy.strides[axis] = step;
    step = step * w.sizes[axis];
  }
  return copy;
}

// Elements that it takes.
Dim stored_elements(const Window& w, size_t k) {
  const Window own = without_broadcast(w);
  Dim count = ceildiv(w.sizes[k], Dim(kVector)) * Dim(kVector);
  for (size_t axis = 0; axis < own.sizes.size(); ++axis)
    if (own.sizes.size() - axis != w.sizes.size() - k) count = count * own.sizes[axis];
  return count;
}

}  // namespace

void Selector::round_operands(KernelCall& call, ValueId y, const std::vector<const KernelRow*>& rows,
                              const std::string& origin) {
  const size_t rank = call.inputs[1].sizes.size(), x_k = call.inputs[0].sizes.size() - 1, y_k = rank - 2;
  const std::vector<Window> weights = (rank == 2 || is_weight(y)) && are_constant(call.inputs[1].sizes)
                                          ? weights_of(y, call.inputs[1])
                                          : std::vector<Window>();
  const auto best = [&](const KernelCall& c) {
    return list_candidates(c, rows, target_, options_.ranges)[0];
  };
  const auto copying = [&](const Window& w, size_t k) {
    if (find_rounded(w, k) != nullptr) return 0.0;
    KernelCall copy;
    copy.inputs = {without_broadcast(w)};
    copy.outputs = {without_broadcast(along_k(w, k, w.root))};
    return estimate_microseconds(copy, kRegionRow, target_, options_.ranges);
  };
  KernelCall copied = call;
  own_row(copied)->params = {Dim(kRoundedY)};
  copied.inputs[1] = along_k(call.inputs[1], y_k, call.inputs[1].root);
  double microseconds = weights.empty() ? copying(call.inputs[1], y_k) : 0;
  Candidate first = best(copied);
  const bool turns_x = !multiplies_by_wgmma(first);
  if (turns_x) {
    copied.inputs[0] = along_k(call.inputs[0], x_k, call.inputs[0].root);
    microseconds += copying(call.inputs[0], x_k);
    first = best(copied);
  }
  if (!multiplies_by_wgmma(first) || first.estimate_us + microseconds >= best(call).estimate_us) return;
  own_row(call)->params = {Dim(kRoundedY)};
  if (turns_x) call.inputs[0] = rounded(call.inputs[0], x_k, {}, origin);
  call.inputs[1] = rounded(call.inputs[1], y_k, weights, origin);
}

const Window* Selector::find_rounded(const Window& w, size_t k) const {
  for (const RoundedCopy& copy : rounded_)
    if (copy.from == w && copy.k == k) return &copy.to;
  return nullptr;
}

Window Selector::rounded(const Window& w, size_t k, const std::vector<Window>& weights,
                         const std::string& origin) {
  if (const Window* known = find_rounded(w, k)) return *known;
  const TensorType type{w.dtype, {stored_elements(w, k)}};
  const Window extra = weights.empty()
                           ? add_extra(ExtraValue::Kind::kTemp, type, "")
                           : add_extra(ExtraValue::Kind::kPacked, type, "rounded " + result_.name_of(w.root));
  const Window copy = along_k(w, k, extra.root);
  const auto add = [&](const Window& from, const Window& to) {
    Region region;
    region.full_shape = to.sizes;
    const ValueId x = region.body.add_input("x", {from.dtype, to.sizes});
    region.body.add_output(region.body.add(Op::round_tf32, {x}), "y");
    add_tile_call(std::move(region), {}, {from}, {to}, origin, "a product in tf32 reads it rounded, along K");
  };
  if (weights.empty()) add(without_broadcast(w), without_broadcast(copy));
  Dim first(0);  // of the part's columns
  for (const Window& part : weights) {
    const Window from = without_broadcast(part, w);
    Window to = without_broadcast(copy);
    to.sizes = from.sizes;
    to.offset = first * to.strides.back();
    add(from, to);
    make_init();
    first = first + from.sizes.back();
  }
  rounded_.push_back({w, k, copy});
  return copy;
}

}  // namespace aicf
