#include "select/select.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "kernels/conv/pack_conv_w.h"
#include "kernels/matmul/pack.h"
#include "select/cost_model.h"
#include "select/layout.h"
#include "select/op_problem.h"
#include "select/storage_order.h"
#include "select/tile_mapping.h"
#include "select/update_targets.h"

namespace aicf {
namespace {

class Selector {
 public:
  Selector(const Graph& graph, const Target& target, const SelectOptions& options)
      : graph_(graph),
        target_(target),
        options_(options),
        orders_(stored_orders(graph, target)),
        parts_(concat_parts(graph)),
        targets_(update_targets(graph)) {
    result_.placement.resize(static_cast<size_t>(graph.value_count()));
    for (ValueId id : graph.leaves()) place(id);
  }

  KernelCalls run() {
    for (const Node& node : graph_.nodes()) lower(node);
    place_outputs();
    write_updates();
    copy_joined_weights();
    find_constants();
    return std::move(result_);
  }

 private:
  const Window& window(ValueId id) const { return result_.placement[static_cast<size_t>(id)]; }
  // A new value's own storage, in the order decided for it, or that of the variable it updates, or its part
  // of a concat's.
  const Window& place(ValueId id) {
    if (const ValueId target = targets_[static_cast<size_t>(id)]; target != kNoValue)
      return result_.placement[static_cast<size_t>(id)] = window(target);
    const ConcatPart& part = parts_[static_cast<size_t>(id)];
    return result_.placement[static_cast<size_t>(id)] =
               part.whole == kNoValue ? ordered_window(id, graph_.type(id), orders_[static_cast<size_t>(id)])
                                      : part_window(place(part.whole), part, graph_.shape(id));
  }

  static Window part_window(Window whole, const ConcatPart& part, const Shape& shape) {
    whole.offset = whole.offset + part.start * whole.strides[part.axis];
    whole.sizes = shape;
    return whole;
  }

  static Window ordered_window(ValueId root, const TensorType& type, const Ints& order) {
    if (order.empty()) return row_major_window(root, type);
    TensorType stored{type.dtype, {}};
    for (int64_t axis : order) stored.shape.push_back(type.shape[static_cast<size_t>(axis)]);
    return transpose_window(row_major_window(root, stored), inverse_order(order));
  }

  static std::string origin_of(const Node& node) {
    const std::string name(op_info(node.op).name);
    return node.origin.empty() ? name : name + " " + node.origin;
  }

  void lower(const Node& node) {
    const OpInfo& info = op_info(node.op);
    if (info.has(kView)) return lower_view(node);
    if (node.op == Op::fused) return lower_fused(node);
    if (node.op == Op::concat) return lower_concat(node);
    if (node.op == Op::custom) return lower_custom(node);
    if (node.op == Op::matmul)
      return lower_matmul(node, node.operands, nullptr, graph_.shape(node.results[0]), {});
    if (node.op == Op::conv) return lower_conv(node, {graph_, node}, node.operands, nullptr, {});
    if (tile_claims(graph_, node)) return lower_single(node);
    lower_by_table(node);
  }

  void lower_view(const Node& node) {
    const ValueId result = node.results[0];
    if (auto view = view_window(node, graph_.type(result), window(node.operands[0]))) {
      result_.placement[static_cast<size_t>(result)] = *view;
      return;
    }
    // The elements in row-major order of the operand, which is the order of the result.
    const TensorType source{graph_.dtype(result), graph_.shape(node.operands[0])};
    auto target = reshape_window(place(result), source.shape);
    if (!target) {
      orders_[static_cast<size_t>(result)].clear();
      place(result);
      target = row_major_window(result, source);
    }
    emit_copy(window(node.operands[0]), *target, origin_of(node), "the view cannot be expressed by strides");
  }

  void emit_copy(const Window& from, const Window& to, std::string origin, std::string reason) {
    Region region;
    region.full_shape = to.sizes;
    const ValueId x = region.body.add_input("x", {from.dtype, to.sizes});
    region.body.add_output(x, "y");
    add_tile_call(std::move(region), {}, {from}, {to}, std::move(origin), std::move(reason));
  }

