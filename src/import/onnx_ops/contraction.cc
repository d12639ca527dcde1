// MatMul, Gemm and Einsum. Integer products accumulate exactly.
#include <algorithm>
#include <map>

#include "import/onnx_ops/quant.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {

ValueId numpy_matmul(NodeContext& n, ValueId x, ValueId y) {
  const Shape xs = n.shape_of(x), ys = n.shape_of(y);
  if (xs.empty() || ys.empty()) n.bad("operands", "rank >= 1", "a scalar");
  const bool row = xs.size() == 1, column = ys.size() == 1;
  if (row) x = n.reshape(x, {Dim(1), xs[0]});
  if (column) y = n.reshape(y, {ys[0], Dim(1)});
  const ValueId product = n.add(Op::matmul, {x, y});
  Shape shape = n.shape_of(product);
  if (column) shape.pop_back();
  if (row) shape.erase(shape.end() - (column ? 1 : 2));
  return n.reshape(product, shape);
}

namespace {

// x - zero point in i32; a vector of zero points goes with axis `axis` from the end.
ValueId centered(NodeContext& n, ValueId x, ValueId zero_point, size_t from_end) {
  const ValueId wide = n.cast(x, DType::i32);
  if (zero_point == kNoValue) return wide;
  ValueId zero = n.cast(zero_point, DType::i32);
  const Shape own = n.shape_of(zero);
  if (own.size() == 1 && own[0] != Dim(1)) {
    Shape thin = own;
    thin.insert(thin.end(), from_end - 1, Dim(1));
    zero = n.reshape(zero, thin);
  } else if (own.size() == 1) {
    zero = n.reshape(zero, {});
  }
  return n.add(Op::sub, {wide, zero});
}

}  // namespace

ValueId integer_matmul(NodeContext& n, ValueId x, ValueId x_zero, ValueId y, ValueId y_zero) {
  return numpy_matmul(n, centered(n, x, x_zero, 2), centered(n, y, y_zero, 1));
}

namespace {

void matmul(NodeContext& n) { n.out(0, numpy_matmul(n, n.in(0), n.in(1))); }

// alpha op(A) op(B) + beta C
void gemm(NodeContext& n) {
  const double alpha = n.attr_float("alpha", 1.0), beta = n.attr_float("beta", 1.0);
  const bool transpose_a = n.attr_int("transA", 0) != 0, transpose_b = n.attr_int("transB", 0) != 0;
  const bool has_c = n.has(2) && beta != 0.0;
  if (n.rank(0) != 2 || n.rank(1) != 2)
    n.bad("A and B", "rank 2", to_string(n.shape(0)) + " and " + to_string(n.shape(1)));
  const DType dtype = n.dtype(0);
  const Dim columns = n.shape(1)[transpose_b ? 0 : 1];
  const bool bias = has_c && n.rank(2) == 1 && n.shape(2)[0] == columns;
  if (is_float(dtype) && alpha == 1.0 && beta == 1.0 && !transpose_a && (bias || !has_c))
    return n.out(
        0, n.add(Op::linear, {n.in(0), n.in(1), bias ? n.in(2) : kNoValue}, {{"transpose_w", transpose_b}}));
  ValueId y =
      n.add(Op::matmul, {n.in(0), n.in(1)}, {{"transpose_x", transpose_a}, {"transpose_y", transpose_b}});
  if (alpha != 1.0) y = n.add(Op::mul, {y, n.scalar(dtype, alpha)});
  if (has_c)
    y = n.add(Op::add, {y, beta == 1.0 ? n.in(2) : n.add(Op::mul, {n.in(2), n.scalar(dtype, beta)})});
  n.out(0, y);
}

void matmul_integer(NodeContext& n) {
  n.out(0, integer_matmul(n, n.in(0), n.in_or_none(2), n.in(1), n.in_or_none(3)));
}

// --- Einsum: operands are reduced to labelled values whose labels are unique, then contracted from left to
// right.

struct Labelled {
  ValueId id;
  std::string labels;  // one character per axis; '.'-axes have been replaced by upper control characters
};

class Einsum {
 public:
  explicit Einsum(NodeContext& n) : n_(n) { parse(); }

