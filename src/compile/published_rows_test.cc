// What every row of a kernel table publishes, measured: its tolerance against f64 on inputs made to lose
// digits, and what its order of accumulation depends on. On the device of test_device.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "compile/testing/compiled.h"
#include "compile/testing/random_arrays.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "kernels/common/cuda_kernel.h"

namespace aicf::testing::published_rows_test {
namespace {

// What an error is a part of.
enum class Against {
  kTerms,    // the same result computed of the absolute values of the inputs: no cancellation can hide in it
  kLargest,  // the largest element of the result, for softmax-like results
};

const char* const kConv2d = "strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]";

const char* const kTf32 = ", tf32 = true";

std::string conv(const std::string& dtype, int64_t channels, int64_t outputs, int64_t groups,
                 const std::string& more = "") {
  const auto dims = [&](const std::string& sizes) { return dtype + "[" + sizes + "]"; };
  const std::string c = std::to_string(channels), m = std::to_string(outputs);
  return "(%x: " + dims("B, " + c + ", 9, 7") +
         ", %w: " + dims(m + ", " + std::to_string(channels / groups) + ", 3, 3") +
         ") {\n %y = conv(%x, %w) {" + kConv2d + ", groups = " + std::to_string(groups) + more +
         "} : " + dims("B, " + m + ", 9, 7") + "\n";
}

// Of f32, x and the result with channels last.
std::string conv_channels_last(int64_t channels, int64_t outputs) {
  const std::string c = std::to_string(channels), m = std::to_string(outputs);
  return "(%x: f32[B, 9, 7, " + c + "], %w: f32[" + m + ", " + c +
         ", 3, 3]) {\n %t = transpose(%x) {perm = [0, 3, 1, 2]} : f32[B, " + c +
         ", 9, 7]\n %u = conv(%t, %w) {" + kConv2d + ", groups = 1} : f32[B, " + m +
         ", 9, 7]\n %y = transpose(%u) {perm = [0, 2, 3, 1]} : f32[B, 9, 7, " + m + "]\n";
}

std::string weight_gradient(const std::string& dtype, int64_t channels, int64_t outputs, int64_t groups,
                            const std::string& more = "") {
  const auto maps = [&](int64_t count) { return dtype + "[4, " + std::to_string(count) + ", 9, 8]"; };
  return "(%a: " + maps(channels) + ", %g: " + maps(outputs) +
         ") {\n %y = conv_weight_gradient(%a, %g) {kernel = [3, 3], " + kConv2d +
         ", groups = " + std::to_string(groups) + more + "} : " + dtype + "[" + std::to_string(outputs) +
         ", " + std::to_string(channels / groups) + ", 3, 3]\n";
}

std::string matmul(const std::string& x, const std::string& result, int64_t k, int64_t n) {
  const std::string sk = std::to_string(k), sn = std::to_string(n);
  return "(%x: " + x + "[B, " + sk + "], %w: " + x + "[" + sk + ", " + sn +
         "]) {\n %y = matmul(%x, %w) : " + result + "[B, " + sn + "]\n";
}

const char* const kPool = "kernel = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1], dilations = [1, 1]";

std::string pool(const std::string& op, const std::string& result, const std::string& more = "") {
  return "(%x: f32[B, 5, 9, 7]) {\n %y = " + op + "(%x) {" + kPool + more + "} : " + result +
         "[B, 5, 5, 7]\n";
}

std::string attention(const std::string& dtype, int64_t length, int64_t depth, const std::string& more = "") {
  const std::string type = dtype + "[B, 2, " + std::to_string(length) + ", " + std::to_string(depth) + "]";
  return "(%xq: " + type + ", %xk: " + type + ", %xv: " + type +
         ") {\n %y = attention(%xq, %xk, %xv) {scale = 0.125" + more + "} : " + type + "\n";
}

// One query over many keys, which a GPU cuts into parts.
std::string decode(const std::string& dtype, int64_t keys, int64_t depth) {
  const std::string sizes = ", " + std::to_string(depth) + "]",
                    many = dtype + "[B, 2, " + std::to_string(keys) + sizes, one = dtype + "[B, 2, 1" + sizes;
  return "(%xq: " + one + ", %xk: " + many + ", %xv: " + many +
         ") {\n %y = attention(%xq, %xk, %xv) {scale = 0.125} : " + one + "\n";
}

std::string attention_backward(const std::string& dtype, int64_t length, int64_t depth) {
  const std::string type = dtype + "[B, 2, " + std::to_string(length) + ", " + std::to_string(depth) + "]";
  return "(%xq: " + type + ", %xk: " + type + ", %xv: " + type + ", %xd: " + type +
         ") {\n %o = attention(%xq, %xk, %xv) {scale = 0.125} : " + type +
         "\n %y, %yk, %yv = attention_backward(%xq, %xk, %xv, %o, %xd) {scale = 0.125} : " + type + ", " +
         type + ", " + type + "\n";
}

// One step, whose sums are the results; the batch is axis 1 of the op's operands.
std::string recurrent(const std::string& dtype, bool back, int64_t hidden = 40) {
  const std::string size = std::to_string(hidden), outside = dtype + "[B, 1, " + size + "]",
                    inside = dtype + "[1, B, " + size + "]", none = dtype + "[1, B, 0]";
  const auto turned = [&](const std::string& to, const std::string& from) {
    return " %" + to + " = transpose(%" + from + ") {perm = [1, 0, 2]} : " + inside + "\n";
  };
  std::string text = "(%xa: " + outside + ", %xh: " + outside + ", %w: " + dtype + "[1, " + size + ", " +
                     size + "]) {\n" + turned("a", "xa") + turned("h", "xh");
  if (back)
    text += " %z = constant " + dtype + "[] = [0]\n %n = broadcast_to(%z) {shape = [1, B, 0]} : " + none +
            "\n %d, %r, %c = recurrent_backward(%w, %h, %a, %n, %n, %h) {cell = \"rnn_relu\"} : " + inside +
            ", " + inside + ", " + none + "\n";
  else
    text += " %r, %c, %g = recurrent(%a, %h, %w) {cell = \"rnn_relu\"} : " + inside + ", " + none + ", " +
            none + "\n";
  return text + " %y = transpose(%r) {perm = [1, 0, 2]} : " + outside + "\n";
}

struct Named {
  std::string row;
  std::string
      body;        // of "entry main", with B for the batch, the first axis of inputs whose name begins with x
  int64_t length;  // of the reduction
  Against against = Against::kTerms;
  bool weight = false;  // w is a param, which a packed row wants
  int64_t indexed =
      0;  // elements of x in a row of the batch, where integer results count through the whole of x
  std::string copied =
      {};  // the row that brings an operand into the form that this one reads: a copy, measured with it
};

// Several ops that one row computes.

std::string pair_of_products() {
  return "(%x: bf16[B, 300], %g: bf16[300, 96], %u: bf16[300, 96]) {\n %a = matmul(%x, %g) : bf16[B, 96]\n "
         "%b = matmul(%x, "
         "%u) : bf16[B, 96]\n %y = mul(%a, %b) : bf16[B, 96]\n";
}

std::string product_and_norm(const std::string& dtype) {
  const std::string rows = dtype + "[B, 768]", row = dtype + "[768]";
  return "(%x: " + dtype + "[B, 192], %w: " + dtype + "[192, 768], %b: " + row + ", %xr: " + rows +
         ", %s: " + row + ") {\n %p = matmul(%x, %w) : " + rows + "\n %q = add(%p, %b) : " + rows +
         "\n %a = add(%q, %xr) : " + rows +
         "\n %y = layer_norm(%a, %s, %b) {axis = -1, epsilon = 1e-05} : " + rows + "\n";
}

std::string product_and_attention(const std::string& dtype) {
  const std::string all = dtype + "[B, 128, 384]", own = dtype + "[B, 128, 128]",
                    heads = dtype + "[B, 128, 4, 32]", turned = dtype + "[B, 4, 128, 32]";
  std::string text =
      "(%x: " + dtype + "[B, 128, 136], %w: " + dtype + "[136, 384]) {\n %p = matmul(%x, %w) : " + all + "\n";
  for (int i = 0; i < 3; ++i) {
    const std::string n = std::to_string(i), from = std::to_string(128 * i),
                      to = std::to_string(128 * (i + 1));
    text += " %s" + n + " = slice(%p) {starts = [0, 0, " + from + "], limits = [B, 128, " + to +
            "], steps = [1, 1, 1]} : " + own + "\n %r" + n + " = reshape(%s" + n +
            ") {shape = [B, 128, 4, 32]} : " + heads + "\n %h" + n + " = transpose(%r" + n +
            ") {perm = [0, 2, 1, 3]} : " + turned + "\n";
  }
  return text + " %y = attention(%h0, %h1, %h2) {scale = 1e-05} : " + turned + "\n";
}

std::vector<Named> shared_cases() {
  return {
      {"conv_transpose",
       "(%x: f32[B, 6, 5, 4], %w: f32[6, 4, 3, 3]) {\n %y = conv_transpose(%x, %w) {strides = [2, 1], pads = "
       "[1, 1, 1, 1], "
       "dilations = [1, 1], output_padding = [0, 0]} : f32[B, 4, 9, 4]\n",
       54},
      {"max_pool", pool("max_pool", "f32"), 1},
      {"max_pool_indices", pool("max_pool_indices", "i64"), 1, Against::kTerms, false, 5 * 9 * 7},
      {"avg_pool", pool("avg_pool", "f32"), 6},
      {"sort", "(%x: f32[B, 301]) {\n %y, %yi = sort(%x) {axis = 1} : f32[B, 301], i64[B, 301]\n", 1},
      {"top_k", "(%x: f32[B, 301]) {\n %y, %yi = top_k(%x) {k = [7], axis = 1} : f32[B, 7], i64[B, 7]\n", 1},
      {"argmax", "(%x: f32[B, 301]) {\n %y = argmax(%x) {axis = 1} : i64[B]\n", 1},
      {"argmin", "(%x: f32[B, 301]) {\n %y = argmin(%x) {axis = 1} : i64[B]\n", 1},
      {"cumsum", "(%x: f32[B, 1500]) {\n %y = cumsum(%x) {axis = 1} : f32[B, 1500]\n", 1500},
      {"cumprod", "(%x: f32[B, 40]) {\n %y = cumprod(%x) {axis = 1} : f32[B, 40]\n", 40},
      {"gather", "(%x: f32[B, 9, 5], %i: i64[4]) {\n %y = gather(%x, %i) {axis = 1} : f32[B, 4, 5]\n", 1},
      {"gather_elements",
       "(%x: f32[B, 9], %xi: i64[B, 6]) {\n %y = gather_elements(%x, %xi) {axis = 1} : f32[B, 6]\n", 1},
      {"gather_nd",
       "(%x: f32[B, 9, 5], %xi: i64[B, 4, 1]) {\n %y = gather_nd(%x, %xi) {batch_dims = 1} : f32[B, 4, 5]\n",
       1},
      {"scatter_elements",
       "(%x: f32[B, 9], %xi: i64[B, 60], %xu: f32[B, 60]) {\n %y = scatter_elements(%x, %xi, %xu) {axis = 1, "
       "reduction = \"add\"} "
       ": f32[B, 9]\n",
       60},
      {"scatter_nd",
       "(%x: f32[B, 9], %xi: i64[B, 60, 1], %xu: f32[B, 60]) {\n %b = iota() {shape = [B, 60, 1], axis = 0, "
       "dtype = i64} : "
       "i64[B, 60, 1]\n %i = concat(%b, %xi) {axis = 2} : i64[B, 60, 2]\n %y = scatter_nd(%x, %i, %xu) "
       "{reduction = \"add\"} : "
       "f32[B, 9]\n",
       60},
      {"pad",
       "(%x: f32[B, 9]) {\n %y = pad(%x) {low = [0, 2], high = [0, 3], mode = \"reflect\"} : f32[B, 14]\n",
       1},
      {"tile", "(%x: f32[B, 700]) {\n %y = reduce_sum(%x) {axes = [1], keepdims = false} : f32[B]\n", 700},
      {"tile", "(%x: f16[B, 700]) {\n %y = reduce_sum(%x) {axes = [1], keepdims = false} : f16[B]\n", 700},
      {"tile", "(%x: f32[B, 513]) {\n %y = softmax(%x) {axis = 1} : f32[B, 513]\n", 513, Against::kLargest},
  };
}

std::vector<Named> cpu_cases() {
  std::vector<Named> cases = {
      {"matmul_f32_packed", matmul("f32", "f32", 300, 96), 300, Against::kTerms, true, 0,
       "pack_matmul_y_f32"},
      {"matmul_f32", matmul("f32", "f32", 300, 65), 300},
      {"matmul_half", matmul("f16", "f16", 300, 65), 300},
      {"matmul_half", matmul("bf16", "bf16", 300, 65), 300},
      {"matmul_f64", matmul("f64", "f64", 300, 33), 300},
      {"matmul_int", matmul("i32", "i32", 300, 33), 300},
      {"conv_f32", conv("f32", 6, 8, 2), 27},
      {"conv_f32_depthwise", conv("f32", 16, 16, 16), 9},
      {"conv_half", conv("f16", 6, 8, 1), 54},
      {"conv_f64", conv("f64", 6, 8, 1), 54},
      {"conv_f32_packed", conv("f32", 16, 32, 1), 144, Against::kTerms, true, 0, "pack_conv_w_f32"},
      {"attention_f32", attention("f32", 65, 40), 65, Against::kLargest},
      {"attention_f32", attention("f32", 65, 40, ", causal = true"), 65, Against::kLargest},
      {"attention_backward_f32", attention_backward("f32", 33, 40), 33, Against::kLargest},
  };
  for (Named& more : shared_cases()) cases.push_back(std::move(more));
  return cases;
}

std::vector<Named> cuda_cases() {
  std::vector<Named> cases = {
      {"matmul_tensor_core", matmul("bf16", "bf16", 304, 96), 304},
      {"matmul_tensor_core", matmul("f16", "f16", 304, 96), 304},
      {"matmul_simt", matmul("f32", "f32", 300, 65), 300},
      {"matmul_tf32x3", matmul("f32", "f32", 300, 68), 300},
      {"matmul_simt", matmul("f64", "f64", 300, 65), 300},
      {"conv_mma", conv("f16", 32, 64, 1), 288, Against::kTerms, true, 0, "conv_w_channels_last"},
      {"conv_mma", conv("bf16", 512, 64, 1), 4608, Against::kTerms, true, 0, "conv_w_channels_last"},
      {"conv_grouped", conv("f16", 32, 48, 4), 72},
      {"conv_grouped", conv("bf16", 36, 36, 3), 108},
      {"conv_grouped", conv("f16", 3, 40, 1), 27},
      {"conv_grouped", conv("bf16", 64, 3, 1), 576},
      {"conv_halo", conv("f16", 24, 40, 1), 216},
      {"conv_halo", conv("bf16", 20, 24, 1), 180},
      {"conv_grouped", conv("f32", 24, 36, 3, kTf32), 72},
      {"conv_grouped", conv("f32", 67, 3, 1, kTf32), 603},
      {"conv_mma", conv("f32", 64, 64, 1, kTf32), 576, Against::kTerms, true},
      {"conv_mma", conv("f32", 6, 8, 2, kTf32), 27},
      {"conv_simt", conv("f32", 6, 8, 2), 27},
      {"conv_tf32x3", conv_channels_last(40, 72), 360},
      {"conv_tf32x3", conv_channels_last(64, 64), 576, Against::kTerms, true, 0, "conv_w_channels_last"},
      {"conv_depthwise", conv("f16", 16, 16, 16), 9},
      {"weight_gradient_wgmma", weight_gradient("bf16", 40, 72, 1), 4 * 9 * 8},
      {"weight_gradient_wgmma", weight_gradient("f16", 24, 36, 6), 4 * 9 * 8},
      {"weight_gradient_mma", weight_gradient("bf16", 40, 72, 1), 4 * 9 * 8},
      {"weight_gradient_mma", weight_gradient("f16", 24, 36, 6), 4 * 9 * 8},
      {"weight_gradient_tf32", weight_gradient("f32", 24, 36, 1, kTf32), 4 * 9 * 8},
      {"weight_gradient_tf32x3", weight_gradient("f32", 24, 36, 1), 4 * 9 * 8},
      {"weight_gradient_tf32x3", weight_gradient("f32", 6, 8, 2), 4 * 9 * 8},
      {"weight_gradient_depthwise", weight_gradient("f32", 17, 17, 17), 4 * 9 * 8},
      {"weight_gradient_depthwise", weight_gradient("bf16", 32, 32, 32), 4 * 9 * 8},
      {"attention_simt", attention("f32", 65, 40), 65, Against::kLargest},
      {"attention_simt", decode("f32", 2048, 64), 2048, Against::kLargest},
      {"attention_tf32", attention("f32", 333, 64, ", tf32 = true"), 333, Against::kLargest},
      {"attention_mma", attention("f16", 333, 64), 333, Against::kLargest},
      {"attention_mma", decode("f16", 4096, 64), 4096, Against::kLargest},
      {"attention_wgmma", attention("bf16", 333, 64), 333, Against::kLargest},
      {"attention_wgmma", decode("bf16", 4096, 128), 4096, Against::kLargest},
      {"matmul_pair", pair_of_products(), 2 * 300},
      {"matmul_rows", product_and_norm("f16"), 192 + 768, Against::kLargest},
      {"matmul_rows", product_and_norm("bf16"), 192 + 768, Against::kLargest},
      {"matmul_attention", product_and_attention("f16"), 136 + 128, Against::kLargest},
      {"matmul_attention", product_and_attention("bf16"), 136 + 128, Against::kLargest},
      {"rope_append",
       "(%xq: f32[B, 2, 3, 8], %xk: f32[B, 1, 3, 8], %xv: f32[B, 1, 3, 8], %c: f32[3, 4], %s: f32[3, 4], "
       "%xc: f32[B, 1, 9, 8], "
       "%xd: f32[B, 1, 9, 8], %xi: i64[B]) {\n %y, %yk, %yv = rope_append(%xq, %xk, %xv, %c, %s, %xc, %xd, "
       "%xi) : f32[B, 2, 3, "
       "8], f32[B, 1, 9, 8], f32[B, 1, 9, 8]\n",
       2, Against::kLargest},
      {"tile_gathered",
       "(%t: f32[9, 333], %xi: i64[B, 7], %p: f32[7, 333], %s: f32[333]) {\n %g = gather(%t, %xi) {axis = 0} "
       ": f32[B, 7, 333]\n "
       "%a = add(%g, %p) : f32[B, 7, 333]\n %y = layer_norm(%a, %s, %s) {axis = -1, epsilon = 1e-05} : "
       "f32[B, 7, 333]\n",
       333, Against::kLargest},
      {"tile_indexed",
       "(%x: f32[B, 9], %i: i64[60], %w: f32[60]) {\n %g = gather(%x, %i) {axis = 1} : f32[B, 60]\n %y = "
       "mul(%g, "
       "%w) : f32[B, 60]\n",
       1},
      {"tile_scattered",
       "(%t: f32[9, 64], %o: f32[9, 64], %i: i64[60, 1], %u: f32[60, 64]) {\n %n = constant f32[] = [0]\n %z "
       "= broadcast_to(%n) "
       "{shape = [9, 64]} : f32[9, 64]\n %g = scatter_nd(%z, %i, %u) {reduction = \"add\"} : f32[9, 64]\n %a "
       "= add(%t, %g) : "
       "f32[9, 64]\n %y = mul(%a, %o) : f32[9, 64]\n",
       61},
      {"scatter_messages",
       "(%z: f32[9, 64], %j: i64[60, 1], %e: f32[60, 64], %w: f32[60, 1]) {\n %m = mul(%e, %w) : f32[60, "
       "64]\n "
       "%y = scatter_nd(%z, %j, %m) {reduction = \"add\"} : f32[9, 64]\n",
       62},
      {"recurrent_cluster", recurrent("f32", false), 41},
      {"recurrent_cluster", recurrent("f16", false), 41},
      {"recurrent_cluster", recurrent("f16", false, 1500), 1501},  // more than fits without matrix units
      {"recurrent_cluster", recurrent("bf16", false, 1501), 1502},
      {"recurrent_backward_cluster", recurrent("f32", true), 40},
      {"recurrent_backward_cluster", recurrent("bf16", true), 40},
      {"attention_backward_simt", attention_backward("f32", 33, 40), 33, Against::kLargest},
      {"attention_backward_wgmma", attention_backward("bf16", 130, 64), 130, Against::kLargest},
  };
  for (Named& more : shared_cases()) cases.push_back(std::move(more));
  return cases;
}

// Rows without a rounding, whose integers other tests compare.
const std::map<std::string, std::string> kElsewhere = {
    {"iota", "kernels/indexing"},
    {"size_of", "kernels/indexing"},
    {"random_bits", "kernels/random"},
};

Program program_of(const Named& test, int64_t batch) {
  std::string text = "program {\n entry main" + test.body + " return \"y\" = %y";
  for (const char* more : {"yi", "yk", "yv"})
    if (test.body.find(std::string("%") + more) != std::string::npos)
      text += std::string(", \"") + more + "\" = %" + more;
  text += "\n }\n}\n";
  for (const char* before : {"[B", " B"})
    for (size_t at; (at = text.find(before)) != std::string::npos;)
      text.replace(at + 1, 1, std::to_string(batch));
  return parse(text);
}

// Values whose sums lose digits: magnitudes from 2^-12 to 2^4 in mixed order, in pairs of nearly opposite
// numbers.
std::map<std::string, Array> nasty_inputs(const Program& program, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> unit(0.5, 1);
  std::map<std::string, Array> inputs;
  const Graph& entry = program.entries[0];
  for (const ValueId id : entry.inputs()) {
    Array array(entry.dtype(id), evaluate(entry.shape(id), {}));
    double last = 0;
    for (int64_t i = 0; i < array.count(); ++i) {
      if (is_integer(array.dtype())) {
        const bool indices = entry.value(id).name.back() == 'i';
        array.set_i64(i, static_cast<int64_t>(engine() % (indices ? 9 : 2000)) - (indices ? 4 : 1000));
        continue;
      }
      const double sign = engine() % 2 == 0 ? 1 : -1;
      last = i % 3 == 2 ? -last * (1 + std::ldexp(unit(engine), -6))
                        : sign * std::ldexp(unit(engine), int(engine() % 16) - 12);
      array.set_f64(i, last);
    }
    inputs.emplace(entry.value(id).name, std::move(array));
  }
  return inputs;
}

std::map<std::string, Array> absolute(const std::map<std::string, Array>& arrays) {
  std::map<std::string, Array> result;
  for (const auto& [name, array] : arrays) {
    Array copy(array.dtype(), array.sizes());
    for (int64_t i = 0; i < array.count(); ++i) {
      if (is_float(array.dtype()))
        copy.set_f64(i, std::abs(array.get_f64(i)));
      else
        copy.set_i64(i, array.get_i64(i));
    }
    result.emplace(name, std::move(copy));
  }
  return result;
}

double epsilon(DType dtype) {
  return dtype == DType::f64   ? 0x1p-52
         : dtype == DType::f32 ? 0x1p-23
         : dtype == DType::f16 ? 0x1p-10
                               : 0x1p-7;
}

// The smallest number above 0: what a result that vanishes may be off by.
double smallest(DType dtype) {
  return dtype == DType::f64   ? 0x1p-1074
         : dtype == DType::f32 ? 0x1p-149
         : dtype == DType::f16 ? 0x1p-24
                               : 0x1p-133;
}

// Row `at` of the batch; integers less `offset`.
Array slice(const Array& array, int64_t at, int64_t offset = 0) {
  std::vector<int64_t> sizes = array.sizes();
  const int64_t count = array.count() / sizes[0];
  sizes[0] = 1;
  Array part(array.dtype(), std::move(sizes));
  for (int64_t i = 0; i < count; ++i) {
    if (is_float(array.dtype()))
      part.set_f64(i, array.get_f64(at * count + i));
    else
      part.set_i64(i, array.get_i64(at * count + i) - offset);
  }
  return part;
}

class PublishedRows : public ::testing::Test {
 protected:
  static const std::vector<Named>& cases() {
    static const std::vector<Named> all = TestDevice::get().cuda ? cuda_cases() : cpu_cases();
    return all;
  }
  static std::vector<KernelRow> rows() {
    std::vector<KernelRow> all;
    if (TestDevice::get().cuda)
      for (const CudaKernel& row : cuda_kernel_table()) all.push_back(row);
    else
      for (const Kernel& row : kernel_table()) all.push_back(row);
    return all;
  }
  static const KernelRow row_named(const std::string& name) {
    for (const KernelRow& row : rows())
      if (row.name == name) return row;
    ADD_FAILURE() << name << " is no row";
    return {};
  }