  void lower_concat(const Node& node) {
    if (join_weights(node)) return;
    const Window whole = place(node.results[0]);
    ConcatPart part{node.results[0], static_cast<size_t>(node.attrs.get_int("axis")), Dim(0)};
    for (ValueId id : node.operands) {
      const ConcatPart& own = parts_[static_cast<size_t>(id)];
      const bool in_place = own.whole == part.whole && own.start == part.start;
      if (!in_place)
        emit_copy(window(id), part_window(whole, part, graph_.shape(id)), origin_of(node),
                  "part of a concat");
      part.start = part.start + graph_.shape(id)[part.axis];
    }
  }

  // Weights side by side are made at load: packed from their parts, or copied for readers that want them
  // unpacked.
  bool join_weights(const Node& node) {
    const TensorType& type = graph_.type(node.results[0]);
    const bool fixed =
        std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId id) { return is_weight(id); }) &&
        std::all_of(type.shape.begin(), type.shape.end(), [](const Dim& size) { return size.is_constant(); });
    if (!fixed) return false;
    const Window whole = add_extra(ExtraValue::Kind::kPacked, type,
                                   "joined " + graph_.value(window(node.operands[0]).root).name);
    JoinedWeights joined{whole, static_cast<size_t>(node.attrs.get_int("axis")), {}, origin_of(node)};
    for (ValueId id : node.operands) joined.parts.push_back(window(id));
    joined_.emplace(whole.root, std::move(joined));
    result_.placement[static_cast<size_t>(node.results[0])] = whole;
    return true;
  }

  // Steps of init for the joined weights that some call reads unpacked.
  void copy_joined_weights() {
    std::set<ValueId> read(result_.output_roots.begin(), result_.output_roots.end());
    for (const KernelCall& call : result_.calls)
      for (const Window& w : call.inputs) read.insert(w.root);
    for (const auto& [root, joined] : joined_) {
      if (!read.contains(root)) continue;
      ConcatPart at{kNoValue, joined.axis, Dim(0)};
      for (const Window& part : joined.parts) {
        emit_copy(part, part_window(joined.whole, at, part.sizes), joined.origin, "weights joined at load");
        make_init();
        at.start = at.start + part.sizes[at.axis];
      }
    }
  }

  // A lone pointwise op or reduction is a region of one node.
  void lower_single(const Node& node) {
    Region region;
    std::vector<ValueId> operands, outer;
    for (ValueId id : node.operands) {
      const Value& value = graph_.value(id);
      if (value.role == Role::kConstant && value.constant.count() == 1) {
        operands.push_back(region.body.add_constant(value.constant));
        continue;
      }
      operands.push_back(region.body.add_input("x" + std::to_string(outer.size()), value.type));
      outer.push_back(id);
    }
    const ValueId result = region.body.add(node.op, operands, node.attrs);
    region.body.add_output(result, "y");
    lower_region(std::move(region), outer, node.results, origin_of(node), "one node");
  }

  void lower_fused(const Node& node) {
    const std::string& kind = node.attrs.get_str("kind");
    if (kind == "tile") {
      lower_region({node.bodies[0], {}}, node.operands, node.results, origin_of(node), "fused region");
    } else {
      AICF_CHECK(kind == "matmul" || kind == "conv", "a region of an unknown kind: " + kind);
      lower_fused_contraction(node);
    }
  }

  // The axes that the region's reductions cover (all agree), or none.
  static std::vector<int64_t> reduced_axes(const Graph& body) {
    for (const Node& node : body.nodes())
      if (op_info(node.op).has(kReduction)) return node.attrs.get_ints("axes");
    return {};
  }

  static Shape full_shape(const Graph& body) {
    for (const Node& node : body.nodes())
      if (op_info(node.op).has(kReduction)) return body.shape(node.operands[0]);
    return body.shape(body.outputs()[0]);
  }

  void lower_region(Region region, const std::vector<ValueId>& operands, const std::vector<ValueId>& results,
                    std::string origin, std::string reason) {
    region.full_shape = full_shape(region.body);
    const std::vector<int64_t> axes = reduced_axes(region.body);
    const bool at_load = axes.empty() && depends_on_weights_only(operands, results);
    std::vector<Window> inputs, outputs;
    for (ValueId id : operands) inputs.push_back(window(id));
    for (ValueId id : results) {
      const Window& own = at_load ? place_at_load(id, origin) : place(id);
      outputs.push_back(row_window(own, region.full_shape.size(), axes));
    }
    add_tile_call(std::move(region), axes, std::move(inputs), std::move(outputs), std::move(origin),
                  at_load ? "of weights only: computed at load" : std::move(reason));
    if (at_load) make_init();
  }