  ValueId run() {
    std::vector<Labelled> terms;
    for (size_t i = 0; i < inputs_.size(); ++i) terms.push_back(take_diagonals({n_.in(i), inputs_[i]}));
    Labelled result = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      std::string later = output_;
      for (size_t k = i + 1; k < terms.size(); ++k) later += terms[k].labels;
      result =
          contract(sum_out(result, later + terms[i].labels), sum_out(terms[i], later + result.labels), later);
    }
    result = sum_out(result, output_);
    return permuted(result, output_).id;
  }

 private:
  // Axes under an ellipsis get labels from 1 on, aligned at the right.
  static char ellipsis_label(size_t from_right) { return static_cast<char>(1 + from_right); }

  void parse() {
    std::string equation;
    for (char c : n_.attr_str("equation", ""))
      if (c != ' ') equation += c;
    const size_t arrow = equation.find("->");
    std::string left = equation.substr(0, arrow);
    size_t ellipsis_rank = 0;
    const auto terms = static_cast<size_t>(std::count(left.begin(), left.end(), ',')) + 1;
    if (terms != n_.input_count()) n_.bad("equation", "one term per input", equation);
    for (size_t i = 0, at = 0; i < n_.input_count(); ++i) {
      const size_t comma = std::min(left.find(',', at), left.size());
      inputs_.push_back(expand(left.substr(at, comma - at), static_cast<size_t>(n_.rank(i)), ellipsis_rank));
      at = comma + 1;
    }
    if (arrow != std::string::npos) {
      const std::string right = equation.substr(arrow + 2);
      const size_t dots = right.find("...");
      output_ = dots == std::string::npos
                    ? right
                    : right.substr(0, dots) + ellipsis(ellipsis_rank) + right.substr(dots + 3);
    } else {
      output_ = ellipsis(ellipsis_rank) + once_labels();
    }
    for (char c : output_)
      if (std::none_of(inputs_.begin(), inputs_.end(),
                       [&](const std::string& s) { return s.find(c) != std::string::npos; }))
        n_.bad("equation", "output labels that occur in an input", equation);
  }

  static std::string ellipsis(size_t rank) {
    std::string labels;
    for (size_t i = 0; i < rank; ++i) labels += ellipsis_label(rank - 1 - i);
    return labels;
  }

  std::string expand(const std::string& term, size_t rank, size_t& ellipsis_rank) {
    const size_t dots = term.find("...");
    const size_t named = dots == std::string::npos ? term.size() : term.size() - 3;
    if (named > rank || (dots == std::string::npos && named != rank) || rank - named > 8)
      n_.bad("equation", "a label per axis", term);
    if (dots == std::string::npos) return term;
    ellipsis_rank = std::max(ellipsis_rank, rank - named);
    return term.substr(0, dots) + ellipsis(rank - named) + term.substr(dots + 3);
  }

  // Without an arrow the output is what occurs once, in alphabetical order.
  std::string once_labels() const {
    std::map<char, int> count;
    for (const std::string& input : inputs_)
      for (char c : input) ++count[c];
    std::string labels;
    for (const auto& [c, times] : count)
      if (times == 1 && c > 8) labels += c;
    return labels;
  }

  // A label twice in one operand means its diagonal: zero elsewhere, sum the second axis.
  Labelled take_diagonals(Labelled x) {
    for (size_t i = 0; i < x.labels.size(); ++i)
      for (size_t k = x.labels.size() - 1; k > i; --k) {
        if (x.labels[i] != x.labels[k]) continue;
        const Shape shape = n_.shape_of(x.id);
        auto index = [&](size_t axis) {
          return n_.add(Op::iota, {},
                        {{"shape", shape}, {"axis", static_cast<int64_t>(axis)}, {"dtype", DType::i64}});
        };
        const ValueId on = n_.add(Op::eq, {index(i), index(k)});
        x.id = n_.add(Op::select, {on, x.id, n_.cast(n_.iscalar(DType::i64, 0), n_.dtype_of(x.id))});
        x.id = n_.add(Op::reduce_sum, {x.id}, {{"axes", Ints{static_cast<int64_t>(k)}}});
        x.labels.erase(k, 1);
      }
    return x;
  }

