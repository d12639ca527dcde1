// DeformConv: a convolution of images whose taps are moved by offsets and read between pixels.
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// X [N, C, H, W], W [M, C/group, kh, kw], offset [N, G kh kw 2, oh, ow] (rows first), B [M], mask
// [N, G kh kw, oh, ow]: the taps of each place are gathered into columns, and the product with W follows.
class DeformConv {
 public:
  explicit DeformConv(NodeContext& n) : n_(n), x_(n.shape(0)), w_(n.shape(1)), dtype_(n.dtype(0)) {
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}})
      if (n.rank(i) != 4)
        n.unsupported("operands of rank " + std::to_string(n.rank(i)) + ", which are no images");
    groups_ = n.attr_int("group", 1);
    offset_groups_ = n.attr_int("offset_group", 1);
    strides_ = pair("strides", 1);
    dilations_ = pair("dilations", 1);
    pads_ = n.attr_ints("pads", Ints(4, 0));
    for (int i = 0; i < 2; ++i)
      kernel_[i] = w_[2 + static_cast<size_t>(i)].require_constant("kernel of DeformConv");
    if (const Ints given = n.attr_ints("kernel_shape", {kernel_[0], kernel_[1]});
        given != Ints{kernel_[0], kernel_[1]})
      n.bad("kernel_shape", "that of W", to_string(given));
    if (pads_.size() != 4) n.bad("pads", "4 numbers", std::to_string(pads_.size()));
    for (const int64_t pad : pads_)
      if (pad < 0 || pad > kMost) n.bad("pads", "0 to 2^20", std::to_string(pad));
    for (const int64_t value : {kernel_[0], kernel_[1], groups_, offset_groups_})
      if (value < 1 || value > kMost)
        n.bad("kernel, group and offset_group", "1 to 2^20", std::to_string(value));
    for (int i = 0; i < 2; ++i) {
      const Dim extent = Dim((kernel_[i] - 1) * dilations_[static_cast<size_t>(i)] + 1);
      const auto at = static_cast<size_t>(i);
      sizes_[i] = floordiv(x_[2 + at] + Dim(pads_[at] + pads_[2 + at]) - extent, Dim(strides_[at])) + Dim(1);
    }
    channels_ = x_[1].require_constant("channels of DeformConv");
    filters_ = w_[0].require_constant("filters of DeformConv");
    if (channels_ % groups_ != 0 || channels_ % offset_groups_ != 0 || filters_ % groups_ != 0 ||
        w_[1] != Dim(channels_ / groups_))
      n.bad("channels", "as W, group and offset_group say", to_string(x_) + " and " + to_string(w_));
  }

  ValueId run() const {
    const Dim taps(kernel_[0] * kernel_[1]), places = sizes_[0] * sizes_[1];
    const Dim owners(offset_groups_);
    const ValueId image =
        n_.reshape(n_.in(0), {x_[0], owners, Dim(channels_ / offset_groups_), x_[2] * x_[3]});
    const ValueId width = n_.size_scalar(x_[3], DType::i64);
    const Shape thin = {x_[0], owners, Dim(1), taps * places},
                wide = {x_[0], owners, Dim(channels_ / offset_groups_), taps * places};
    ValueId columns = kNoValue;
    for (const auto& [row, row_weight] : ends(0))
      for (const auto& [column, weight] : ends(1)) {
        const ValueId at = op(Op::add, op(Op::mul, row, width), column);
        const ValueId pixels = n_.add(Op::gather_elements, {image, n_.broadcast(n_.reshape(at, thin), wide)},
                                      {{"axis", int64_t{3}}});
        const ValueId term = op(Op::mul, pixels, n_.reshape(op(Op::mul, row_weight, weight), thin));
        columns = columns == kNoValue ? term : op(Op::add, columns, term);
      }
    if (n_.has(4)) columns = op(Op::mul, columns, n_.reshape(n_.in(4), thin));
    const Dim depth(channels_ / groups_ * kernel_[0] * kernel_[1]);
    const ValueId filters = n_.reshape(n_.in(1), {Dim(groups_), Dim(filters_ / groups_), depth});
    const ValueId y =
        n_.add(Op::matmul, {filters, n_.reshape(columns, {x_[0], Dim(groups_), depth, places})});
    const ValueId result = n_.reshape(y, {x_[0], Dim(filters_), sizes_[0], sizes_[1]});
    return n_.has(3) ? op(Op::add, result, n_.reshape(n_.in(3), {Dim(filters_), Dim(1), Dim(1)})) : result;
  }

 private:
  static constexpr int64_t kMost = 1 << 20;

  Ints pair(const char* name, int64_t absent) const {
    const Ints values = n_.attr_ints(name, {absent, absent});
    if (values.size() != 2) n_.bad(name, "2 numbers", std::to_string(values.size()));
    for (const int64_t value : values)
      if (value < 1 || value > kMost) n_.bad(name, "1 to 2^20", std::to_string(value));
    return values;
  }
  ValueId num(double v) const { return n_.scalar(dtype_, v); }
  ValueId op(Op o, ValueId a, ValueId b) const { return n_.add(o, {a, b}); }

  // Where the taps stand on axis i, [N, G, kh kw, oh, ow].
  ValueId position(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    const int64_t taps = kernel_[0] * kernel_[1];
    Array base = n_.generated(dtype_, {1, 1, taps, 1, 1});
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t tap = i == 0 ? k / kernel_[1] : k % kernel_[1];
      base.set_f64(k, static_cast<double>(tap * dilations_[at] - pads_[at]));
    }
    Shape line(5, Dim(1));
    line[3 + at] = sizes_[i];
    const ValueId index = n_.add(Op::iota, {}, {{"shape", line}, {"axis", 3 + i}, {"dtype", dtype_}});
    const ValueId starts = op(Op::mul, index, num(static_cast<double>(strides_[at])));
    const ValueId offsets =
        n_.reshape(n_.in(2), {x_[0], Dim(offset_groups_), Dim(taps), Dim(2), sizes_[0], sizes_[1]});
    const ValueId own = n_.reshape(n_.slice_axis(offsets, 3, i, i + 1),
                                   {x_[0], Dim(offset_groups_), Dim(taps), sizes_[0], sizes_[1]});
    return op(Op::add, own, op(Op::add, starts, n_.constant_of(std::move(base))));
  }

  // The two pixels around each position and their weights; a pixel outside weighs nothing.
  std::vector<std::pair<ValueId, ValueId>> ends(int64_t i) const {
    const ValueId at = position(i), low = n_.add(Op::floor, {at}), rest = op(Op::sub, at, low);
    const ValueId last = n_.size_scalar(x_[2 + static_cast<size_t>(i)] - Dim(1), dtype_);
    const auto end = [&](ValueId pixel, ValueId weight) {
      const ValueId inside = op(Op::bit_and, op(Op::ge, pixel, num(0)), op(Op::le, pixel, last));
      return std::pair{n_.cast(n_.add(Op::clamp, {pixel, num(0), last}), DType::i64),
                       n_.add(Op::select, {inside, weight, num(0)})};
    };
    return {end(low, op(Op::sub, num(1), rest)), end(op(Op::add, low, num(1)), rest)};
  }

  NodeContext& n_;
  Shape x_, w_;
  DType dtype_;
  int64_t groups_ = 1, offset_groups_ = 1, channels_ = 0, filters_ = 0;
  int64_t kernel_[2] = {1, 1};
  Ints strides_, dilations_, pads_;
  Dim sizes_[2];  // of the result
};

void deform_conv(NodeContext& n) { n.out(0, DeformConv(n).run()); }

}  // namespace

std::vector<OpRule> deform_rules() { return {{"DeformConv", deform_conv, 19}}; }

}  // namespace aicf::onnx
