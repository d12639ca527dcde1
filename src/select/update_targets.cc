#include "select/storage_order.h"

#include <algorithm>

#include "ir/region.h"
#include "kernels/common/kernel.h"
#include "target/tile_mapping.h"

namespace aicf {
namespace {

class UpdateTargets {
 public:
  UpdateTargets(const Graph& graph, const Target& target)
      : graph_(graph),
        target_(target),
        source_(static_cast<size_t>(graph.value_count())),
        read_at_end_(source_.size(), false),
        last_reader_(source_.size(), -1) {
    for (size_t id = 0; id < source_.size(); ++id) source_[id] = static_cast<ValueId>(id);
    for (const Node& node : graph.nodes())
      if (op_info(node.op).has(kView) && !node.operands.empty())
        source_[static_cast<size_t>(node.results[0])] = source_[static_cast<size_t>(node.operands[0])];
    for (ValueId id : graph.outputs()) read_at_end_[static_cast<size_t>(source(id))] = true;
    for (const Update& update : graph.updates())
      read_at_end_[static_cast<size_t>(source(update.value))] = true;
    for (size_t i = 0; i < graph.nodes().size(); ++i)
      for (ValueId id : graph.nodes()[i].operands)
        if (id != kNoValue) last_reader_[static_cast<size_t>(source(id))] = static_cast<NodeId>(i);
  }

  std::vector<ValueId> run() const {
    std::vector<ValueId> targets(source_.size(), kNoValue);
    for (const Update& update : graph_.updates()) {
      ValueId& target = targets[static_cast<size_t>(update.value)];
      if (target == kNoValue && takes_storage(update)) target = update.variable;
    }
    return targets;
  }

 private:
  ValueId source(ValueId id) const { return source_[static_cast<size_t>(id)]; }
  bool is_read(const Node& node, ValueId variable) const {
    return std::any_of(node.operands.begin(), node.operands.end(),
                       [&](ValueId id) { return id != kNoValue && source(id) == variable; });
  }

  bool takes_storage(const Update& update) const {
    const Value& value = graph_.value(update.value);
    if (value.role != Role::kTemp || source(update.value) != update.value) return false;
    const Node& writer = graph_.node(value.producer);
    // The parts of a concat are written one by one, before all are known.
    if (writer.op == Op::concat) return false;
    if (read_at_end_[static_cast<size_t>(update.variable)]) return false;
    if (last_reader_[static_cast<size_t>(update.variable)] > value.producer) return false;
    return !is_read(writer, update.variable) || overwrites(writer, update);
  }

  // Whether the kernel of `writer` reads the variable only as an operand that its result may replace.
  bool overwrites(const Node& writer, const Update& update) const {
    const TensorType& type = graph_.type(update.variable);
    for (size_t i = 0; i < writer.operands.size(); ++i) {
      const ValueId id = writer.operands[i];
      if (id == kNoValue || source(id) != update.variable) continue;
      if (id != update.variable || !(graph_.type(update.value) == type)) return false;
      if (!reads_in_step(writer, i) && !overwrites_operand(op_info(writer.op).name, i)) return false;
    }
    return true;
  }

  // Whether an element of this operand is read only for the result's element at the same index.
  bool reads_in_step(const Node& writer, size_t operand) const {
    if (writer.op != Op::fused) return op_info(writer.op).has(kPointwise) && tile_claims(graph_, writer);
    const Graph& body = writer.bodies[0];
    const Shape& shape = graph_.shape(writer.operands[operand]);
    if (std::any_of(body.outputs().begin(), body.outputs().end(),
                    [&](ValueId id) { return body.shape(id) != shape; }))
      return false;
    // Values of whole rows, on a GPU: the thread that stores one has read what it replaces.
    if (is_tile_region(writer)) {
      const Node* reduction = first_reduction(body);
      return reduction == nullptr ||
             (target_.is_cuda() && shape.size() < body.shape(reduction->operands[0]).size());
    }
    const Node& product = body.nodes()[0];
    return std::find(product.operands.begin(), product.operands.end(), body.inputs()[operand]) ==
           product.operands.end();
  }

  const Graph& graph_;
  const Target& target_;
  std::vector<ValueId> source_;  // by value: what it is a view of, itself if it is none
  std::vector<bool>
      read_at_end_;  // by source: an output or an update is copied from it when everything has run
  std::vector<NodeId> last_reader_;  // by source
};

}  // namespace

std::vector<ValueId> update_targets(const Graph& graph, const Target& target) {
  return UpdateTargets(graph, target).run();
}

}  // namespace aicf
