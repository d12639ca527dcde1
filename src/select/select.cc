#include "select/select.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ir/region.h"
#include "kernels/common/abi.h"
#include "select/choose.h"
#include "select/layout.h"
#include "select/region_codegen.h"
#include "select/selector.h"
#include "select/storage_order.h"
#include "target/op_problem.h"
#include "target/tile_mapping.h"

namespace aicf {

Selector::Selector(const Graph& graph, const Target& target, const SelectOptions& options)
    : graph_(graph),
      target_(target),
      options_(options),
      orders_(stored_orders(graph, target, options)),
      parts_(concat_parts(graph)),
      padded_(padded_shapes(graph, target)),
      targets_(update_targets(graph, target)) {
  result_.graph = graph;
  result_.ranges = options.ranges;
  result_.placement.resize(static_cast<size_t>(graph.value_count()));
  for (const Update& update : graph.updates()) updated_.insert(update.variable);
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const Role role = graph.value(id).role;
    result_.constant.push_back(role == Role::kConstant || (role == Role::kParam && !updated_.contains(id)));
  }
  for (ValueId id : graph.leaves()) place(id);
  for (const Node& node : graph.nodes())
    if (begins_with(node, Op::conv) || node.op == Op::conv_weight_gradient)
      ++conv_inputs_[unsliced(node.operands[0])];
}

CallGraph Selector::run() {
  check_ranks();
  for (const Node& node : graph_.nodes()) lower(node);
  place_outputs();
  write_updates();
  copy_joined_weights();
  result_.programs = generate_tile_programs(result_);
  return std::move(result_);
}

void Selector::check_ranks() const {
  for (ValueId id = 0; id < graph_.value_count(); ++id) {
    const Value& value = graph_.value(id);
    if (value.type.shape.size() <= kMaxRank) continue;
    throw UserError(ErrorCode::kU_no_kernel, "a tensor has more axes than kernels take")
        .with_op(value.role == Role::kTemp ? origin_of(graph_.node(value.producer)) : value.name)
        .with_expected("at most " + std::to_string(kMaxRank) + " axes")
        .with_actual(to_string(value.type));
  }
}

const Window& Selector::place(ValueId id) {
  if (const ValueId target = targets_[static_cast<size_t>(id)]; target != kNoValue)
    return result_.placement[static_cast<size_t>(id)] = window(target);
  Window& own = result_.placement[static_cast<size_t>(id)];
  own = ordered_window(id, graph_.type(id), orders_[static_cast<size_t>(id)]);
  if (const ConcatPart& part = parts_[static_cast<size_t>(id)]; part.whole != kNoValue) {
    if (const auto window = window_in_concat(id, part)) own = *window;
  } else if (const Shape& stored = padded_[static_cast<size_t>(id)];
             !stored.empty() && orders_[static_cast<size_t>(id)].empty()) {
    // Parts of a concat place it before it is lowered.
    const auto [at, added] = padded_windows_.try_emplace(id);
    if (added) {
      at->second = add_extra(ExtraValue::Kind::kTemp, {graph_.dtype(id), stored}, "");
      at->second.sizes = graph_.shape(id);
    }
    own = at->second;
  }
  return result_.placement[static_cast<size_t>(id)];
}

std::optional<Window> Selector::window_in_concat(ValueId id, const ConcatPart& part) {
  const ValueId operand = part.views.empty() ? id : part.views.front()->results[0];
  std::optional<Window> window = part_window(place(part.whole), part, graph_.shape(operand));
  for (const Node* view : part.views) {
    if (!window) return window;
    window = view->op == Op::transpose
                 ? transpose_window(*window, inverse_order(view->attrs.get_ints("perm")))
                 : reshape_window(*window, graph_.shape(view->operands[0]));
  }
  return window;
}

Window Selector::part_window(Window whole, const ConcatPart& part, const Shape& shape) {
  whole.offset = whole.offset + part.start * whole.strides[part.axis];
  whole.sizes = shape;
  return whole;
}

std::string Selector::origin_of(const Node& node) {
  const std::string name(op_info(node.op).name);
  return node.origin.empty() ? name : name + " " + node.origin;
}

