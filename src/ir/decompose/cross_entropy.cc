#include "ir/decompose/cross_entropy.h"

#include <algorithm>

namespace aicf {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 30;  // of logits, at most; and of a gradient summed in f32
constexpr int64_t kChunkRows = 128;                // a chunk's rows are a multiple: whole tiles of a product

int64_t bytes_of(int64_t rows, int64_t columns, DType dtype) { return rows * columns * dtype_bytes(dtype); }

}  // namespace

LabelRows label_rows(Emitter& e, ValueId labels, const Dim& classes, int64_t ignore_index, DType dtype) {
  labels = e.cast(labels, DType::i64);
  const Dim rows = e.shape(labels)[0];
  const ValueId zero = e.scalar_int(DType::i64, 0);
  const ValueId kept = e.op(Op::ne, {labels, e.scalar_int(DType::i64, ignore_index)});
  const ValueId checked = e.select(e.op(Op::lt, {labels, zero}), e.size(classes, DType::i64), labels);
  const ValueId index = e.reshape(e.select(kept, checked, zero), {rows, 1});
  const ValueId count = e.reduce(Op::reduce_sum, e.cast(kept, DType::i64), {0}, false);
  return {kept, index, e.cast(e.op(Op::max, {count, e.scalar_int(DType::i64, 1)}), dtype)};
}

SoftmaxRows softmax_rows(Emitter& e, ValueId logits, ValueId index) {
  // From the logits as they are stored, so that nothing else of their size is; and first, so that what is
  // made of them may take their memory.
  const ValueId picked = e.op(Op::gather_elements, {logits, index}, {{"axis", int64_t{1}}});
  SoftmaxRows rows{e.widen(picked), e.widen(logits), 0, 0, 0};
  rows.top = e.reduce(Op::reduce_max, rows.wide, {1}, true);
  rows.powers = e.exp(e.sub(rows.wide, rows.top));
  rows.sum = e.reduce(Op::reduce_sum, rows.powers, {1}, true);
  return rows;
}

ValueId row_losses(Emitter& e, const SoftmaxRows& rows) {
  const ValueId losses = e.sub(e.op(Op::log, {rows.sum}), e.sub(rows.picked, rows.top));
  return e.reshape(losses, {e.shape(rows.wide)[0]});
}

ValueId mean_of_kept(Emitter& e, ValueId losses, const LabelRows& labels) {
  const ValueId counted = e.select(labels.kept, losses, e.scalar(e.dtype(losses), 0));
  return e.div(e.reduce(Op::reduce_sum, counted, {0}, false), labels.divisor);
}

Dim cross_entropy_chunk(const Dim& rows, const Dim& classes, DType dtype) {
  const auto count = rows.constant(), width = classes.constant();
  if (!count || !width || *width == 0 || *count > kChunkBytes) return rows;
  const int64_t chunks = (bytes_of(*count, *width, dtype) + kChunkBytes - 1) / kChunkBytes;
  if (chunks <= 1) return rows;
  const int64_t chunk = ((*count + chunks - 1) / chunks + kChunkRows - 1) / kChunkRows * kChunkRows;
  return Dim(std::min(chunk, *count));
}

Values decompose_cross_entropy(Emitter& e, const Node& node, const Values& x) {
  const DType dtype = e.dtype(x[0]) == DType::f64 ? DType::f64 : DType::f32;  // as rows are computed with
  const int64_t ignored = node.attrs.get_int("ignore_index");
  const LabelRows labels = label_rows(e, x[1], e.shape(x[0])[1], ignored, dtype);
  const SoftmaxRows rows = softmax_rows(e, x[0], labels.index);
  return {e.cast(mean_of_kept(e, row_losses(e, rows), labels), e.dtype(x[0]))};
}

namespace {

// The rows of one linear_cross_entropy in chunks, each complete before the next: logits, losses and, where
// dloss is given, gradients.
class Chunks {
 public:
  Chunks(Emitter& e, const Node& node, const Values& x)
      : e_(e),
        x_(x[0]),
        w_(x[1]),
        rows_(e.shape(x_)[0]),
        transposed_(node.attrs.get_bool("transpose_w")),
        dtype_(node.attrs.get_dtype("dtype")),
        classes_(e.shape(w_)[transposed_ ? 0 : 1]),
        wide_(e.dtype(x_) == DType::f64 || dtype_ == DType::f64 ? DType::f64 : DType::f32),
        labels_(label_rows(e, x[2], classes_, node.attrs.get_int("ignore_index"), wide_)) {
    const int64_t given = node.attrs.get_int("chunk");
    chunk_ = given > 0 ? Dim(given) : cross_entropy_chunk(rows_, classes_, e.dtype(x_));
    if (x.size() > 3) {
      share_ = e.div(e.cast(x[3], wide_), labels_.divisor);
      kept_ = e.reshape(labels_.kept, {rows_, 1});
    }
  }

