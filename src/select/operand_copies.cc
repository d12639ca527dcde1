// Copies of operands. Those of products have rows that begin at multiples of 16 bytes, as matrix units read
// them; in tf32 they lie along K and are rounded. Those of regions and epilogues lie along the axis over
// which these run.
#include <algorithm>
#include <array>

#include "select/choose.h"
#include "select/cost_model.h"
#include "select/selector.h"

namespace aicf {
namespace {

Dim vector_of(DType dtype) { return Dim(16 / dtype_bytes(dtype)); }

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

// A copy of [batch..., rows, columns] in which axis `inner` is innermost.
Window copy_along(const Window& w, size_t inner, ValueId root) {
  Window copy = w;
  copy.root = root;
  copy.offset = Dim(0);
  copy.strides[inner] = Dim(1);
  Dim step = ceildiv(w.sizes[inner], vector_of(w.dtype)) * vector_of(w.dtype);
  for (size_t axis = w.sizes.size(); axis-- > 0;) {
    if (axis == inner || (axis + 2 < w.sizes.size() && w.strides[axis] == Dim(0))) continue;
    copy.strides[axis] = step;
    step = step * w.sizes[axis];
  }
  return copy;
}

// Elements that it takes.
Dim stored_elements(const Window& w, size_t inner) {
  const Window own = without_broadcast(w);
  Dim count = ceildiv(w.sizes[inner], vector_of(w.dtype)) * vector_of(w.dtype);
  for (size_t axis = 0; axis < own.sizes.size(); ++axis)
    if (own.sizes.size() - axis != w.sizes.size() - inner) count = count * own.sizes[axis];
  return count;
}

// The axis along which the matrix lies in memory; of one that lies along none, `k`.
size_t inner_axis(const Window& w, size_t k) {
  const size_t rank = w.sizes.size(), other = k == rank - 1 ? rank - 2 : rank - 1;
  return !(w.strides[k] == Dim(1)) && w.strides[other] == Dim(1) ? other : k;
}

bool begins_at_vectors(const Window& w, size_t inner) {
  const auto divides = [&](const Dim& d) { return divide_exactly(d, vector_of(w.dtype)).has_value(); };
  if (!(w.strides[inner] == Dim(1)) || !divides(w.offset)) return false;
  for (size_t axis = 0; axis < w.sizes.size(); ++axis)
    if (axis != inner && !divides(w.strides[axis])) return false;
  return true;
}

// Whether neighbours along `inner` are apart in memory, and those along another axis are not.
bool lies_across(const Window& w, size_t inner) {
  const auto has_neighbours = [&](size_t axis) {
    return w.strides[axis] == Dim(1) && !(w.sizes[axis] == Dim(1));
  };
  if (w.sizes[inner] == Dim(1) || w.strides[inner] == Dim(0) || has_neighbours(inner)) return false;
  for (size_t axis = 0; axis < w.sizes.size(); ++axis)
    if (has_neighbours(axis)) return true;
  return false;
}

}  // namespace

std::vector<Window> Selector::factor_weights(const std::vector<ValueId>& operands, const KernelCall& call,
                                             size_t factor) const {
  const Window& w = call.inputs[factor];
  const ValueId id = operands[factor];
  if (!are_constant(w.sizes) || (w.sizes.size() > 2 && !is_weight(id))) return {};
  if (factor == 1) return weights_of(id, w);
  return is_weight(id) ? std::vector<Window>{w} : std::vector<Window>();
}

double Selector::copy_microseconds(const Window& w, const CopyForm& form) const {
  if (find_copy(w, form) != nullptr) return 0;
  KernelCall copy;
  copy.inputs = {without_broadcast(w)};
  copy.outputs = {without_broadcast(copy_along(w, form.inner, w.root))};
  return kStartMicroseconds + estimate_microseconds(copy, kRegionRow, target_, options_.ranges);
}

void Selector::round_operands(KernelCall& call, const std::vector<ValueId>& operands,
                              const std::vector<const KernelRow*>& rows, const std::string& origin) {
  const CopyForm x{call.inputs[0].sizes.size() - 1, true}, y{call.inputs[1].sizes.size() - 2, true};
  const std::vector<Window> weights = factor_weights(operands, call, 1);
  const auto best = [&](const KernelCall& c) {
    return list_candidates(c, rows, target_, options_.ranges)[0];
  };
  KernelCall copied = call;
  own_row(copied)->params = {Dim(kRoundedY)};
  copied.inputs[1] = copy_along(call.inputs[1], y.inner, call.inputs[1].root);
  double microseconds = weights.empty() ? copy_microseconds(call.inputs[1], y) : 0;
  Candidate first = best(copied);
  const bool turns_x = !multiplies_by_wgmma(first.way);
  if (turns_x) {
    copied.inputs[0] = copy_along(call.inputs[0], x.inner, call.inputs[0].root);
    microseconds += copy_microseconds(call.inputs[0], x);
    first = best(copied);
  }
  if (!multiplies_by_wgmma(first.way) || first.estimate_us + microseconds >= best(call).estimate_us) return;
  const char* reason = "a product in tf32 reads it rounded, along K";
  own_row(call)->params = {Dim(kRoundedY)};
  if (turns_x) call.inputs[0] = operand_copy(call.inputs[0], x, {}, origin, reason);
  call.inputs[1] = operand_copy(call.inputs[1], y, weights, origin, reason);
}

void Selector::align_operands(KernelCall& call, const std::vector<ValueId>& operands,
                              const std::vector<const KernelRow*>& rows, const std::string& origin) {
  constexpr size_t kFactors = 2;
  std::array<CopyForm, kFactors> forms;
  std::array<std::vector<Window>, kFactors> weights;
  size_t unaligned = 0;  // a bit for each factor
  for (size_t i = 0; i < kFactors; ++i) {
    const Window& w = call.inputs[i];
    forms[i].inner = inner_axis(w, w.sizes.size() - 1 - i);
    if (begins_at_vectors(w, forms[i].inner)) continue;
    unaligned |= size_t{1} << i;
    weights[i] = factor_weights(operands, call, i);
  }
  const auto best = [&](const KernelCall& c) {
    return list_candidates(c, rows, target_, options_.ranges)[0];
  };
  if (unaligned == 0) return;
  const bool half = is_half(call.inputs[0].dtype);
  double least = best(call).estimate_us;
  size_t chosen = 0;
  for (size_t some = 1; some <= unaligned; ++some) {
    if ((some & ~unaligned) != 0) continue;
    KernelCall copied = call;
    double microseconds = 0;
    for (size_t i = 0; i < kFactors; ++i) {
      if ((some >> i & 1) == 0) continue;
      copied.inputs[i] = copy_along(call.inputs[i], forms[i].inner, call.inputs[i].root);
      if (weights[i].empty()) microseconds += copy_microseconds(call.inputs[i], forms[i]);
    }
    const Candidate first = best(copied);
    microseconds += first.estimate_us;
    if (microseconds >= least || (!half && !multiplies_by_wgmma(first.way))) continue;
    least = microseconds;
    chosen = some;
  }
  for (size_t i = 0; i < kFactors; ++i)
    if ((chosen >> i & 1) != 0)
      call.inputs[i] = operand_copy(call.inputs[i], forms[i], weights[i], origin,
                                    "a product reads rows of whole 16 bytes");
}

void Selector::turn_operands(KernelCall& call, size_t first, size_t inner, const std::string& origin) {
  // A read of one element moves a sector of 32 bytes; about every second finds it in the cache.
  constexpr double kBytesPerRead = 16;
  for (size_t i = first; target_.is_cuda() && i < call.inputs.size(); ++i) {
    Window& w = call.inputs[i];
    if (!lies_across(w, inner)) continue;
    const CopyForm form{inner, false};
    const int64_t elements = bounds(stored_elements(w, inner), options_.ranges).hi;
    const double moved = static_cast<double>(elements) * (kBytesPerRead - dtype_bytes(w.dtype));
    if (moved / target_.facts().bytes_per_microsecond <= copy_microseconds(w, form)) continue;
    w = operand_copy(w, form, {}, origin, "what reads it runs along another axis");
  }
}

const Window* Selector::find_copy(const Window& w, const CopyForm& form) const {
  for (const OperandCopy& copy : operand_copies_)
    if (copy.from == w && copy.form == form) return &copy.to;
  return nullptr;
}

Window Selector::operand_copy(const Window& w, const CopyForm& form, const std::vector<Window>& weights,
                              const std::string& origin, const char* reason) {
  if (const Window* known = find_copy(w, form)) return *known;
  const TensorType type{w.dtype, {stored_elements(w, form.inner)}};
  const std::string name = (form.rounded ? "rounded " : "aligned ") + result_.name_of(w.root);
  const Window extra = weights.empty() ? add_extra(ExtraValue::Kind::kTemp, type, "")
                                       : add_extra(ExtraValue::Kind::kPacked, type, name);
  const Window copy = copy_along(w, form.inner, extra.root);
  const auto add = [&](const Window& from, const Window& to) {
    emit_copy(from, to, origin, reason, form.rounded);
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
  operand_copies_.push_back({w, form, copy});
  return copy;
}

}  // namespace aicf