  // Such values, a folded batch norm's factors for one, are made when weights are loaded or change.
  bool depends_on_weights_only(const std::vector<ValueId>& operands,
                               const std::vector<ValueId>& results) const {
    const auto fixed = [&](ValueId id) {
      const Shape& shape = graph_.shape(id);
      return targets_[static_cast<size_t>(id)] == kNoValue &&
             std::all_of(shape.begin(), shape.end(), [](const Dim& size) { return size.is_constant(); });
    };
    return !operands.empty() &&
           std::all_of(operands.begin(), operands.end(), [&](ValueId id) { return is_weight(id); }) &&
           std::all_of(results.begin(), results.end(), fixed);
  }

  const Window& place_at_load(ValueId id, const std::string& origin) {
    parts_[static_cast<size_t>(id)] = ConcatPart();
    return result_.placement[static_cast<size_t>(id)] =
               add_extra(ExtraValue::Kind::kPacked, graph_.type(id), "result of " + origin);
  }

  // The last call becomes a step of init.
  void make_init() {
    result_.init_calls.push_back(std::move(result_.calls.back()));
    result_.calls.pop_back();
  }

  // A reduction's result without keepdims, seen with its reduced axes as axes of size 1.
  static Window row_window(Window window, size_t rank, const std::vector<int64_t>& axes) {
    if (window.sizes.size() == rank) return window;
    std::vector<int64_t> sorted = axes;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t axis : sorted) {
      window.sizes.insert(window.sizes.begin() + axis, Dim(1));
      window.strides.insert(window.strides.begin() + axis, Dim(0));
    }
    return window;
  }

  void add_tile_call(Region region, const std::vector<int64_t>& inner_axes, std::vector<Window> inputs,
                     std::vector<Window> outputs, std::string origin, std::string reason) {
    const auto rank = static_cast<int64_t>(region.full_shape.size());
    KernelCall call;
    call.kernel = "tile";
    Schedule& schedule = call.schedule;
    if (inner_axes.empty() && !outputs.empty()) schedule.domain_axes = walking_order(outputs[0]);
    for (int64_t axis = 0; axis < rank && schedule.domain_axes.size() < static_cast<size_t>(rank); ++axis)
      if (std::find(inner_axes.begin(), inner_axes.end(), axis) == inner_axes.end())
        schedule.domain_axes.push_back(axis);
    for (int64_t axis = 0; axis < rank; ++axis)
      if (std::find(inner_axes.begin(), inner_axes.end(), axis) != inner_axes.end())
        schedule.domain_axes.push_back(axis);
    schedule.inner_rank =
        static_cast<int>(inner_axes.empty() ? rank : static_cast<int64_t>(inner_axes.size()));
    const auto to_domain = [&](const Window& w) {
      return transpose_window(broadcast_window(w, region.full_shape), schedule.domain_axes);
    };
    for (const Window& w : inputs) call.inputs.push_back(to_domain(w));
    for (const Window& w : outputs) call.outputs.push_back(to_domain(w));
    if (inner_axes.empty()) set_elementwise(call, 0);
    call.params = {Dim(schedule.inner_rank)};
    call.region = static_cast<int>(result_.regions.size());
    call.origin = std::move(origin);
    call.reason = std::move(reason);
    call.choice.candidates = {
        {call.kernel, "", estimate_microseconds(call, call.kernel, target_, options_.ranges)}};
    result_.regions.push_back(std::move(region));
    result_.calls.push_back(std::move(call));
  }

  // All inputs from number `first` on are operands of the region.
  void set_elementwise(KernelCall& call, size_t first) const {
    if (target_.is_cuda()) return;
    for (size_t i = first; i < call.inputs.size(); ++i) call.elementwise.push_back(static_cast<int32_t>(i));
  }

  // The axes of an output from outermost to innermost, or none if nothing but row-major is known.
  Ints walking_order(const Window& output) const {
    const bool known = std::all_of(output.strides.begin(), output.strides.end(),
                                   [](const Dim& stride) { return stride.is_constant(); });
    if (known) {
      Ints order(output.strides.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return *output.strides[static_cast<size_t>(a)].constant() >
               *output.strides[static_cast<size_t>(b)].constant();
      });
      return order;
    }
    if (output.root >= graph_.value_count()) return {};
    const Ints& order = orders_[static_cast<size_t>(output.root)];
    return order.size() == output.sizes.size() ? order : Ints();
  }

  void lower_by_table(const Node& node) {
    const Problem problem = problem_of(graph_, node);
    const std::vector<const KernelRow*> rows = target_.candidates(problem);
    if (rows.empty()) throw no_kernel(node);
    KernelCall call;
    for (ValueId id : node.operands)
      if (id != kNoValue) call.inputs.push_back(window(id));
    for (ValueId id : node.results) {
      Window out = place(id);
      if (op_info(node.op).has(kReduction))
        out = row_window(out, graph_.shape(node.operands[0]).size(), {node.attrs.get_int("axis")});
      call.outputs.push_back(out);
    }
    fill_params(graph_, node, *rows[0], call.params, call.fparams);
    call.origin = origin_of(node);
    choose(call, problem.family, rows, nullptr, target_, options_);
    result_.calls.push_back(std::move(call));
  }

  // The user's code sees dense windows only: others go through copies.
  void lower_custom(const Node& node) {
    KernelCall call;
    call.kernel = std::string(kCustomPrefix) + node.attrs.get_str("name");
    call.origin = origin_of(node);
    call.reason = "the user's op";
    for (int64_t param : node.attrs.get_ints("params")) call.params.emplace_back(param);
    call.fparams = node.attrs.get_floats("fparams");
    if (target_.is_cuda()) call.custom = custom_cuda(node);
    for (ValueId id : node.operands) {
      Window from = window(id);
      if (!is_row_major(from)) {
        const TensorType type{from.dtype, from.sizes};
        const Window copy = row_major_window(add_extra(ExtraValue::Kind::kTemp, type, "").root, type);
        emit_copy(from, copy, call.origin, "a custom op reads dense memory");
        from = copy;
      }
      call.inputs.push_back(from);
    }
    std::vector<std::pair<Window, Window>> copies;
    for (ValueId id : node.results) {
      if (id < graph_.value_count()) orders_[static_cast<size_t>(id)].clear();
      Window to = place(id);
      if (!is_row_major(to)) {
        const Window temp =
            row_major_window(add_extra(ExtraValue::Kind::kTemp, graph_.type(id), "").root, graph_.type(id));
        copies.emplace_back(temp, to);
        to = temp;
      }
      call.outputs.push_back(to);
    }
    const std::string origin = call.origin;
    result_.calls.push_back(std::move(call));
    for (const auto& [from, to] : copies) emit_copy(from, to, origin, "a custom op writes dense memory");
  }

  std::shared_ptr<const CustomCuda> custom_cuda(const Node& node) const {
    if (node.attrs.get_str("cuda").empty())
      throw no_kernel(node)
          .with_value(node.attrs.get_str("name"))
          .with_remedy("register the op with the text of a CUDA kernel too");
    CustomCuda custom{node.attrs.get_str("cuda"), node.attrs.get_str("function"), {}};
    const Shape& grid = node.attrs.get_dims("grid");
    std::copy(grid.begin(), grid.end(), custom.launch.grid.begin());
    custom.launch.block = static_cast<int32_t>(node.attrs.get_int("block"));
    custom.launch.shared_bytes = node.attrs.get_int("shared_bytes");
    custom.launch.params = node.attrs.get_dims("cuda_params");
    for (int64_t param : node.attrs.get_ints("params")) custom.launch.params.emplace_back(param);
    custom.launch.fparams = node.attrs.get_floats("fparams");
    return std::make_shared<const CustomCuda>(std::move(custom));
  }

  UserError no_kernel(const Node& node) const {
    std::string types;
    for (ValueId id : node.operands)
      if (id != kNoValue) types += (types.empty() ? "" : ", ") + to_string(graph_.type(id));
    return UserError(ErrorCode::kU_no_kernel, "no kernel of target '" + target_.name + "' serves this op")
        .with_op(origin_of(node))
        .with_actual(types)
        .with_remedy("list the ops a model needs with 'aicf support'");
  }

  void lower_fused_contraction(const Node& node) {
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
    if (product.op == Op::conv)
      return lower_conv(node, {body, product}, operands, std::move(epilogue), extras);
    Node flat = product;
    flat.results = node.results;
    flat.origin = node.origin;
    lower_matmul(flat, operands, std::move(epilogue), body.shape(product.results[0]), extras);
  }

  // Kernels hand over sums of half types in f32; the product means the rounded value.
  static ValueId add_tile_input(Graph& epilogue, const TensorType& product) {
    const bool half = product.dtype == DType::f16 || product.dtype == DType::bf16;
    const ValueId tile = epilogue.add_input("tile", {half ? DType::f32 : product.dtype, product.shape});
    return half ? epilogue.add(Op::cast, {tile}, {{"dtype", product.dtype}}) : tile;
  }

  static std::unique_ptr<Region> store_only(const TensorType& product) {
    auto epilogue = std::make_unique<Region>();
    epilogue->full_shape = product.shape;
    epilogue->body.add_output(add_tile_input(epilogue->body, product), "y");
    return epilogue;
  }

  // Whether an operand of the matmul is read by the epilogue too.
  static bool reads_besides(const Graph& body, ValueId id) {
    for (size_t i = 1; i < body.nodes().size(); ++i)
      for (ValueId operand : body.nodes()[i].operands)
        if (operand == id) return true;
    return false;
  }

  static Window swap_last_axes(Window w) {
    const size_t r = w.sizes.size();
    std::swap(w.sizes[r - 1], w.sizes[r - 2]);
    std::swap(w.strides[r - 1], w.strides[r - 2]);
    return w;
  }

  static Window with_batch(const Window& w, const Shape& batch) {
    Shape shape = batch;
    shape.insert(shape.end(), w.sizes.end() - 2, w.sizes.end());
    return broadcast_window(w, shape);
  }

  // `node` carries attributes, results and origin; `product` is the shape of the plain product.
  void lower_matmul(const Node& node, const std::vector<ValueId>& operands, std::unique_ptr<Region> epilogue,
                    const Shape& product, const std::vector<ValueId>& extras) {
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
    if (shared_y && !batch.empty() && !merge_batch(inputs, outputs)) inputs[1] = with_batch(y, batch);
    emit_matmul(node, operands[1], std::move(inputs), std::move(outputs), std::move(epilogue));
  }

  // With one y for all batches, batch and row axes form one long row axis where every window's strides allow
  // it.
  static bool merge_batch(std::vector<Window>& inputs, std::vector<Window>& outputs) {
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

  void emit_matmul(const Node& node, ValueId y, std::vector<Window> inputs, std::vector<Window> outputs,
                   std::unique_ptr<Region> epilogue) {
    KernelCall call;
    Problem problem;
    problem.family = "matmul";
    problem.has_program = epilogue != nullptr;
    for (const Window& w : inputs) problem.inputs.push_back({w.dtype, w.sizes});
    for (const Window& w : outputs) problem.outputs.push_back({w.dtype, w.sizes});
    const Shape packed_shape = inputs[1].sizes;
    const std::vector<Window> weights =
        packed_shape.size() == 2 ? weights_of(y, inputs[1]) : std::vector<Window>();
    std::vector<const KernelRow*> rows = target_.candidates(problem);
    const KernelRow* packed = packable(weights, inputs[1]) ? find_packed(problem) : nullptr;
    if (packed != nullptr) rows.insert(rows.begin(), packed);
    if (rows.empty()) throw no_kernel(node);
    call.inputs = std::move(inputs);
    call.outputs = std::move(outputs);
    call.origin = origin_of(node);
    if (choose(call, problem.family, rows, epilogue.get(), target_, options_) == packed) {
      call.params = {packed_shape[0], packed_shape[1]};
      call.reason += ", weights packed at load";
      call.inputs[1] = pack(weights, packed_shape, node);
    }
    if (epilogue != nullptr) {
      set_elementwise(call, 2);
      call.region = static_cast<int>(result_.regions.size());
      result_.regions.push_back(std::move(*epilogue));
    }
    result_.calls.push_back(std::move(call));
  }

  // A convolution where it stands: in the graph, or in the body of a region.
  struct Conv {
    const Graph& graph;
    const Node& node;
  };

  // `node` has the results and the origin, `operands` are values of this graph.
  void lower_conv(const Node& node, const Conv& conv, const std::vector<ValueId>& operands,
                  std::unique_ptr<Region> epilogue, const std::vector<ValueId>& extras) {
    Problem problem = problem_of(conv.graph, conv.node);
    problem.has_program = epilogue != nullptr;
    std::vector<const KernelRow*> rows = target_.candidates(problem);
    if (rows.empty()) throw no_kernel(node);
    KernelCall call;
    call.origin = origin_of(node);
    for (ValueId id : operands)
      if (id != kNoValue) call.inputs.push_back(window(id));
    const bool weights_turned = target_.is_cuda() && reads_weights_last(operands[1]);
    if (weights_turned) call.inputs[1] = weights_last(operands[1], call.origin);
    fill_params(conv.graph, conv.node, *rows[0], call.params, call.fparams);
    for (ValueId id : extras)
      call.inputs.push_back(broadcast_window(window(id), conv.graph.shape(conv.node.results[0])));
    for (ValueId id : node.results) call.outputs.push_back(place(id));
    const KernelRow* packed = find_packed_conv(conv, operands[1], problem);
    if (packed != nullptr) rows.insert(rows.begin(), packed);
    if (choose(call, problem.family, rows, epilogue.get(), target_, options_) == packed) {
      call.reason += ", weights packed at load";
      call.inputs[0] = channels_last(operands[0], call.origin);
      call.inputs[1] = pack_conv(call.inputs[1], conv, call.origin);
      call.params.clear();
      fill_params(conv.graph, conv.node, *packed, call.params, call.fparams);
    }
    if (weights_turned) call.reason += ", weights channels-last at load";
    if (epilogue != nullptr) {
      set_elementwise(call, call.inputs.size() - extras.size());
      call.region = static_cast<int>(result_.regions.size());
      result_.regions.push_back(std::move(*epilogue));
    }
    result_.calls.push_back(std::move(call));
  }

  const KernelRow* find_packed_conv(const Conv& conv, ValueId w, Problem problem) const {
    if (!is_weight(w) || !has_packed_form(conv.graph, conv.node)) return nullptr;
    problem.family = "conv_packed";
    problem.inputs[1] = {DType::u8, {Dim(1)}};
    const std::vector<const KernelRow*> rows = target_.candidates(problem);
    return rows.empty() ? nullptr : rows[0];
  }

  // Matrix units of CUDA read 8 channels of a kernel position at a time; weights of 1 × 1 lie like that
  // anyway.
  bool reads_weights_last(ValueId w) const {
    const TensorType& type = graph_.type(w);
    if (!is_weight(w) || (type.dtype != DType::f16 && type.dtype != DType::bf16)) return false;
    const bool known =
        std::all_of(type.shape.begin(), type.shape.end(), [](const Dim& d) { return d.is_constant(); });
    if (!known || !divide_exactly(type.shape[1], Dim(8))) return false;
    return std::any_of(type.shape.begin() + 2, type.shape.end(), [](const Dim& d) { return !(d == Dim(1)); });
  }

  Window weights_last(ValueId id, const std::string& origin) {
    const Window& w = window(id);
    for (const KernelCall& done : result_.init_calls)
      if (done.inputs[0] == w && done.kernel == "conv_w_channels_last") return done.outputs[0];
    const TensorType type{w.dtype, w.sizes};
    const Window extra = add_extra(ExtraValue::Kind::kPacked, type, "packed " + graph_.value(w.root).name);
    KernelCall call;
    call.kernel = "conv_w_channels_last";
    call.inputs = {w};
    call.outputs = {ordered_window(extra.root, type, channels_last_order(w.sizes.size()))};
    call.origin = origin;
    call.reason = "weights channels-last at load";
    result_.init_calls.push_back(std::move(call));
    return result_.init_calls.back().outputs[0];
  }

  // The value as the packed kernel reads it fastest: where it lies, or from a copy that its readers share.
  Window channels_last(ValueId id, const std::string& origin) {
    if (window(id).strides[1] == Dim(1)) return window(id);
    const auto known = channels_last_copies_.find(id);
    if (known != channels_last_copies_.end()) return known->second;
    const TensorType& type = graph_.type(id);
    const Window extra = add_extra(ExtraValue::Kind::kTemp, type, "");
    const Window copy = ordered_window(extra.root, type, channels_last_order(type.shape.size()));
    emit_copy(window(id), copy, origin, "a convolution reads its input channels-last");
    return channels_last_copies_[id] = copy;
  }

  Window pack_conv(const Window& w, const Conv& conv, const std::string& origin) {
    const int64_t groups = conv.node.attrs.get_int("groups"), maps = *w.sizes[0].constant();
    for (const KernelCall& done : result_.init_calls)
      if (done.inputs[0] == w && done.kernel == "pack_conv_w_f32" && done.params[0] == Dim(groups))
        return done.outputs[0];
    int64_t k = 1;
    for (size_t i = 1; i < w.sizes.size(); ++i) k = checked_mul(k, *w.sizes[i].constant());
    KernelCall call;
    call.kernel = "pack_conv_w_f32";
    call.inputs = {w};
    call.outputs = {add_extra(ExtraValue::Kind::kPacked,
                              {DType::u8, {Dim(packed_conv_w_bytes(groups, maps, k))}},
                              "packed " + graph_.value(w.root).name)};
    call.params = {Dim(groups)};
    call.origin = origin;
    call.reason = "weights packed at load";
    result_.init_calls.push_back(std::move(call));
    return result_.init_calls.back().outputs[0];
  }

  // A constant or a param that nothing writes, or a view of one.
  bool is_weight(ValueId id) const {
    const ValueId root = window(id).root;
    if (root == kNoValue || root >= graph_.value_count()) return false;
    const Value& value = graph_.value(root);
    return value.role == Role::kConstant ||
           (value.role == Role::kParam && !options_.updated.contains(value.name));
  }

  // The weights of which y [K, N] consists, side by side; none if it is no weight, or joined in another way.
  std::vector<Window> weights_of(ValueId id, const Window& y) const {
    if (is_weight(id)) return {y};
    const auto at = joined_.find(y.root);
    if (at == joined_.end()) return {};
    const JoinedWeights& joined = at->second;
    const bool turned = y == swap_last_axes(joined.whole);
    if (!turned && !(y == joined.whole)) return {};
    if (joined.axis != (turned ? 0u : 1u)) return {};
    std::vector<Window> parts = joined.parts;
    if (turned) std::transform(parts.begin(), parts.end(), parts.begin(), swap_last_axes);
    return parts;
  }

  bool packable(const std::vector<Window>& parts, const Window& w) const {
    if (target_.is_cuda() || parts.empty()) return false;  // CUDA kernels take weights as they are stored
    return w.sizes.size() == 2 && w.sizes[0].is_constant() && w.sizes[1].is_constant() &&
           w.dtype == DType::f32;
  }

  const KernelRow* find_packed(Problem problem) const {
    problem.params = problem.inputs[1].sizes;
    problem.inputs[1] = {
        DType::u8,
        {Dim(packed_matmul_y_bytes(*problem.params[0].constant(), *problem.params[1].constant()))}};
    for (const KernelRow* row : target_.candidates(problem))
      if (row->name == "matmul_f32_packed") return row;
    return nullptr;
  }

  Window pack(const std::vector<Window>& parts, const Shape& sizes, const Node& node) {
    for (const KernelCall& done : result_.init_calls)
      if (done.inputs == parts && done.kernel == "pack_matmul_y_f32") return done.outputs[0];
    const int64_t bytes = packed_matmul_y_bytes(*sizes[0].constant(), *sizes[1].constant());
    KernelCall call;
    call.kernel = "pack_matmul_y_f32";
    call.inputs = parts;
    call.outputs = {add_extra(ExtraValue::Kind::kPacked, {DType::u8, {Dim(bytes)}},
                              "packed " + graph_.value(parts[0].root).name)};
    call.origin = origin_of(node);
    call.reason = "weights packed at load";
    result_.init_calls.push_back(std::move(call));
    return result_.init_calls.back().outputs[0];
  }

  Window add_extra(ExtraValue::Kind kind, TensorType type, std::string name) {
    const auto id = static_cast<ValueId>(graph_.value_count() + static_cast<int>(result_.extra.size()));
    Window window = row_major_window(id, type);
    result_.extra.push_back({kind, std::move(type), std::move(name)});
    return window;
  }

  // An output lives in its own buffer: a temp made row-major by a kernel is that buffer; anything else is
  // copied there.
  void place_outputs() {
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const ValueId id = graph_.outputs()[i];
      const Window& at = window(id);
      const bool taken = std::find(result_.output_roots.begin(), result_.output_roots.end(), at.root) !=
                         result_.output_roots.end();
      const bool whole = at.root < graph_.value_count() && graph_.value(at.root).role == Role::kTemp &&
                         is_row_major(at) && at.offset == Dim(0) &&
                         element_count(at.sizes) == element_count(graph_.shape(at.root));
      if (whole && !taken) {
        result_.output_roots.push_back(at.root);
        continue;
      }
      const Window copy = add_extra(ExtraValue::Kind::kTemp, graph_.type(id), graph_.output_names()[i]);
      emit_copy(at, copy, "output " + graph_.output_names()[i], "an output needs a buffer of its own");
      result_.output_roots.push_back(copy.root);
    }
  }

  // Updates come after every read. A new value that is itself a variable to be overwritten is saved first.
  void write_updates() {
    std::vector<Window> sources;
    for (const Update& update : graph_.updates()) {
      Window source = window(update.value);
      // A reversed or transposed view of the variable itself would be read after parts of it were
      // overwritten.
      if (is_updated(source.root) && !(source == window(update.variable))) {
        const Window saved = add_extra(ExtraValue::Kind::kTemp, graph_.type(update.value), "");
        emit_copy(source, saved, "update " + graph_.value(update.variable).name, "its source is overwritten");
        source = saved;
      }
      sources.push_back(source);
    }
    for (size_t i = 0; i < sources.size(); ++i) {
      const Window target = window(graph_.updates()[i].variable);
      if (sources[i] == target) continue;
      emit_copy(sources[i], target, "update " + graph_.value(target.root).name,
                "written when all reads are done");
    }
  }

  void find_constants() {
    for (ValueId id = 0; id < graph_.value_count(); ++id) {
      const Role role = graph_.value(id).role;
      result_.constant.push_back(role == Role::kConstant || (role == Role::kParam && !is_updated(id)));
    }
    for (const ExtraValue& extra : result_.extra)
      result_.constant.push_back(extra.kind == ExtraValue::Kind::kPacked);
  }

  bool is_updated(ValueId root) const {
    return std::any_of(graph_.updates().begin(), graph_.updates().end(),
                       [&](const Update& u) { return u.variable == root; });
  }

  // A concat of weights: a packed value that init copies together if it is read as it stands.
  struct JoinedWeights {
    Window whole;
    size_t axis;
    std::vector<Window> parts;
    std::string origin;
  };

  const Graph& graph_;
  const Target& target_;
  const SelectOptions& options_;
  std::vector<Ints> orders_;       // by value: how it is stored
  std::vector<ConcatPart> parts_;  // by value: the concat it is written into
  std::vector<ValueId> targets_;   // by value: the variable it is written into
  std::map<ValueId, Window> channels_last_copies_;
  std::map<ValueId, JoinedWeights> joined_;  // by root
  KernelCalls result_;
};

}  // namespace

KernelCalls select_kernels(const Graph& graph, const Target& target, const SelectOptions& options) {
  return Selector(graph, target, options).run();
}

std::string to_string(const KernelCalls& calls, const Graph& graph) {
  const auto describe = [&](const Window& w) {
    std::string name = w.root < graph.value_count() && !graph.value(w.root).name.empty()
                           ? graph.value(w.root).name
                           : "%" + std::to_string(w.root);
    return name + to_string(w.sizes);
  };
  std::string text;
  for (const auto* list : {&calls.init_calls, &calls.calls})
    for (const KernelCall& call : *list) {
      const std::string name = to_string(Candidate{call.kernel, call.variant});
      text += (list == &calls.init_calls ? "init " : "     ") + name + " (";
      for (size_t i = 0; i < call.inputs.size(); ++i) text += (i ? ", " : "") + describe(call.inputs[i]);
      text += ") -> (";
      for (size_t i = 0; i < call.outputs.size(); ++i) text += (i ? ", " : "") + describe(call.outputs[i]);
      text += ")  " + call.origin + "; " + call.reason + "\n";
    }
  return text;
}

}  // namespace aicf