  Values run() {
    if (!chunk_.constant() || !rows_.constant() || *rows_.constant() <= *chunk_.constant()) {
      add(Dim(0), rows_);
    } else {
      for (int64_t first = 0; first < *rows_.constant(); first += *chunk_.constant())
        add(Dim(first), Dim(std::min(first + *chunk_.constant(), *rows_.constant())));
    }
    const ValueId loss = e_.cast(mean_of_kept(e_, joined(losses_), labels_), dtype_);
    if (share_ == kNoValue) return {loss};
    return {loss, joined(dx_), e_.cast(dw_, e_.dtype(w_))};
  }

 private:
  ValueId rows_of(ValueId x, const Dim& first, const Dim& limit) {
    const Shape shape = e_.shape(x);
    if (first == Dim(0) && limit == shape[0]) return x;
    Shape starts(shape.size(), Dim(0)), limits = shape;
    starts[0] = first;
    limits[0] = limit;
    return e_.op(Op::slice, {x}, {{"starts", starts}, {"limits", limits}, {"steps", Ints(shape.size(), 1)}});
  }
  ValueId joined(const Values& parts) {
    return parts.size() == 1 ? parts[0] : e_.op(Op::concat, parts, {{"axis", int64_t{0}}});
  }
  ValueId product(ValueId x, ValueId y, bool transpose_x, bool transpose_y) {
    return e_.op(Op::matmul, {x, y}, {{"transpose_x", transpose_x}, {"transpose_y", transpose_y}});
  }

  void add(const Dim& first, const Dim& limit) {
    const ValueId x = rows_of(x_, first, limit), index = rows_of(labels_.index, first, limit);
    const ValueId logits = e_.cast(product(x, w_, false, transposed_), computed());
    const SoftmaxRows rows = softmax_rows(e_, logits, index);
    losses_.push_back(e_.cast(row_losses(e_, rows), wide_));
    if (share_ != kNoValue) add_gradients(x, rows, index, first, limit);
  }
  // f16 and bf16 stay, so that losses pick from what is stored.
  DType computed() const { return wide_ == DType::f64 ? DType::f64 : e_.dtype(x_); }

  void add_gradients(ValueId x, const SoftmaxRows& rows, ValueId index, const Dim& first, const Dim& limit) {
    const ValueId kept = rows_of(kept_, first, limit);
    const ValueId classes =
        e_.op(Op::iota, {}, {{"shape", Shape{1, classes_}}, {"axis", int64_t{1}}, {"dtype", DType::i32}});
    const ValueId own = e_.op(Op::eq, {classes, e_.cast(index, DType::i32)});
    // (powers / sum - own) · share with one division a row.
    const ValueId chances = e_.mul(rows.powers, e_.div(share_, rows.sum));
    const ValueId slope = e_.select(own, e_.sub(chances, share_), chances);
    const ValueId wide = e_.select(kept, slope, e_.scalar(wide_, 0));
    const ValueId dlogits = e_.cast(wide, e_.dtype(x_));
    dx_.push_back(product(dlogits, w_, false, !transposed_));
    sum_weights(transposed_ ? product(dlogits, x, true, false) : product(x, dlogits, true, false));
  }

  // In f32, unless that were more memory than chunks save.
  void sum_weights(ValueId part) {
    const auto width = element_count(e_.shape(w_)).constant();
    const bool small = width && *width <= kChunkBytes / dtype_bytes(DType::f32);
    if (chunk_ != rows_ && small) part = e_.widen(part);
    dw_ = dw_ == kNoValue ? part : e_.add(dw_, part);
  }

  Emitter& e_;
  ValueId x_, w_, share_ = kNoValue, kept_ = kNoValue,
                  dw_ = kNoValue;  // share_: dloss of one row that is kept
  Dim rows_;
  bool transposed_;
  DType dtype_;
  Dim classes_;
  DType wide_;
  LabelRows labels_;
  Dim chunk_{0};
  Values losses_, dx_;
};

}  // namespace

Values decompose_linear_cross_entropy(Emitter& e, const Node& node, const Values& x) {
  return Chunks(e, node, x).run();
}
Values decompose_linear_cross_entropy_backward(Emitter& e, const Node& node, const Values& x) {
  return Chunks(e, node, x).run();
}

}  // namespace aicf