  // Runs on the row, or the plan shows that it does not. A weight leaves the inputs.
  static Artifact compiled_on(const Named& test, Program program, std::map<std::string, Array>& inputs) {
    if (test.weight) {
      std::string text = print(program);
      const size_t from = text.find(", %w: "), to = text.find(')', from);
      const std::string type = text.substr(from + 6, to - from - 6);
      text.erase(from, to - from);
      text.insert(text.find("{\n", text.find("entry")) + 2, "%w = param \"w\" : " + type + "\n");
      text.insert(text.find("entry"), "param \"w\" : " + type + "\n");
      program = parse(text);
      program.variables.at("w").data = inputs.at("w");
      inputs.erase("w");
    }
    CompileOptions options;
    options.target = TestDevice::get().target;
    // A pass makes tiles that read or write rows elsewhere; no choice names them.
    if (!test.row.starts_with("tile_")) options.forced = {{"*", test.row}};
    // A pass that computes the op in another way would leave the row without a problem.
    options.skip_passes = {"bundle_calls", "decompose_conv_transpose"};
    Artifact artifact = compile(program, options);
    std::set<std::string> kernels;  // those of "init", too
    for (const EntryPlan& entry : artifact.variants.at(0).plan.entries)
      for (const Step& step : entry.steps) kernels.insert(step.kernel);
    for (const std::string& row : {test.row, test.copied})
      EXPECT_TRUE(row.empty() || kernels.contains(row)) << "the program does not reach " << row << "\n"
                                                        << print(program);
    return artifact;
  }
  static std::map<std::string, Array> run(const Artifact& artifact,
                                          const std::map<std::string, Array>& inputs, int threads) {
    const DeviceOptions device =
        TestDevice::get().cuda ? DeviceOptions{"cuda"} : DeviceOptions{"cpu", threads};
    return Executable(Model::load(artifact, open_device(device))).run("main", inputs);
  }
};

TEST_F(PublishedRows, AreAllMeasured) {
  std::set<std::string> measured;
  for (const Named& test : cases()) measured.insert({test.row, test.copied});
  for (const KernelRow& row : rows())
    EXPECT_TRUE(measured.contains(std::string(row.name)) != kElsewhere.contains(std::string(row.name)))
        << row.name;
}

TEST_F(PublishedRows, StayWithinTheirToleranceOnNastyInputs) {
  for (const Named& test : cases()) {
    SCOPED_TRACE(test.row + ": " + test.body);
    const KernelRow row = row_named(test.row);
    const Program program = program_of(test, 5);
    double worst = 0;
    for (uint32_t seed = 1; seed <= 8; ++seed) {
      auto inputs = nasty_inputs(program, seed);
      const auto want = evaluate(program, program.entries[0], {inputs, {}}, {false}).outputs;
      const auto terms = evaluate(program, program.entries[0], {absolute(inputs), {}}, {false}).outputs;
      const Artifact artifact = compiled_on(test, program, inputs);
      if (!TestDevice::get().runs) break;
      const auto got = run(artifact, inputs, 2);
      for (const auto& [name, array] : want) {
        const Array& mine = got.at(name);
        if (!is_float(mine.dtype())) {
          ASSERT_EQ(mine, array) << name << ", seed " << seed;
          continue;
        }
        double largest = 0;
        for (int64_t i = 0; i < array.count(); ++i) largest = std::max(largest, std::abs(array.get_f64(i)));
        const double unit = epsilon(mine.dtype()) * std::sqrt(double(test.length));
        for (int64_t i = 0; i < array.count(); ++i) {
          const double size = test.against == Against::kLargest ? largest : terms.at(name).get_f64(i);
          const double error = std::abs(mine.get_f64(i) - array.get_f64(i));
          if (error == 0) continue;
          worst = std::max(worst, error / (size * unit));
          ASSERT_LE(error, row.tolerance * (unit * size + smallest(mine.dtype())))
              << name << "[" << i << "] is " << mine.get_f64(i) << ", f64 gives " << array.get_f64(i)
              << ", seed " << seed;
        }
      }
    }
    RecordProperty(test.row, std::to_string(worst));
  }
}

// The rows `kept` of `inputs` among other numbers.
std::map<std::string, Array> beside_others(const std::map<std::string, Array>& inputs,
                                           std::map<std::string, Array> others,
                                           const std::vector<int64_t>& kept) {
  for (auto& [name, array] : others) {
    const Array& own = inputs.at(name);
    if (name[0] != 'x') {
      array = own;
      continue;
    }
    const int64_t count = own.count() / own.sizes()[0];
    for (const int64_t at : kept)
      for (int64_t i = at * count; i < (at + 1) * count; ++i)
        is_float(own.dtype()) ? array.set_f64(i, own.get_f64(i)) : array.set_i64(i, own.get_i64(i));
  }
  return others;
}

// All: the bits of a run are those of the next, however many threads work, and a row of the batch keeps its
// bits whatever its neighbours hold. "none" and "length": they are the bits that the row has alone.
TEST_F(PublishedRows, AddInThePublishedOrder) {
  for (const Named& test : cases()) {
    SCOPED_TRACE(test.row + ": " + test.body);
    const KernelRow row = row_named(test.row);
    ASSERT_TRUE(row.accumulation == "none" || row.accumulation == "length" || row.accumulation == "shape")
        << row.accumulation;
    const Program program = program_of(test, 37), alone = program_of(test, 1);
    auto inputs = nasty_inputs(program, 21);
    for (auto& [name, array] : inputs)  // a neighbour of no numbers
      for (int64_t i = 0; is_float(array.dtype()) && name[0] == 'x' && i < array.count() / 37; ++i)
        array.set_f64(8 * (array.count() / 37) + i, std::numeric_limits<double>::quiet_NaN());
    auto weights = inputs;
    const Artifact artifact = compiled_on(test, program, inputs), single = compiled_on(test, alone, weights);
    if (!TestDevice::get().runs) continue;
    const auto got = run(artifact, inputs, 1);
    EXPECT_EQ(run(artifact, inputs, 2), got);
    const std::vector<int64_t> kept = {0, 7, 9, 36};
    auto others = nasty_inputs(program, 22);
    if (test.weight) others.erase("w");  // a param, and no input any more
    const bool by_rows =
        std::any_of(inputs.begin(), inputs.end(), [](const auto& item) { return item.first[0] == 'x'; });
    if (by_rows) {
      for (const auto& [name, array] : run(artifact, beside_others(inputs, std::move(others), kept), 2))
        for (const int64_t at : kept)
          EXPECT_TRUE(slice(array, at) == slice(got.at(name), at))
              << name << " of " << at << " beside others";
    }
    if (row.accumulation == "shape") continue;
    for (const int64_t at : kept) {
      auto part = inputs;
      for (auto& [name, array] : part)
        if (name[0] == 'x') array = slice(array, at);
      for (const auto& [name, array] : run(single, part, 1))
        EXPECT_TRUE(slice(got.at(name), at, at * test.indexed) == array) << name << " of " << at;
    }
  }
}

}  // namespace
}  // namespace aicf::testing::published_rows_test
