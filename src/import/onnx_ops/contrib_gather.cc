// GatherBlockQuantized of com.microsoft: rows of a table of small integers with a scale and zero point per
// block. Only the rows that are asked for become floats.
#include "import/onnx_ops/quant.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// Numbers of `bits` bits, the lowest first, packed into the bytes of the last axis, as i32.
ValueId unpack_last(NodeContext& n, ValueId x, int64_t bits) {
  Shape thin = n.shape_of(x), flat = thin;
  const int64_t per_byte = 8 / bits;
  thin.emplace_back(1);
  flat.back() = flat.back() * Dim(per_byte);
  Array shifts(DType::i32, {per_byte});
  for (int64_t i = 0; i < per_byte; ++i) shifts.set_i64(i, i * bits);
  const ValueId moved =
      n.add(Op::shift_right, {n.reshape(n.cast(x, DType::i32), thin), n.constant_of(std::move(shifts))});
  const ValueId low = n.add(Op::bit_and, {moved, n.iscalar(DType::i32, (int64_t{1} << bits) - 1)});
  return n.reshape(low, flat);
}

class GatherBlocks {
 public:
  explicit GatherBlocks(NodeContext& n)
      : n_(n),
        gather_(n.axis(n.attr_int("gather_axis", 0), n.rank(0))),
        axis_(n.axis(n.attr_int("quantize_axis", 1), n.rank(0))),
        block_(n.attr_int("block_size", 128)),
        bits_(n.attr_int("bits", 4)),
        bytes_(n.carried(0) == nullptr && n.dtype(0) == DType::u8) {
    if (n.carried(0) == nullptr && !bytes_) n.unsupported("data of " + std::string(dtype_name(n.dtype(0))));
    if (block_ < 16 || block_ > (1 << 16) || (block_ & (block_ - 1)) != 0)
      n.bad("block_size", "a power of two from 16 on", std::to_string(block_));
    if (bytes_ && bits_ != 2 && bits_ != 4 && bits_ != 8) n.bad("bits", "2, 4 or 8", std::to_string(bits_));
    if (bytes_ && bits_ < 8 && (gather_ == axis_ || axis_ != n.rank(0) - 1))
      n.unsupported("packed bytes along quantize_axis=" + std::to_string(axis_));
    n.require_rank(2, n.rank(0));
    if (n.has(3)) n.require_rank(3, n.rank(0));
  }

  ValueId run() {
    if (gather_ == axis_)
      return gathered(dequantized(n_.in(0), n_.in(2), zeros(), static_cast<size_t>(axis_)));
    // The axes behind the gathered one move by as many as the indices have more than one.
    const auto axis = static_cast<size_t>(axis_ > gather_ ? axis_ + n_.rank(1) - 1 : axis_);
    const ValueId zero = zeros();
    return dequantized(gathered(n_.in(0)), gathered(n_.in(2)), zero == kNoValue ? zero : gathered(zero),
                       axis);
  }

 private:
  ValueId gathered(ValueId x) { return n_.add(Op::gather, {x, n_.in(1)}, {{"axis", gather_}}); }
  ValueId zeros() { return n_.in_or_none(3); }
  bool packed() const { return bytes_ && bits_ < 8; }

  ValueId dequantized(ValueId x, ValueId scales, ValueId zero, size_t axis) {
    if (packed()) x = unpack_last(n_, x, bits_);
    const Dim size = n_.shape_of(x)[axis], blocks = n_.shape_of(scales)[axis];
    if (packed() && zero != kNoValue)
      zero = n_.slice_axis(unpack_last(n_, zero, bits_), static_cast<int64_t>(axis), Dim(0), blocks);
    x = n_.cast(x, DType::f32);
    if (zero != kNoValue)
      x = n_.add(Op::sub, {x, repeat_blocks(n_, n_.cast(zero, DType::f32), axis, block_, size)});
    else if (bytes_)
      x = n_.add(Op::sub, {x, n_.scalar(DType::f32, static_cast<double>(int64_t{1} << (bits_ - 1)))});
    const ValueId scale = repeat_blocks(n_, n_.cast(scales, DType::f32), axis, block_, size);
    return n_.cast(n_.add(Op::mul, {x, scale}), n_.dtype(2));
  }

  NodeContext& n_;
  int64_t gather_, axis_, block_, bits_;
  bool bytes_;  // the numbers are in bytes, not of a type of their own
};

void gather_block_quantized(NodeContext& n) { n.out(0, GatherBlocks(n).run()); }

}  // namespace

std::vector<OpRule> contrib_gather_rules() {
  return {{"GatherBlockQuantized", gather_block_quantized, 1, kContrib}};
}

}  // namespace aicf::onnx
