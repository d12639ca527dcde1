#include "select/selector.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "kernels/common/cuda_kernel.h"
#include "select/choose.h"
#include "select/cost_model.h"
#include "select/cuda_problem.h"
#include "select/layout.h"
#include "select/storage_order.h"
#include "target/op_problem.h"

namespace aicf {
namespace {

// Kernels hand over sums of half types in f32; the product means the rounded value.
ValueId add_tile_input(Graph& epilogue, const TensorType& product) {
  const bool half = is_half(product.dtype);
  const ValueId tile = epilogue.add_input("tile", {half ? DType::f32 : product.dtype, product.shape});
  return half ? epilogue.add(Op::cast, {tile}, {{"dtype", product.dtype}}) : tile;
}

std::unique_ptr<Region> store_only(const TensorType& product) {
  auto epilogue = std::make_unique<Region>();
  epilogue->full_shape = product.shape;
  epilogue->body.add_output(add_tile_input(epilogue->body, product), "y");
  return epilogue;
}

// Adds the bias, its second operand then, to the sums before anything else sees them.
std::unique_ptr<Region> with_bias(const Region& region, const TensorType& product) {
  const Graph& from = region.body;
  auto result = std::make_unique<Region>();
  result->full_shape = region.full_shape;
  Graph& to = result->body;
  std::vector<ValueId> map(static_cast<size_t>(from.value_count()), kNoValue);
  for (const ValueId id : from.inputs()) {
    const ValueId own = map[static_cast<size_t>(id)] = to.add_input(from.value(id).name, from.type(id));
    if (id != from.inputs()[0]) continue;
    const ValueId bias = to.add_input("bias", product);
    const ValueId addend =
        is_half(product.dtype) ? to.add(Op::cast, {bias}, {{"dtype", from.dtype(id)}}) : bias;
    map[static_cast<size_t>(id)] = to.add(Op::add, {own, addend});
  }
  for (const ValueId id : from.leaves())
    if (from.value(id).role == Role::kConstant)
      map[static_cast<size_t>(id)] = to.add_constant(from.value(id).constant);
  for (const Node& node : from.nodes()) {
    std::vector<ValueId> mapped;
    for (const ValueId id : node.operands)
      mapped.push_back(id == kNoValue ? kNoValue : map[static_cast<size_t>(id)]);
    map[static_cast<size_t>(node.results[0])] = to.add(node.op, mapped, node.attrs);
  }
  for (size_t i = 0; i < from.outputs().size(); ++i)
    to.add_output(map[static_cast<size_t>(from.outputs()[i])], from.output_names()[i]);
  return result;
}

Window channels_last_window(ValueId root, const TensorType& type) {
  return ordered_window(root, type, channels_last_order(type.shape.size()));
}

// Whether an operand of the matmul is read by the epilogue too.
bool reads_besides(const Graph& body, ValueId id) {
  return std::any_of(body.nodes().begin() + 1, body.nodes().end(), [&](const Node& node) {
    return std::find(node.operands.begin(), node.operands.end(), id) != node.operands.end();
  });
}

Window with_batch(const Window& w, const Shape& batch) {
  Shape shape = batch;
  shape.insert(shape.end(), w.sizes.end() - 2, w.sizes.end());
  return broadcast_window(w, shape);
}

// With one y for all batches, batch and row axes form one long row axis where every window's strides allow
// it.
bool merge_batch(std::vector<Window>& inputs, std::vector<Window>& outputs) {
  std::vector<Window> merged_inputs = inputs, merged_outputs = outputs;
  const auto merge = [](Window& w) {
    auto merged = merge_axes(w, 0, w.sizes.size() - 1);
    if (merged) w = *merged;
    return merged.has_value();
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (i != 1 && !merge(merged_inputs[i])) return false;
  for (Window& w : merged_outputs)
    if (!merge(w)) return false;
  inputs = std::move(merged_inputs);
  outputs = std::move(merged_outputs);
  return true;
}

bool lies_last(const Window& w) { return w.strides[1] == Dim(1); }

// Whether it has a time of its own and needs no copy of an x whose channels are no neighbours.
bool reads_in_place(const Candidate& candidate) {
  const auto* way = std::get_if<ConvWay>(&candidate.way);
  return is_named(candidate.way) && (way == nullptr || way->product.unit == MatmulUnit::simt);
}

// Whether each result is one of a position of x alone, in one group: params as kernels.def says.
bool is_pointwise(const KernelCall& call) {
  constexpr size_t kLists = 3;
  const std::vector<Dim>& params = row_call(call)->params;
  const std::vector<Dim>& w = call.inputs[1].sizes;
  const size_t rank = w.size() - 2;
  const auto all = [&](size_t list, const Dim& number) {
    const auto first = params.begin() + static_cast<std::ptrdiff_t>(kLists + list * rank);
    return std::all_of(first, first + static_cast<std::ptrdiff_t>(rank),
                       [&](const Dim& d) { return d == number; });
  };
  return params[1] == Dim(1) && all(0, Dim(1)) && all(1, Dim(0)) && all(2, Dim(0)) &&
         std::all_of(w.begin() + 2, w.end(), [](const Dim& d) { return d == Dim(1); });
}

// Of each image [maps, channels] times [channels, pixels], or turned if maps are neighbours in the result.
// Inputs: both factors, the bias if there is one, the extras. None where pixels do not lie along one axis, or
// where x and the result have their channels last: one product then has the pixels of all images.
std::optional<KernelCall> pointwise_product(const KernelCall& conv, size_t own_inputs) {
  const bool turned = lies_last(conv.outputs[0]);
  if (turned && lies_last(conv.inputs[0])) return std::nullopt;
  const auto flat = [&](const Window& w) {
    auto merged = merge_axes(w, 2, w.sizes.size());
    return merged && turned ? swap_last_axes(*merged) : merged;
  };
  KernelCall product;
  Window w = conv.inputs[1];
  w.sizes.resize(2), w.strides.resize(2);
  w = with_batch(turned ? swap_last_axes(w) : w, {conv.inputs[0].sizes[0]});
  const std::optional<Window> x = flat(conv.inputs[0]);
  if (!x) return std::nullopt;
  product.inputs = turned ? std::vector<Window>{*x, w} : std::vector<Window>{w, *x};
  for (size_t i = 2; i < conv.inputs.size(); ++i) {
    Window operand = conv.inputs[i];
    if (i < own_inputs) {  // a bias
      const Dim step = operand.strides[0];
      operand = broadcast_window(operand, conv.outputs[0].sizes);
      operand.strides.assign(operand.sizes.size(), Dim(0));
      operand.strides[1] = step;
    }
    const std::optional<Window> merged = flat(operand);
    if (!merged) return std::nullopt;
    product.inputs.push_back(*merged);
  }
  for (const Window& out : conv.outputs) {
    const std::optional<Window> merged = flat(out);
    if (!merged) return std::nullopt;
    product.outputs.push_back(*merged);
  }
  product.origins = conv.origins;
  product.what.emplace<RowCall>();
  return product;
}

// What the row takes if it would have the copy engine read this convolution's windows.
std::optional<double> microseconds_by_boxes(const KernelRow& row, const CudaProblem& problem) {
  const std::vector<KernelVariant> variants = cuda_variants(*find_cuda_kernel(row.name), problem);
  if (variants.empty()) return std::nullopt;
  const Way& first = variants.front().way;
  const auto* way = std::get_if<ConvWay>(&first);
  if (!std::holds_alternative<HaloTmaWay>(first) && (way == nullptr || way->loads != ConvLoads::tma))
    return std::nullopt;
  return variants.front().microseconds;
}

// Batch and row axes in the order in which x is stored, if they merge then, or if rows are more. A sequence
// before its batch has a few rows for each of its steps.
void lengthen_rows(std::vector<Window>& inputs, std::vector<Window>& outputs) {
  const Window& x = inputs[0];
  std::vector<int64_t> order(x.sizes.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto stride = [&](int64_t axis) { return x.strides[static_cast<size_t>(axis)].constant(); };
  const auto columns = order.end() - 1;
  if (!std::all_of(order.begin(), columns, [&](int64_t axis) { return stride(axis).has_value(); })) return;
  std::stable_sort(order.begin(), columns, [&](int64_t a, int64_t b) { return *stride(a) > *stride(b); });
  const auto turned = [&](const std::vector<Window>& windows) {
    std::vector<Window> list;
    for (const Window& w : windows)
      list.push_back(w.sizes.size() == order.size() ? transpose_window(w, order) : w);
    return list;
  };
  std::vector<Window> turned_inputs = turned(inputs), turned_outputs = turned(outputs);
  turned_inputs[1] = inputs[1];
  const auto rows = [](const Window& w) { return w.sizes.end()[-2].constant().value_or(0); };
  if (!merge_batch(turned_inputs, turned_outputs) && rows(turned_inputs[0]) <= rows(x)) return;
  inputs = std::move(turned_inputs);
  outputs = std::move(turned_outputs);
}

}  // namespace

void Selector::lower_fused_contraction(const Node& node) {
  const Graph& body = node.bodies[0];
  const Node& product = body.nodes()[0];
  // The epilogue reads the tile as its first operand, then the region's other operands.
  auto epilogue = std::make_unique<Region>();
  epilogue->full_shape = body.shape(product.results[0]);
  std::vector<ValueId> map(static_cast<size_t>(body.value_count()), kNoValue);
  map[static_cast<size_t>(product.results[0])] =
      add_tile_input(epilogue->body, body.type(product.results[0]));
  std::vector<ValueId> operands, extras;
  const auto outer = [&](ValueId id) {
    const auto at = std::find(body.inputs().begin(), body.inputs().end(), id);
    return id == kNoValue ? kNoValue : node.operands[static_cast<size_t>(at - body.inputs().begin())];
  };
  for (ValueId id : product.operands) operands.push_back(outer(id));
  for (ValueId id : body.leaves()) {
    const Value& value = body.value(id);
    if (value.role == Role::kConstant) {
      map[static_cast<size_t>(id)] = epilogue->body.add_constant(value.constant);
    } else if (std::find(product.operands.begin(), product.operands.end(), id) == product.operands.end() ||
               reads_besides(body, id)) {
      map[static_cast<size_t>(id)] = epilogue->body.add_input(value.name, value.type);
      extras.push_back(outer(id));
    }
  }
  for (size_t i = 1; i < body.nodes().size(); ++i) {
    const Node& inner = body.nodes()[i];
    std::vector<ValueId> mapped;
    for (ValueId id : inner.operands) mapped.push_back(map[static_cast<size_t>(id)]);
    map[static_cast<size_t>(inner.results[0])] = epilogue->body.add(inner.op, mapped, inner.attrs);
  }
  for (size_t i = 0; i < body.outputs().size(); ++i)
    epilogue->body.add_output(map[static_cast<size_t>(body.outputs()[i])], body.output_names()[i]);
  if (product.op == Op::conv || product.op == Op::conv_transpose)
    return lower_conv(node, {body, product}, operands, std::move(epilogue), extras);
  AICF_CHECK(product.op == Op::matmul, "a region begins with another op than a contraction");
  Node flat = product;
  flat.results = node.results;
  flat.origin = node.origin;
  lower_matmul(flat, operands, std::move(epilogue), body.shape(product.results[0]), extras);
}

void Selector::lower_matmul(const Node& node, const std::vector<ValueId>& operands,
                            std::unique_ptr<Region> epilogue, const Shape& product,
                            const std::vector<ValueId>& extras) {
  Window x = window(operands[0]), y = window(operands[1]);
  if (node.attrs.get_bool("transpose_x")) x = swap_last_axes(x);
  if (node.attrs.get_bool("transpose_y")) y = swap_last_axes(y);
  // CUDA contractions have one way to store: through an epilogue.
  if (target_.is_cuda() && epilogue == nullptr) epilogue = store_only(graph_.type(node.results[0]));
  const bool shared_y = y.sizes.size() == 2;
  const Shape batch(product.begin(), product.end() - 2);
  std::vector<Window> inputs{with_batch(x, batch), shared_y ? y : with_batch(y, batch)}, outputs;
  for (ValueId id : extras) inputs.push_back(broadcast_window(window(id), product));
  for (ValueId id : node.results) outputs.push_back(place(id));
  if (shared_y && !batch.empty() && !merge_batch(inputs, outputs)) {
    lengthen_rows(inputs, outputs);
    if (inputs[0].sizes.size() > 2)
      inputs[1] = with_batch(y, Shape(inputs[0].sizes.begin(), inputs[0].sizes.end() - 2));
  }
  emit_matmul(node, operands, std::move(inputs), std::move(outputs), std::move(epilogue));
}

void Selector::emit_matmul(const Node& node, const std::vector<ValueId>& operands, std::vector<Window> inputs,
                           std::vector<Window> outputs, std::unique_ptr<Region> epilogue) {
  KernelCall call;
  call.inputs = std::move(inputs);
  call.outputs = std::move(outputs);
  call.origins = {origin_of(node)};
  RowCall& row = call.what.emplace<RowCall>();
  if (node.attrs.get_bool("tf32")) row.params = {Dim(1)};
  constexpr size_t kOperands = 2;  // x and y
  turn_operands(call, kOperands, call.outputs[0].sizes.size() - 1, call.origins[0]);
  const Problem problem = problem_of_call(call, "matmul", epilogue != nullptr);
  const Shape packed_shape = call.inputs[1].sizes;
  const std::vector<Window> weights = weights_of(operands[1], call.inputs[1]);
  std::vector<const KernelRow*> rows = target_.candidates(problem);
  const KernelRow* packed = weights.empty() ? nullptr : find_packed(problem);
  if (packed != nullptr) rows.insert(rows.begin(), packed);
  if (rows.empty()) throw no_kernel(node);
  if (target_.is_cuda() && node.attrs.get_bool("tf32"))
    round_operands(call, operands, rows, origin_of(node));
  else if (target_.is_cuda() && (is_half(call.inputs[0].dtype) || call.inputs[0].dtype == DType::f32))
    align_operands(call, operands, rows, origin_of(node));
  if (choose(call, problem.family, rows, epilogue.get(), target_, options_) == packed) {
    own_row(call)->params = packed_shape;
    call.reason += ", weights packed at load";
    call.inputs[1] = pack(weights, packed_shape, node);
  }
  if (epilogue != nullptr) {
    set_elementwise(call, kOperands);
    add_epilogue(call, std::move(*epilogue), kOperands);
  }
  result_.calls.push_back(std::move(call));
}

void Selector::lower_conv(const Node& node, const Conv& conv, const std::vector<ValueId>& operands,
                          std::unique_ptr<Region> epilogue, const std::vector<ValueId>& extras) {
  Problem problem = problem_of(conv.graph, conv.node);
  problem.has_program = epilogue != nullptr;
  std::vector<const KernelRow*> rows = target_.candidates(problem);
  if (rows.empty()) throw no_kernel(node);
  KernelCall call;
  const std::string origin = origin_of(node);
  call.origins = {origin};
  RowCall& row = call.what.emplace<RowCall>();
  for (ValueId id : operands)
    if (id != kNoValue) call.inputs.push_back(window(id));
  fill_params(conv.graph, conv.node, *rows[0], row.params, row.fparams);
  for (ValueId id : extras)
    call.inputs.push_back(broadcast_window(window(id), conv.graph.shape(conv.node.results[0])));
  for (ValueId id : node.results) call.outputs.push_back(place(id));
  const size_t own_inputs = call.inputs.size() - extras.size();
  if (lower_as_product(node, conv, operands, call, rows, own_inputs, epilogue)) return;
  const std::vector<Dim>& written = call.outputs[0].strides;
  turn_operands(call, own_inputs, written[1] == Dim(1) ? 1 : written.size() - 1, origin);
  const bool transposed = conv.node.op == Op::conv_transpose;  // multiplied without matrix units
  const bool matrix_units = target_.is_cuda() && !transposed && wants_matrix_units(conv);
  const bool rounded = !transposed && conv.node.attrs.get_bool("tf32") &&
                       read_rounded_weights(call, *rows[0], operands, origin);
  auto turned = rounded ? std::nullopt : weight_order(conv, operands[1]);
  if (gains_by_parts_over_copies(call, rows, operands, turned)) {
    turned = std::nullopt;
    if (is_weight(operands[1]) && !lies_last(call.inputs[1]))
      turned = WeightOrder{channels_last_order(call.inputs[1].sizes.size()), "weights channels-last at load"};
    for (const size_t i : {0, 1})
      if (!lies_last(call.inputs[i]) && !(turned && i == 1))
        call.inputs[i] = window_of_copy(operands[i], channels_last(unsliced(operands[i]), origin));
  }
  if (turned)
    call.inputs[1] = packed({.row = "conv_w_channels_last"}, {window(operands[1])}, graph_.type(operands[1]),
                            turned->axes, origin, turned->reason);
  if (matrix_units) read_channels_last(call, rows, operands, origin);
  const KernelRow* packed_row = transposed ? nullptr : find_packed_conv(conv, operands[1], problem);
  if (packed_row != nullptr) rows.insert(rows.begin(), packed_row);
  if (choose(call, problem.family, rows, epilogue.get(), target_, options_) == packed_row) {
    call.reason += ", weights packed at load";
    call.inputs[0] = channels_last(operands[0], origin);
    call.inputs[1] = pack_conv(call.inputs[1], conv, origin);
    RowCall& own = *own_row(call);
    own.params.clear();
    fill_params(conv.graph, conv.node, *packed_row, own.params, own.fparams);
  }
  if (turned) call.reason += std::string(", ") + turned->reason;
  if (epilogue != nullptr) {
    // In which order a library reads and writes them is not known.
    if (row_call(call) != nullptr) set_elementwise(call, own_inputs);
    add_epilogue(call, std::move(*epilogue), own_inputs);
  }
  result_.calls.push_back(std::move(call));
}

bool Selector::lower_as_product(const Node& node, const Conv& conv, const std::vector<ValueId>& operands,
                                const KernelCall& call, const std::vector<const KernelRow*>& rows,
                                size_t own_inputs, std::unique_ptr<Region>& epilogue) {
  if (!target_.is_cuda() || conv.node.op != Op::conv || !is_pointwise(call)) return false;
  std::optional<KernelCall> product = pointwise_product(call, own_inputs);
  const auto forced = [&](const KernelRow* row) { return is_forced(*row, call, options_); };
  if (!product || std::any_of(rows.begin(), rows.end(), forced)) return false;
  Node flat = conv.node;
  flat.results = node.results;
  flat.origin = node.origin;
  if (flat.attrs.get_bool("tf32")) own_row(*product)->params = {Dim(1)};
  const std::vector<Candidate> candidates = list_candidates(
      *product, target_.candidates(problem_of_call(*product, "matmul", true)), target_, options_.ranges);
  if (candidates.empty() ||
      candidates[0].estimate_us >=
          std::min(microseconds_in_place(call, rows), microseconds_over_copies(call, operands, rows)))
    return false;
  const TensorType& type = conv.graph.type(conv.node.results[0]);
  if (epilogue == nullptr) epilogue = store_only(type);
  if (own_inputs > 2) epilogue = with_bias(*epilogue, type);
  std::vector<ValueId> factors{operands[0], operands[1]};
  if (!lies_last(call.outputs[0])) std::swap(factors[0], factors[1]);
  emit_matmul(flat, factors, std::move(product->inputs), std::move(product->outputs), std::move(epilogue));
  return true;
}

void Selector::add_epilogue(KernelCall& call, Region epilogue, size_t first_operand) {
  own_row(call)->programs = {
      {ProgramRole::kEpilogue, static_cast<int>(result_.regions.size()), static_cast<int>(first_operand)}};
  result_.regions.push_back(std::move(epilogue));
}

Window Selector::channels_last(ValueId id, const std::string& origin, bool rounded) {
  if (!rounded && window(id).strides[1] == Dim(1)) return window(id);
  const auto [known, added] = channels_last_copies_.try_emplace({id, rounded});
  if (!added) return known->second;
  const TensorType& type = graph_.type(id);
  const bool at_load = rounded && is_weight(id);
  const Window extra =
      at_load ? add_extra(ExtraValue::Kind::kPacked, type, "rounded " + result_.name_of(window(id).root))
              : add_extra(ExtraValue::Kind::kTemp, type, "");
  known->second = channels_last_window(extra.root, type);
  emit_copy(window(id), known->second, origin,
            rounded ? "a convolution reads weights rounded" : "a convolution reads it channels-last",
            rounded);
  if (at_load) make_init();
  return known->second;
}

ValueId Selector::unsliced(ValueId id) const {
  const Node* producer = graph_.producer(id);
  return producer != nullptr && producer->op == Op::slice ? producer->operands[0] : id;
}

Window Selector::window_of_copy(ValueId id, const Window& copy) const {
  return unsliced(id) == id ? copy : *view_window(*graph_.producer(id), graph_.type(id), copy);
}

bool Selector::shared_by_convolutions(ValueId id) const {
  const auto at = conv_inputs_.find(unsliced(id));
  return at != conv_inputs_.end() && at->second > 1;
}

// The call over copies of x and w where these have other axes innermost.
KernelCall Selector::over_channels_last(const KernelCall& call, const std::vector<ValueId>& operands) const {
  KernelCall copied = call;
  for (const size_t i : {0, 1}) {
    const ValueId from = unsliced(operands[i]);
    if (call.inputs[i].strides[1] != Dim(1))
      copied.inputs[i] = window_of_copy(operands[i], channels_last_window(from, graph_.type(from)));
  }
  return copied;
}

void Selector::read_known_copies(KernelCall& call, const std::vector<const KernelRow*>& rows,
                                 const std::vector<ValueId>& operands) const {
  const auto least = [&](const KernelCall& c) {
    return list_candidates(c, rows, target_, options_.ranges)[0].estimate_us;
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto known = channels_last_copies_.find({unsliced(operands[i]), false});
    if (known == channels_last_copies_.end()) continue;
    KernelCall copied = call;
    copied.inputs[i] = window_of_copy(operands[i], known->second);
    if (least(copied) < least(call)) call = std::move(copied);
  }
}

double Selector::copies_microseconds(const KernelCall& call, const KernelCall& copied,
                                     const std::vector<ValueId>& operands) const {
  double microseconds = 0;
  for (const size_t i : {0, 1}) {
    const bool is_made = channels_last_copies_.contains({unsliced(operands[i]), false});
    if (lies_last(call.inputs[i]) || is_made || (i == 1 && is_weight(operands[1]))) continue;
    KernelCall copy;
    copy.inputs = {call.inputs[i]}, copy.outputs = {copied.inputs[i]};
    microseconds += kStartMicroseconds + estimate_microseconds(copy, kRegionRow, target_, options_.ranges);
  }
  return microseconds;
}

double Selector::microseconds_in_place(const KernelCall& call,
                                       const std::vector<const KernelRow*>& rows) const {
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : list_candidates(call, rows, target_, options_.ranges))
    if (reads_in_place(candidate)) least = std::min(least, candidate.estimate_us);
  return least;
}

double Selector::microseconds_over_copies(const KernelCall& call, const std::vector<ValueId>& operands,
                                          const std::vector<const KernelRow*>& rows) const {
  const KernelCall copied = over_channels_last(call, operands);
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : list_candidates(copied, rows, target_, options_.ranges))
    if (is_named(candidate.way)) least = std::min(least, candidate.estimate_us);
  return least + copies_microseconds(call, copied, operands);
}

bool Selector::gains_by_parts_over_copies(const KernelCall& call, const std::vector<const KernelRow*>& rows,
                                          const std::vector<ValueId>& operands,
                                          const std::optional<WeightOrder>& turned) const {
  const KernelRow* parts = target_.is_cuda() ? find_parts_row(rows) : nullptr;
  if (parts == nullptr) return false;
  const KernelCall copied = over_channels_last(call, operands);
  const std::vector<Candidate> by_parts = list_candidates(copied, {parts}, target_, options_.ranges);
  if (by_parts.empty()) return false;
  if (is_forced(*parts, call, options_)) return true;
  const double microseconds = by_parts[0].estimate_us + copies_microseconds(call, copied, operands);
  KernelCall otherwise = call;
  if (turned)
    otherwise.inputs[1] = ordered_window(call.inputs[1].root, graph_.type(operands[1]), turned->axes);
  return microseconds < list_candidates(otherwise, rows, target_, options_.ranges)[0].estimate_us;
}

bool Selector::read_rounded_weights(KernelCall& call, const KernelRow& row,
                                    const std::vector<ValueId>& operands, const std::string& origin) {
  KernelCall copied = over_channels_last(call, operands);
  own_row(copied)->params.back() = Dim(kRoundedY);
  copied.inputs[1] = channels_last_window(operands[1], graph_.type(operands[1]));
  if (!microseconds_by_boxes(row, cuda_problem(copied, target_, options_.ranges))) return false;
  call.inputs[1] = channels_last(operands[1], origin, true);
  own_row(call)->params.back() = Dim(kRoundedY);
  return true;
}

void Selector::read_channels_last(KernelCall& call, const std::vector<const KernelRow*>& rows,
                                  const std::vector<ValueId>& operands, const std::string& origin) {
  const int64_t vector = 16 / dtype_bytes(call.inputs[0].dtype);
  const KernelCall copied = over_channels_last(call, operands);
  const std::optional<double> by_boxes =
      microseconds_by_boxes(*rows[0], cuda_problem(copied, target_, options_.ranges));
  const bool boxes =
      by_boxes && (lies_last(call.inputs[0]) || *by_boxes + copies_microseconds(call, copied, operands) <=
                                                    microseconds_in_place(call, rows));
  const bool shared = shared_by_convolutions(operands[0]) &&
                      divide_exactly(graph_.shape(operands[0])[1], Dim(vector)).has_value();
  for (const size_t i : {0, 1})
    if (!(call.inputs[i].strides[1] == Dim(1)) && (boxes || (shared && i == 0)))
      call.inputs[i] = window_of_copy(operands[i], channels_last(unsliced(operands[i]), origin));
}

}  // namespace aicf