void Selector::lower(const Node& node) {
  const OpInfo& info = op_info(node.op);
  if (info.has(kView)) return lower_view(node);
  if (is_tile_region(node))
    return lower_region({node.bodies[0], {}}, node.operands, node.results, origin_of(node), "fused region");
  if (node.op == Op::fused) return lower_fused_contraction(node);
  if (node.op == Op::concat) return lower_concat(node);
  if (node.op == Op::custom) return lower_custom(node);
  if (node.op == Op::if_else || node.op == Op::while_loop || node.op == Op::scan) return lower_control(node);
  if (node.op == Op::matmul)
    return lower_matmul(node, node.operands, nullptr, graph_.shape(node.results[0]), {});
  if (node.op == Op::conv || (node.op == Op::conv_transpose && target_.is_cuda()))
    return lower_conv(node, {graph_, node}, node.operands, nullptr, {});
  if (tile_claims(graph_, node)) return lower_single(node);
  lower_by_table(node);
}

void Selector::lower_view(const Node& node) {
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

void Selector::emit_copy(const Window& from, const Window& to, std::string origin, std::string reason,
                         bool rounded) {
  Region region;
  region.full_shape = to.sizes;
  const ValueId x = region.body.add_input("x", {from.dtype, to.sizes});
  region.body.add_output(rounded ? region.body.add(Op::round_tf32, {x}) : x, "y");
  add_tile_call(std::move(region), {}, {from}, {to}, std::move(origin), std::move(reason));
}

void Selector::lower_concat(const Node& node) {
  const bool at_load = made_at_load_.contains(window(node.results[0]).root);
  if (!at_load && join_weights(node)) return;
  const Window whole = at_load ? window(node.results[0]) : place(node.results[0]);
  ConcatPart part{node.results[0], static_cast<size_t>(node.attrs.get_int("axis")), Dim(0)};
  for (ValueId id : node.operands) {
    const Window target = part_window(whole, part, graph_.shape(id));
    if (!same_elements(window(id), target)) {
      emit_copy(window(id), target, origin_of(node), "part of a concat");
      if (at_load) make_init();
    }
    part.start = part.start + graph_.shape(id)[part.axis];
  }
}

void Selector::lower_by_table(const Node& node) {
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
  RowCall& row = call.what.emplace<RowCall>();
  fill_params(graph_, node, *rows[0], row.params, row.fparams);
  call.origins = {origin_of(node)};
  if (node.op == Op::conv_weight_gradient) read_known_copies(call, rows, node.operands);
  choose(call, problem.family, rows, nullptr, target_, options_);
  result_.calls.push_back(std::move(call));
}

UserError Selector::no_kernel(const Node& node) const {
  std::string types;
  for (ValueId id : node.operands)
    if (id != kNoValue) types += (types.empty() ? "" : ", ") + to_string(graph_.type(id));
  return UserError(ErrorCode::kU_no_kernel, "no kernel of target '" + target_.name + "' serves this op")
      .with_op(origin_of(node))
      .with_actual(types)
      .with_remedy("list the ops a model needs with 'aicf support'");
}

Window Selector::add_extra(ExtraValue::Kind kind, const TensorType& type, std::string name) {
  const ValueId root = result_.add_extra({kind, type, std::move(name)});
  return row_major_window(root, type);
}

void Selector::place_outputs() {
  std::set<ValueId> taken;
  for (size_t i = 0; i < graph_.outputs().size(); ++i) {
    const ValueId id = graph_.outputs()[i];
    const Window& at = window(id);
    const bool whole = at.root < graph_.value_count() && graph_.value(at.root).role == Role::kTemp &&
                       is_row_major(at) && at.offset == Dim(0) &&
                       element_count(at.sizes) == element_count(graph_.shape(at.root));
    if (whole && taken.insert(at.root).second) {
      result_.output_roots.push_back(at.root);
      continue;
    }
    const Window copy = add_extra(ExtraValue::Kind::kTemp, graph_.type(id), graph_.output_names()[i]);
    emit_copy(at, copy, "output " + graph_.output_names()[i], "an output needs a buffer of its own");
    result_.output_roots.push_back(copy.root);
  }
}

void Selector::write_updates() {
  std::vector<Window> sources;
  for (const Update& update : graph_.updates()) {
    Window source = window(update.value);
    // A reversed or transposed view of the variable itself would be read after parts of it were
    // overwritten.
    if (updated_.contains(source.root) && !(source == window(update.variable))) {
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

CallGraph select_kernels(const Graph& graph, const Target& target, const SelectOptions& options) {
  return Selector(graph, target, options).run();
}

size_t select_graph(CallProgram& program, const Graph& graph, const SelectOptions& options, bool is_body) {
  Selector selector(graph, program.target, options);
  CallGraph calls = selector.run();
  calls.is_body = is_body;
  for (const Graph& body : selector.bodies())
    calls.bodies.push_back(static_cast<int32_t>(select_graph(program, body, options, true)));
  program.graphs.push_back(std::move(calls));
  return program.graphs.size() - 1;
}

}  // namespace aicf