  Labelled sum_out(const Labelled& x, const std::string& needed) {
    Ints axes;
    std::string kept;
    for (size_t i = 0; i < x.labels.size(); ++i) {
      if (needed.find(x.labels[i]) == std::string::npos)
        axes.push_back(static_cast<int64_t>(i));
      else
        kept += x.labels[i];
    }
    if (axes.empty()) return x;
    return {n_.add(Op::reduce_sum, {x.id}, {{"axes", axes}}), kept};
  }

  Labelled permuted(const Labelled& x, const std::string& labels) {
    Ints perm;
    for (char c : labels) {
      const size_t at = x.labels.find(c);
      if (at == std::string::npos) n_.bad("equation", "labels that match", n_.attr_str("equation", ""));
      perm.push_back(static_cast<int64_t>(at));
    }
    return {n_.transpose(x.id, perm), labels};
  }

  Dim size_of(const Labelled& x, char label) const { return n_.shape_of(x.id)[x.labels.find(label)]; }

  Dim count(const Labelled& x, const std::string& labels) const {
    Dim product(1);
    for (char c : labels) product = product * size_of(x, c);
    return product;
  }

  // Both operands' axes fall into batch (kept, shared), sum (shared, gone), rows and columns: one batched
  // matmul. A shared axis of size 1 on one side is broadcast first.
  Labelled contract(Labelled x, Labelled y, const std::string& needed) {
    std::string batch, sum, rows, columns;
    for (char c : x.labels) {
      const bool shared = y.labels.find(c) != std::string::npos;
      (shared ? (needed.find(c) != std::string::npos ? batch : sum) : rows) += c;
    }
    for (char c : y.labels)
      if (x.labels.find(c) == std::string::npos) columns += c;
    align(x, y, batch + sum);
    Shape batch_shape, result_shape;
    for (char c : batch) batch_shape.push_back(size_of(x, c));
    result_shape = batch_shape;
    for (char c : rows) result_shape.push_back(size_of(x, c));
    for (char c : columns) result_shape.push_back(size_of(y, c));
    Shape left = batch_shape, right = batch_shape;
    left.insert(left.end(), {count(x, rows), count(x, sum)});
    right.insert(right.end(), {count(y, sum), count(y, columns)});
    const ValueId a = n_.reshape(permuted(x, batch + rows + sum).id, left);
    const ValueId b = n_.reshape(permuted(y, batch + sum + columns).id, right);
    return {n_.reshape(n_.add(Op::matmul, {a, b}), result_shape), batch + rows + columns};
  }

  void align(Labelled& x, Labelled& y, const std::string& shared) {
    Shape xs = n_.shape_of(x.id), ys = n_.shape_of(y.id);
    for (char c : shared) {
      Dim &a = xs[x.labels.find(c)], &b = ys[y.labels.find(c)];
      if (a == Dim(1)) a = b;
      if (b == Dim(1)) b = a;
    }
    x.id = n_.broadcast(x.id, xs);
    y.id = n_.broadcast(y.id, ys);
  }

  NodeContext& n_;
  std::vector<std::string> inputs_;
  std::string output_;
};

void einsum(NodeContext& n) { n.out(0, Einsum(n).run()); }

}  // namespace

std::vector<OpRule> contraction_rules() {
  return {{"MatMul", matmul}, {"Gemm", gemm}, {"MatMulInteger", matmul_integer}, {"Einsum", einsum}};
}

}  // namespace aicf::onnx
